"""Every directory in `written/` is read, verified and continued: see docs/stability.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.cli import main
from tests.formats.make import WRITTEN, described, listed
from tests.support import cases, trees

ARCHIVES = sorted(WRITTEN.glob("*.tar.zst"))
EARLIER = [pytest.param(path, id=path.name.removesuffix(".tar.zst")) for path in ARCHIVES]


@pytest.fixture(params=EARLIER)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A writable copy of a case."""
    cases.unpack(request.param, tmp_path / "packed")
    (found,) = (tmp_path / "packed").iterdir()
    return trees.copy_tree(found, tmp_path / "case")


def expected(case: Path) -> Any:
    return json.loads((case / "expected" / "said.json").read_text(encoding="utf-8"))


def test_there_is_a_directory_of_this_version_and_of_one_before() -> None:
    assert f"{kafkalog.__version__}.tar.zst" in {path.name for path in ARCHIVES}
    assert len(ARCHIVES) >= 2


def test_its_records_are_read_without_a_change(case: Path) -> None:
    before = trees.fingerprint(case / "log")
    for topic, partitions in expected(case)["records"].items():
        for partition, records in enumerate(partitions):
            with kafkalog.Log(case / "log" / f"{topic}-{partition}", mode="r") as log:
                found = [listed(one) for one in log.read(isolation="read_committed")]
            assert found == records, (topic, partition)
    assert trees.fingerprint(case / "log") == before
    assert sum(len(rows) for topic in expected(case)["records"].values() for rows in topic) > 2_000


def test_it_is_whole(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--deep", str(case / "log")]) == 0, capsys.readouterr().out


def test_a_log_goes_on(case: Path) -> None:
    """After the last record, in the same files, which stay whole."""
    for topic, partitions in expected(case)["records"].items():
        path = case / "log" / f"{topic}-0"
        before = {file: file.read_bytes() for file in path.glob("*.log")}
        with kafkalog.Log(path) as log:
            offset = log.append(b"new", key=b"new")
            assert log[offset].value == b"new"
            assert offset >= max((row[0] for row in partitions[0]), default=-1) + 1
        assert all(file.read_bytes().startswith(old) for file, old in before.items())


# Before 0.1 there were plain logs only.
@pytest.mark.parametrize("case", EARLIER[:-1], indirect=True)
def test_a_broker_serves_it(case: Path) -> None:
    """Topics, records and the offsets of groups; then clients add to them."""
    with kafkalog.Store(case / "log") as store:
        assert described(store) == expected(case)
        with kafkalog.Producer(store) as producer:
            sent = producer.send("zstd", b"new", b"new").result()
        with kafkalog.Consumer(store, "zstd", group="readers") as group:
            (new,) = group.poll(10_000)
        assert (new.offset, new.value) == (sent.offset, b"new")
