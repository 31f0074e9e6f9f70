"""How a transaction ends when answers are lost, and when other threads send in the meantime."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log, errors
from kafkalog._native import direct
from kafkalog.client.buffer.delivery import Future
from kafkalog.client.calls import transactions
from kafkalog.client.calls.offsets import LATEST, list_offsets
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.background_calls import Line
from kafkalog.client.producer.producer import OutgoingRecord, Producer
from kafkalog.client.producer.tasks import Tasks, _Task
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import LIMIT_S, wait_for

TP = TopicPartition("t", 0)
_send = direct("intake_send")
QUICK: dict[str, object] = {"retry.backoff.ms": 5, "retry.backoff.max.ms": 20}


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param == 1:
        monkeypatch.setattr("kafkalog.client.producer.transaction_calls.FEATURE", "of no broker")
    return int(request.param)


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transaction version 1: partitions are announced."""
    monkeypatch.setattr("kafkalog.client.producer.transaction_calls.FEATURE", "of no broker")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as made:
        made.create_topic("t")
        yield made


def make(broker: TestBroker, **options: Any) -> Producer:
    """A producer that waits as long as a busy machine needs, except while `hurried`."""
    options["config"] = {**QUICK, **options.get("config", {})}
    return Producer(
        broker.bootstrap_servers, transactional_id="x", max_block_ms=round(1000 * LIMIT_S),
        **options,
    )  # fmt: skip


@contextlib.contextmanager
def hurried(producer: Producer, block_s: float = 0.3) -> Iterator[None]:
    """Calls without an answer fail soon; other calls outside get all the time they need."""
    ordinary = producer._boundaries._block_s
    producer._boundaries._block_s = block_s
    try:
        yield
    finally:
        producer._boundaries._block_s = ordinary


def aborted(producer: Producer) -> bool:
    """True if a repeated abort succeeds: the first one's markers may take longer than a hurried
    producer waits."""
    try:
        producer.abort_transaction()
    except errors.KafkalogError as problem:
        if problem.code != ErrorCode.CONCURRENT_TRANSACTIONS:
            raise
        return False
    return True


def values(broker: TestBroker, count: int) -> list[bytes | None]:
    return [r.value for r in broker.wait_for_records("t", count)]


def state(broker: TestBroker) -> str:
    with Cluster(broker.bootstrap_servers) as cluster:
        return transactions.describe_transactions(cluster, ["x"])["x"].state


def stable(broker: TestBroker) -> bool:
    """True if readers are not held back by a transaction."""
    with Cluster(broker.bootstrap_servers) as cluster:
        ends = [list_offsets(cluster, {TP: LATEST}, committed=c)[TP].offset for c in (True, False)]
    return ends[0] == ends[1]


# ---- lost answers --------------------------------------------------------------------------


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_commit_without_an_answer_is_asked_for_again(
    broker: TestBroker, version: int, done: bool
) -> None:
    """It may have succeeded: neither an abort nor a new transaction can replace it."""
    with make(broker) as producer:
        lost = (broker.drop_response if done else broker.disconnect)("EndTxn", times=None)
        producer.begin_transaction()
        producer.send("t", b"1").result(LIMIT_S)
        unknown = pytest.raises(errors.Timeout, match="commit_transaction again")
        with unknown as caught, hurried(producer):
            producer.commit_transaction()
        assert lost.hits and not caught.value.fatal and not caught.value.abortable
        for call in (
            producer.begin_transaction, producer.init_transactions, producer.abort_transaction,
        ):  # fmt: skip
            with pytest.raises(errors.InvalidTxnState, match="commit_transaction again"):
                call()
        with pytest.raises(errors.InvalidTxnState, match="being committed"):
            producer.send("t", b"no")
        with pytest.raises(errors.Timeout, match="commit_transaction again"), hurried(producer):
            producer.commit_transaction()
        broker.heal()
        producer.commit_transaction()
        with producer.transaction():
            producer.send("t", b"2")
    assert values(broker, 2) == [b"1", b"2"]


def test_a_producer_that_does_not_know_can_be_closed(broker: TestBroker, version: int) -> None:
    """Its successor finds out: a commit that was decided is carried out."""
    producer = make(broker)
    broker.drop_response("EndTxn", times=None)
    producer.begin_transaction()
    producer.send("t", b"1").result(LIMIT_S)
    with pytest.raises(errors.Timeout), hurried(producer):
        producer.commit_transaction()
    producer.close()
    broker.heal()
    with make(broker) as again, again.transaction():
        again.send("t", b"2")
    assert values(broker, 2) == [b"1", b"2"]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_an_abort_without_an_answer_is_ended_by_the_next_beginning(
    broker: TestBroker, version: int, done: bool
) -> None:
    """Its outcome does not matter: aborting twice is the same."""
    with make(broker) as producer:
        (broker.drop_response if done else broker.disconnect)("EndTxn", times=None)
        with (
            contextlib.ExitStack() as slow, pytest.raises(ValueError, match="mine"),
            producer.transaction(),
        ):  # fmt: skip
            producer.send("t", b"never").result(LIMIT_S)
            slow.enter_context(hurried(producer))
            raise ValueError("mine")
        broker.heal()
        with producer.transaction():
            producer.send("t", b"fine")
    assert values(broker, 1) == [b"fine"]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_an_abort_without_an_answer_is_not_committed_instead(
    broker: TestBroker, version: int, done: bool
) -> None:
    """The commit would lack the records that the abort dropped."""
    with make(broker, linger_ms=60_000) as producer:
        producer.begin_transaction()
        producer.send("t", b"never").result(LIMIT_S)
        given_up = producer.send("t", b"neither")
        (broker.drop_response if done else broker.disconnect)("EndTxn", times=None)
        with pytest.raises(errors.KafkalogError), hurried(producer):
            producer.abort_transaction()
        assert isinstance(given_up.exception(LIMIT_S), errors.TransactionAborted)
        broker.heal()
        with pytest.raises(errors.InvalidTxnState, match="abort_transaction again"):
            producer.commit_transaction()
        wait_for(lambda: aborted(producer), "it is aborted")
        with producer.transaction():
            producer.send("t", b"fine")
    assert values(broker, 1) == [b"fine"]


def test_the_new_epoch_after_an_abort_may_get_lost_on_its_way(
    broker: TestBroker, version: int
) -> None:
    """EndTxn is not retried with the old epoch, which would be fenced."""
    with make(broker, config={"max.request.size": 4 << 20}) as producer:
        with pytest.raises(errors.MessageTooLarge), producer.transaction():
            producer.send("t", b"never").result(LIMIT_S)
            # The first may find the end in progress: at least one is carried out and retried.
            lost = broker.drop_response("InitProducerId", times=4)
            producer.send("t", b"x" * (2 << 20))
        with producer.transaction():
            producer.send("t", b"fine")
        assert lost.hits == (4 if version == 1 else 0)
    assert values(broker, 1) == [b"fine"]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
@pytest.mark.usefixtures("first")
def test_partitions_that_were_announced_without_an_answer_are_aborted(
    broker: TestBroker, done: bool
) -> None:
    """The coordinator may have opened the transaction; readers would wait for its timeout."""
    with make(broker) as producer:
        fault = broker.drop_response if done else broker.disconnect
        lost = fault("AddPartitionsToTxn", times=None)
        with pytest.raises(ValueError, match="mine"), producer.transaction():
            future = producer.send("t", b"never")
            wait_for(lambda: lost.hits, "it was announced")
            raise ValueError("mine")
        assert isinstance(future.exception(LIMIT_S), errors.TransactionAborted)
        assert state(broker) != "Ongoing"
        broker.heal()
        with producer.transaction():
            producer.send("t", b"fine")
    assert values(broker, 1) == [b"fine"]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
@pytest.mark.usefixtures("first")
def test_offsets_that_were_announced_without_an_answer_are_aborted(
    broker: TestBroker, done: bool
) -> None:
    with make(broker) as producer:
        lost = (broker.drop_response if done else broker.disconnect)("AddOffsetsToTxn", times=None)
        with pytest.raises(errors.KafkalogError), producer.transaction(), hurried(producer, 1):
            producer.send_offsets({TP: 5}, "g")
        assert lost.hits
        assert state(broker) != "Ongoing"
        broker.heal()
        with producer.transaction():
            producer.send("t", b"fine")
            producer.send_offsets({TP: 7}, "g")
    broker.assert_committed("g", {TP: 7})


# ---- sends during an end -------------------------------------------------------------------


def refused(send: Callable[[], Any], taken: list[Any]) -> bool:
    try:
        taken.append(send())
    except errors.InvalidTxnState as problem:
        assert "being committed" in str(problem)
        return True
    return False


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_sends_during_a_commit_are_refused(broker: TestBroker, version: int, many: bool) -> None:
    """Everything accepted before is part of it, and none of the next transaction is."""
    taken: list[Any] = []
    with make(broker) as producer:

        def send() -> Any:
            return producer.send_many("t", [b"3"]) if many else producer.send("t", b"3")

        producer.begin_transaction()
        producer.send("t", b"1").result(LIMIT_S)
        broker.pause()
        producer.send("t", b"2")
        thread = threading.Thread(target=producer.commit_transaction)
        thread.start()
        wait_for(lambda: refused(send, taken), "the commit has begun")
        broker.resume()
        thread.join(LIMIT_S)
        wait_for(lambda: stable(broker), "no transaction is open")
    assert values(broker, 2 + len(taken)) == [b"1", b"2", *[b"3"] * len(taken)]


def test_threads_that_send_all_the_time_leave_no_transaction_open(
    broker: TestBroker, version: int
) -> None:
    over = threading.Event()
    taken: list[list[Future]] = [[], []]

    def run(found: list[Future]) -> None:
        while not over.is_set():
            with contextlib.suppress(errors.InvalidTxnState):
                found.append(producer.send("t", b"x"))
            over.wait(0.0002)

    with make(broker, linger_ms=0) as producer:
        threads = [threading.Thread(target=run, args=(found,)) for found in taken]
        for thread in threads:
            thread.start()
        for _ in range(40):
            wanted = sum(map(len, taken)) + 5
            with producer.transaction():
                wait_for(lambda: sum(map(len, taken)) > wanted, "some are sent")  # noqa: B023
        over.set()
        for thread in threads:
            thread.join(LIMIT_S)
        for future in (*taken[0], *taken[1]):
            assert future.done() and future.exception() is None
        wait_for(lambda: stable(broker), "no transaction is open")
    assert len(values(broker, sum(map(len, taken)))) == sum(map(len, taken))


def test_a_send_of_many_is_whole_in_one_transaction(broker: TestBroker, version: int) -> None:
    """It waits for memory while another thread commits: the commit waits for it."""
    taken: list[Any] = []
    with make(broker, linger_ms=0, batch_bytes=1_000, buffer_bytes=4_000) as producer:
        producer.begin_transaction()
        producer.send("t", b"1").result(LIMIT_S)
        broker.pause()
        many = threading.Thread(
            target=lambda: taken.append(producer.send_many("t", [b"%0200d" % i for i in range(50)]))
        )
        many.start()
        wait_for(lambda: producer._waiting.starved, "it waits for room")
        commit = threading.Thread(target=producer.commit_transaction)
        commit.start()
        broker.resume()
        many.join(LIMIT_S)
        commit.join(LIMIT_S)
        wait_for(lambda: stable(broker), "no transaction is open")
    (sent,) = taken
    assert sum(p.last_offset - p.first_offset + 1 for p in sent.result(LIMIT_S)) == 50
    assert len(values(broker, 51)) == 51


# ---- late records --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["send", "send_many", "headers", "batches"])
def test_sends_that_wait_for_a_topic_join_no_later_transaction(tmp_path: Path, how: str) -> None:
    """Another thread ends the transaction first, and begins the next."""

    def late() -> Any:
        if how == "send":
            return producer.send("new", b"late")
        if how == "batches":
            return producer.send_batches("new", batch)
        return producer.send_many("new", [b"late"], headers=[[]] if how == "headers" else None)

    with TestBroker(tmp_path / "data", config={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("t")
        broker.fill("t", [b"of before"])
        with Log(f"{broker.broker.path}/t-0", mode="r") as log:
            batch = log.read_batches(0, 1 << 20)
        with make(broker) as producer:
            producer.begin_transaction()
            producer.send("t", b"one")
            with ThreadPoolExecutor() as pool:
                asked = pool.submit(late)
                wait_for(lambda: "new" in producer._waiting.wanted, "it waits")
                producer.abort_transaction()
                producer.begin_transaction()
                producer.send("t", b"two")
                broker.create_topic("new")
                assert producer.partitions("new") == 1
                with pytest.raises(errors.InvalidTxnState, match=r"has ended|being aborted"):
                    asked.result(LIMIT_S)
                producer.commit_transaction()
        assert [r.value for r in broker.records("new", committed=False)] == []
        assert values(broker, 2) == [b"of before", b"two"]


def test_a_gate_of_an_earlier_transaction_accepts_nothing(broker: TestBroker) -> None:
    """A thread had looked it up, and paused while the transaction ended."""
    with make(broker) as producer:
        producer.begin_transaction()
        producer.send("t", b"one").result(LIMIT_S)
        door = producer._waiting.intakes["t"]
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"two")
        assert _send(door.native, b"late", None, None, -1, None) is None
        producer.commit_transaction()
    assert values(broker, 2) == [b"one", b"two"]


def test_an_abort_amid_a_send_many_leaves_none_of_it_to_the_next(broker: TestBroker) -> None:
    def rows() -> Iterator[bytes]:
        for number in range(4):
            if number == 2:
                producer.abort_transaction()
                producer.begin_transaction()
            yield b"%d" % number

    class Amid:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            next(turns)
            return record

    turns = rows()
    with make(broker, interceptors=[Amid()]) as producer:
        producer.begin_transaction()
        with pytest.raises(errors.InvalidTxnState, match=r"has ended|being aborted"):
            producer.send_many("t", [b"x"] * 4)
        producer.commit_transaction()
        assert [r.value for r in broker.records("t")] == []


def test_a_batch_that_cannot_be_made_spoils_its_transaction(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no memory to compress it."""

    def full(*_: Any) -> bytes:
        raise MemoryError

    with make(broker, compression="gzip") as producer:
        producer.begin_transaction()
        producer.send("t", b"one").result(LIMIT_S)
        with monkeypatch.context() as patch:
            patch.setattr("kafkalog.batch.codecs.compress", full)
            lost = producer.send("t", b"two")
            assert isinstance(lost.exception(LIMIT_S), errors.NoMemory)
        with pytest.raises(errors.NoMemory):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"three")
    assert values(broker, 1) == [b"three"]


@pytest.mark.parametrize("aside", [True, False])
@pytest.mark.parametrize("abortable", [True, False])
def test_a_transaction_that_must_abort_asks_once(
    broker: TestBroker, abortable: bool, aside: bool
) -> None:
    """Even if its error is retriable, as a timeout is: a commit would wait for nothing."""
    calls: list[int] = []

    def call(_: Cluster) -> str:
        calls.append(len(calls))
        if len(calls) == 3:
            return "third"
        problem = errors.Timeout("no answer")
        problem.abortable = abortable
        raise problem

    with Cluster(broker.bootstrap_servers) as cluster, ThreadPoolExecutor() as pool:
        cluster.refresh([])
        tasks, line = Tasks(lambda: None), Line(cluster, lambda: None)

        def turn() -> bool:
            line.settle()
            tasks.run(time.monotonic(), line)
            return asked.done()

        asked = pool.submit(tasks.ask, call, LIMIT_S, aside)
        wait_for(turn, "it is done")
        line.close()
        if abortable:
            assert isinstance(asked.exception(), errors.Timeout)
        else:
            assert asked.result() == "third"
    assert len(calls) == (1 if abortable else 3)


def test_nothing_is_asked_without_time_for_an_answer(broker: TestBroker) -> None:
    """An EndTxn sent then would be in doubt for nothing, at a retry and at the first attempt."""
    left_s: list[float] = []

    def call(cluster: Cluster) -> None:
        left_s.append(cluster.patience.left_s())
        raise errors.PeerGone("the coordinator is away")

    with Cluster(broker.bootstrap_servers) as cluster, ThreadPoolExecutor() as pool:
        cluster.refresh([])
        tasks, line = Tasks(lambda: None), Line(cluster, lambda: None)

        def turn() -> bool:
            line.settle()
            tasks.run(time.monotonic(), line)
            return asked.done()

        asked = pool.submit(tasks.ask, call, 1.0, True)
        wait_for(turn, "it is done")
        line.close()
        assert isinstance(asked.exception(), errors.PeerGone)
        assert len(left_s) > 1 and min(left_s) > 0
        with pytest.raises(errors.Timeout, match="did not make this call"):
            _Task(call, True, time.monotonic(), 0.0).timed(cluster)
        assert min(left_s) > 0
