"""Produce, answered in C: every version, every refusal."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import crc32c
import pytest

from kafkalog.errors import ArgumentError
from kafkalog.log.log import handle_of
from kafkalog.replication.followers import Follower
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.batches import Row, batch
from tests.unit.plane.peer import ALL, LEADER, NONE, PRODUCE_VERSIONS, Peer, Served, one

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("acks", [LEADER, ALL])
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_each_version_appends_and_tells_the_offset(served, peer, version, acks):
    log = served.put()
    for expected in range(3):
        found = peer.produce_one(one(b"v%d" % expected), version=version, acks=acks)
        assert (found.error_code, found.base_offset) == (0, expected)
        assert found.log_append_time_ms == -1
        if version >= 5:
            assert found.log_start_offset == 0
    assert [record.value for record in log.read(0)] == [b"v0", b"v1", b"v2"]
    assert served.reactor.stats().fast == 3


def test_a_batch_is_stored_as_it_came_but_for_offset_and_epoch(served, peer):
    log = served.put(leader_epoch=0)
    sent = batch([Row(b"a", b"k", NOW_MS), Row(None, b"k", NOW_MS + 5, [("h", b"x")])])
    peer.produce_one(one())
    assert peer.produce_one(sent).base_offset == 1
    stored = (served.folder / "t-0" / f"{0:020}.log").read_bytes()[len(one()) :]
    header = next(batches.headers(stored))
    assert header.base_offset == 1 and header.leader_epoch == 0
    assert batches.crc_is_right(stored, header)
    assert stored[16 : len(sent)] == sent[16:]
    assert log.end_offset == 3


def test_many_partitions_are_answered_in_the_order_of_the_request(served, peer):
    served.put("a", 3)
    served.put("b", 2)
    places = [("b", 1), ("b", 0), ("a", 2), ("a", 0), ("a", 1)]
    response = peer.produce({place: one() for place in places}, version=11)
    found = [
        (t.name, p.index, p.error_code) for t in response.responses for p in t.partition_responses
    ]
    assert found == [(*place, 0) for place in places]


def test_a_batch_of_all_offsets_that_there_are(served, peer):
    """Refused before anything is done with it: the sum of its offsets would overflow."""
    log = served.put()
    assert peer.produce_one(one()).error_code == ErrorCode.NONE
    sent = bytearray(one())
    struct.pack_into(">i", sent, 23, 2**31 - 1)
    struct.pack_into(">I", sent, 17, crc32c.crc32c(bytes(sent[21:])))
    assert peer.produce_one(bytes(sent)).error_code != ErrorCode.NONE
    assert (len(log.segments), log.end_offset) == (1, 1)


def test_acks_0_has_no_response(served, peer):
    log = served.put()
    for _ in range(3):
        peer.send_produce({("t", 0): one()}, acks=NONE)
        peer.expects_nothing()
    assert peer.produce_one(one()).base_offset == 3
    assert log.end_offset == 4


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_an_error_with_acks_0_closes_the_connection(served, peer, version):
    served.put()
    peer.send_produce({("t", 0): b"no batch"}, acks=NONE, version=version)
    assert peer.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(served, peer, acks):
    log = served.put()
    found = peer.produce_one(one(), acks=acks)
    assert found.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert (found.base_offset, found.log_start_offset) == (-1, -1)
    assert log.end_offset == 0


def old_produce(version: int, acks: int) -> bytes:
    records = b"\0" * 26
    partition = struct.pack(">ii", 0, len(records)) + records
    return struct.pack(">hii", acks, 1000, 1) + b"\0\1t" + struct.pack(">i", 1) + partition


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_are_refused_in_their_own_layout(served, peer, version):
    served.put()
    peer.send_body(apis.PRODUCE, version, old_produce(version, 1), old=True)
    wanted = struct.pack(">i", 1) + b"\0\1t" + struct.pack(">iihq", 1, 0, 35, -1)
    wanted += struct.pack(">q", -1) if version >= 2 else b""
    wanted += struct.pack(">i", 0) if version >= 1 else b""
    assert peer.receive_frame()[4:] == wanted


def test_an_old_version_with_acks_0_closes_the_connection(served, peer):
    served.put()
    peer.send_body(apis.PRODUCE, 2, old_produce(2, 0), old=True)
    assert peer.is_closed()


# ---- what is refused -----------------------------------------------------------------------------


def changed(data: bytes, pos: int, new: bytes) -> bytes:
    """The batch with other bytes at `pos` and a correct CRC."""
    whole = bytearray(data)
    whole[pos : pos + len(new)] = new
    if pos < 21:
        return bytes(whole)
    return batches.seal(bytes(whole[21:]))


ROWS = [Row(b"a", b"k", NOW_MS), Row(b"b", b"k", NOW_MS)]
REFUSED = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "half a batch": (batch(ROWS)[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (batch(ROWS) * 2, ErrorCode.INVALID_RECORD),
    "magic 1": (changed(batch(ROWS), 16, b"\1"), ErrorCode.INVALID_RECORD),
    "crc": (changed(batch(ROWS), 17, b"\0\0\0\0"), ErrorCode.CORRUPT_MESSAGE),
    "length": (changed(batch(ROWS), 8, b"\0\0\0\1"), ErrorCode.CORRUPT_MESSAGE),
    "base offset": (changed(batch(ROWS), 0, struct.pack(">q", 7)), ErrorCode.INVALID_RECORD),
    "count": (changed(batch(ROWS), 57, struct.pack(">i", 1)), ErrorCode.INVALID_RECORD),
    "control": (changed(batch(ROWS), 21, b"\0\x20"), ErrorCode.INVALID_RECORD),
    "time type": (changed(batch(ROWS), 21, b"\0\x08"), ErrorCode.INVALID_TIMESTAMP),
    "codec 5": (changed(batch(ROWS), 21, b"\0\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no sequence": (batch(ROWS, producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
    "transaction": (
        batch(ROWS, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "too large": (one(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
}  # fmt: skip


@pytest.mark.parametrize("version", [3, 8, 11])
@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_batch_has_its_error_and_changes_nothing(served, peer, name, version):
    data, code = REFUSED[name]
    log = served.put(partitions=2)
    response = peer.produce({("t", 0): data, ("t", 1): one()}, version=version)
    bad, good = response.responses[0].partition_responses
    assert (bad.error_code, bad.base_offset) == (code, -1)
    assert (good.error_code, good.base_offset) == (0, 0)
    assert log.end_offset == 0
    if version >= 8:
        assert bad.error_message and str(served.folder) not in bad.error_message
        assert good.error_message is None


def test_a_batch_larger_than_a_segment_is_refused(served, peer):
    served.put(config={"segment.bytes": 1000})
    assert peer.produce_one(one(bytes(1100))).error_code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_zstd_wants_version_7(served, peer):
    served.put()
    data = batch(ROWS, codec="zstd")
    for version in PRODUCE_VERSIONS:
        code = peer.produce_one(data, version=version).error_code
        assert code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else 0)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_taken_as_they_are(served, peer, codec):
    log = served.put()
    assert peer.produce_one(batch(ROWS, codec=codec)).base_offset == 0
    assert [record.value for record in log.read(0)] == [b"a", b"b"]
    assert served.reactor.stats().fast == 1


def test_record_errors_name_each_record_without_a_key(served, peer):
    served.put(config={"cleanup.policy": "compact"})
    rows = [Row(b"a", b"k", NOW_MS), Row(b"b", None, NOW_MS), Row(b"c", None, NOW_MS)]
    found = peer.produce_one(batch(rows), version=8)
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in found.record_errors] == [1, 2]
    assert "without a key" in found.record_errors[0].batch_index_error_message
    assert "t-0" in found.error_message


def test_record_errors_name_each_record_out_of_time(served, peer):
    served.put(config={"message.timestamp.before.max.ms": 1000})
    rows = [Row(b"a", None, NOW_MS), Row(b"b", None, 4_000_000_000_000)]
    found = peer.produce_one(batch(rows), version=11)
    assert found.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in found.record_errors] == [0]


def test_log_append_time_is_stamped_and_told(served, peer):
    log = served.put(config={"message.timestamp.type": "LogAppendTime"})
    found = peer.produce_one(batch(ROWS), version=7)
    assert found.log_append_time_ms > NOW_MS
    assert {r.timestamp_ms for r in log.read(0)} == {found.log_append_time_ms}


def test_internal_topics_are_the_admin_clients_alone(served, peer):
    served.put("__consumer_offsets", internal=True)
    place = ("__consumer_offsets", 0)
    assert peer.produce_one(one(), place).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert peer.produce_one(one(), place, client_id="__admin_client").error_code == 0
    assert peer.produce_one(one(), place, client_id=None).error_code == 17


# ---- idempotent producers ------------------------------------------------------------------------


def idempotent(sequence: int, rows: int = 1, epoch: int = 0, producer_id: int = 9) -> bytes:
    listed = [Row(b"v", b"k", NOW_MS)] * rows
    return batch(listed, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_a_repeated_batch_succeeds_with_its_old_offset(served, peer, acks):
    log = served.put()
    for sequence in range(0, 6, 2):
        assert peer.produce_one(idempotent(sequence, 2), acks=acks).base_offset == sequence
    again = peer.produce_one(idempotent(2, 2), acks=acks)
    assert (again.error_code, again.base_offset) == (0, 2)
    assert log.end_offset == 6


def test_sequences_and_epochs_are_checked(served, peer):
    served.put()
    peer.produce_one(idempotent(0))
    assert peer.produce_one(idempotent(2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert peer.produce_one(idempotent(0, epoch=1)).error_code == 0
    assert peer.produce_one(idempotent(1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert peer.produce_one(idempotent(5, epoch=2)).error_code == 45
    assert peer.produce_one(idempotent(7, producer_id=77)).error_code == 0


def test_a_sequence_without_a_producer_is_no_sequence(served, peer):
    """aiokafka sends base sequence 0 with producer id -1."""
    served.put()
    data = batch([Row(b"v")], base_sequence=0)
    assert [peer.produce_one(data).error_code for _ in range(3)] == [0, 0, 0]


# ---- requests that Python decides ----------------------------------------------------------------


def test_an_unknown_partition_goes_up_and_comes_back(served, peer):
    served.put()
    peer.send_produce({("t", 0): one(), ("t", 3): one(), ("u", 0): one()})
    request = served.reactor.take(20_000)
    assert (request.api_key, request.api_version) == (0, 9)
    wanted = apis.PRODUCE.decode_request(9, request.body)
    assert [topic.name for topic in wanted.topic_data] == ["t", "u"]
    assert served.logs["t", 0].end_offset == 0
    served.put("u")
    request.again()
    topics = peer.receive().responses
    codes = [p.error_code for topic in topics for p in topic.partition_responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert served.reactor.stats().fast == 0


def test_compressed_batches_go_up_where_they_are_looked_into(served, peer):
    served.put(look_inside=True)
    assert peer.produce_one(batch(ROWS)).error_code == 0
    peer.send_produce({("t", 0): batch(ROWS, codec="gzip")})
    request = served.reactor.take(20_000)
    sent = apis.PRODUCE.decode_request(9, request.body).topic_data[0].partition_data[0].records
    assert sent == batch(ROWS, codec="gzip")
    appended = served.reactor.append("t", 0, sent)
    assert served.reactor.wait("t", 0, appended.last_offset + 1, 0)
    body = apis.PRODUCE.encode_response(9, {"responses": []})
    request.answer(body, 1)
    assert list(peer.receive().responses) == []
    assert served.logs["t", 0].end_offset == 4


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("cut", [1, 2, 5, 9])
def test_a_body_cut_short_closes_the_connection(served, peer, version, cut):
    served.put()
    fields = {
        "transactional_id": None, "acks": 1, "timeout_ms": 0,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": one()}]}],
    }  # fmt: skip
    whole = apis.PRODUCE.encode_request(version, fields)
    peer.send_body(apis.PRODUCE, version, whole[:-cut])
    assert peer.is_closed()
    assert served.logs["t", 0].end_offset == 0


def test_bytes_behind_a_body_close_the_connection(served, peer):
    served.put()
    fields = {"transactional_id": None, "acks": 1, "timeout_ms": 0, "topic_data": []}
    peer.send_body(apis.PRODUCE, 9, apis.PRODUCE.encode_request(9, fields) + b"\0")
    assert peer.is_closed()


def test_the_fast_path_never_goes_up(served, peer):
    """No Python runs per record, per batch or per request."""
    served.put(partitions=4)
    rows = [Row(b"v", b"k", NOW_MS)] * 100
    for _ in range(25):
        peer.produce({("t", p): batch(rows) for p in range(4)}, acks=ALL)
        peer.fetch({("t", p): 0 for p in range(4)})
    stats = served.reactor.stats()
    assert (stats.fast, stats.queued) == (50, 0)
    assert served.reactor.take(0) is None


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_no_memory_is_allocated_after_the_first_requests(served, peer, faults, acks):
    """With one request in flight, frame, request and response reuse memory of earlier ones."""
    served.put(durable=acks == ALL)
    for _ in range(20):
        peer.produce_one(one(), acks=acks)
        peer.fetch_one(0, max_wait_ms=0, partition_max_bytes=100)
    rounds = []
    for _ in range(3):  # other threads of this process may allocate during one
        before = faults.kl_io_calls(b"alloc"), served.reactor.stats().allocations
        for _ in range(50):
            peer.produce_one(one(), acks=acks)
        after = faults.kl_io_calls(b"alloc"), served.reactor.stats().allocations
        rounds.append((after[0] - before[0], after[1] - before[1]))
    assert (0, 0) in rounds


# ---- a refusal names the leader (KIP-951) ----------------------------------------------------


def node_at(number: int, rack: str | None = None) -> dict[str, Any]:
    return {"node_id": number, "host": f"b{number}.example", "port": 9000 + number, "rack": rack}


def led_by(served: Served, leaders: Sequence[int], epoch: int = 5) -> None:
    """A topic whose partitions other nodes lead."""
    served.put(partitions=len(leaders))
    for number, leader in enumerate(leaders):
        served.reactor.put_partition(
            handle_of(served.logs["t", number]), leader_epoch=epoch, durable=False, led_by=leader
        )


@pytest.mark.parametrize("acks", [ALL, LEADER])
@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_refusal_names_the_leader(served: Served, peer: Peer, version: int, acks: int) -> None:
    """Each node appears once; one without an endpoint on the listener is named without it, and an
    unknown one not at all."""
    led_by(served, [2, 3, 2, 4, -1])
    served.reactor.set_endpoints(0, [node_at(1), node_at(3), node_at(2, "r")])
    served.reactor.set_endpoints(1, [node_at(4)])
    sent = {("t", number): one() for number in range(5)}
    found = peer.produce(sent, version=version, acks=acks)
    rows = found.responses[0].partition_responses
    assert {row.error_code for row in rows} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    if version < 10:
        return
    leaders = [(row.current_leader.leader_id, row.current_leader.leader_epoch) for row in rows]
    assert leaders == [(2, 5), (3, 5), (2, 5), (4, 5), (-1, -1)]
    nodes = [(n.node_id, n.host, n.port, n.rack) for n in found.node_endpoints]
    assert nodes == [(2, "b2.example", 9002, "r"), (3, "b3.example", 9003, None)]


def test_other_refusals_name_no_leader(served: Served, peer: Peer) -> None:
    served.put(partitions=2)
    served.reactor.set_endpoints(0, [node_at(1)])
    found = peer.produce({("t", 0): one(), ("t", 1): b"wrong"}, version=11)
    rows = found.responses[0].partition_responses
    assert [row.error_code for row in rows] == [0, ErrorCode.INVALID_RECORD]
    assert [row.current_leader.leader_id for row in rows] == [-1, -1]
    assert found.node_endpoints == []


def test_one_answer_says_of_so_many_nodes_where_they_are(served: Served, peer: Peer) -> None:
    """Clients ask for the addresses of the others."""
    nodes = range(100, 140)
    led_by(served, nodes)
    served.reactor.set_endpoints(0, [node_at(number) for number in nodes])
    sent = {("t", number): one() for number in range(40)}
    found = peer.produce(sent, version=11)
    rows = found.responses[0].partition_responses
    assert [row.current_leader.leader_id for row in rows] == list(nodes)
    assert [node.node_id for node in found.node_endpoints] == list(nodes[:32])


def test_a_waiting_produce_is_told_the_new_leader(
    served: Served, peer: Peer, wait_until: Any
) -> None:
    log = served.put()
    served.reactor.set_followers("t", 0, [Follower(2, True, True, 7)])
    served.reactor.set_endpoints(0, [node_at(2)])
    peer.send_produce({("t", 0): one()}, version=11, acks=ALL)
    wait_until(lambda: served.parked() == 1, "the produce waits")
    served.reactor.put_partition(handle_of(log), leader_epoch=6, durable=False, led_by=2)
    found = peer.receive()
    leader = found.responses[0].partition_responses[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 6)
    assert [node.node_id for node in found.node_endpoints] == [2]


def test_where_nodes_are_has_bounds(served: Served) -> None:
    led_by(served, [1, 2])
    long = "h" * 256
    served.reactor.set_endpoints(0, [{**node_at(1), "host": long}, {**node_at(2), "rack": long}])
    found = served.connect().produce({("t", 0): one(), ("t", 1): one()}, version=10)
    assert [(node.node_id, node.rack) for node in found.node_endpoints] == [(2, None)]
    with pytest.raises(ArgumentError, match="endpoints of 10001 nodes, wanted 0 to 10000"):
        served.reactor.set_endpoints(0, [node_at(number) for number in range(10_001)])
