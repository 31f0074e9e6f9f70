"""A broker for tests: restarts, power failures, its clock, its helpers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import ArgumentError, Closed
from kafkalog.inspect.verify.files import verify
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.port import Port
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S
from tests.unit.server.transactions.test_transactions import Client, ready

Wait = Callable[..., None]
WEEK_MS = 7 * 24 * 3_600_000


def values(broker: TestBroker, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


# ---- restarts ------------------------------------------------------------------------------------


def test_a_restart_keeps_address_and_records(broker: TestBroker) -> None:
    address = broker.bootstrap_servers
    broker.fill("t", ["a", ("k", "b")])
    broker.restart()
    assert broker.bootstrap_servers == address == broker.broker.bootstrap_servers
    assert [(r.key, r.value) for r in broker.records("t")] == [(None, b"a"), (b"k", b"b")]
    broker.fill("t", ["c"])
    assert values(broker)[-1] == b"c"


def test_connections_while_it_is_down_are_refused(broker: TestBroker) -> None:
    broker.stop()
    host, port = broker.bootstrap_servers.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    with pytest.raises(Closed, match=r"is down: start\(\) it"):
        broker.fill("t", ["a"])
    assert "down" in repr(broker)
    broker.start()
    assert broker.fill("t", ["a"]) == 1


def test_its_port_is_nobody_elses_while_it_is_down(broker: TestBroker) -> None:
    broker.kill()
    number = int(broker.bootstrap_servers.rpartition(":")[2])
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", number))
    with contextlib.closing(Port()) as another:
        assert another.number != number


# ---- a power failure -----------------------------------------------------------------------------


def test_a_kill_loses_exactly_the_unsynced_records(broker: TestBroker) -> None:
    """Records acknowledged with acks=all are on disk; later ones with acks=1 are not."""
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        assert raw.produce("t", b"kept", b"kept too", acks=-1).base_offset == 0
        assert raw.produce("t", b"lost", acks=1).base_offset == 2
        assert raw.produce("t", b"lost too", acks=1).base_offset == 3
        assert values(broker) == [b"kept", b"kept too", b"lost", b"lost too"]
        broker.kill()
        with pytest.raises(ConnectionError):
            raw.call(apis.API_VERSIONS, 0)
    broker.start()
    assert values(broker) == [b"kept", b"kept too"]
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.produce("t", b"next").base_offset == 2


def test_without_syncs_a_kill_takes_all_but_the_topic(tmp_path: Path) -> None:
    with TestBroker(tmp_path / "data", config={"kafkalog.durability": "os"}) as broker:
        broker.create_topic("t", 2)
        broker.fill("t", ["a", "b"], partition=1)
        broker.kill()
        broker.start()
        assert values(broker) == []
        broker.fill("t", ["c"], partition=1)
        assert [(r.partition, r.offset) for r in broker.records("t")] == [(1, 0)]


def test_a_kill_between_segments_cuts_at_the_synced_offset(broker: TestBroker) -> None:
    """Later segments are gone with all their files; the one before is truncated."""
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", segment_bytes=str(1 << 20))
        raw.produce("t", b"first")
        for _ in range(5):
            assert raw.produce("t", bytes(400_000), acks=1).error_code == ErrorCode.NONE
        folder = Path(broker.path, "t-0")
        assert len(list(folder.glob("*.log"))) > 1
        # A roll syncs the sealed segment in the background: whatever is synced by now counts.
        broker.kill()
    left = sorted(int(path.stem) for path in folder.glob("*.log"))
    broker.start()
    found = broker.records("t")
    assert [record.offset for record in found] == list(range(len(found)))
    assert found and left[-1] <= len(found)
    broker.stop()
    assert not verify(folder).findings


def test_committed_offsets_and_transactions_survive_a_kill(
    broker: TestBroker, wait_until: Wait
) -> None:
    """Offsets of a plain commit and of a committed transaction; not those of an open one."""
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 2)
        ready(raw, wait_until)
        row = {"partition_index": 1, "committed_offset": 7, "committed_metadata": ""}
        plain = raw.call(
            apis.OFFSET_COMMIT, 8, group_id="g", topics=[{"name": "t", "partitions": [row]}]
        )
        assert plain.topics[0].partitions[0].error_code == ErrorCode.NONE
        client = Client(raw)
        assert client.commit_offsets(5, version=5) is ErrorCode.NONE
        assert client.end(version=5).error_code == ErrorCode.NONE
        there = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
        wait_until(lambda: broker.committed("g") == there, "both count")
        assert client.commit_offsets(6, version=5) is ErrorCode.NONE
        assert client.end(False, version=5).error_code == ErrorCode.NONE
        client.add("t", 0)
        client.write("t", b"in it")
        assert client.end().error_code == ErrorCode.NONE
        client.add("t", 0)
        client.write("t", b"open")
    broker.kill()
    broker.start()
    assert values(broker) == [b"in it"]
    with Raw(broker.bootstrap_servers) as raw:
        ready(raw, wait_until)
        Client(raw)  # its InitProducerId ends the open transaction
    broker.wait_for_records("t", 1)
    assert broker.committed("g") == there


def test_all_of_a_killed_directory_is_whole(broker: TestBroker) -> None:
    """Offsets, transactions and metadata are valid, as after any crash."""
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 3)
        for number in range(3):
            raw.produce("t", b"kept", partition=number)
            raw.produce("t", b"lost", partition=number, acks=1)
        Client(raw)
    broker.kill()
    broker.start()
    broker.stop()
    found = verify(broker.path).findings
    # Some logs have not been opened since: their indexes are rebuilt when they are.
    assert {one.what for one in found} <= {"index-missing"}, found


# ---- silence -------------------------------------------------------------------------------------


def test_a_paused_broker_is_silent_and_goes_on(broker: TestBroker) -> None:
    with Raw(broker.bootstrap_servers) as raw, Raw(broker.bootstrap_servers) as other:
        raw.create("t")
        broker.pause()
        raw.send(apis.API_VERSIONS, 0, {})
        other.send(apis.PRODUCE, 9, produce_body("t", b"a"))
        late = Raw(broker.bootstrap_servers)  # the kernel accepts it
        for one in (raw, other):
            one.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                one.socket.recv(1)
            one.socket.settimeout(LIMIT_S)
        assert values(broker) == []
        broker.resume()
        assert raw.receive(apis.API_VERSIONS, 0).error_code == ErrorCode.NONE
        assert other.receive(apis.PRODUCE, 9).responses
        assert late.call(apis.API_VERSIONS, 0).error_code == ErrorCode.NONE
        late.close()
    assert values(broker) == [b"a"]


def test_a_paused_broker_can_be_stopped_and_killed(broker: TestBroker) -> None:
    for end in (broker.restart, broker.kill):
        broker.pause()
        broker.pause()  # has no further effect
        end()
        broker.start()
        assert broker.fill("t", ["a"]) == 1
    broker.resume()  # has no effect


def produce_body(topic: str, value: bytes) -> dict[str, Any]:
    from tests.support.batches import Row, batch

    part = {"index": 0, "records": batch([Row(value, b"k", 0)])}
    return {"acks": -1, "timeout_ms": 30_000,
            "topic_data": [{"name": topic, "partition_data": [part]}]}  # fmt: skip


# ---- its clock -----------------------------------------------------------------------------------


def test_a_session_expires_without_waiting(broker: TestBroker, wait_until: Wait) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        member = join(raw, "g", wait_until)
        beat = {"group_id": "g", "generation_id": 1, "member_id": member}
        assert raw.call(apis.HEARTBEAT, 3, **beat).error_code == ErrorCode.NONE
        broker.clock.advance(44_000)
        assert raw.call(apis.HEARTBEAT, 3, **beat).error_code == ErrorCode.NONE
        broker.clock.advance(46_000)
        # A heartbeat that arrived first would renew the session.
        wait_until(
            lambda: not raw.call(apis.DESCRIBE_GROUPS, groups=["g"]).groups[0].members,
            "the member is gone",
        )
        assert raw.call(apis.HEARTBEAT, 3, **beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def join(raw: Raw, group: str, wait_until: Wait) -> str:
    """Join as the only member of a group, in generation 1; returns the member id."""
    wait_until(
        lambda: raw.call(apis.FIND_COORDINATOR, 2, key=group).error_code == ErrorCode.NONE,
        "there is a coordinator",
    )
    asked = {"group_id": group, "session_timeout_ms": 45_000, "rebalance_timeout_ms": 60_000,
             "protocol_type": "consumer", "member_id": "",
             "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    found: list[Any] = []

    def joined() -> bool:
        found[:] = [raw.call(apis.JOIN_GROUP, 2, **asked)]
        return bool(found[0].error_code == ErrorCode.NONE)

    wait_until(joined, "the member joined")
    member = str(found[0].member_id)
    synced = raw.call(
        apis.SYNC_GROUP, 1, group_id=group, generation_id=1, member_id=member,
        assignments=[{"member_id": member, "assignment": b"x"}],
    )  # fmt: skip
    assert synced.error_code == ErrorCode.NONE
    return member


def test_a_transaction_times_out_without_waiting(broker: TestBroker) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        client = Client(raw, timeout_ms=60_000)
        client.add("t", 0)
        client.write("t", b"open")
        broker.fill("t", ["behind it"])
        assert values(broker) == []
        broker.clock.advance(80_000)  # the timeout, and the interval of the check
        assert broker.wait_for_records("t", 1)[0].value == b"behind it"


def test_retention_deletes_without_waiting(broker: TestBroker, wait_until: Wait) -> None:
    broker.create_topic("t", config={"retention.ms": str(WEEK_MS)})
    broker.fill("t", ["old"])
    broker.clock.advance(WEEK_MS - 3_600_000)
    broker.fill("t", ["new"])
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.offsets("t", -2).offset == 0
        broker.restart()  # the clock stays as it is
    broker.clock.advance(2 * WEEK_MS)
    wait_until(lambda: values(broker) == [], "both are deleted")
    broker.fill("t", ["newer"])
    assert [(r.offset, r.value) for r in broker.records("t")] == [(2, b"newer")]


def test_a_fetch_that_waits_is_answered_when_its_time_has_come(broker: TestBroker) -> None:
    """The data plane's timers use the same clock, and so does its wall clock."""
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", message_timestamp_type="LogAppendTime")
        broker.clock.advance(WEEK_MS)
        stamped = raw.produce("t", b"a").log_append_time_ms
        assert abs(stamped - broker.clock.now_ms()) < 60_000
        part = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
        raw.send(apis.FETCH, 11, {"max_wait_ms": 600_000, "min_bytes": 1, "max_bytes": 1 << 20,
                                  "topics": [{"topic": "t", "partitions": [part]}]})  # fmt: skip
        while broker.broker._node.reactor.stats().parked == 0:
            pass
        broker.clock.advance(600_000)
        assert raw.receive(apis.FETCH, 11).responses[0].partitions[0].error_code == ErrorCode.NONE


# ---- helpers -------------------------------------------------------------------------------------


def test_topics_are_filled_from_lists_and_files(broker: TestBroker, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\r\ntwo\n\nthree")
    assert broker.fill("lines", file) == 4
    assert values(broker, "lines") == [b"one", b"two", b"", b"three"]
    broker.create_topic("rows", 3)
    assert broker.fill("rows", [("k", None), b"v"], partition=2) == 2
    assert [(r.partition, r.key, r.value) for r in broker.records("rows")] == [
        (2, b"k", None), (2, None, b"v"),
    ]  # fmt: skip
    assert broker.fill("none", []) == 0
    assert broker.records("none") == []
    with pytest.raises(ArgumentError, match=r"found 'text', wanted several records"):
        broker.fill("rows", "text")
    with pytest.raises(ArgumentError, match="found int, wanted text, bytes or None"):
        broker.fill("rows", [7])  # type: ignore[list-item]


def test_failed_waits_report_wanted_and_found(broker: TestBroker) -> None:
    broker.fill("t", ["a", "b"])
    assert [r.value for r in broker.wait_for_records("t", 2)] == [b"a", b"b"]
    with pytest.raises(AssertionError, match=r"topic t: found 2 records \(the last: b'a', b'b'\), "
                                             r"wanted 3 within 0.01 s"):  # fmt: skip
        broker.wait_for_records("t", 3, 0.01)
    with pytest.raises(AssertionError, match=r"found 2 records.*, wanted 1 "):
        broker.wait_for_records("t", 1)
    with pytest.raises(AssertionError, match="topic no: found 0 records, wanted 1 "):
        broker.wait_for_records("no", 1, 0.01)
    commit(broker, "g", "t", 1)
    broker.assert_committed("g", {("t", 0): 1})
    with pytest.raises(AssertionError, match=r"group g: found {t-0: 1}, wanted {t-0: 2} within"):
        broker.assert_committed("g", {("t", 0): 2}, 0.01)


def commit(broker: TestBroker, group: str, topic: str, offset: int) -> None:
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    with Raw(broker.bootstrap_servers) as raw:
        raw.call(apis.FIND_COORDINATOR, 2, key=group)
        while (
            raw.call(
                apis.OFFSET_COMMIT, 5, group_id=group, generation_id_or_member_epoch=-1,
                member_id="", topics=[{"name": topic, "partitions": [part]}],
            ).topics[0].partitions[0].error_code
        ):  # fmt: skip
            pass


def test_helpers_look_past_faults(broker: TestBroker) -> None:
    every = apis.BY_KEY.values()
    faults = [broker.fail(api.key, "UNKNOWN_SERVER_ERROR", times=None) for api in every]
    broker.fill("t", ["a"])
    broker.create_topic("u")
    broker.delete_topics("u")
    assert values(broker) == [b"a"]
    assert broker.committed("nobody") == {}
    assert not any(fault.hits for fault in faults)
