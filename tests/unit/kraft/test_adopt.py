"""`kafkalog adopt`: directories with topics that no metadata lists."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.cli import main
from kafkalog.directory.manager import Manager
from kafkalog.kraft.kraftlog import MetadataLog


@pytest.fixture
def copy(kafka_cases: Path, tmp_path: Path) -> Any:
    """`copy("codecs", "log")`: a writable copy of a directory that Kafka wrote."""

    def make(case: str, name: str = "log") -> Path:
        directory = tmp_path / f"{case}-{name}"
        shutil.copytree(kafka_cases / case / name, directory)
        for folder, _, files in os.walk(directory):
            os.chmod(folder, 0o700)
            for one in files:
                os.chmod(os.path.join(folder, one), 0o600)
        return directory

    return make


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["adopt", *words])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.mark.parametrize(
    ("case", "name"), [("codecs", "log"), ("segments", "log"), ("epochs", "broker2")]
)
def test_topics_of_folders_are_taken_in(
    copy: Any, capsys: pytest.CaptureFixture[str], kafka_cases: Path, case: str, name: str
) -> None:
    directory = copy(case, name)
    with Manager(directory, mode="r") as manager:
        topics = {t: (manager.topic_id(t), manager.partitions(t)) for t in manager.topics()}
        ends = {tp: manager.get(*tp).end_offset for tp in manager.partitions()}
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    status, out = run(capsys, "--dir", str(directory), "--dry-run")
    assert status == 0
    assert all(topic in out for topic in topics)
    assert before == {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    status, out = run(capsys, "--dir", str(directory))
    assert status == 0, out
    assert "Their records are kept" in out
    status, out = run(capsys, "--dir", str(directory))
    assert (status, "nothing to adopt" in out) == (0, True)
    # Kafka's default, or the broker's setting, would delete records after a week.
    with (
        Manager(directory, {"log.retention.ms": 1}) as manager,
        MetadataLog.open(manager) as metadata,
    ):
        image = metadata.image
        for topic, (topic_id, tps) in topics.items():
            assert image.topics[topic].id == topic_id
            assert sorted(image.topics[topic].partitions) == [tp.partition for tp in tps]
        for tp, end in ends.items():
            log = manager.get(*tp)
            assert log.end_offset == end
            assert log.config.retention_ms == -1 or tp.topic.startswith("__")
            assert metadata.lead(log) >= log.epochs[-1].epoch
            assert log.apply_retention() is None
    if case == "epochs":
        state = kafka_cases / "epochs" / "expected" / "epochs.json"
        assert json.loads(state.read_text())
        assert max(p.leader_epoch for _, p in image.partitions()) >= 5


def test_producer_ids_in_the_logs_are_not_given_out_again(copy: Any) -> None:
    directory = copy("transactions")
    with Manager(directory) as manager, MetadataLog.open(manager, adopt=True) as metadata:
        used = {p.producer_id for log in manager.recover_all() for p in log.producers}
        assert len(used) > 2
        assert metadata.allocate_producer_ids().start > max(used)
        assert metadata.image.config(2, "__consumer_offsets")["cleanup.policy"] == "compact"


def test_a_copy_of_partition_folders_alone(
    copy: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = copy("segments")
    directory = tmp_path / "bare"
    directory.mkdir()
    shutil.copytree(source / "seg4096-2", directory / "seg4096-2")
    shutil.copytree(source / "seg4096-0", directory / "plain")
    (directory / "plain" / "partition.metadata").unlink()
    status, out = run(capsys, "--dir", str(directory), "--node-id", "5")
    assert status == 0, out
    with Manager(directory) as manager, MetadataLog.open(manager) as metadata:
        assert metadata.image.node_id == 5
        assert sorted(metadata.image.topics["seg4096"].partitions) == [0, 1, 2]
        assert sorted(metadata.image.topics["plain"].partitions) == [0]
        assert manager.get("seg4096", 1).end_offset == 0
        assert manager.get("seg4096", 2).end_offset > 0
        assert manager.get("plain", 0).end_offset > 0
    assert (directory / "plain-0").is_dir()


def test_message_formats_that_cannot_be_served_are_no_hindrance(copy: Any) -> None:
    directory = copy("oldformats")
    with Manager(directory) as manager, MetadataLog.open(manager, adopt=True) as metadata:
        assert len(metadata.adopted) > 5


def test_a_wrong_path_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out = run(capsys, "--dir", str(tmp_path / "nothing"))
    assert (status, "no such directory" in out) == (2, True)
