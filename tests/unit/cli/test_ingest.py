"""`kafkalog ingest`: real lines in, the same lines out; errors name the file and the line."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from kafkalog import Broker, cli
from kafkalog.batch.partitioner import partition_for_key
from kafkalog.inspect.verify.files import verify
from kafkalog.log.log import Log
from kafkalog.types import Record
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S
from tests.unit.cli.conftest import Command

FIRST = "2016-02-28T20:17:05"
TIMES = {
    "web.log": (r"^\[([^\]]+)\]", "%a %b %d %H:%M:%S %Y", f"{FIRST}Z"),
    "machine.log": (r"^\S+ (\d+)", "s", f"{FIRST}Z"),
    "files.log": (r"^(\d+ \d+)", "%y%m%d %H%M%S", f"{FIRST}Z"),
    "engine.log": (r"^(\S+ \S+)", "%y/%m/%d %H:%M:%S", f"{FIRST}Z"),
    "quorum.log": (r"^(\S+ \S+)", None, f"{FIRST}.811Z"),
    "telephone.log": (r"^(\S+ \S+)", "%m-%d %H:%M:%S.%f", f"{FIRST}.811Z"),
    "system.log": (r"^(\w+ +\d+ \S+)", "%b %d %H:%M:%S", f"{FIRST}Z"),
}


def records(directory: Path, topic: str, partition: int = 0) -> list[Record]:
    """All records of a partition."""
    with Log(directory / f"{topic}-{partition}", mode="r") as log:
        return list(log.read())


def lines_of(path: Path) -> list[bytes]:
    """A file's lines as records: without line ends, and without empty lines."""
    lines = [line.removesuffix(b"\r") for line in path.read_bytes().split(b"\n")]
    return [line for line in lines if line]


def ms(text: str) -> int:
    """Milliseconds since the epoch, from an ISO 8601 time in UTC."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round(moment.timestamp() * 1000)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_line_comes_back(
    kafkalog: Command, log_files: Path, tmp_path: Path, codec: str
) -> None:
    """Ten files over three partitions: each line once, in its file's order."""
    files = sorted(log_files.glob("*.log"))
    ran = kafkalog(
        "ingest", *files, "--dir", tmp_path / "d", "--topic", "logs", "--partitions", 3,
        "--compression", codec,
    )  # fmt: skip
    assert ran.status == 0, ran.err
    assert ran.out.startswith(f"{sum(len(lines_of(f)) for f in files):,} records")
    stored = [[r.value for r in records(tmp_path / "d", "logs", p)] for p in range(3)]
    assert sorted(v for part in stored for v in part) == sorted(
        line for file in files for line in lines_of(file)
    )
    assert all(stored)
    assert verify(tmp_path / "d", deep=True).clean


@pytest.mark.parametrize("name", sorted(TIMES))
def test_times_in_many_notations(
    kafkalog: Command, log_files: Path, tmp_path: Path, name: str
) -> None:
    """The first line's time is right, and so is the order of a lookup by time."""
    regex, form, first = TIMES[name]
    words = ["--timestamp-regex", regex, "--timestamp-year", "2016"]
    words += ["--timestamp-format", form] if form else []
    ran = kafkalog("ingest", log_files / name, "--dir", tmp_path / "d", "--topic", "t", *words)
    assert ran.status == 0, ran.err
    found = records(tmp_path / "d", "t")
    assert [r.value for r in found] == lines_of(log_files / name)
    assert found[0].timestamp_ms == ms(first)


def test_a_key_decides_the_partition_as_in_javas_client(
    kafkalog: Command, log_files: Path, tmp_path: Path
) -> None:
    """All records of one key are in one partition, in order; a line without a match has no key."""
    file = log_files / "shell.log"
    ran = kafkalog(
        "ingest", file, "--dir", tmp_path / "d", "--topic", "ssh", "--partitions", 4,
        "--key-regex", r"from (\d+\.\d+\.\d+\.\d+)",
    )  # fmt: skip
    assert ran.status == 0, ran.err
    keys = set()
    for partition in range(4):
        for record in records(tmp_path / "d", "ssh", partition):
            if record.key is None:
                assert b"from 1" not in record.value
            else:
                assert partition_for_key(record.key, 4) == partition
                assert b"from " + record.key in record.value
                keys.add(record.key)
    assert len(keys) > 20


def test_json_lines(kafkalog: Command, tmp_path: Path) -> None:
    """Keys and times come from fields, also nested ones; the value is the unchanged line."""
    rows = [
        {"at": "2026-07-04T12:00:00.5Z", "user": {"id": 7}, "text": "äöü"},
        {"at": 1_783_166_400_000, "user": {"id": None}, "text": ""},
        {"at": 1_783_166_400, "user": {"id": "x"}},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    ran = kafkalog(
        "ingest", path, "--dir", tmp_path / "d", "--topic", "t",
        "--key", "user.id", "--timestamp", "at",
    )  # fmt: skip
    assert ran.status == 0, ran.err
    found = records(tmp_path / "d", "t")
    assert [json.loads(r.value or b"") for r in found] == rows
    assert [r.key for r in found] == [b"7", None, b"x"]
    assert [r.timestamp_ms for r in found] == [ms("2026-07-04T12:00:00.5Z"), 1_783_166_400_000,
                                               1_783_166_400_000]  # fmt: skip


def test_json_that_is_no_record(kafkalog: Command, tmp_path: Path) -> None:
    """Every kind of bad line is reported by its number, and none ends in a traceback."""
    bad = [b"[1]", b'{"k": 1', b"\xff\xfe", b"[" * 100_000, b'{"k": 1}',
           b'{"k": 1, "t": true}', b'{"k": 1, "t": "soon"}', b'{"k": 1, "t": -5}',
           b'{"k": 1, "t": 99999999999999999999}', b'{"t": 5}']  # fmt: skip
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\n".join(bad) + b'\n{"k": 1, "t": 5}\n')
    ran = kafkalog(
        "ingest", path, "--dir", tmp_path / "d", "--topic", "t", "--key", "k",
        "--timestamp", "t", "--max-errors", 100,
    )  # fmt: skip
    assert ran.status == 0
    told = [line.split(": ")[1] for line in ran.err.splitlines()]
    assert told == [f"{path}:{i + 1}" for i in range(len(bad))]
    assert [r.timestamp_ms for r in records(tmp_path / "d", "t")] == [5000]


def test_csv(kafkalog: Command, tmp_path: Path) -> None:
    """A row becomes a JSON object, or the chosen field alone; quotes may span lines."""
    path = tmp_path / "rows.csv"
    path.write_text('id,at,note\n1,2026-01-01,"a, b"\n2,2026-01-02 03:04:05,"two\nlines"\n')
    words = ["--dir", tmp_path / "d", "--key", "id", "--timestamp", "at"]
    assert kafkalog("ingest", path, "--topic", "all", *words).status == 0
    assert kafkalog("ingest", path, "--topic", "one", *words, "--value", "note").status == 0
    found = records(tmp_path / "d", "all")
    assert [json.loads(r.value or b"") for r in found] == [
        {"id": 1, "at": "2026-01-01", "note": "a, b"},
        {"id": 2, "at": "2026-01-02 03:04:05", "note": "two\nlines"},
    ]
    assert [r.key for r in found] == [b"1", b"2"]
    assert found[1].timestamp_ms == ms("2026-01-02T03:04:05Z")
    assert [r.value for r in records(tmp_path / "d", "one")] == [b"a, b", b"two\nlines"]
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "rows.csv.zst").write_bytes(zstandard.compress(path.read_bytes()))
    for ending in ("gz", "zst"):
        packed = tmp_path / f"rows.csv.{ending}"
        assert kafkalog("ingest", packed, "--topic", ending, *words).status == 0
        assert [r.value for r in records(tmp_path / "d", ending)] == [r.value for r in found]


def test_compressed_inputs(kafkalog: Command, log_files: Path, tmp_path: Path) -> None:
    """Files are recognized by name: gzip (several members) and zstd (several frames)."""
    data = (log_files / "machine.log").read_bytes() + b"\n"
    cut = data.index(b"\n", len(data) // 2) + 1
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(data[:cut]) + gzip.compress(data[cut:]))
    pack = zstandard.ZstdCompressor().compress
    (tmp_path / "b.log.zst").write_bytes(pack(data[:cut]) + pack(data[cut:]))
    for name, topic in (("a.log.gz", "a"), ("b.log.zst", "b")):
        ran = kafkalog("ingest", tmp_path / name, "--dir", tmp_path / "d", "--topic", topic)
        assert ran.status == 0, ran.err
        stored = [r.value for r in records(tmp_path / "d", topic)]
        assert stored == lines_of(log_files / "machine.log")


@pytest.mark.parametrize("name", ["a.log.gz", "b.log.zst"])
def test_a_damaged_compressed_input_is_named(kafkalog: Command, tmp_path: Path, name: str) -> None:
    """One line with the file's name, no traceback."""
    data = os.urandom(50_000).hex().encode()
    whole = gzip.compress(data) if name.endswith("gz") else zstandard.compress(data)
    for bad in (whole[: len(whole) // 2], b"no such format", whole[:200] + b"\0" + whole[201:]):
        (tmp_path / name).write_bytes(bad)
        ran = kafkalog("ingest", tmp_path / name, "--dir", tmp_path / "d", "--topic", "t")
        if ran.status == 0:  # a truncated zstd stream is only recognized by its missing end
            assert name.endswith("zst")
            continue
        assert ran.status == 1
        assert ran.err.startswith(f"kafkalog: {tmp_path / name}")
        assert ran.err.count("\n") == 1


def test_the_standard_input(
    kafkalog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-` is text, or JSON if its first byte shows it."""
    for text, topic in ((b"a\nb\nc", "text"), (b'{"k":1}\n{"k":2}\n', "json")):
        buffer = io.BufferedReader(io.BytesIO(text))  # type: ignore[arg-type]
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=buffer))
        words = ["--key", "k"] if topic == "json" else []
        ran = kafkalog("ingest", "-", "--dir", tmp_path / "d", "--topic", topic, *words)
        assert ran.status == 0, ran.err
    assert [r.value for r in records(tmp_path / "d", "text")] == [b"a", b"b", b"c"]
    assert [r.key for r in records(tmp_path / "d", "json")] == [b"1", b"2"]


def test_a_bad_line_stops_the_run_and_earlier_lines_stay(kafkalog: Command, tmp_path: Path) -> None:
    """It reports file, line, reason and the number of records; status 1."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a":1}\n{"a":2}\n{"a":\n{"a":4}\n')
    ran = kafkalog("ingest", path, "--dir", tmp_path / "d", "--topic", "t")
    assert ran.status == 1
    assert ran.err.startswith(f"kafkalog: {path}:3: no JSON")
    assert "2 records before it appended" in ran.err
    assert len(records(tmp_path / "d", "t")) == 2


def test_max_errors_skips_and_tells(kafkalog: Command, tmp_path: Path) -> None:
    """Up to N bad lines are skipped and reported; one more ends the run."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n6,7,8\n9,10\n")
    words = ["ingest", path, "--dir", tmp_path / "d", "--topic"]
    ran = kafkalog(*words, "t", "--max-errors", 2)
    assert ran.status == 0
    assert [line.split(": ")[1] for line in ran.err.splitlines()] == [f"{path}:3", f"{path}:5"]
    assert "2 lines skipped" in ran.out
    assert len(records(tmp_path / "d", "t")) == 3
    assert kafkalog(*words, "u", "--max-errors", 1).status == 1


def test_a_line_without_a_time(kafkalog: Command, tmp_path: Path) -> None:
    """An error by default; optionally it gets the time of the line before, as in a stack trace."""
    path = tmp_path / "app.log"
    path.write_text("2026-01-01T00:00:00Z boom\n  at main()\n2026-01-01T00:00:05Z on\n")
    words = ["ingest", path, "--dir", tmp_path / "d", "--timestamp-regex", r"^(20\S+)", "--topic"]
    ran = kafkalog(*words, "t")
    assert (ran.status, f"{path}:2:" in ran.err) == (1, True)
    assert kafkalog(*words, "u", "--without-timestamp", "previous").status == 0
    times = [r.timestamp_ms for r in records(tmp_path / "d", "u")]
    assert times == [ms("2026-01-01T00:00:00Z")] * 2 + [ms("2026-01-01T00:00:05Z")]
    path.write_text("2026-13-01T00:00:00Z boom\n")
    ran = kafkalog(*words, "v")
    assert (ran.status, f"{path}:1: time '2026-13-01" in ran.err) == (1, True)


def test_a_value_that_no_batch_can_hold_is_named(kafkalog: Command, tmp_path: Path) -> None:
    """The message names the line of the value, wherever it is in the file."""
    path = tmp_path / "big.txt"
    path.write_bytes(b"small\n" + b"x" * 50_000 + b"\nmore\n" + b"y" * 20_001)
    words = ["--dir", tmp_path / "d", "--set", "max.message.bytes=20000", "--max-errors", 5]
    ran = kafkalog("ingest", path, "--topic", "t", *words)
    assert ran.status == 0
    assert [line.split(": ")[1] for line in ran.err.splitlines()] == [f"{path}:2", f"{path}:4"]
    assert [r.value for r in records(tmp_path / "d", "t")] == [b"small", b"more"]
    path.write_text(json.dumps({"k": "x" * 15_000, "v": 1}))
    words += ["--format", "json", "--key", "k"]
    ran = kafkalog("ingest", path, "--topic", "u", *words)
    assert f"{path}:1: 30" in ran.err


def test_settings_reach_the_log(kafkalog: Command, log_files: Path, tmp_path: Path) -> None:
    """segment.bytes rolls; a misspelt name and a wrong value are refused first."""
    words = ["ingest", log_files / "desktop.log", "--dir", tmp_path / "d", "--topic", "t"]
    assert kafkalog(*words, "--set", "segment.bytes=100000").status == 0
    assert len(list((tmp_path / "d" / "t-0").glob("*.log"))) >= 3
    ran = kafkalog(*words, "--set", "segment.byte=1")
    assert (ran.status, "segment.bytes" in ran.err) == (2, True)
    assert kafkalog(*words, "--set", "segment.bytes").status == 2


def test_blank_lines_are_counted(kafkalog: Command, tmp_path: Path) -> None:
    """They make no records, but the summary reports their number."""
    texts = {
        "a.txt": "a\n\nb\n\n\n",
        "a.jsonl": '{"a":1}\n\n  \n\n{"a":2}\n',
        "a.csv": "a\n1\n\n2\n\n\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        ran = kafkalog("ingest", tmp_path / name, "--dir", tmp_path / "d", "--topic", name)
        assert (ran.status, ran.err) == (0, "")
        assert ran.out.startswith("2 records")
        assert ran.out.endswith(", 3 blank lines left out\n")
        assert len(records(tmp_path / "d", name)) == 2
    (tmp_path / "one.txt").write_text("\na\n")
    ran = kafkalog("ingest", tmp_path / "one.txt", "--dir", tmp_path / "d", "--topic", "t")
    assert ran.out.endswith(", 1 blank line left out\n")


def test_a_key_of_text_is_refused_before_anything_is_made(
    kafkalog: Command, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "b.log").write_text("x\n")
    files = [tmp_path / "a.csv", tmp_path / "b.log"]
    ran = kafkalog("ingest", *files, "--dir", tmp_path / "d", "--topic", "t", "--key", "k")
    assert (ran.status, "b.log is text" in ran.err, ran.err.count("\n")) == (2, True, 1)
    assert not (tmp_path / "d").exists()


def test_usage_mistakes(kafkalog: Command, log_files: Path, tmp_path: Path) -> None:
    """Each is one line on stderr and status 2; nothing is appended."""
    file = log_files / "desktop.log"
    base = ["--dir", tmp_path / "d", "--topic", "t"]
    assert kafkalog("ingest", file, *base, "--partitions", 2).status == 0
    before = verify(tmp_path / "d").counters["records"]
    for words in (
        [file, *base, "--partitions", 3],
        [tmp_path / "missing.log", *base],
        [tmp_path, *base],
        [file, *base, "--key-regex", "("],
        [file, *base, "--timezone", "Mars/Olympus"],
        [file, "--dir", tmp_path / "d", "--topic", "no such/topic"],
    ):
        ran = kafkalog("ingest", *words)
        assert ran.status == 2, words
        assert ran.err.startswith("kafkalog: "), words
        assert ran.err.count("\n") == 1, words
    assert verify(tmp_path / "d").counters["records"] == before


def test_a_directory_that_is_owned(kafkalog: Command, log_files: Path, tmp_path: Path) -> None:
    """Another process writes to it: one line with the owner's pid."""
    script = (
        "import sys; from kafkalog.directory.manager import Manager\n"
        "with Manager(sys.argv[1]): print('open', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "d")], cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert owner.stdout is not None and owner.stdout.readline() == b"open\n"
        ran = kafkalog("ingest", log_files / "desktop.log", "--dir", tmp_path / "d", "--topic", "t")
        assert (ran.status, str(owner.pid) in ran.err, ran.err.count("\n")) == (1, True, 1)
    finally:
        owner.communicate(timeout=LIMIT_S)


def test_a_progress_bar_on_a_terminal(log_files: Path, tmp_path: Path) -> None:
    """A real process on a pseudo terminal: bar and rate on stderr, the summary on stdout."""
    big = tmp_path / "big.log"
    big.write_bytes(((log_files / "windows.log").read_bytes() + b"\n") * 60)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", "ingest", str(big), "--dir", str(tmp_path / "d"),
         "--topic", "t"],
        stdout=subprocess.PIPE, stderr=theirs, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:  # Linux: the other end was closed
        pass
    out, _ = process.communicate(timeout=LIMIT_S)
    os.close(ours)
    assert process.returncode == 0, seen
    assert b"records/s" in out
    assert b"%" in seen and b"/s" in seen and b"[#" in seen


def test_no_progress_bar_elsewhere(kafkalog: Command, log_files: Path, tmp_path: Path) -> None:
    """Nothing is written to stderr if it is not a terminal."""
    ran = kafkalog("ingest", log_files / "desktop.log", "--dir", tmp_path / "d", "--topic", "t")
    assert ran.err == ""


def test_the_topics_settings_in_the_metadata_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metadata decides timestamp types and the largest batch; --set may not contradict it."""
    data, lines = tmp_path / "served", tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    with Broker(data) as broker, Raw(broker.bootstrap_servers) as client:
        client.create("t", message_timestamp_type="LogAppendTime")
    words = ["ingest", str(lines), "--dir", str(data), "--topic", "t"]
    assert cli.main(words) == 0
    with Log(data / "t-0", "r") as log:
        assert [(r.value, r.timestamp_type) for r in log] == [(b"one", 1), (b"two", 1)]
    capsys.readouterr()
    assert cli.main([*words, "--set", "message.timestamp.type=CreateTime"]) == 2
    assert "has metadata" in capsys.readouterr().err
    assert cli.main(["ingest", str(lines), "--dir", str(data), "--topic", "new"]) == 0
    with Log(data / "new-0") as log:
        assert log.end_offset == 2
