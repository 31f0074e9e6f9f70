"""Copies of a directory, as docs/operations.md describes them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog import Broker, Consumer, Producer
from kafkalog.cli import main
from tests.support.waiting import LIMIT_S

RECORDS = [b"a", b"b", b"c"]


def write(broker: Broker) -> None:
    """Three records, of which the group g has committed two."""
    with Producer(broker.bootstrap_servers) as producer:
        for value in RECORDS:
            producer.send("t", value).result(LIMIT_S)
    with Consumer(
        broker.bootstrap_servers, "t", group="g", auto_offset_reset="earliest"
    ) as consumer:
        next(one for one in consumer if one.offset == 1)
        consumer.commit()


def check(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The copy is whole; a broker on it has the records and the group's position."""
    assert main(["verify", str(copy), "--deep"]) == 0, capsys.readouterr()
    with Broker(copy) as broker:
        with Consumer(broker.bootstrap_servers, "t", group="g") as consumer:
            assert next(iter(consumer)).value == RECORDS[2]
        with Consumer(broker.bootstrap_servers, "t", auto_offset_reset="earliest") as consumer:
            assert [one.value for _, one in zip(RECORDS, consumer, strict=False)] == RECORDS


def test_a_copy_of_a_stopped_nodes_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(tmp_path / "data") as broker:
        write(broker)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    shutil.rmtree(tmp_path / "data")
    check(tmp_path / "copy", capsys)


def test_a_copy_of_one_moment_while_the_node_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written while it is copied, as in a snapshot of the file system."""
    with Broker(tmp_path / "data") as broker:
        write(broker)
        assert main(["verify", str(tmp_path / "data")]) == 0, capsys.readouterr()
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    check(tmp_path / "copy", capsys)
