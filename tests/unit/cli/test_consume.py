"""`kafkalog consume` and `kafkalog topics`: records and partitions, in every output format."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.log.log import Log
from tests.support.kafka_data import (
    expected_records,
    has_expected_records,
    partitions,
    readable,
)
from tests.support.trees import copy_tree
from tests.support.waiting import LIMIT_S
from tests.unit.cli.conftest import Command

ROOT = Path(__file__).parents[3]
CASES = sorted({p.directory for p in readable() if p.directory.name == "log"})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A topic of two partitions with ten records each, times interleaved."""
    path = tmp_path / "d"
    with Manager(path) as manager:
        manager.create_topic("t", 2)
        for partition in range(2):
            manager.get("t", partition).append_many(
                [b"v%d-%d" % (partition, i) for i in range(10)],
                keys=[b"k%d" % i if i % 2 else None for i in range(10)],
                timestamps_ms=[1_000_000_000_000 + 10 * i + partition for i in range(10)],
            )
    return path


def in_json(data: bytes | None) -> tuple[str, str | None]:
    """How a byte string appears in JSON: its field name's suffix, and its text."""
    if data is None:
        return "", None
    try:
        return "", data.decode()
    except UnicodeDecodeError:
        return "_base64", base64.b64encode(data).decode()


@pytest.mark.parametrize("source", CASES, ids=[d.parent.name for d in CASES])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_consume_prints_the_records_of_kafkas_consumer(
    kafkalog: Command, source: Path, isolation: str
) -> None:
    """Every record of every partition of every case, as JSON."""
    for partition in partitions():
        if partition.directory != source or not has_expected_records(partition):
            continue
        ran = kafkalog(
            "consume", "--dir", source, "--topic", partition.topic, "--partition",
            partition.number, "--format", "json", "--isolation", isolation,
        )  # fmt: skip
        assert ran.status == 0, ran.err
        rows = ran.rows()
        wanted = expected_records(partition, isolation == "read_committed")
        assert [(r["offset"], r["timestamp"]) for r in rows] == [
            (e.offset, e.timestamp_ms) for e in wanted
        ]
        for row, expected in zip(rows, wanted, strict=True):
            for name in ("key", "value"):
                suffix, text = in_json(getattr(expected, name))
                assert row[name + suffix] == text
            assert [h["name"] for h in row["headers"]] == [n for n, _ in expected.headers]


def test_values_are_bytes(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Bytes that are not UTF-8 are written unchanged."""
    from kafkalog.cli import main

    with Manager(tmp_path / "d") as manager:
        log = manager.create_partition("t", 0)
        log.append_many([b"\xff\x00\xfe", None, b"\xc3"])
    capfdbinary.readouterr()
    assert main(["consume", "--dir", str(tmp_path / "d"), "--topic", "t"]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"\xff\x00\xfe\n\n\xc3\n"


def values(ran: Any) -> list[str]:
    """The lines of a successful command's output."""
    assert ran.status == 0, ran.err
    return list(ran.out.splitlines())


def test_where_to_begin_and_when_to_stop(kafkalog: Command, directory: Path) -> None:
    """Offsets from both ends, times, limits, partitions."""
    words = ["consume", "--dir", directory, "--topic", "t"]
    one = [*words, "--partition", 1]
    assert values(kafkalog(*one)) == [f"v1-{i}" for i in range(10)]
    assert values(kafkalog(*one, "--offset", 7)) == ["v1-7", "v1-8", "v1-9"]
    assert values(kafkalog(*one, "--offset", "-2")) == ["v1-8", "v1-9"]
    assert values(kafkalog(*one, "--offset", "-20")) == [f"v1-{i}" for i in range(10)]
    assert values(kafkalog(*one, "--offset", "latest")) == []
    assert values(kafkalog(*one, "--max-messages", 1)) == ["v1-0"]
    assert values(kafkalog(*one, "--from-time", 1_000_000_000_052)) == [
        f"v1-{i}" for i in range(6, 10)
    ]
    assert values(kafkalog(*one, "--from-time", "2001-09-09T01:46:40.080Z")) == ["v1-8", "v1-9"]
    assert values(kafkalog(*one, "--from-time", "2030-01-01")) == []
    assert values(kafkalog(*words, "--offset", "9")) == ["v0-9", "v1-9"]
    by_time = values(kafkalog(*words, "--order", "time"))
    assert by_time == [f"v{p}-{i}" for i in range(10) for p in range(2)]


def test_patterns(kafkalog: Command, directory: Path) -> None:
    """Directives, escapes, and an unknown one refused by name."""
    words = ["consume", "--dir", directory, "--topic", "t", "--partition", 1, "--max-messages", 2]
    assert values(kafkalog(*words, "--format", "%t %p %o %k=%v")) == [
        "t 1 0 =v1-0",
        "t 1 1 k1=v1-1",
    ]
    assert values(kafkalog(*words, "--format", r"%K\t%V %D 100%%")) == [
        "-1\t4 2001-09-09T01:46:40.001Z 100%", "2\t4 2001-09-09T01:46:40.011Z 100%",
    ]  # fmt: skip
    ran = kafkalog(*words, "--format", "%o %q")
    assert (ran.status, "'%q'" in ran.err) == (2, True)
    assert kafkalog(*words, "--format", "jsn").status == 2


def test_damage_ends_it_after_the_good_records(
    kafkalog: Command, kafka_cases: Path, tmp_path: Path
) -> None:
    """Every record before the damaged batch is shown; then one line reports the error."""
    source = kafka_cases / "segments" / "log"
    directory = copy_tree(source, tmp_path / "d")  # with its clean marker, so nothing is recovered
    log = sorted((directory / "seg4096-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1  # the last of several batches
    log.write_bytes(bytes(data))
    words = ["--topic", "seg4096", "--partition", 0, "--format", "%o"]
    whole = values(kafkalog("consume", "--dir", source, *words))
    ran = kafkalog("consume", "--dir", directory, *words)
    shown = ran.out.split()
    assert ran.status == 1
    assert ran.err.startswith("kafkalog: ") and ran.err.count("\n") == 1
    assert shown == whole[: len(shown)]
    assert int(log.stem) < len(shown) < len(whole)


def test_mistakes_are_one_line(kafkalog: Command, directory: Path) -> None:
    """Unknown names, malformed values, and offsets out of range."""
    for status, words in (
        (2, ["--dir", directory, "--topic", "tt"]),
        (2, ["--dir", directory, "--topic", "t", "--partition", 5]),
        (2, ["--dir", directory / "none", "--topic", "t"]),
        (2, ["--dir", directory, "--topic", "t", "--offset", "soon"]),
        (2, ["--dir", directory, "--topic", "t", "--from-time", "noon"]),
        (1, ["--dir", directory, "--topic", "t", "--partition", 0, "--offset", 99]),
    ):
        ran = kafkalog("consume", *words)
        assert ran.status == status, (words, ran.err)
        assert ran.err.startswith("kafkalog: ") and ran.err.count("\n") == 1, words
        assert ran.out == ""


def start(*words: object, **how: Any) -> subprocess.Popen[bytes]:
    """`kafkalog` as a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **how,
    )  # fmt: skip


@pytest.mark.parametrize("partition", [[], ["--partition", 0]])
def test_follow_shows_new_records_and_ctrl_c_ends_it_quietly(
    directory: Path, partition: list[object]
) -> None:
    """A reader process next to a writer; it exits with status 130 and an empty stderr."""
    process = start(
        "consume", "--dir", directory, "--topic", "t", "--offset", "9", "--follow", *partition
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"v0-9\n"
        if not partition:
            assert process.stdout.readline() == b"v1-9\n"
        with Manager(directory) as manager:
            for i in range(3):
                manager.get("t", 0).append(b"new %d" % i)
                assert process.stdout.readline() == b"new %d\n" % i
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_follow_waits_for_a_partition_that_was_never_written(tmp_path: Path) -> None:
    """A topic that was only created: its first record is shown when it arrives."""
    with Manager(tmp_path / "d") as manager:
        manager.create_topic("t", 2)
        process = start("consume", "--dir", tmp_path / "d", "--topic", "t", "--follow")
        assert process.stdout is not None
        try:
            for partition in (1, 0):
                manager.get("t", partition).append(b"%d" % partition)
                assert process.stdout.readline() == b"%d\n" % partition
        finally:
            process.kill()
            process.communicate()


def test_a_reader_that_has_enough_is_no_failure(tmp_path: Path) -> None:
    """`kafkalog consume | head -1`: the broken pipe is not reported."""
    with Log(tmp_path / "t-0") as log:
        log.append_many([b"x" * 100] * 50_000)
    process = start("consume", "--dir", tmp_path, "--topic", "t")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"x" * 100 + b"\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=LIMIT_S) == 0
    process.stderr.close()


def test_topics(kafkalog: Command, directory: Path) -> None:
    """Partitions, offsets, times, sizes, segments and codecs."""
    with Manager(directory) as manager:
        manager.get("t", 1).append_many([b"z" * 100] * 20, compression="zstd")
        manager.create_topic("empty")
    rows = {(r["topic"], r["partition"]): r for r in
            kafkalog("topics", "--dir", directory, "--json").rows()}  # fmt: skip
    assert sorted(rows) == [("empty", 0), ("t", 0), ("t", 1)]
    row = rows["t", 1]
    assert (row["start_offset"], row["end_offset"]) == (0, 30)
    assert row["segments"] == len(list((directory / "t-1").glob("*.log")))
    assert row["codecs"] == ["none", "zstd"]
    assert row["bytes"] == sum(p.stat().st_size for p in (directory / "t-1").glob("*.log"))
    assert rows["t", 0]["largest_timestamp"] == 1_000_000_000_090
    assert rows["empty", 0]["codecs"] == []
    ran = kafkalog("topics", "--dir", directory)
    assert [line.split()[0] for line in ran.out.splitlines()] == ["topic", "empty", "t", "t", "2"]
    ran = kafkalog("topics", "--dir", directory, "--topic", "u")
    assert (ran.status, "it has empty, t" in ran.err) == (2, True)


def test_topics_draws(kafkalog: Command, directory: Path, tmp_path: Path) -> None:
    """An SVG of one topic; with several topics the command asks for one."""
    target = tmp_path / "t.svg"
    ran = kafkalog("topics", "--dir", directory, "--topic", "t", "--draw", target)
    assert ran.status == 0, ran.err
    assert ElementTree.parse(target).getroot().tag.endswith("svg")
    with Manager(directory) as manager:
        manager.create_topic("other")
    assert kafkalog("topics", "--dir", directory, "--draw", target).status == 2


def test_topics_of_kafkas_directories(kafkalog: Command, kafka_cases: Path) -> None:
    """The offsets are those that the broker itself returned."""
    for source in CASES:
        ends = source.parent / "expected" / "ends.jsonl"
        if not ends.exists():
            continue
        rows = {(r["topic"], r["partition"]): r for r in
                kafkalog("topics", "--dir", source, "--json").rows()}  # fmt: skip
        for end in map(json.loads, ends.read_text().splitlines()):
            row = rows.get((end["topic"], end["partition"]))
            if row is not None:
                found = (row["start_offset"], row["end_offset"], row["last_stable_offset"])
                assert found == (
                    end["log_start_offset"], end["high_watermark"], end["last_stable_offset"]
                ), (source, end)  # fmt: skip


def test_topics_shows_the_users(kafkalog: Command, tmp_path: Path) -> None:
    """Internal topics are shown only when asked for, or when named."""
    with Manager(tmp_path) as manager:
        for name in ("mine", "__consumer_offsets"):
            manager.create_topic(name, 1)
    words = ["topics", "list", "--dir", tmp_path]
    assert kafkalog(*words).out == "mine\n"
    assert kafkalog(*words, "--internal").out.splitlines()[0] == "__consumer_offsets"
    assert "__consumer_offsets" in kafkalog("topics", "--dir", tmp_path, "--internal").out
    assert "__consumer" not in kafkalog("topics", "--dir", tmp_path).out
    assert kafkalog("topics", "--dir", tmp_path, "--topic", "__consumer_offsets").status == 0


def test_a_directory_behaves_like_a_cluster(kafkalog: Command, directory: Path) -> None:
    """Several topics, a pattern of topic names, and a timeout that ends the command."""
    with Manager(directory) as manager:
        manager.create_topic("t2", 1)
        manager.get("t2", 0).append(b"other")
    words = ["consume", "--dir", directory, "--format", "%t"]
    both = ["t"] * 20 + ["t2"]
    assert kafkalog(*words, "--topic", "t", "--topic", "t2").out.split() == both
    assert kafkalog(*words, "--include", "t.?").out.split() == both
    assert kafkalog(*words, "--include", "t.?", "--timeout-ms", 50).out.split() == both
