"""The last epochs of a producer id: whatever ends a transaction, the transactional id continues
with another producer id, and no client gets an epoch that could not be fenced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalog.coordinator.transactions.records import status_record
from kafkalog.coordinator.transactions.transaction import EPOCH_MAX, State, Status
from kafkalog.errors import NoSpace
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.transaction_calls import Office
from tests.unit.coordinator.virtual_core import WALL_MS

OK = ErrorCode.NONE
OLD, NEW = 7, 1000
LAST = OLD, EPOCH_MAX - 1
"""NEW is the first producer id that the office assigns."""
TIMEOUT_MS = 60_000
LOOK_MS = 10_000


def office_at(epoch: int, *partitions: int, level: int = 2) -> Office:
    """An office whose id "t" is at this epoch of OLD; in a transaction if it has partitions."""
    office = Office()
    office.level = level
    joined = frozenset(TopicPartition("a", number) for number in partitions)
    state = State.ONGOING if joined else State.EMPTY
    status = Status(OLD, epoch, TIMEOUT_MS, state, joined, WALL_MS, WALL_MS, version=level)
    shard, _ = office.core.where("t")
    assert shard is not None
    office.journal.put(shard.partition, [status_record("t", status, level)])
    office.restart()
    return office


class NoneLeft(Iterator[int]):
    """Producer ids of which none can be assigned now."""

    def __next__(self) -> int:
        raise NoSpace("the disk is full")


def given(reply: object) -> tuple[ErrorCode, int, int]:
    return reply.error, reply.producer_id, reply.producer_epoch  # type: ignore[attr-defined]


def test_a_new_client_behind_the_last_epoch_has_a_new_producer_id() -> None:
    office = office_at(EPOCH_MAX - 3)
    assert [office.new(), office.new(), office.new()] == [(OLD, EPOCH_MAX - 2), LAST, (NEW, 0)]


def test_the_client_that_had_the_last_epoch_goes_on_with_a_new_producer_id() -> None:
    """A repeated request, after a lost answer, does not fence it."""
    office = office_at(EPOCH_MAX - 1)
    for _ in range(2):
        assert given(office.init(producer=LAST)) == (OK, NEW, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_uses_up_the_epochs_gives_a_new_producer_id(commit: bool) -> None:
    office = office_at(EPOCH_MAX - 1, 1)
    office.waiting = []
    assert given(office.end(LAST, commit, version=5)) == (OK, NEW, 0)
    assert [(m.producer_id, m.epoch) for m in office.waiting] == [(OLD, EPOCH_MAX)]
    office.mark_all()
    assert given(office.end(LAST, commit, version=5)) == (OK, NEW, 0)
    assert given(office.init(producer=LAST)) == (OK, NEW, 0)
    assert office.new() == (NEW, 1)
    assert office.init(producer=LAST).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("how", ["writes", "verifies", "ends", "starts over"])
def test_a_producer_with_a_new_id_waits_for_complete_markers(how: str) -> None:
    """Kafka's clients use it immediately, before all partitions have the end."""
    office = office_at(EPOCH_MAX - 1, 1)
    office.waiting = []
    assert given(office.end(LAST, version=5)) == (OK, NEW, 0)
    mine = NEW, 0
    if how == "writes":
        early = office.adding(mine, 2)
        office.mark_all()
        assert (office.codes(early), office.state()) == ([OK], "Ongoing")
    elif how == "verifies":
        assert office.batch(mine, 2, verify=True) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    elif how == "ends":
        ended = office.end(mine, False, version=5)
        office.mark_all()
        assert given(ended) == (OK, NEW, 1)
    else:
        assert office.init(producer=mine).error is ErrorCode.CONCURRENT_TRANSACTIONS
        office.mark_all()
        assert given(office.init(producer=mine)) == (OK, NEW, 1)


def test_a_timeout_at_the_last_epoch_leaves_its_client_one_that_can_be_fenced() -> None:
    """The client aborts a transaction that it does not know to be aborted, and gets a new producer
    id; its transactions can also time out.  Kafka 4.1 gives it EPOCH_MAX, whose transaction never
    ends (KAFKA-20090)."""
    office = office_at(EPOCH_MAX - 1, 1)
    office.wait(TIMEOUT_MS + LOOK_MS)
    assert [(m.producer_id, m.epoch, m.commit) for m in office.marks] == [(OLD, EPOCH_MAX, False)]
    assert given(office.end(LAST, False, version=5)) == (OK, NEW, 0)
    assert office.batch((NEW, 0), 1) == [OK]
    office.wait(TIMEOUT_MS + LOOK_MS)
    assert office.state() == "CompleteAbort"
    assert given(office.end((NEW, 0), False, version=5)) == (OK, NEW, 1)


@pytest.mark.parametrize("level", [1, 2])
def test_a_client_that_restarts_within_its_last_transaction(level: int) -> None:
    office = office_at(EPOCH_MAX - 1, 1, level=level)
    assert office.init(producer=LAST).error is ErrorCode.CONCURRENT_TRANSACTIONS
    reply = office.init(producer=LAST)
    if level == 1:  # the abort fenced it
        assert reply.error is ErrorCode.PRODUCER_FENCED
    else:
        assert given(reply) == (OK, NEW, 0)


@pytest.mark.parametrize("level", [1, 2])
def test_a_new_client_fences_the_last_epoch(level: int) -> None:
    office = office_at(EPOCH_MAX - 1, 1, level=level)
    assert office.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert office.new() == (NEW, level - 1)
    assert office.batch(LAST, 1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert office.end(LAST, version=5).error is not OK
    assert office.init(producer=LAST).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("how", ["a timeout", "a new client", "its producer"])
def test_transactions_of_kafka_beyond_the_last_epoch_end(level: int, how: str) -> None:
    office = office_at(EPOCH_MAX, 1, level=level)
    beyond = OLD, EPOCH_MAX
    if how == "a timeout":
        office.wait(TIMEOUT_MS + LOOK_MS)
    elif how == "a new client":
        assert office.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        assert office.end(beyond, version=5 if level == 2 else 4).error is OK
    assert office.state() == ("CompleteCommit" if how == "its producer" else "CompleteAbort")
    assert [(m.producer_id, m.epoch) for m in office.marks] == [beyond]
    assert office.new()[0] == NEW


def test_without_a_new_producer_id_transactions_end_later() -> None:
    """All other transactions that timed out are aborted."""

    office = office_at(EPOCH_MAX - 1, 1)
    others = [f"other-{number}" for number in range(16)]
    for name in others:
        office.batch(office.new(name), 1, name=name)
    office.ids = NoneLeft()
    with pytest.raises(NoSpace):
        office.wait(TIMEOUT_MS + LOOK_MS)
    assert office.state() == "Ongoing"
    assert {office.state(name) for name in others} == {"CompleteAbort"}
    office.ids = iter((NEW, NEW + 1))
    office.wait(LOOK_MS)
    assert office.state() == "CompleteAbort"
    assert office.new() == (NEW, 1)
