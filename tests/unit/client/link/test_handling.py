"""Every error code of every request: raised, or sent again after growing pauses and logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog import Consumer, TopicPartition, errors
from kafkalog.client.calls import topics
from kafkalog.client.calls.groups import (
    CommittedOffset,
    GroupMetadata,
    committed_offsets,
    put_offsets,
)
from kafkalog.client.calls.offsets import LATEST, delete_records, find_offsets
from kafkalog.client.consumer.assignors import ASSIGNORS
from kafkalog.client.consumer.member import Member, MemberOptions
from kafkalog.client.consumer.session import Beat, Session
from kafkalog.client.consumer.session import Tempo as Beats
from kafkalog.client.fetch.core import FetchState, Tempo
from kafkalog.client.fetch.epochs import FetchPosition
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure, passing
from kafkalog.client.link.handling import LASTING_S, Handling, Troubles, handling, render_markdown
from kafkalog.client.link.metadata import Known, metadata_of
from kafkalog.client.producer.identity import Identity
from kafkalog.client.producer.producer_metadata import ProducerMetadata
from kafkalog.client.producer.transaction_calls import Transactional
from kafkalog.testing.broker import TestBroker
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.scripted import Peer, produced
from tests.unit.client.conftest import PassingClock
from tests.unit.client.consumer.members import commit_answer
from tests.unit.client.fetch.test_core import ended, fetched, metadata
from tests.unit.client.producer.producing import PRODUCER_ID, make

CODES = [code for code in ErrorCode if code != ErrorCode.NONE]
AGAIN = (Handling.RETRY, Handling.AWAIT)
TP = TopicPartition("t", 0)
PAUSES_S = [0.1, 0.2, 0.4, 0.8] + [1.0] * 8
DOCS = Path(__file__).resolve().parents[4] / "docs"


# ---- the table -------------------------------------------------------------------------------


def test_codes_are_sent_again_where_kafka_calls_them_retriable() -> None:
    """The rule of every request; UNKNOWN_TOPIC_OR_PARTITION has been waited for before."""
    odd = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REBOOTSTRAP_REQUIRED}
    assert {c for c in CODES if (handling(c) in AGAIN) != c.retriable} == odd
    assert handling(999) is Handling.RAISE


def test_only_the_rules_of_a_request_differ() -> None:
    for api in apis.BY_KEY.values():
        for code in CODES:
            problem = failure(code, "it", api=api)
            assert passing(problem) == (handling(code, api) in AGAIN)
        assert handling(999, api) is Handling.RAISE
    differ = {c for c in CODES if handling(c, apis.FETCH) is not handling(c)}
    assert {ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR} < differ


def test_the_page_has_the_table() -> None:
    assert render_markdown() in (DOCS / "client-failures.md").read_text(encoding="utf-8")


def test_each_reason_is_logged_once() -> None:
    def fails(code: ErrorCode, now_s: float) -> bool:
        return troubles.failed(TP, failure(code, "it"), now_s)

    troubles, moved, sick = Troubles[TopicPartition](), ErrorCode(6), ErrorCode(56)
    assert [fails(sick, 0.0), fails(sick, 1.0), fails(sick, 1e6)] == [True, False, False]
    troubles.ended(TP)
    assert [fails(moved, at) for at in (0.0, LASTING_S - 0.1, LASTING_S, 1e6)] == [
        False, False, True, False,
    ]  # fmt: skip
    assert not troubles.failed(TP, errors.PeerGone("it"), 2e6), "another usual reason"
    assert fails(sick, 2e6), "another reason"
    troubles.ended(TP)
    assert not fails(moved, 3e6) and fails(sick, 3e6)


# ---- reading ---------------------------------------------------------------------------------


class Reader:
    """A core whose leader always answers with one code."""

    def __init__(self, answer: Callable[[], Any], epoch: int = -1) -> None:
        self.answer = answer
        self.known = Known()
        self.known.answered(["t"], metadata_of(metadata()))
        self.core = FetchState(self.known, {}, FetchOptions(), Tempo(5_000, 100, 1_000))
        self.core.seek(TP, FetchPosition(5, epoch))
        self.now_s = 0.0
        self.raised: list[errors.KafkalogError] = []
        self.logged: list[tuple[float, str]] = []

    def ask(self) -> float:
        """Ask and get an answer; returns the pause before that."""
        core, begun_s = self.core, self.now_s
        self.known.answered(["t"], metadata_of(metadata()))
        while not core.plan(self.now_s).nodes:
            next_s = core.next_s(self.now_s)
            assert next_s is not None and next_s > self.now_s
            self.now_s = next_s
        asked = core.ask(1, [TP], True, self.now_s)
        assert asked is not None
        core.sent(1, asked, self.now_s)
        try:
            try:
                core.answered(1, self.answer(), self.now_s)
            except errors.KafkalogError as problem:
                core.node_failed(1, problem, asked.offsets, self.now_s)
        except errors.KafkalogError as problem:
            self.raised.append(problem)
        if core.problem is not None:
            assert core.problem.partition == TP
            self.raised.append(core.problem)
            core.problem = None
        self.logged += [(self.now_s, text) for text in core.delays]
        core.delays.clear()
        return self.now_s - begun_s


def judge(reader: Reader, api: Api, code: ErrorCode) -> None:
    pauses_s = [reader.ask() for _ in range(len(PAUSES_S) + 1)]
    assert pauses_s == pytest.approx([0.0, *PAUSES_S]), code.name
    what = handling(code, api)
    if what is Handling.RAISE:
        assert [one.code for one in reader.raised] == [code] * len(pauses_s)
        assert reader.logged == []
        return
    assert what in AGAIN and reader.raised == []
    ((logged_s, text),) = reader.logged
    assert "t-0" in text and code.name in text
    assert logged_s >= LASTING_S if what is Handling.AWAIT else logged_s == 0.0, code.name


def test_every_code_of_a_fetched_partition() -> None:
    for code in CODES:
        if handling(code, apis.FETCH) is not Handling.OWN:
            row = {"error_code": code, "records": None}
            judge(Reader(lambda: fetched(**row)), apis.FETCH, code)  # noqa: B023


def test_every_code_of_a_whole_fetch() -> None:
    for code in CODES:
        if handling(code, apis.FETCH) is not Handling.OWN:
            answer = SimpleNamespace(throttle_time_ms=0, error_code=code)
            judge(Reader(lambda: answer), apis.FETCH, code)  # noqa: B023


def test_every_code_of_a_leader_epoch() -> None:
    """The position was read in epoch 2, and is checked with the leader in 3."""
    for code in CODES:
        answer = ended(5, 2)
        answer.topics[0].partitions[0].error_code = code
        reader = Reader(lambda: answer, epoch=2)  # noqa: B023
        judge(reader, apis.OFFSET_FOR_LEADER_EPOCH, code)


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR, 999])
def test_a_failed_partition_holds_up_no_other(code: int) -> None:
    """Not even in the same answer; what was read comes before the failure."""
    known, one = Known(), TopicPartition("t", 1)
    answer = metadata()
    row = answer.topics[0].partitions[0]
    answer.topics[0].partitions.append(SimpleNamespace(**{**vars(row), "partition_index": 1}))
    known.answered(["t"], metadata_of(answer))
    core = FetchState(known, {TP: 0, one: 0}, FetchOptions(), Tempo(5_000, 100, 1_000))
    asked = core.ask(1, [TP, one], True, 0.0)
    assert asked is not None
    core.sent(1, asked, 0.0)
    both = fetched(error_code=code, records=None)
    good = fetched(records=batch([Row(b"x")] * 10, leader_epoch=3), partition_index=1)
    both.responses[0].partitions += good.responses[0].partitions
    core.answered(1, both, 0.0)
    assert [found.tp for found in core.take()] == [one]
    assert (core.problem is None) == (code == ErrorCode.UNKNOWN_SERVER_ERROR)
    known.answered(["t"], metadata_of(answer))
    assert core.plan(0.0).nodes == {1: [one]} and core.plan(0.1).nodes == {1: [TP, one]}


def test_a_seek_ends_the_pause_after_a_damaged_batch() -> None:
    reader = Reader(lambda: fetched(error_code=ErrorCode.CORRUPT_MESSAGE, records=None))
    reader.ask()
    reader.core.seek(TP, FetchPosition(9, -1))
    assert reader.ask() == 0.0


def test_every_code_of_a_topic_in_metadata() -> None:
    for code in CODES:
        known, answer = Known(), metadata()
        answer.topics[0].error_code = code
        known.answered(["t"], metadata_of(answer))
        assert not known.topics
        assert ("t" in known.refused) == (handling(code, apis.METADATA) is Handling.RAISE), code


# ---- groups ----------------------------------------------------------------------------------


def member() -> Member:
    session = Session(Beats(3_000, 45_000, 300_000), 1.0, 0.0)
    return Member("g", MemberOptions((ASSIGNORS["range"],)), session, (0.1, 1.0))


@pytest.mark.parametrize("api", [apis.JOIN_GROUP, apis.SYNC_GROUP], ids=lambda api: api.name)
def test_every_code_of_a_join(api: Api) -> None:
    for code in CODES:
        one, pauses_s, raised = member(), [], 0
        answer = SimpleNamespace(error_code=code, member_id="m")
        for _ in range(6):
            one.join_sent(reads_on=False)
            try:
                one.joined(answer) if api is apis.JOIN_GROUP else one.synced(answer, 0.0)
            except errors.KafkalogError as problem:
                try:
                    one.failed(problem, reached=True)
                except errors.KafkalogError as permanent:
                    assert permanent.code == code
                    raised += 1
                pauses_s.append(one.pause_s)
        if api is apis.JOIN_GROUP and code == ErrorCode.MEMBER_ID_REQUIRED:
            assert pauses_s == [] and one.metadata.member_id == "m"
            continue
        assert pauses_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        assert raised == (6 if handling(code, api) is Handling.RAISE else 0), code.name


def test_every_code_of_a_heartbeat() -> None:
    for code in CODES:
        session, who = Session(Beats(3_000, 45_000, 300_000), 1.0, 0.0), GroupMetadata("g", 1, "m")
        session.begin(who, 0.0)
        problem = failure(code, "group", api=apis.HEARTBEAT)
        heard = session.beaten(Beat(who), 3.0, problem, 3.0)
        again = handling(code, apis.HEARTBEAT) in AGAIN
        assert heard == (again, not again), code.name
        assert session.problem is (None if again else problem)
        assert session.due(3.0) == (4.0 if again else 6.0)


# ---- calls -----------------------------------------------------------------------------------


def offsets_row(code: int) -> dict[str, Any]:
    return {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code}]}]}


def committed(code: int) -> dict[str, Any]:
    return {"groups": [{"group_id": "g", "error_code": code, "topics": []}]}


CALLS: list[tuple[Api, Callable[[int], Any], Callable[[Cluster], Any]]] = [
    (apis.LIST_OFFSETS, offsets_row, lambda c: find_offsets(c, {TP: LATEST}).check()),
    (apis.DELETE_RECORDS, offsets_row, lambda c: delete_records(c, {TP: -1}).check()),
    (apis.OFFSET_FETCH, committed, lambda c: committed_offsets(c, "g")),
    (
        apis.OFFSET_COMMIT,
        lambda code: lambda request, version: commit_answer(request, code),
        lambda c: put_offsets(c, "g", {TP: CommittedOffset(1)}).check(),
    ),
    (
        apis.CREATE_TOPICS,
        lambda code: {"topics": [{"name": "t", "error_code": code}]},
        lambda c: topics.create_topic(c, "t"),
    ),
]  # fmt: skip


@pytest.fixture
def hasty(peer: Peer) -> Iterator[Cluster]:
    """A cluster of one node, whose client pauses in no time."""
    where = {"key": "g", "node_id": 1, "host": "127.0.0.1", "port": peer.port}
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
    with Cluster(peer.servers, clock=PassingClock()) as made:
        yield made


@pytest.mark.parametrize(("api", "answer", "call"), CALLS, ids=[api.name for api, _, _ in CALLS])
def test_every_code_of_a_call(
    peer: Peer, hasty: Cluster, api: Api, answer: Callable[[int], Any], call: Any
) -> None:
    for code in CODES:
        peer.on(api, answer(code), answer(code), answer(0))
        before, clock = peer.count(api), hasty.clock
        assert isinstance(clock, PassingClock)
        clock.pauses_s.clear()
        if handling(code, api) is Handling.RAISE:
            with pytest.raises(errors.KafkalogError) as raised:
                call(hasty)
            assert raised.value.code == code and peer.count(api) == before + 1
        else:
            call(hasty)
            assert peer.count(api) == before + 3
            first, second = clock.pauses_s
            assert 0.08 <= first <= 0.12 and 0.16 <= second <= 0.24


def test_every_code_of_a_coordinator(peer: Peer, hasty: Cluster) -> None:
    for code in CODES:
        where = {"key": "g", "node_id": 1, "host": "127.0.0.1", "port": peer.port}
        refused = {"coordinators": [{**where, "error_code": code}]}
        peer.on(apis.FIND_COORDINATOR, refused, {"coordinators": [where]})
        hasty.forget_coordinators()
        if handling(code, apis.FIND_COORDINATOR) is Handling.RAISE:
            with pytest.raises(errors.KafkalogError) as raised:
                hasty.retrying(lambda: hasty.coordinator("g"))
            assert raised.value.code == code
        else:
            assert hasty.retrying(lambda: hasty.coordinator("g")) == 1


# ---- writing ---------------------------------------------------------------------------------


def test_every_code_of_a_batch(peer: Peer) -> None:
    """Without a producer id, which gives some codes a meaning of their own."""
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.PRODUCE, produced([]))
    producer = make(peer, {"enable.idempotence": False})
    with pytest.raises(errors.KafkalogError, match="UNKNOWN_SERVER_ERROR"), producer:
        for code in CODES:
            if handling(code, apis.PRODUCE) is Handling.OWN:
                continue
            before = peer.count(apis.PRODUCE)
            peer.on(apis.PRODUCE, produced([code]), produced([]))
            sent = producer.send("t", b"x", partition=0)
            if handling(code, apis.PRODUCE) is Handling.RAISE:
                with pytest.raises(errors.KafkalogError) as raised:
                    sent.result(20)
                assert raised.value.code == code and peer.count(apis.PRODUCE) == before + 1
            else:
                sent.result(20)
                assert peer.count(apis.PRODUCE) == before + 2


@pytest.mark.parametrize(
    "api",
    [apis.INIT_PRODUCER_ID, apis.ADD_PARTITIONS_TO_TXN, apis.ADD_OFFSETS_TO_TXN, apis.END_TXN,
     apis.TXN_OFFSET_COMMIT],
    ids=lambda api: api.name,
)  # fmt: skip
def test_every_code_of_a_transaction(api: Api) -> None:
    """A permanent one spoils the transaction or the producer; others leave it as it was."""
    for code in CODES:
        one = Transactional("x", 60_000)
        one.begin()
        with pytest.raises(errors.KafkalogError) as raised:
            one._check(code, api)
        spoilt = one.fatal is not None or one.error is not None
        assert raised.value.code == code
        assert spoilt == (handling(code, api) is Handling.RAISE) != passing(raised.value)


def test_a_producer_id_is_asked_for_after_growing_pauses(
    peer: Peer, hasty: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Its only broker cannot assign one."""
    peer.on(apis.INIT_PRODUCER_ID, {"error_code": ErrorCode.REQUEST_TIMED_OUT})
    one, pauses_ms = Identity(wanted=True), []
    for _ in range(7):
        pauses_ms.append(one._pause_ms(hasty))
        one._get(hasty)
    assert pauses_ms == [100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert sum("REQUEST_TIMED_OUT" in text for text in caplog.messages) == 1
    peer.on(apis.INIT_PRODUCER_ID, PRODUCER_ID)
    one._get(hasty)
    assert one.ready and one.pair == (4000, 3)


def test_partitions_join_a_transaction_after_growing_pauses(
    peer: Peer, hasty: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"partition_index": 0, "partition_error_code": ErrorCode.REQUEST_TIMED_OUT}
    refused = {"name": "t", "results_by_partition": [row]}
    peer.on(apis.ADD_PARTITIONS_TO_TXN, {"results_by_topic_v3_and_below": [refused]})
    one, queue, pauses_s = Transactional("x", 60_000), SimpleNamespace(tp=TP, retry_at_s=0.0), []
    for _ in range(8):
        pauses_s.append(one._pause_s)
        one._join([queue], hasty)  # type: ignore[list-item]
    assert pauses_s == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0])
    assert queue.retry_at_s > 0 and one.error is None
    assert sum("REQUEST_TIMED_OUT" in text for text in caplog.messages) == 1


def test_topics_are_asked_for_after_growing_pauses(hasty: Cluster) -> None:
    """While brokers refuse; an answer ends that."""
    one, gone = ProducerMetadata(hasty, 300.0, 300.0, lambda _, __: None), errors.PeerGone("it")
    pauses_s = [one._pause_s(why) for why in (None, *[gone] * 6, None, gone)]
    assert pauses_s == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.1, 0.1])


# ---- a real broker ---------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as made:
        made.create_topic("t", 2)
        made.fill("t", ["a"], partition=0)
        yield made


@pytest.mark.parametrize("code", ["CORRUPT_MESSAGE", "TOPIC_AUTHORIZATION_FAILED"])
def test_poll_raises_a_permanent_refusal(broker: TestBroker, code: str) -> None:
    fault = broker.fail("Fetch", code, times=None)
    with Consumer(broker.bootstrap_servers, config={"retry.backoff.ms": 60_000,
                  "retry.backoff.max.ms": 60_000}) as consumer:  # fmt: skip
        consumer.assign([TP])
        consumer.seek(TP, 0)
        with pytest.raises(errors.KafkalogError, match=f"fetch of t-0: {code}") as raised:
            while True:
                consumer.poll(100)
        assert raised.value.partition == TP
        hits = fault.hits
        assert [consumer.poll(10) for _ in range(5)] == [[]] * 5
        assert fault.hits == hits, "no request in the pause"
        broker.heal()
        consumer.seek(TP, 0)
        assert consumer.poll(None)[0].value == b"a"


def test_poll_logs_a_transient_refusal_once(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fault = broker.fail("Fetch", "UNKNOWN_SERVER_ERROR", times=20)
    with (
        caplog.at_level(logging.WARNING),
        Consumer(
            broker.bootstrap_servers, config={"retry.backoff.ms": 1, "retry.backoff.max.ms": 1}
        ) as consumer,
    ):
        consumer.assign([TP])
        consumer.seek(TP, 0)
        assert consumer.poll(None)[0].value == b"a"
    assert fault.hits == 20
    assert sum("UNKNOWN_SERVER_ERROR" in text for text in caplog.messages) == 1
