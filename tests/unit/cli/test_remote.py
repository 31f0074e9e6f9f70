"""The commands that talk to a broker: Apache Kafka's and ours."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.cli import main
from kafkalog.wire import apis
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S
from tests.unit.cli.conftest import Command, Ran

ROOT = Path(__file__).parents[3]


@pytest.fixture
def at(kafkalog: Command, servers: str) -> Command:
    """Run `kafkalog WORDS --bootstrap-server ...`; it must succeed."""

    def run(*words: object) -> Ran:
        ran = kafkalog(*words, "--bootstrap-server", servers)
        assert ran.status == 0, (words, ran)
        return ran

    return run


@pytest.fixture
def topic(at: Command, unique: str) -> str:
    """A topic of three partitions whose leaders all answer."""
    at("topics", "create", unique, "--partitions", 3)
    at("offsets", unique)
    return unique


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Set what the next command reads from its standard input."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


Typed = Callable[[bytes], None]


Settings = Callable[..., None]


@pytest.fixture
def has(at: Command, wait_until: Callable[..., None]) -> Settings:
    """Wait until these words describe these settings: a broker learns of a change with a delay."""

    def wait(wanted: dict[str, str], *words: object) -> None:
        def found() -> dict[str, str]:
            return {r["name"]: r["value"] for r in at("configs", *words, "--json").rows()}

        wait_until(lambda: found() == wanted, f"{words} shows {wanted}")

    return wait


def lines(ran: Ran) -> list[str]:
    return ran.out.splitlines()


# ---- topics --------------------------------------------------------------------------------


def test_topics_from_birth_to_death(
    at: Command, kafkalog: Command, has: Settings, servers: str, unique: str
) -> None:
    """Created, listed, described, altered, deleted; with our words and with Kafka's options."""
    words = ["topics", "--bootstrap-server", servers]
    assert at("topics", "create", unique, "--partitions", 2, "--config", "retention.ms=9000000").out
    ran = kafkalog(*words, "--create", "--topic", unique)
    assert (ran.status, "TOPIC_ALREADY_EXISTS" in ran.err) == (1, True)
    assert "already exists" in at("topics", "--create", "--topic", unique, "--if-not-exists").out
    assert unique in lines(at("topics", "--list"))
    rows = at("topics", "describe", unique, "--json").rows()
    assert [(r["topic"], r["partition"], r["leader"], r["end_offset"]) for r in rows] == [
        (unique, 0, 1, 0), (unique, 1, 1, 0),
    ]  # fmt: skip
    assert rows[0]["config"] == {"retention.ms": "9000000"}
    assert at("topics", "alter", "--topic", unique, "--partitions", 4).out
    assert "retention.ms=9000000" in at("topics", "--describe", "--topic", unique).out
    at("topics", "--alter", "--topic", unique, "--config", "cleanup.policy=[compact,delete]")
    has({"retention.ms": "9000000", "cleanup.policy": "compact,delete"}, "--topic", unique)
    rows = at("topics", "describe", unique, "--json").rows()
    assert [r["partition"] for r in rows] == [0, 1, 2, 3]
    assert rows[0]["config"]["cleanup.policy"] == "compact,delete"
    assert lines(at("topics", "describe", unique, "--unavailable-partitions")) == ["no topic"]
    assert at("topics", "--delete", "--topic", unique).out == f"deleted topic {unique}\n"
    assert "no topic" in at("topics", "delete", unique, "--if-exists").out
    ran = kafkalog(*words, "delete", unique)
    assert (ran.status, f"no topic '{unique}'" in ran.err) == (2, True)


@pytest.mark.parametrize("action", [["delete"], ["alter", "--partitions", "9"]])
def test_a_topic_that_another_deleted_a_moment_ago(kafkalog: Command, action: list[str]) -> None:
    """The node that was asked still lists the topic, as a node of Kafka does for a moment."""
    with Peer() as peer:
        peer.on(apis.METADATA, lambda request, version: peer.metadata({"gone": 1, "here": 1}))
        unknown = {"name": "gone", "error_code": 3}
        peer.on(apis.DELETE_TOPICS, {"responses": [unknown]})
        peer.on(apis.CREATE_PARTITIONS, {"results": [unknown]})
        words = ["topics", *action, "--topic", "gone", "--bootstrap-server", peer.servers]
        ran = kafkalog(*words, "--if-exists")
        assert (ran.status, ran.err) == (0, "")
        assert ran.out == "there is no topic gone\n"
        ran = kafkalog(*words)
        assert (ran.status, "no topic 'gone'" in ran.err) == (2, True)


def test_mistakes_are_one_line_and_status_2(
    kafkalog: Command, servers: str, unique: str, topic: str
) -> None:
    """The message names the user's mistake and the correction, immediately."""
    for words, told in (
        (["topics", "crate", "x"], "did you mean create?"),
        (["topics", "--create", "--delete", "--topic", "x"], "create and delete"),
        (["topics", "create"], "which topic?"),
        (["topics", "alter", topic], "--partitions N or --config"),
        (["topics", "create", "x y"], "INVALID_TOPIC"),
        (["topics", "create", "x", "--config", "retention.ms"], "wanted name=value"),
        (["topics", "create", unique + "-a", "--config", "retention.mess=1"], "retention.mess"),
        (["topics", "describe", topic[:-1]], "did you mean"),
        (["topics", "--draw", "x.svg"], "--draw: is for --dir"),
        (["consume", "--topic", unique + "-none"], "no topic"),
        (["consume"], "which topic?"),
        (["consume", "--topic", topic, "--offset", "soon"], "--offset"),
        (["consume", "--topic", topic, "--partition", "9"], "no partition 9"),
        (["consume", "--topic", topic, "--group", "g", "--partition", "0"], "--partition"),
        (["consume", "--topic", topic, "--group", "g", "--offset", "3"], "see --reset"),
        (["produce", "--topic", topic, str(ROOT / "none")], "No such file"),
        (["produce", "--topic", topic, str(ROOT)], "is a directory"),
        (["produce", "--topic", topic, "--header", "x", "-"], "--header"),
        (["produce", "--topic", topic, "--producer-property", "linger=1"], "acks, batch.size"),
        (["produce", "--topic", topic, "--producer-property", "acks=2"], "wanted one of 0, 1"),
        (["produce", "--topic", topic, "--producer-property", "batch.size=x"], "a number"),
        (["groups", "describe"], "which group?"),
        (["groups", "reset-offsets", "g", "--topic", topic], "found 0 targets"),
        (["groups", "reset-offsets", "g", "--to-latest"], "which topics?"),
        (["groups", "reset-offsets", "g", "--topic", topic, "--by-duration", "1h"], "PT1H30M"),
        (["configs", "describe"], "found 0 names"),
        (["configs", "describe", "--broker", "77"], "broker '77'"),
        (["configs", "alter", topic], "--add-config"),
        (["configs", "alter", topic, "--add-config", "segment.bites=1"], "segment.bites"),
        (["offsets", topic, "--time", "noon"], "--time"),
        (["offsets", topic + ":7"], "no partition 7"),
        (["perf", "produce", "--topic", topic, "--throughput", "0"], "--throughput"),
    ):
        ran = kafkalog(*words, "--bootstrap-server", servers)
        assert (ran.status, ran.out) == (2, ""), (words, ran)
        assert ran.err.startswith("kafkalog: ") and ran.err.count("\n") == 1, (words, ran.err)
        assert told in ran.err, (words, ran.err)


# ---- produce and consume -------------------------------------------------------------------


def test_lines_in_and_out(at: Command, typed: Typed, topic: str) -> None:
    typed(b"one\ntwo\n\nthree\n")
    ran = at("produce", "--topic", topic, "--partition", 1)
    assert "3 records (11 B) acknowledged" in ran.err
    assert lines(at("consume", "--topic", topic)) == ["one", "two", "three"]
    assert lines(at("consume", "--topic", topic, "--partition", 1, "--offset", 1)) == [
        "two", "three",
    ]  # fmt: skip
    assert lines(at("consume", "--topic", topic, "--offset", "-1")) == ["three"]
    assert lines(at("consume", "--topic", topic, "--offset", "latest")) == []
    assert lines(at("consume", "--topic", topic, "--from-beginning", "--max-messages", 2)) == [
        "one", "two",
    ]  # fmt: skip
    assert lines(at("consume", "--topic", topic, "--timeout-ms", 200)) == ["one", "two", "three"]
    assert lines(at("consume", "--include", topic[:-2] + ".*", "--format", "%p %o")) == [
        "1 0", "1 1", "1 2",
    ]  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_files_of_all_kinds(at: Command, tmp_path: Path, topic: str, codec: str) -> None:
    """CSV and JSON with keys and times, compressed; the records are those of `ingest`."""
    (tmp_path / "a.csv").write_text("id,at,what\n7,2026-07-04T12:00:00Z,x\n8,1783166401000,y\n")
    (tmp_path / "b.jsonl").write_text('{"id":7,"at":1783166402000,"what":"z"}\n')
    how = ["--key", "id", "--timestamp", "at", "--value", "what", "--compression", codec]
    ran = at("produce", tmp_path / "a.csv", tmp_path / "b.jsonl", "--topic", topic, *how,
             "--header", "from=here", "--header", "n=1")  # fmt: skip
    assert ran.out.startswith("3 records")
    rows = at("consume", "--topic", topic, "--format", "json", "--order", "time").rows()
    assert [(r["key"], r["value"], r["timestamp"]) for r in rows] == [
        ("7", "x", 1783166400000), ("8", "y", 1783166401000), ("7", "z", 1783166402000),
    ]  # fmt: skip
    assert rows[0]["partition"] == rows[2]["partition"]
    assert rows[0]["headers"] == [
        {"name": "from", "value": "here"}, {"name": "n", "value": "1"},
    ]  # fmt: skip
    at_noon = at("consume", "--topic", topic, "--from-time", "2026-07-04T12:00:01Z", "--format",
                 "%v")  # fmt: skip
    assert sorted(lines(at_noon)) == ["y", "z"]


def test_keys_before_a_separator(
    at: Command, kafkalog: Command, servers: str, typed: Typed, topic: str
) -> None:
    """With our options and with those of Kafka's console tools."""
    typed(b"a:1\nb:2:3\n")
    at("produce", "--topic", topic, "--property", "parse.key=true", "--property",
       "key.separator=:", "--partition", 0, "--sync")  # fmt: skip
    typed(b"c\t4\n")
    at("produce", "--topic", topic, "--key-separator", "\\t", "--partition", 0, "--acks", 1)
    assert lines(at("consume", "--topic", topic, "--format", "%k=%v")) == ["a=1", "b=2:3", "c=4"]
    shown = at("consume", "--topic", topic, "--property", "print.key=true", "--property",
               "print.offset=true", "--property", "print.partition=true", "--property",
               "print.headers=true", "--property", "key.separator=|")  # fmt: skip
    assert lines(shown)[0] == "Partition:0|Offset:0|NO_HEADERS|a|1"
    typed(b"good:1\nbad\nworse\n")
    ran = kafkalog("produce", "--topic", topic, "--key-separator", ":", "--bootstrap-server",
                   servers, "--max-errors", 1)  # fmt: skip
    assert ran.status == 1
    assert "stdin:2: no ':' after a key; skipped" in ran.err
    assert "stdin:3: no ':' after a key (2 errors); 1 record before it sent" in ran.err


def test_a_topic_is_copied_record_by_record(
    at: Command, typed: Typed, tmp_path: Path, topic: str, unique: str
) -> None:
    """consume --format json | produce --format records: nothing is lost, not even raw bytes."""
    headers = [{"name": "h", "value_base64": "gA=="}, {"name": "n", "value": None}]
    record = {"key_base64": "/w==", "value": None, "timestamp": 10**12, "headers": headers}
    other = {"key": None, "value": {"nested": [1]}, "timestamp": -1}
    typed(b"\n".join(json.dumps(r).encode() for r in (record, other)))
    at("produce", "--topic", topic, "--format", "records", "--partition", 0)
    first = at("consume", "--topic", topic, "--format", "json")
    copy = tmp_path / "copy.jsonl"
    copy.write_text(first.out)
    at("topics", "create", unique + "-copy", "--partitions", 1)
    at("produce", copy, "--topic", unique + "-copy", "--format", "records")
    second = at("consume", "--topic", unique + "-copy", "--format", "json").rows()
    wanted = [{**row, "topic": unique + "-copy"} for row in first.rows()]
    assert second == wanted
    assert {k: wanted[0][k] for k in record} == record
    assert wanted[1]["value"] == '{"nested":[1]}'


def test_whole_files(at: Command, tmp_path: Path, topic: str) -> None:
    for i, size in enumerate((0, 5, 200_000)):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i]) * size)
    files = sorted(tmp_path.iterdir())
    at("produce", *files, "--format", "whole", "--topic", topic, "--partition", 2)
    assert lines(at("consume", "--topic", topic, "--format", "%k %V")) == [
        f"{files[0]} 0", f"{files[1]} 5", f"{files[2]} 200000",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line", [b"nonsense", b"[]", b"{}", b'{"value_base64":"?"}', b'{"value":"","timestamp":1.5}',
             b'{"value":"","headers":3}', b"[" * 5000],
)  # fmt: skip
def test_lines_that_are_no_records(line: bytes) -> None:
    from kafkalog.cli.produce import record_of

    with pytest.raises(ValueError, match=r"JSON|field|wanted|nested"):
        record_of(line)


def test_client_properties_by_kafkas_names(at: Command, typed: Typed, topic: str) -> None:
    typed(b"x\n")
    at("produce", "--topic", topic, "--producer-property", "acks=1", "--producer-property",
       "batch.size=1000", "--producer-property", "compression.type=gzip")  # fmt: skip
    group = ["--consumer-property", f"group.id={topic}"]
    latest = ["--consumer-property", "auto.offset.reset=latest"]
    assert lines(at("consume", "--topic", topic, *group, *latest)) == []
    assert sum(committed(at, topic).values()) == 1
    assert lines(at("consume", "--topic", topic, "--consumer-property",
                    "isolation.level=read_committed")) == ["x"]  # fmt: skip


def start(*words: object) -> subprocess.Popen[bytes]:
    """`kafkalog` as a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def test_follow_in_a_group_and_ctrl_c(at: Command, typed: Typed, servers: str, topic: str) -> None:
    """New records are shown; Ctrl-C is quiet, commits what was shown and leaves the group."""
    typed(b"before\n")
    at("produce", "--topic", topic)
    process = start("consume", "--topic", topic, "--group", topic, "--follow",
                    "--bootstrap-server", servers)  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"before\n"
        typed(b"after\n")
        at("produce", "--topic", topic)
        assert process.stdout.readline() == b"after\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (130, b"", b"")
    rows = at("groups", "describe", topic, "--json").rows()
    assert sum(r["committed"] for r in rows) == 2
    assert all(r["member"] is None and r["lag"] == 0 for r in rows)


def test_a_reader_that_has_enough_is_no_failure(
    at: Command, tmp_path: Path, servers: str, topic: str
) -> None:
    """`kafkalog consume | head -1`."""
    (tmp_path / "long").write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 30_000)
    at("produce", tmp_path / "long", "--topic", topic, "--partition", 0)
    process = start("consume", "--topic", topic, "--bootstrap-server", servers)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"x" * 99 + b"\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=LIMIT_S) == 0
    process.stderr.close()


# ---- groups --------------------------------------------------------------------------------


def committed(at: Command, group: str) -> dict[int, int]:
    rows = at("groups", "describe", group, "--json").rows()
    return {r["partition"]: r["committed"] for r in rows}


def test_groups_read_and_are_reset(at: Command, kafkalog: Command, servers: str, topic: str,
                                   tmp_path: Path) -> None:  # fmt: skip
    """Reading in a group resumes where it ended; every way to reset; delete."""
    for p in range(3):
        rows = [{"value": f"{p}-{i}", "timestamp": 1_000_000 * (i + 1)} for i in range(10)]
        (tmp_path / "in").write_text("\n".join(map(json.dumps, rows)))
        at("produce", tmp_path / "in", "--topic", topic, "--partition", p, "--format", "records")
    words = ["consume", "--topic", topic, "--group", topic]
    first = lines(at(*words, "--max-messages", 12))
    assert len(first) == 12
    assert sum(committed(at, topic).values()) == 12
    second = lines(at(*words))
    assert sorted(first + second) == sorted(f"{p}-{i}" for p in range(3) for i in range(10))
    assert committed(at, topic) == {0: 10, 1: 10, 2: 10}
    listed = {r["group"]: r for r in at("groups", "--list", "--json").rows()}
    assert (listed[topic]["state"], listed[topic]["protocol_type"]) == ("Empty", "consumer")

    reset = ["groups", "reset-offsets", topic]
    shown = at(*reset, "--topic", topic, "--to-earliest")
    assert "would be done" in shown.out
    assert committed(at, topic) == {0: 10, 1: 10, 2: 10}
    for target, found in (
        (["--to-earliest"], 0),
        (["--to-offset", 4], 4),
        (["--shift-by", 3], 7),
        (["--shift-by", -100], 0),
        (["--to-datetime", "1970-01-01T01:00:00Z"], 3),
        (["--to-current"], 3),
        (["--to-time", "2100-01-01"], 10),
        (["--by-duration", "P30000D"], 0),
        (["--to-latest"], 10),
    ):
        rows = at(*reset, "--all-topics", *target, "--execute", "--json").rows()
        assert {(r["offset"], r["done"]) for r in rows} == {(found, True)}, target
        assert committed(at, topic) == {0: found, 1: found, 2: found}, target
    at("groups", "--reset-offsets", "--group", topic, "--topic", f"{topic}:1", "--to-offset", 8,
       "--execute")  # fmt: skip
    assert lines(at(*words)) == ["1-8", "1-9"]
    at("groups", "--delete-offsets", "--group", topic, "--topic", f"{topic}:0,2")
    assert committed(at, topic) == {1: 10}
    assert "Empty" in at("groups", "describe", topic, "--state").out
    assert "no members" in at("groups", "describe", topic, "--members").out
    assert at("groups", "--delete", "--group", topic).out == f"deleted group {topic}\n"
    ran = kafkalog("groups", "delete", topic, "--bootstrap-server", servers)
    assert (ran.status, "GROUP_ID_NOT_FOUND" in ran.err) == (1, True)
    ran = kafkalog("groups", "describe", topic, "--bootstrap-server", servers)
    assert (ran.status, ran.err) == (1, f"kafkalog: no group '{topic}'\n")


def test_a_group_with_members_is_described_and_left_alone(
    at: Command, kafkalog: Command, servers: str, topic: str
) -> None:
    from kafkalog.client.consumer.consumer import Consumer

    with Consumer(servers, topic, group=topic) as consumer:
        while not consumer.assignment:
            consumer.poll(100)
        rows = at("groups", "describe", topic, "--members", "--json").rows()
        assert [r["partitions"] for r in rows] == [[f"{topic}-{p}" for p in range(3)]]
        assert "Stable, 1 member" in at("groups", "describe", topic).out
        ran = kafkalog("groups", "reset-offsets", topic, "--topic", topic, "--to-latest",
                       "--execute", "--bootstrap-server", servers)  # fmt: skip
        assert (ran.status, "is Stable: its members must end first" in ran.err) == (1, True)


def test_a_group_of_another_protocol_has_its_members_shown(
    at: Command, servers: str, topic: str
) -> None:
    """Connect's workers, a schema registry: active, with nothing committed and no partitions."""
    from kafkalog.wire import apis
    from tests.support.raw import Raw

    with Raw(servers.split(",")[0], "worker-1") as raw:
        body = {"group_id": topic, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
                "protocol_type": "connect", "protocols": [{"name": "default", "metadata": b"x"}],
                "member_id": ""}  # fmt: skip
        given = raw.call(apis.JOIN_GROUP, 5, **body)
        joined = raw.call(apis.JOIN_GROUP, 5, **{**body, "member_id": given.member_id})
        assert joined.error_code == 0
        mine = [{"member_id": joined.member_id, "assignment": b"\0\1what connect says"}]
        synced = raw.call(
            apis.SYNC_GROUP, 3, group_id=topic, generation_id=joined.generation_id,
            member_id=joined.member_id, assignments=mine,
        )  # fmt: skip
        assert synced.error_code == 0
        told = at("groups", "describe", topic).out
        assert f"group {topic}: Stable, protocol connect, 1 member, lag 0" in told
        assert "worker-1" in told
        (row,) = at("groups", "describe", topic, "--json").rows()
        assert (row["topic"], row["client"]) == (None, "worker-1")
        (member,) = at("groups", "describe", topic, "--members", "--json").rows()
        assert (member["client"], member["partitions"]) == ("worker-1", [])
        left = raw.call(apis.LEAVE_GROUP, 2, group_id=topic, member_id=joined.member_id)
        assert left.error_code == 0


# ---- configs, offsets, perf ----------------------------------------------------------------


def test_configs(at: Command, has: Settings, topic: str) -> None:
    assert "no setting was changed" in at("configs", "describe", topic).out
    at("configs", "alter", topic, "--add-config", "retention.ms=7000000,cleanup.policy=[compact]")
    at("configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config",
       "segment.bytes=2097152", "--dry-run")  # fmt: skip
    has({"retention.ms": "7000000", "cleanup.policy": "compact"}, "--topic", topic)
    at("configs", "alter", topic, "--delete-config", "retention.ms,cleanup.policy")
    has({}, "describe", topic)
    assert "no setting was changed" in at("configs", "describe", topic).out
    found = {r["name"] for r in at("configs", "describe", topic, "--all", "--json").rows()}
    assert {"retention.ms", "min.insync.replicas"} <= found
    broker = at("configs", "--describe", "--entity-type", "brokers", "--entity-name", 1, "--json")
    assert {"name": "num.partitions", "value": "2"}.items() <= next(
        r for r in broker.rows() if r["name"] == "num.partitions"
    ).items()


def test_levels_of_loggers(at: Command, has: Settings) -> None:
    one = ("--entity-type", "broker-loggers", "--entity-name", 1)
    rows = at("configs", "describe", *one, "--json").rows()
    assert {"name": "root", "source": "broker logger"}.items() <= next(
        r for r in rows if r["name"] == "root"
    ).items()
    name = next(r["name"] for r in rows if r["name"] != "root")
    at("configs", "alter", *one, "--add-config", f"{name}=ERROR")
    after = at("configs", "describe", *one, "--json").rows()
    assert {r["value"] for r in after if r["name"] == name} == {"ERROR"}
    at("configs", "alter", *one, "--delete-config", name)


def test_settings_of_all_brokers_come_and_go(at: Command, has: Settings) -> None:
    """Dynamic defaults of the cluster."""
    words = ["describe", "--broker-defaults"]
    before = {r["name"]: r["value"] for r in at("configs", *words, "--json").rows()}
    at("configs", "alter", "--broker-defaults", "--add-config", "log.retention.ms=7100000")
    has({**before, "log.retention.ms": "7100000"}, *words)
    at("configs", "alter", "--broker-defaults", "--delete-config", "log.retention.ms")


def test_offsets(at: Command, tmp_path: Path, topic: str) -> None:
    rows = [{"value": "x", "timestamp": t} for t in (1_000_000, 3_000_000, 2_000_000)]
    (tmp_path / "in").write_text("\n".join(map(json.dumps, rows)))
    at("produce", tmp_path / "in", "--topic", topic, "--partition", 1, "--format", "records")
    found = at("offsets", "--topic", topic, "--json").rows()
    assert [(r["partition"], r["earliest"], r["latest"]) for r in found] == [
        (0, 0, 0), (1, 0, 3), (2, 0, 0),
    ]  # fmt: skip
    assert lines(at("offsets", f"{topic}:0-1", "--time", "-1")) == [f"{topic}:0:0", f"{topic}:1:3"]
    assert lines(at("offsets", topic, "--partitions", "1-2", "--time", "-1")) == [
        f"{topic}:1:3", f"{topic}:2:0",
    ]  # fmt: skip
    assert lines(at("offsets", f"{topic}:1", "--time", "earliest")) == [f"{topic}:1:0"]
    assert lines(at("offsets", f"{topic}:1", "--time", "max-timestamp")) == [f"{topic}:1:1"]
    assert lines(at("offsets", f"{topic}:1", "--time", "1500000")) == [f"{topic}:1:1"]
    assert lines(at("offsets", f"{topic}:0,1", "--time", "1970-01-02")) == [
        f"{topic}:0:", f"{topic}:1:",
    ]  # fmt: skip


def test_perf(at: Command, topic: str) -> None:
    """It measures, draws, and counts correctly; the speed itself is not tested."""
    ran = at("perf", "produce", "--topic", topic, "--num-records", 3_000, "--record-size", 50)
    assert ran.out.startswith("3,000 records, 146.5 KiB in ")
    assert "latency: p50 " in ran.out and "█" in ran.out
    figures: dict[str, Any] = at("perf", "consume", "--topic", topic, "--json").rows()[0]
    assert figures["records"] == 3_000
    assert figures["latency_ms"]["max"] > 0
    (figures,) = at("perf", "end-to-end", "--topic", topic, "--num-records", 20, "--json").rows()
    assert figures["records"] == 20
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["max"]
    (figures,) = at("perf", "produce", "--topic", topic, "--num-records", 20, "--throughput", 1000,
                    "--acks", 1, "--compression", "lz4", "--json").rows()  # fmt: skip
    assert figures["seconds"] >= 0.019


def test_perf_reports_its_figures_when_interrupted(servers: str, topic: str) -> None:
    process = start("perf", "end-to-end", "--topic", topic, "--num-records", 10_000_000,
                    "--bootstrap-server", servers)  # fmt: skip
    from kafkalog.client.calls.offsets import LATEST, list_offsets
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.types import TopicPartition

    tp = TopicPartition(topic, 0)
    try:
        with Cluster(servers) as cluster:
            while list_offsets(cluster, {tp: LATEST})[tp].offset < 10:
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert b"latency: p50" in out
    assert err.startswith(b"kafkalog: interrupted: these are ") and err.count(b"\n") == 1


def test_nobody_there(kafkalog: Command) -> None:
    """Every command prints one line, immediately."""
    from tests.support.apache import free_port

    where = ["--bootstrap-server", f"127.0.0.1:{free_port()}"]
    for words in (
        ["topics"],
        ["consume", "--topic", "t"],
        ["produce", "--topic", "t", str(ROOT / "LICENSE")],
        ["groups"],
        ["configs", "--topic", "t"],
        ["offsets"],
        ["perf", "produce", "--topic", "t"],
    ):
        ran = kafkalog(*words, *where)
        assert (ran.status, ran.out) == (1, "")
        hint = "nothing listens there; kafkalog serve starts a broker"
        assert ran.err == f"kafkalog: {where[1]}: Connection refused; {hint}\n"
    assert kafkalog("topics", "--bootstrap-server", "a:b:c").status == 2
    assert main(["topics", "--dir", "x", "--bootstrap-server", "y"]) == 2
    assert main(["topics"]) == 2


# ---- transactions --------------------------------------------------------------------------


def test_a_transaction_is_shown_and_aborted(at: Command, servers: str, topic: str) -> None:
    """It is listed, described, not reported as hanging, and still aborted on request."""
    from confluent_kafka import Producer

    name = f"{topic}-id"
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    hour_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    producer.produce(topic, b"v", partition=2, timestamp=hour_ago_ms)
    producer.flush(30)
    (row,) = [r for r in at("transactions", "--json").rows() if r["transactional_id"] == name]
    (told,) = at("transactions", "--describe", "--transactional-id", name, "--json").rows()
    assert (row["state"], told["producer_id"]) == ("Ongoing", row["producer_id"])
    assert told["partitions"] == [f"{topic}-2"]
    assert at("transactions", "find-hanging", "--topic", topic).out == "no hanging transaction\n"
    assert at("transactions", "find-hanging", "--broker-id", 1).out == "no hanging transaction\n"
    words = ["--topic", topic, "--partition", 2]
    at("transactions", "abort", *words, "--start-offset", 0, "--yes")
    (row,) = [r for r in at("offsets", topic, "--json").rows() if r["partition"] == 2]
    assert row["latest"] == 2  # the record and the marker
    producer.abort_transaction(30)
