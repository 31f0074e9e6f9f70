"""Fetch, answered in C: every version, bounds, limits, errors."""

from __future__ import annotations

import resource
import uuid

import pytest

from kafkalog._native import check, lib
from kafkalog.log.log import handle_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.batches import Row, batch
from tests.unit.plane.peer import ALL, FETCH_VERSIONS, Peer, named, one

NOW_MS = 1_700_000_000_000


def fill(log, count=3, value_bytes=10):
    """Batches of one record each."""
    for i in range(count):
        log.append(b"%0*d" % (value_bytes, i), timestamp_ms=NOW_MS + i)


def offsets(records: bytes) -> list[int]:
    return [header.base_offset for header in batches.headers(records)]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_each_version_returns_the_stored_bytes(served, peer, version):
    log = served.put()
    fill(log)
    stored = (served.folder / "t-0" / f"{0:020}.log").read_bytes()
    stored = stored[: sum(h.batch_bytes for h in batches.headers(stored))]
    found = peer.fetch_one(0, version=version)
    assert found.records == stored
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    assert found.aborted_transactions is None
    if version >= 5:
        assert found.log_start_offset == 0
    if version >= 11:
        assert found.preferred_read_replica == -1
    assert served.reactor.stats().fast == 1


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_at_the_end_records_are_empty_and_not_null(served, peer, version):
    fill(served.put())
    response = peer.fetch({("t", 0): 3}, version=version)
    assert response.throttle_time_ms == 0
    found = response.responses[0].partitions[0]
    assert (found.error_code, found.records, found.high_watermark) == (0, b"", 3)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("offset", [-1, 4, 1 << 60])
def test_an_offset_out_of_range(served, peer, version, offset):
    fill(served.put())
    found = peer.fetch_one(offset, version=version)
    assert (found.error_code, found.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    assert (found.high_watermark, found.last_stable_offset) == (-1, -1)
    assert found.log_start_offset == -1


def test_an_offset_inside_of_a_batch_returns_the_whole_batch(served, peer):
    served.put()
    peer.produce_one(batch([Row(b"v", None, NOW_MS)] * 10))
    assert offsets(peer.fetch_one(7).records) == [0]


def test_log_start_moves_are_seen(served, peer):
    log = served.put()
    fill(log, 5)
    log.delete_before(2)
    found = peer.fetch_one(2)
    assert (found.log_start_offset, offsets(found.records)[0]) == (2, 2)
    assert peer.fetch_one(1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# ---- limits --------------------------------------------------------------------------------------


def test_partition_limit_cuts_at_whole_batches(served, peer):
    fill(served.put(), 10)
    whole = peer.fetch_one(0).records
    batch_bytes = next(batches.headers(whole)).batch_bytes
    for limit, count in [(batch_bytes * 3, 3), (batch_bytes * 3 + 50, 3), (1, 1), (0, 1)]:
        found = peer.fetch_one(0, partition_max_bytes=limit)
        assert offsets(found.records) == list(range(count))


def test_request_limit_is_shared_in_the_order_of_the_request(served, peer):
    served.put(partitions=3)
    for log in served.logs.values():
        fill(log, 10, 100)
    wanted = {("t", 2): 0, ("t", 0): 0, ("t", 1): 0}
    all_of_it = peer.fetch(wanted)
    one_bytes = len(all_of_it.responses[0].partitions[0].records)
    parts = peer.fetch(wanted, max_bytes=one_bytes + one_bytes // 2).responses[0].partitions
    assert [part.partition_index for part in parts] == [2, 0, 1]
    assert [len(offsets(part.records)) for part in parts] == [10, 5, 0]
    parts = peer.fetch(wanted, max_bytes=0).responses[0].partitions
    assert [len(offsets(part.records)) for part in parts] == [1, 0, 0]


def test_fetch_max_bytes_of_the_broker_is_a_limit(serve):
    served = serve(**{"fetch.max.bytes": 2000})
    peer = served.connect()
    fill(served.put(), 30, 200)
    assert len(peer.fetch_one(0).records) <= 2000


def test_a_fetch_ends_with_its_segment(served, peer):
    log = served.put(config={"segment.bytes": 1000})
    fill(log, 30, 100)
    seen, offset = 0, 0
    while offset < 30:
        found = peer.fetch_one(offset)
        assert offsets(found.records)[0] == offset
        seen += 1
        offset = list(batches.headers(found.records))[-1].last_offset + 1
    assert seen == len(log.segments)


def test_emptied_batches_are_skipped(served, peer):
    """Only an empty batch is left of a segment: some clients would fetch it again forever."""
    log = served.put(config={"segment.bytes": 100, "cleanup.policy": "compact"})
    for key in (b"a", b"a", b"a", b"b"):
        log.append(b"value", key=key)
    assert len(log.segments) == 4
    log.compact()
    sizes = [segment.size_bytes for segment in log.segments]
    assert sizes[:2] == [61, 61] and min(sizes[2:]) > 61
    assert offsets(peer.fetch_one(0).records) == [2]
    assert offsets(peer.fetch_one(1).records) == [2]
    assert offsets(peer.fetch_one(3).records) == [3]


def test_the_end_of_a_log_that_compaction_emptied_is_told(served, peer):
    """Nothing follows: the client continues after the empty batch."""
    log = served.put(config={"segment.bytes": 100, "cleanup.policy": "compact"})
    for _ in range(3):
        log.append(b"value", key=b"a")
    log.compact()
    log.truncate(1)
    (header,) = batches.headers(peer.fetch_one(0).records)
    assert (header.last_offset, header.record_count) == (0, 0)
    assert peer.fetch_one(1, max_wait_ms=0).records == b""


def test_large_reads_arrive_whole(served, peer):
    log = served.put()
    for i in range(20):
        log.append(bytes([i]) * 500_000)
    found = peer.fetch_one(0, partition_max_bytes=50 << 20)
    assert offsets(found.records) == list(range(20))
    for header in batches.headers(found.records):
        assert batches.crc_is_right(found.records, header)


@pytest.mark.parametrize("size", [100, 200_000])
def test_no_memory_is_allocated_after_the_first_fetches(served, peer, faults, size):
    """Copied, or sent from the file: one batch, as many as fit, and none."""
    log = served.put()
    for _ in range(60):
        log.append(bytes(size))

    def rounds(count):
        for offset in range(count):
            peer.fetch_one(3 * offset, partition_max_bytes=1 << 20)
            peer.fetch_one(log.end_offset - 1 - offset, partition_max_bytes=100)
            peer.fetch_one(log.end_offset, max_wait_ms=0)

    rounds(20)
    before = faults.kl_io_calls(b"alloc"), served.reactor.stats().allocations
    rounds(20)
    assert (faults.kl_io_calls(b"alloc"), served.reactor.stats().allocations) == before


# ---- what may be read ----------------------------------------------------------------------------


def test_read_committed_ends_at_an_open_transaction(served, peer):
    log = served.put()
    fill(log, 2)
    rows = [Row(b"t", None, NOW_MS)]
    log.append_batches(
        batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    fill(log, 1)
    committed = peer.fetch_one(0, isolation_level=1)
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 2)
    assert offsets(committed.records) == [0, 1]
    assert committed.aborted_transactions == []
    assert offsets(peer.fetch_one(0).records) == [0, 1, 2, 3]
    log.append_marker(7, 0, False, timestamp_ms=NOW_MS)
    committed = peer.fetch_one(0, isolation_level=1)
    assert committed.last_stable_offset == 5
    (aborted,) = committed.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (7, 2)
    assert peer.fetch_one(0).aborted_transactions is None


def test_many_aborted_transactions_are_all_named(served, peer):
    log = served.put()
    rows = [Row(b"t", None, NOW_MS)]
    for i in range(100):
        log.append_batches(
            batch(rows, producer_id=i, producer_epoch=0, base_sequence=0, transactional=True)
        )
        log.append_marker(i, 0, False, timestamp_ms=NOW_MS)
    for version in FETCH_VERSIONS:
        found = peer.fetch_one(0, isolation_level=1, version=version)
        assert sorted(a.producer_id for a in found.aborted_transactions) == list(range(100))


def test_leader_epochs_are_checked(served, peer):
    log = served.put(leader_epoch=5)
    served.reactor.put_partition(handle_of(log), leader_epoch=5, durable=False)
    fill(log)
    for version in FETCH_VERSIONS:
        if version < 9:
            continue
        codes = [
            peer.fetch_one(0, current_leader_epoch=epoch, version=version).error_code
            for epoch in (-1, 4, 5, 6)
        ]
        assert codes == [0, ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH]


@pytest.mark.parametrize("rack", [None, "r1"])
def test_a_fenced_fetch_gets_the_current_leader(served, peer, rack):
    fill(served.put(leader_epoch=5))
    served.reactor.set_endpoints(
        0, [{"node_id": 1, "host": "broker.example", "port": 9092, "rack": rack}]
    )
    for version in (15, 16, 17):
        wanted = {("t", 0): {"fetch_offset": 0, "current_leader_epoch": 1}}
        response = peer.fetch(wanted, version=version)
        leader = response.responses[0].partitions[0].current_leader
        if version < 16:
            assert leader.leader_id == -1
            continue
        assert (leader.leader_id, leader.leader_epoch) == (1, 5)
        (node,) = response.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (1, "broker.example", 9092, rack)


def test_a_diverging_epoch_is_told(served, peer):
    log = served.put(leader_epoch=0)
    fill(log, 3)
    check(lib.kl_log_set_leader_epoch(log._c, 2))
    fill(log, 2)
    served.reactor.put_partition(handle_of(log), leader_epoch=2, durable=False)
    for version in (12, 13, 17):
        same = peer.fetch_one(5, last_fetched_epoch=2, version=version)
        assert (same.error_code, same.diverging_epoch.end_offset) == (0, -1)
        found = peer.fetch_one(5, last_fetched_epoch=1, version=version)
        diverging = found.diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (0, 3)
        assert (found.error_code, found.records) == (0, b"")
        late = peer.fetch_one(3, last_fetched_epoch=7, version=version)
        assert late.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_followers_are_refused(served, peer, version):
    fill(served.put())
    who = (
        {"replica_state": {"replica_id": 2, "replica_epoch": 1}}
        if version >= 15
        else {"replica_id": 2}
    )
    assert peer.fetch_one(0, version=version, **who).error_code == 6


def test_zstd_topics_want_version_10(served, peer):
    fill(served.put(zstd=True))
    for version in FETCH_VERSIONS:
        code = peer.fetch_one(0, version=version).error_code
        assert code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 10 else 0)


# ---- missing topics and partitions ---------------------------------------------------------------


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_unknown_partitions_go_to_python_once(served, peer, version):
    fill(served.put())
    peer.send_fetch({("t", 0): 0, ("t", 5): 0, ("u", 0): 0, ("v", 0): 0}, version=version)
    request = served.reactor.take(20_000)
    assert (request.api_key, request.api_version) == (1, version)
    fill(served.put("u"), 1)
    request.again()
    codes = {}
    for topic in peer.receive().responses:
        for part in topic.partitions:
            codes[topic.topic if version < 13 else topic.topic_id, part.partition_index] = (
                part.error_code
            )
    key = "topic" if version < 13 else "topic_id"
    t, u, v = (named(name, version)[key] for name in "tuv")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = unknown if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
    assert codes == {(t, 0): 0, (t, 5): unknown, (u, 0): 0, (v, 0): missing}


def test_a_topic_that_was_made_again_has_another_id(served, peer):
    fill(served.put())
    old = peer.fetch_one(0, version=13)
    assert old.error_code == 0
    served.reactor.put_topic("t", uuid.UUID(int=77))
    peer.send_fetch({("t", 0): 0}, version=13)
    served.reactor.take(20_000).again()
    (topic,) = peer.receive().responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_empty_fetch_is_answered_at_once(served, peer):
    for version in FETCH_VERSIONS:
        assert peer.fetch({}, version=version, max_wait_ms=100_000).responses == []


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("cut", [1, 3, 20])
def test_a_body_cut_short_closes_the_connection(served, peer, version, cut):
    served.put()
    topics = [
        {
            **named("t", version),
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}],
        }
    ]
    body = apis.FETCH.encode_request(version, {"max_wait_ms": 0, "min_bytes": 0, "topics": topics})
    peer.send_body(apis.FETCH, version, body[:-cut])
    assert peer.is_closed()


def test_tagged_fields_are_passed_over(served, peer):
    fill(served.put())
    fields = {
        "cluster_id": "abc",
        "max_wait_ms": 0,
        "min_bytes": 0,
        "topics": [
            {
                **named("t", 17),
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": 1,
                        "partition_max_bytes": 999,
                        "replica_directory_id": uuid.UUID(int=3),
                    }
                ],
            }
        ],
    }
    response = peer.ask(apis.FETCH, 17, fields)
    assert offsets(response.responses[0].partitions[0].records) == [1, 2]


def test_truncation_and_deletion_do_not_disturb_a_slow_reader(served, peer):
    """A response holds its file open, whatever happens to the log."""
    log = served.put(config={"segment.bytes": 2 << 20, "max.message.bytes": 2 << 20})
    for i in range(4):
        log.append(bytes([i]) * 1_900_000)
    peer.send_fetch({("t", 0): 0}, version=11)
    peer.socket.recv(4, 2)  # MSG_PEEK: the response is in flight
    log.delete_before(3)
    log.apply_retention()
    found = peer.receive().responses[0].partitions[0]
    (header,) = batches.headers(found.records)
    assert batches.crc_is_right(found.records, header)
    other = served.connect()
    assert other.fetch_one(0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slow_consumer_does_not_stop_others(serve):
    served = serve(**{"num.network.threads": 1})
    log = served.put()
    for _ in range(10):
        log.append(bytes(1_000_000))
    slow = [served.connect() for _ in range(3)]
    for peer in slow:
        peer.send_fetch({("t", 0): {"fetch_offset": 0, "partition_max_bytes": 20_000_000}})
    quick = served.connect()
    for i in range(50):
        assert quick.produce_one(one(), acks=ALL).base_offset == 10 + i
    for peer in slow:
        assert len(offsets(peer.receive().responses[0].partitions[0].records)) == 10


def test_pipelined_requests_are_answered_in_order(served, peer: Peer):
    served.put()
    for _ in range(50):
        peer.send_produce({("t", 0): one()})
        peer.send_fetch({("t", 0): 0})
    for i in range(50):
        assert peer.receive().responses[0].partition_responses[0].base_offset == i
        found = peer.receive().responses[0].partitions[0]
        assert offsets(found.records) == list(range(i + 1))


def large_partitions(served, count: int) -> dict[tuple[str, int], int]:
    """A topic whose partitions have one batch of 10 KB each, and a fetch of them all."""
    served.put(partitions=count)
    for partition in range(count):
        served.logs["t", partition].append(bytes(10_000))
    return {("t", partition): 0 for partition in range(count)}


def with_records(response) -> list[int]:
    return [p.partition_index for t in response.responses for p in t.partitions if p.records]


def test_an_answer_has_so_many_pieces_of_files_and_the_rest_comes_later(served, peer):
    """One answer keeps 64 files open; later batches are copied, up to 64 KiB."""
    wanted = large_partitions(served, 150)
    first = peer.fetch(wanted, version=12, session_id=0, session_epoch=0)
    assert with_records(first) == list(range(70))
    second = peer.fetch(
        {("t", p): 1 for p in range(70)}, version=12, session_id=first.session_id, session_epoch=1
    )
    assert with_records(second) == list(range(70, 140))
    for topic in [*first.responses, *second.responses]:
        for found in topic.partitions:
            if found.records:
                (header,) = batches.headers(found.records)
                assert batches.crc_is_right(found.records, header)


def test_answers_that_are_not_read_leave_files_for_others(serve, wait_until):
    """All of them may use an eighth of the process's descriptors; later answers are copies."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 800), hard))
    try:
        served = serve(**{"socket.send.buffer.bytes": 4096})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wanted = large_partitions(served, 80)
    for _ in range(6):
        served.connect().send_fetch(wanted, version=12)
    wait_until(lambda: served.reactor.stats().pinned > 90, "nearly all are taken")
    assert served.reactor.stats().pinned <= 100 + 2  # plus one per network thread, while it copies
    reader = served.connect()
    assert len(with_records(reader.fetch(wanted, version=12))) >= 6
    assert reader.produce_one(one(), ("t", 3), acks=ALL).error_code == 0
    for peer in served.peers:
        peer.close()
    wait_until(lambda: served.reactor.stats().pinned == 0, "all are free again")
