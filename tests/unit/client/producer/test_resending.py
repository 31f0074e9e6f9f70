"""Temporary and final failures, limits, and how a producer ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.buffer.delivery import Delivery
from kafkalog.client.link.failures import failure_class
from kafkalog.client.producer.producer import Producer
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, STALL, Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.producer.producing import (
    PRODUCER_ID,
    Batch,
    batches,
    hurried,
    make,
    single,
    wide,
)

SELDOM: dict[str, object] = {"retry.backoff.ms": 100, "retry.backoff.max.ms": 100}
"""For timeouts that must be long enough for a busy machine: retries come less often."""

# ---- retries -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        produced([ErrorCode.NOT_LEADER_OR_FOLLOWER]),
        produced([ErrorCode.NOT_ENOUGH_REPLICAS]),
        produced([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        CLOSE,
        STALL,
    ],
    ids=["leader", "replicas", "unknown", "close", "stall"],
)
def test_failed_batches_are_resent_in_order(broker: Peer, trouble: Any) -> None:
    """The same bytes with the same sequences; nothing overtakes them.  With a short timeout, a busy
    machine may cause another retry."""
    done: list[Delivery] = []
    broker.on(apis.PRODUCE, produced([]), trouble, produced([]))
    values = [wide(i) for i in range(12)]
    patience_ms = 1_000 if trouble is STALL else 20_000
    with single(
        broker, in_flight=1, request_timeout_ms=patience_ms, on_delivery=done.append
    ) as producer:
        for value in values:
            producer.send("t", value, partition=0)
    found = batches(broker)
    sequences = [b.sequence for b in found]
    assert sequences.count(1) > 1 and sorted(sequences) == sequences
    assert trouble is STALL or len(sequences) == 13
    assert [b.values() for b in found] == [[values[number]] for number in sequences]
    assert {*sequences} == {*range(12)}
    assert sum(d.count for d in done) == 12


def strict(trouble: list[int]) -> Any:
    """A broker that checks sequences, and fails some requests before that."""
    wanted = [0]

    def answer(request: Any, version: int) -> Any:
        row = request.topic_data[0].partition_data[0]
        batch = Batch(row.index, bytes(row.records))
        if trouble and (code := trouble.pop(0)):
            return produced([code])(request, version)
        if batch.sequence != wanted[0]:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return produced([code])(request, version)
        wanted[0] += len(batch.records)
        taken.extend(batch.values())
        return produced([])(request, version)

    taken: list[bytes | None] = []
    answer.taken = taken  # type: ignore[attr-defined]
    return answer


@pytest.mark.parametrize("trouble", [[6], [0, 19, 0, 0, 0, 7, 6], [0, 0, 2, 0, 2, 2]], ids=str)
def test_batches_after_a_failed_one_are_resent_after_it(broker: Peer, trouble: list[int]) -> None:
    """With several in flight, one fails, so the broker refuses those that follow it."""
    judge = strict(trouble)
    broker.on(apis.PRODUCE, judge)
    values = [wide(i) for i in range(20)]
    with single(broker, in_flight=3) as producer:
        for value in values:
            producer.send("t", value, partition=0)
    assert judge.taken == values


def test_a_duplicate_is_a_success(broker: Peer) -> None:
    """The answer was lost, not the batch."""
    done: list[Delivery] = []
    broker.on(apis.PRODUCE, CLOSE, produced([ErrorCode.DUPLICATE_SEQUENCE_NUMBER]))
    with make(broker, on_delivery=done.append) as producer:
        producer.send("t", b"x", partition=0)
    assert [d.count for d in done] == [1]


def test_patience_ends(broker: Peer) -> None:
    broker.on(apis.PRODUCE, produced([]), produced([ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000))
    producer = make(broker, SELDOM, delivery_timeout_ms=500)
    producer.send("t", b"x", partition=1).result(LIMIT_S)
    future = producer.send("t", b"x", partition=1)
    with pytest.raises(failure_class(7), match="t-1: 1 records not taken in 500 ms"):
        producer.flush(LIMIT_S)
    assert isinstance(future.exception(), failure_class(7))
    producer.close()


def test_retries_end(broker: Peer) -> None:
    broker.on(apis.PRODUCE, produced([ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000))
    producer = make(broker, retries=3)
    with pytest.raises(errors.Timeout, match="NOT_ENOUGH_REPLICAS; retries: 3"):
        producer.send("t", b"x", partition=1).result(LIMIT_S)
    assert broker.count(apis.PRODUCE) == 4
    with pytest.raises(errors.Timeout):
        producer.close()


def test_a_reason_for_delay_is_logged_at_once(
    broker: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """For example of a full disk: immediately and when the timeout ends, not at each attempt."""
    broker.on(apis.PRODUCE, produced([ErrorCode.KAFKA_STORAGE_ERROR] * 10_000))
    producer = make(broker, SELDOM, delivery_timeout_ms=500)
    producer.send("t", b"x", partition=1)
    with pytest.raises(failure_class(7), match="500 ms: t-1: KAFKA_STORAGE_ERROR"):
        producer.flush(LIMIT_S)
    (line,) = [one for one in caplog.messages if "KAFKA_STORAGE_ERROR" in one]
    assert line == "t-1: KAFKA_STORAGE_ERROR; trying again for up to 0.5 s"
    producer.close()


def test_a_disk_that_takes_nothing_is_not_waited_for_long(
    broker: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on(apis.PRODUCE, produced([ErrorCode.KAFKA_STORAGE_ERROR] * 10_000))
    producer = make(broker)
    core = producer._sender.core
    core.client = core.client._replace(storage_timeout_ms=50)
    with pytest.raises(failure_class(7), match="50 ms: t-1: KAFKA_STORAGE_ERROR"):
        producer.send("t", b"x", partition=1).result(LIMIT_S)
    assert any("for up to 0.05 s" in line for line in caplog.messages)
    broker.on(apis.PRODUCE, produced([]))
    producer.send("t", b"y", partition=1).result(LIMIT_S)
    with pytest.raises(failure_class(7)):
        producer.close()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, "MESSAGE_TOO_LARGE"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH"),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "OUT_OF_ORDER"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_a_refusal_is_told_once_and_the_producer_goes_on(
    broker: Peer, code: int, name: str
) -> None:
    """Under a new producer id, as the refused record's sequence is used up."""
    broker.on(apis.PRODUCE, produced([code]), produced([]))
    broker.on(apis.INIT_PRODUCER_ID, PRODUCER_ID, {"producer_id": 4001, "producer_epoch": 0})
    with make(broker) as producer:
        future = producer.send("t", b"x", partition=0)
        with pytest.raises(errors.KafkalogError, match=f"t-0: {name}"):
            producer.flush(LIMIT_S)
        with pytest.raises(errors.KafkalogError, match=name):
            future.result()
        producer.send("t", b"y", partition=0).result(LIMIT_S)
    first, second = batches(broker)
    assert (first.producer, first.sequence) == ((4000, 3), 0)
    assert (second.producer, second.sequence, second.values()) == ((4001, 0), 0, [b"y"])


def test_a_broker_that_forgot_the_producer_gets_a_new_id(broker: Peer) -> None:
    broker.on(apis.PRODUCE, produced([]), produced([ErrorCode.UNKNOWN_PRODUCER_ID]), produced([]))
    broker.on(apis.INIT_PRODUCER_ID, PRODUCER_ID, {"producer_id": 4001, "producer_epoch": 0})
    with make(broker) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        producer.send("t", b"y", partition=0).result(LIMIT_S)
    assert [(b.producer[0], b.sequence, b.values()) for b in batches(broker)] == [
        (4000, 0, [b"x"]), (4000, 1, [b"y"]), (4001, 0, [b"y"]),
    ]  # fmt: skip


def test_a_possibly_stored_batch_keeps_its_producer_id(broker: Peer) -> None:
    """Another partition's refusal changes the id; a broker would take the batch for a new one."""
    left = {0: [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND], 1: [ErrorCode.MESSAGE_TOO_LARGE]}

    def answer(request: Any, version: int) -> Any:
        """The two may arrive together, or in either order."""
        places = [row.index for topic in request.topic_data for row in topic.partition_data]
        codes = [left[place].pop() if left[place] else 0 for place in places]
        return produced(codes)(request, version)

    broker.on(apis.PRODUCE, answer)
    broker.on(apis.INIT_PRODUCER_ID, PRODUCER_ID, {"producer_id": 4001, "producer_epoch": 0})
    with make(broker, linger_ms=1_000_000) as producer:
        once = producer.send("t", b"once", partition=0)
        refused = producer.send("t", b"large", partition=1)
        with pytest.raises(errors.MessageTooLarge):
            producer.flush(LIMIT_S)
        assert once.exception() is None
        assert isinstance(refused.exception(), errors.MessageTooLarge)
        producer.send("t", b"then", partition=0)
    found = [(b.producer[0], b.sequence, b.values()) for b in batches(broker) if not b.partition]
    assert found == [(4000, 0, [b"once"]), (4000, 0, [b"once"]), (4001, 0, [b"then"])]


def two_at_once(broker: Peer, *codes: int) -> tuple[Producer, list[Any]]:
    """A producer whose first record is stored, and whose next two are in flight under id 4000;
    these codes answer both in turn, then their retries."""
    script = [[], *([code] for code in codes)]
    both = threading.Event()

    def answer(request: Any, version: int) -> Any:
        if len(script) < 1 + len(codes):
            both.wait(LIMIT_S)
        return produced(script.pop(0) if script else [])(request, version)

    broker.on(apis.PRODUCE, answer)
    broker.on(apis.INIT_PRODUCER_ID, PRODUCER_ID, {"producer_id": 4001, "producer_epoch": 0})
    producer = single(broker, in_flight=2)
    producer.send("t", wide(0), partition=0).result(LIMIT_S)
    futures = [producer.send("t", wide(i), partition=0) for i in (1, 2)]
    flying = producer._sender._flights._flying
    wait_for(lambda: sum(map(len, flying.values())) == 2, "both are in flight")
    both.set()
    return producer, futures


def test_batches_after_a_gap_use_the_new_producer_id(broker: Peer) -> None:
    """Before it, a record was abandoned that the broker never saw."""
    late, large = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE
    unknown = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer, futures = two_at_once(broker, late, late, large, unknown)
    assert isinstance(futures[0].exception(LIMIT_S), errors.MessageTooLarge)
    futures[1].result(LIMIT_S)
    with pytest.raises(errors.MessageTooLarge):
        producer.close()
    last = batches(broker)[-1]
    assert (last.producer, last.sequence, last.values()) == ((4001, 0), 0, [wide(2)])


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER], ids=str
)
def test_a_possibly_stored_batch_gets_no_new_producer_id(broker: Peer, code: ErrorCode) -> None:
    """Its leader had both records, and after a restart or an election only earlier ones: the first
    is abandoned, and so is the next, which otherwise could be stored twice.  A broker that stops
    leading while replicas copy the batch answers so, too."""
    unknown = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer, futures = two_at_once(broker, code, code, unknown, unknown)
    for one in futures:
        assert isinstance(one.exception(LIMIT_S), failure_class(unknown))
    producer.send("t", wide(3), partition=0).result(LIMIT_S)
    with pytest.raises(failure_class(unknown)):
        producer.close()
    sent = [(one.producer[0], one.values()) for one in batches(broker)]
    assert sent[-1] == (4001, [wide(3)])
    assert {number for number, values in sent if values in ([wide(1)], [wide(2)])} == {4000}


def test_sequences_go_on_when_a_topic_grows(broker: Peer) -> None:
    """From 0 on, a broker would take new records for duplicates."""
    with make(broker, {"metadata.max.age.ms": 20}) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        broker.on(apis.METADATA, broker.metadata({"t": 3}))
        wait_for(lambda: producer.partitions("t") == 3, "the topic has grown")
        producer.send("t", b"y", partition=0).result(LIMIT_S)
    assert [b.sequence for b in batches(broker)] == [0, 1]


# ---- one topic's failure is not another's ------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
@pytest.mark.parametrize("last", [False, True], ids=["told first", "told last"])
def test_a_topic_that_is_refused_fails_no_other(broker: Peer, code: ErrorCode, last: bool) -> None:
    """One request asks for both topics' metadata, while a batch for the good one waits."""
    leader = 1

    def answer(request: Any, version: int) -> Any:
        names = {one.name for one in request.topics}
        good, bad = broker.metadata({"t": 2}, leader), broker.metadata({"bad": 0}, error=code)
        some = [*good["topics"], *bad["topics"]]
        topics = [one for one in some if one["name"] in names]
        return {**good, "topics": topics if last else topics[::-1]}

    broker.on(apis.METADATA, answer)
    broker.on(apis.PRODUCE, produced([]), produced([ErrorCode.NOT_LEADER_OR_FOLLOWER]))
    with make(broker) as producer:
        producer.send("t", b"first", partition=0).result(LIMIT_S)
        leader = -1
        future = producer.send("t", b"second", partition=0)
        wait_for(lambda: broker.count(apis.METADATA) > 2, "it looks for the leader")
        for _ in range(3):
            with pytest.raises(failure_class(code)):
                producer.send("bad", b"x")
        assert not future.done()
        broker.on(apis.PRODUCE, produced([]))
        leader = 1
        assert future.result(LIMIT_S).partition == 0
        with pytest.raises(failure_class(code)):
            producer.send("bad", b"x")
        assert producer.send("t", b"third", partition=1).result(LIMIT_S).partition == 1


def creating(broker: Peer) -> list[tuple[list[str], bool]]:
    """The topics of each Metadata request, and whether the broker may create them."""
    return [
        ([one.name for one in request.topics], request.allow_auto_topic_creation)
        for request in broker.sent(apis.METADATA)
    ]


def test_only_a_send_creates_a_topic(broker: Peer) -> None:
    """A topic that is only refreshed may have been deleted, and is not recreated."""
    with make(broker, {"metadata.max.age.ms": 20}) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        wait_for(lambda: broker.count(apis.METADATA) > 3, "it has looked")
        assert creating(broker)[0] == (["t"], True)
        assert {made for topics, made in creating(broker)[1:]} == {False}
        broker.on(apis.METADATA, broker.metadata({"t": 0}, error=3))
        count = broker.count(apis.METADATA)
        wait_for(lambda: broker.count(apis.METADATA) > count + 2, "it was deleted, and looked at")
        assert {made for topics, made in creating(broker)[1:]} == {False}
        future = producer.send("t", b"y", partition=0)
        wait_for(lambda: creating(broker)[-1] == (["t"], True), "it is to be made again")
        broker.on(apis.METADATA, broker.metadata({"t": 2}))
        future.result(LIMIT_S)


def test_a_deleted_topic_is_not_asked_for_when_nothing_is_sent_to_it(broker: Peer) -> None:
    """Its records have failed; other topics' records do not recreate it."""
    gone = False

    def metadata(request: Any, version: int) -> Any:
        names = {one.name for one in request.topics}
        answer = broker.metadata(dict.fromkeys(names - {"t"} if gone else names, 1))
        if gone and "t" in names:
            answer["topics"] += broker.metadata({"t": 0}, error=3)["topics"]
        return answer

    def refused(request: Any, version: int) -> Any:
        code = 3 if request.topic_data[0].name == "t" and gone else 0
        return produced([code])(request, version)

    broker.on(apis.METADATA, metadata)
    broker.on(apis.PRODUCE, refused)
    producer = make(broker)
    producer.send("t", b"x", partition=0).result(LIMIT_S)
    gone = True
    failed, core = producer.send("t", b"y", partition=0), producer._sender.core
    wait_for(lambda: len(creating(broker)) > 2, "it is asked for")
    patient, core.options = core.options, core.options._replace(delivery_s=0.0)
    assert isinstance(failed.exception(LIMIT_S), errors.KafkalogError)
    core.options = patient
    producer.send("u", b"z", partition=0).result(LIMIT_S)
    count = broker.count(apis.METADATA)
    for _ in range(5):
        producer.send("u", b"z", partition=0).result(LIMIT_S)
    assert creating(broker)[count:] == []
    with pytest.raises(errors.KafkalogError):
        producer.close()


def test_a_topic_that_is_not_used_is_forgotten(broker: Peer) -> None:
    """Its metadata is requested again when it is used; its sequences continue."""
    broker.on(apis.METADATA, broker.metadata({"t": 2, "u": 1}))
    with make(broker, {"metadata.max.age.ms": 20}) as producer:
        producer.send("u", b"x", partition=0).result(LIMIT_S)
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        producer._sender._metadata._max_idle_s = 0.05
        wait_for(lambda: not producer._waiting.intakes, "both are forgotten")
        assert not producer._direct
        producer.send("t", b"y", partition=0).result(LIMIT_S)
    assert [b.sequence for b in batches(broker)] == [0, 0, 1]


def test_an_answer_that_leaves_a_partition_out(broker: Peer) -> None:
    broker.on(apis.PRODUCE, {"responses": []})
    producer = make(broker)
    producer.send("t", b"x", partition=0)
    with pytest.raises(errors.BadAnswer, match="lacks t-0"):
        producer.close()


def test_a_throttled_producer_pauses(broker: Peer) -> None:
    def throttled(request: Any, version: int) -> Any:
        return {**produced([])(request, version), "throttle_time_ms": 300}

    broker.on(apis.PRODUCE, throttled, produced([]))
    with make(broker) as producer:
        begun_s = time.monotonic()
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        assert time.monotonic() - begun_s > 0.25


# ---- bounds and ends -----------------------------------------------------------------------


def test_a_full_buffer_waits_and_then_says_so(broker: Peer) -> None:
    held = threading.Event()

    def answer(request: Any, version: int) -> Any:
        held.wait(LIMIT_S)
        return produced([])(request, version)

    broker.on(apis.PRODUCE, answer)
    producer = hurried(
        make(broker, buffer_bytes=4_000, batch_bytes=1_000, request_timeout_ms=60_000)
    )
    with pytest.raises(errors.Timeout, match=r"buffer\.memory: \d+ of 4000 bytes"):
        for _ in range(10_000):
            producer.send("t", b"x" * 100, partition=0)
    assert producer._waiting.used <= 4_000
    held.set()
    producer.flush(LIMIT_S)
    producer.send("t", b"x", partition=0).result(LIMIT_S)
    producer.close()
    assert producer._waiting.used == 0


def test_a_callback_is_told_that_it_cannot_wait(broker: Peer) -> None:
    """It would wait for itself, in the only thread that sends and receives."""
    told: list[str] = []
    later: list[Any] = []

    def callback(_: Any) -> None:
        later.append(producer.send("t", b"y", partition=0))
        waits = later[0].result, producer.flush, producer.close, lambda: producer.send("u", b"")
        for call in waits:
            with pytest.raises(errors.ArgumentError, match="a callback of the producer"):
                call()
            told.append("told")

    with make(broker) as producer:
        producer.send("t", b"x", partition=0).add_done_callback(callback)
        wait_for(lambda: len(told) == 4, "the callback has ended")
        later[0].result(LIMIT_S)
    assert [b.values() for b in batches(broker)] == [[b"x"], [b"y"]]


def test_a_record_larger_than_a_request(broker: Peer) -> None:
    with make(broker, {"max.request.size": 5_000}, batch_bytes=100) as producer:
        with pytest.raises(errors.MessageTooLarge, match=r"max\.request\.size is 5000"):
            producer.send("t", b"x" * 5_000, partition=0)
        with pytest.raises(errors.MessageTooLarge, match="row 1"):
            producer.send_many("t", [b"a", b"x" * 5_000], partition=0)
        producer.send("t", b"y" * 4_000, partition=0).result(LIMIT_S)
    assert [len(v or b"") for b in batches(broker) for v in b.values()] == [1, 4_000]


def test_a_topic_that_is_not_there(broker: Peer) -> None:
    broker.on(apis.METADATA, broker.metadata({"t": 0}, error=3))
    wanted = pytest.raises(errors.UnknownTopicOrPartition, match="no topic 't'")
    with make(broker, {**SELDOM, "max.block.ms": 2_000}) as producer, wanted:
        producer.send("t", b"x")


def test_a_cluster_that_cannot_be_reached_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    wanted = pytest.raises(errors.PeerGone, match="Connection refused")
    with Producer(f"127.0.0.1:{port}") as producer, wanted:
        producer.send("t", b"x")


def test_a_failed_block_waits_for_nothing(broker: Peer) -> None:
    producer = make(broker, linger_ms=1_000_000)
    with pytest.raises(RuntimeError, match="mine"), producer:
        future = producer.send("t", b"x", partition=0)
        raise RuntimeError("mine")
    assert future.done()
    with pytest.raises(errors.Closed):
        producer.send("t", b"x", partition=0)
    producer.close()


def test_sequences_wrap_as_kafkas_do(broker: Peer) -> None:
    with single(broker) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        (queue,) = producer._waiting.all_queues()
        queue.sequence = 2**31 - 1
        producer.send("t", wide(1), partition=0).result(LIMIT_S)
        producer.send("t", wide(2), partition=0).result(LIMIT_S)
    assert [b.sequence for b in batches(broker)] == [0, 2**31 - 1, 0]


def test_many_threads_at_once(broker: Peer) -> None:
    with make(broker, batch_bytes=3_000, buffer_bytes=20_000) as producer:

        def run(name: int) -> None:
            for i in range(500):
                producer.send("t", b"%d %d" % (name, i), partition=name % 2)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [v.split() for b in batches(broker) for v in b.values() if v]
    for name in range(4):
        assert [int(i) for n, i in values if int(n) == name] == [*range(500)]


def test_a_forked_child_is_told(broker: Peer) -> None:
    with make(broker, linger_ms=1_000_000) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)
        waits = producer.send("t", b"x", partition=0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                producer.send("t", b"x")
            except errors.ForkedHandle:
                with pytest.raises(errors.ForkedHandle):
                    waits.result()
                producer.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send("t", b"x", partition=0).result(LIMIT_S)
    assert len(batches(broker)) == 2


ENDS = """
import sys, threading, kafkalog
producer = kafkalog.Producer(sys.argv[1], linger_ms=60_000)
producer.send("t", b"x", partition=0)

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

threading.Thread.start = refuse  # as in Python 3.12, at the end of a program
"""


def test_an_exit_without_close_delivers_sent_records(broker: Peer) -> None:
    """Also over a connection still to be made, when no thread can be started any more."""
    done = subprocess.run([sys.executable, "-c", ENDS, broker.servers], timeout=LIMIT_S)
    assert done.returncode == 0
    assert [b.values() for b in batches(broker)] == [[b"x"]]


def test_a_leader_that_names_another_again_and_again(broker: Peer) -> None:
    """The first is asked at once, each later one after a longer pause."""
    epochs = iter(range(1, 10_000))

    def elsewhere(request: Any, version: int) -> Any:
        (topic,) = request.topic_data
        named = {"leader_id": 1, "leader_epoch": next(epochs)}
        row = {"index": 0, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "current_leader": named}
        return {
            "responses": [{"name": topic.name, "partition_responses": [row]}],
            "node_endpoints": [{"node_id": 1, "host": "127.0.0.1", "port": broker.port}],
        }

    broker.on(apis.PRODUCE, elsewhere)
    slowly: dict[str, object] = {"retry.backoff.ms": 100, "retry.backoff.max.ms": 1_000}
    with (
        pytest.raises(errors.KafkalogError, match="NOT_LEADER"),
        make(broker, slowly, delivery_timeout_ms=700) as producer,
    ):
        producer.send("t", b"x", partition=0)
    # After 0, 80, 160 and 320 ms at the earliest.
    assert 2 <= broker.count(apis.PRODUCE) <= 6
