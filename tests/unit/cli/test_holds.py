"""`kafkalog holds`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kafkalog import Log, cli
from kafkalog.disk.holds import Hold, read_holds, write_hold
from kafkalog.types import TopicPartition


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory on which two readers have holds."""
    now_ms = int(time.time() * 1000)
    with Log(tmp_path / "t-0") as log:
        log.append(b"x")
    for name, offset in (("dashboard", 0), ("nightly", 1)):
        hold = Hold(name, now_ms + 3_600_000, 10 << 30, {TopicPartition("t", 0): offset})
        write_hold(str(tmp_path), hold, now_ms)
    return tmp_path


def test_holds_are_listed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["holds", "--dir", str(data)]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split()[:2] == ["name", "until"]
    assert [row.split()[0] for row in rows] == ["dashboard", "nightly"]
    assert "10.0 GiB" in rows[0] and rows[0].split()[-2:] == ["t", "1"]


def test_as_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["holds", "--dir", str(data), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == ["dashboard", "nightly"]
    assert rows[1]["partitions"] == [{"topic": "t", "partition": 0, "offset": 1}]
    assert rows[0]["max_bytes"] == 10 << 30


def test_a_hold_is_removed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["holds", "--dir", str(data), "--remove", "nightly"]) == 0
    assert capsys.readouterr().out == "nightly: removed\n"
    assert [hold.name for hold in read_holds(str(data), int(time.time() * 1000))] == ["dashboard"]
    assert cli.main(["holds", "--dir", str(data), "--remove", "nightly"]) == 2
    assert "found 'nightly', wanted one of dashboard" in capsys.readouterr().err


def test_nothing_is_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["holds", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no holds: retention follows its settings\n"
    assert cli.main(["holds", "--dir", str(tmp_path / "none")]) == 2
    assert "no such directory" in capsys.readouterr().err
