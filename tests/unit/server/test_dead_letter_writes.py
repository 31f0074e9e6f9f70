"""How dead letters are written: the limits of a round, other leaders, and failures that pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.batch.walk import whole_batches
from kafkalog.client.link.failures import failure
from kafkalog.config.server import ServerConfig
from kafkalog.coordinator.transactions.requests import ProducerClaim
from kafkalog.log.fetched import Decoder
from kafkalog.log.log import Log
from kafkalog.server import dead_letters, letter_topics
from kafkalog.server.broker import node_of
from kafkalog.server.dead_letters import DeadLetters, LetterCounts
from kafkalog.server.node import Node
from kafkalog.server.topics import dead_letter_topic
from kafkalog.server.transactions import inter_broker_client
from kafkalog.server.transactions.inter_broker_client import InterBrokerClient
from kafkalog.shares.partition import Letter
from kafkalog.testing.broker import TestBroker as Broker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.membership import joined, led_by
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S, wait_for

NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """The group g has the dead-letter topic dlq.t."""
    monkeypatch.setattr(dead_letters, "PAUSE_S", 0.001)
    with Broker(tmp_path / "data") as made:
        with kafkalog.Admin(made.bootstrap_servers) as admin:
            admin.update_features({"share.version": 2}).check()
            admin.create_topic("t", 1)
            admin.create_topic("dlq.t", 1, config=ENABLED)
            admin.alter_configs({("group", "g"): {NAME: "dlq.t", COPY: "true"}}).check()
        yield made


def node(broker: Broker) -> Node:
    assert broker.broker is not None
    return node_of(broker.broker)


def bury(letters: DeadLetters, first: int, last: int) -> None:
    """Write the letters of rejected records of t-0, and wait for their end."""
    ended = threading.Event()
    letters.bury("g", "t", 0, Letter(first, last, 1, True), ended.set)
    assert ended.wait(LIMIT_S)


@contextmanager
def led_elsewhere(broker: Broker, peer: Peer) -> Iterator[tuple[DeadLetters, InterBrokerClient]]:
    """Letters to a topic that node 7 leads, and the requests of others to that node."""
    parts: Any = node(broker)
    with joined({7: peer}) as member:
        led_by(member, {7: peer}, "dlq.t", 7)
        client = InterBrokerClient(member, "test")
        letters = DeadLetters(
            parts.metadata, parts.partitions, parts.reactor, client, parts.clock,
            lambda: parts.config, lambda _: ErrorCode.NONE, 10, "test",
        )  # fmt: skip
        yield letters, client
        peer.__exit__()
        letters.stop()
        client.stop()


# ---- failures that pass ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
)  # fmt: skip
def test_failures_that_pass_are_waited_out(broker: Broker, code: ErrorCode) -> None:
    peer = Peer()
    peer.on(apis.PRODUCE, produced([code, code]))
    with led_elsewhere(broker, peer) as (letters, _):
        bury(letters, 0, 0)
        assert letters.counts() == {"g": LetterCounts(records=1, writes=3, failed=0)}


def test_other_failures_are_final(broker: Broker) -> None:
    peer = Peer()
    peer.on(apis.PRODUCE, produced([ErrorCode.TOPIC_AUTHORIZATION_FAILED]))
    with led_elsewhere(broker, peer) as (letters, _):
        bury(letters, 0, 0)
        assert letters.counts() == {"g": LetterCounts(records=0, writes=1, failed=1)}


def test_a_thread_that_cannot_start_is_waited_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = threading.Thread.start, [1]

    def refuse(one: threading.Thread) -> None:
        if one.name.endswith("to broker 7") and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(one)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    peer = Peer()
    peer.on(apis.PRODUCE, produced([]))
    with led_elsewhere(broker, peer) as (letters, _):
        bury(letters, 0, 0)
        assert letters.counts() == {"g": LetterCounts(records=1, writes=2, failed=0)}


# ---- what else waits for the other broker --------------------------------------------------------


def test_letters_hold_up_no_other_request(broker: Broker) -> None:
    """A slow dead-letter partition leaves transactions alone."""
    let, written, peer = threading.Event(), threading.Event(), Peer()

    def slow(request: Any, version: int) -> Any:
        let.wait(LIMIT_S)
        return produced([])(request, version)

    peer.on(apis.PRODUCE, slow)
    peer.on(apis.ADD_PARTITIONS_TO_TXN, {"error_code": 0, "results_by_transaction": []})
    with led_elsewhere(broker, peer) as (letters, client):
        letters.bury("g", "t", 0, Letter(0, 0, 1, True), written.set)
        wait_for(lambda: peer.count(apis.PRODUCE), "the letter")
        where = TopicPartition("u", 0)
        client.allow(7, ProducerClaim("x", 1, 0), [where], False, lambda _: None)
        wait_for(lambda: peer.count(apis.ADD_PARTITIONS_TO_TXN), "the transaction's request")
        assert not written.is_set()
        let.set()
        assert written.wait(LIMIT_S)
        (sent,) = peer.sent(apis.PRODUCE)
        assert sent.timeout_ms < inter_broker_client.ANSWER_MS


def test_the_connections_of_letters_end_with_them(broker: Broker) -> None:
    peer = Peer()
    peer.on(apis.PRODUCE, produced([]))
    with led_elsewhere(broker, peer) as (letters, _):
        assert peer.connections == 0
        bury(letters, 0, 0)
        assert peer.connections == 1
        letters.stop()
        wait_for(lambda: peer.open == 0, "the end of the connection")


# ---- topics that are created ---------------------------------------------------------------------


class Controller:
    """Creates topics of dead letters when it is let."""

    def __init__(self, broker: Broker) -> None:
        self.node = node(broker)
        self.let = threading.Event()
        self.slow: set[str] = set()
        """Those that wait for it."""
        self.outcomes: list[Exception | ErrorCode] = []
        """The results of the first ones instead."""
        self.asked: list[str] = []

    def create(self, name: str) -> ErrorCode:
        self.asked.append(name)
        if name in self.slow:
            assert self.let.wait(LIMIT_S)
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        return dead_letter_topic(self.node, name)


@pytest.fixture
def controller(broker: Broker) -> Iterator[Controller]:
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        wanted = {("group", f"g{n}"): {NAME: f"dlq.{n}"} for n in range(3)}
        admin.alter_configs(wanted).check()
    made = Controller(broker)
    yield made
    made.let.set()


@pytest.fixture
def creating(broker: Broker, controller: Controller) -> Iterator[DeadLetters]:
    """Letters of the groups g0, g1, .. have topics that do not exist: dlq.0, dlq.1, .."""
    parts: Any = node(broker)
    config = ServerConfig({"errors.deadletterqueue.auto.create.topics.enable": "true"})
    letters = DeadLetters(
        parts.metadata, parts.partitions, parts.letters._appends, None, parts.clock, lambda: config,
        controller.create, 10, "test",
    )  # fmt: skip
    yield letters
    controller.let.set()
    letters.stop()


def begin(letters: DeadLetters, group: str, offset: int = 0) -> threading.Event:
    """Begin to write one letter."""
    ended = threading.Event()
    letters.bury(group, "t", 0, Letter(offset, offset, 1, True), ended.set)
    return ended


def test_only_a_topics_own_letters_wait_for_its_creation(
    broker: Broker, controller: Controller, creating: DeadLetters
) -> None:
    """However many these are; also other topics are created in the meantime."""
    controller.slow = {"dlq.0"}
    waiting = [begin(creating, "g0", n) for n in range(2 * dead_letters.FLYING_MAX)]
    wait_for(lambda: "dlq.0" in controller.asked, "the creation")
    others = begin(creating, "g"), begin(creating, "g1")
    assert all(one.wait(LIMIT_S) for one in others)
    assert not any(one.is_set() for one in waiting)
    controller.let.set()
    assert all(one.wait(LIMIT_S) for one in waiting)
    assert len(broker.records("dlq.0")) == len(waiting)
    assert (len(broker.records("dlq.1")), len(broker.records("dlq.t"))) == (1, 1)
    assert sorted(controller.asked) == ["dlq.0", "dlq.1"], "each is created once"


def test_few_topics_are_created_at_a_time(
    monkeypatch: pytest.MonkeyPatch, controller: Controller, creating: DeadLetters
) -> None:
    monkeypatch.setattr(letter_topics, "CREATIONS_MAX", 1)
    controller.slow = {"dlq.0"}
    waiting = [begin(creating, "g0")]
    wait_for(lambda: controller.asked, "the creation")
    waiting += [begin(creating, f"g{n}") for n in (1, 2)]
    assert begin(creating, "g").wait(LIMIT_S)
    assert controller.asked == ["dlq.0"]
    controller.let.set()
    assert all(one.wait(LIMIT_S) for one in waiting)
    assert controller.asked == ["dlq.0", "dlq.1", "dlq.2"]


@pytest.mark.parametrize(
    "outcome", [ErrorCode.REQUEST_TIMED_OUT, failure(ErrorCode.NOT_CONTROLLER, "not here")]
)
def test_a_creation_that_may_succeed_later_is_tried_again(
    broker: Broker, controller: Controller, creating: DeadLetters,
    outcome: Exception | ErrorCode,
) -> None:  # fmt: skip
    controller.outcomes = [outcome]
    assert begin(creating, "g0").wait(LIMIT_S)
    assert controller.asked == ["dlq.0", "dlq.0"]
    assert len(broker.records("dlq.0")) == 1


@pytest.mark.parametrize(
    "outcome", [ErrorCode.POLICY_VIOLATION, ValueError("an error of ours")]
)  # fmt: skip
def test_a_creation_that_is_refused_ends_its_letters(
    controller: Controller, creating: DeadLetters, caplog: pytest.LogCaptureFixture,
    outcome: Exception | ErrorCode,
) -> None:  # fmt: skip
    controller.outcomes = [outcome]
    assert begin(creating, "g0").wait(LIMIT_S)
    assert controller.asked == ["dlq.0"]
    assert "not written to the dead-letter topic" in caplog.text
    assert begin(creating, "g").wait(LIMIT_S), "later ones are written"


def test_a_thread_for_a_creation_that_cannot_start_is_waited_for(
    broker: Broker, controller: Controller, creating: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = threading.Thread.start, [1]

    def refuse(one: threading.Thread) -> None:
        if one.name.endswith("topics") and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(one)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert begin(creating, "g0").wait(LIMIT_S)
    assert len(broker.records("dlq.0")) == 1 and left == [0]


# ---- the records of a round ----------------------------------------------------------------------


def send(broker: Broker, *values: bytes, codec: str = "none") -> None:
    """Write one batch to t-0."""
    config = {"compression.type": codec, "max.request.size": 10_000_000}
    with kafkalog.Producer(broker.bootstrap_servers, config=config) as producer:
        producer.send_many("t", list(values)).result(LIMIT_S)


def written(broker: Broker) -> list[tuple[int, bytes | None]]:
    """The offsets and values of the letters."""
    return [(int(dict(one.headers)["__dlq.errors.offset"] or b""), one.value)
            for one in broker.records("dlq.t")]  # fmt: skip


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each round."""
    found: list[int] = []
    begin = DeadLetters._begin_round

    def seen(letters: DeadLetters, work: Any, *rest: Any) -> None:
        begin(letters, work, *rest)
        found.append(sum(map(len, work.batches)))

    monkeypatch.setattr(DeadLetters, "_begin_round", seen)
    return found


def test_a_round_has_few_bytes_of_a_compressed_batch(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, rounds: list[int]
) -> None:
    monkeypatch.setattr(dead_letters, "ROUND_BYTES", 10_000)
    send(broker, *[bytes(5_000)] * 100, codec="zstd")
    bury(node(broker).letters, 0, 98)
    assert written(broker) == [(number, bytes(5_000)) for number in range(99)]
    assert len(rounds) == 33 and max(rounds) < 16_000


def test_a_round_has_few_bytes_of_headers(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, rounds: list[int]
) -> None:
    """The name of a group, in each of them, may be long."""
    monkeypatch.setattr(dead_letters, "ROUND_BYTES", 1_000)
    bury(node(broker).letters, 0, 99)
    assert written(broker) == [(number, None) for number in range(100)]
    assert max(rounds) < 5_000


def test_a_batch_that_decompresses_to_too_much_is_not_copied(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only that one: those before and after it are."""
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({("topic", "dlq.t"): {**ENABLED, "max.message.bytes": "9000"}}).check()
    monkeypatch.setattr(dead_letters, "BATCH_BYTES", 10_000)
    send(broker, b"a" * 1_000, codec="zstd")
    send(broker, *[b"b" * 1_000] * 15, codec="zstd")
    send(broker, b"c" * 1_000, codec="zstd")
    bury(node(broker).letters, 0, 16)
    values = [b"a" * 1_000, *[None] * 15, b"c" * 1_000]
    assert written(broker) == list(enumerate(values))
    assert "the batch at offset 1" in caplog.text and "above the limit of 10000" in caplog.text


def test_only_the_record_that_is_too_large_is_not_copied(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The headers of its letter are what it has no room for."""
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({("topic", "dlq.t"): {**ENABLED, "max.message.bytes": "1000"}}).check()
    values = [b"a" * 10, b"b" * 900, b"c" * 600, b"d" * 10]
    send(broker, *values)
    bury(node(broker).letters, 0, 3)
    assert written(broker) == [(0, values[0]), (1, None), (2, values[2]), (3, values[3])]
    assert "offset 1: " in caplog.text


def test_the_largest_copy_that_fits_is_written(broker: Broker) -> None:
    """To the byte."""
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({("topic", "dlq.t"): {**ENABLED, "max.message.bytes": "1000"}}).check()
    values = [b"x" * size for size in range(650, 850)]
    send(broker, *values)
    bury(node(broker).letters, 0, 199)
    copied = [value for _, value in written(broker) if value is not None]
    assert copied == values[: len(copied)]
    data = node(broker).partitions.log("dlq.t", 0).read_batches(0, 1_000_000)
    assert max(batch.batch_bytes for batch, _ in whole_batches(data)) == 1_000


def test_letters_that_wait_for_an_attempt_keep_no_batches(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read again, from the first one that is not written."""
    monkeypatch.setattr(dead_letters, "ROUND_RECORDS", 4)
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({("topic", "dlq.t"): {**ENABLED, "max.message.bytes": "1000"}}).check()
    send(broker, *[b"%d" % number * 300 for number in range(6)])
    kept: list[int] = []
    enter = DeadLetters._enter

    def entered(letters: DeadLetters, work: Any) -> None:
        kept.append(len(work.batches))
        enter(letters, work)

    monkeypatch.setattr(DeadLetters, "_enter", entered)
    codes = [0, ErrorCode.REQUEST_TIMED_OUT, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    peer, taken = Peer(), list[bytes]()
    answers = iter(codes)

    def answer(request: Any, version: int) -> Any:
        code = next(answers, 0)
        if not code:
            taken.append(bytes(request.topic_data[0].partition_data[0].records))
        return produced([code])(request, version)

    peer.on(apis.PRODUCE, answer)
    with led_elsewhere(broker, peer) as (letters, _):
        bury(letters, 0, 5)
        assert letters.counts()["g"].records == 6
    blocks = [rows for batch in taken for rows in Decoder().records("dlq.t", 0, batch)]
    found = [record.value for rows in blocks for record in rows.records()]
    assert found == [b"%d" % number * 300 for number in range(6)]
    assert kept == [0, 0, 0]


def test_a_damaged_log_leaves_letters_without_contents(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The batches before the damage are copied."""
    send(broker, b"1")
    send(broker, b"2")
    read = Log.read_batches

    def damaged(log: Log, offset: int, *rest: Any) -> bytes:
        data = bytearray(read(log, offset, *rest))
        (*_, (_, last)) = whole_batches(bytes(data))
        data[len(data) - len(last) + 16] = 99  # the version of the format
        return bytes(data)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "read_batches", damaged)
        bury(node(broker).letters, 0, 1)
    assert written(broker) == [(0, b"1"), (1, None)]
    assert "dead letters without keys and values: " in caplog.text
