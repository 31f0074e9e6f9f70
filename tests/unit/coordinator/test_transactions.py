"""Transactional ids: epochs, partitions, ends, timeouts, restarts."""

from __future__ import annotations

from functools import partial

import pytest

from kafkalog.coordinator.step import Step
from kafkalog.coordinator.transactions.core import APPEND_MS, FENCED_MS
from kafkalog.coordinator.transactions.records import loaded_status, status_record
from kafkalog.coordinator.transactions.transaction import State, Status, Waiting
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.transaction_calls import OFFSETS, Office, settings
from tests.unit.coordinator.virtual_core import EPOCH, WALL_MS

OK = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
A = [TopicPartition("a", number) for number in range(9)]


@pytest.fixture
def office() -> Office:
    return Office()


# ---- InitProducerId ------------------------------------------------------------------------


def test_each_client_of_an_id_gets_the_next_epoch(office: Office) -> None:
    assert office.new() == (1000, 0)
    assert office.new() == (1000, 1)
    assert office.new("other") == (1001, 0)
    assert office.state() == "Empty"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer": (5, -1)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_requests(office: Office, fields: dict[str, object], error: ErrorCode) -> None:
    reply = office.init(**fields)  # type: ignore[arg-type]
    assert (reply.error, reply.producer_id, reply.producer_epoch) == (error, -1, -1)
    assert office.listed() == []


def test_a_producer_with_its_id_continues(office: Office) -> None:
    """KIP-360: its epoch is raised once, however often it asks; other producers are fenced."""
    first = office.new()
    reply = office.init(producer=first)
    assert (reply.producer_id, reply.producer_epoch) == (1000, 1)
    assert office.init(producer=first).producer_epoch == 1
    assert office.new() == (1000, 2)
    assert office.init(producer=first).error is FENCED
    assert office.init(producer=(7, 0)).error is FENCED
    assert office.init(producer=first, version=3).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_client_ends_the_open_transaction_of_the_old_one(office: Office) -> None:
    old = office.new()
    assert office.add(old, 1) == [OK]
    office.waiting = []
    assert office.init().error is CONCURRENT
    assert office.state() == "PrepareAbort"
    assert office.init().error is CONCURRENT
    assert office.end(old).error is FENCED
    (marker,) = office.waiting
    assert (marker.where, marker.producer_id, marker.epoch, marker.commit) == (A[1], 1000, 1, False)
    assert marker.coordinator_epoch == 5
    office.mark_all()
    assert office.state() == "CompleteAbort"
    assert office.new() == (1000, 2)


def test_a_producer_that_asks_again_in_its_transaction_is_not_fenced_by_its_abort(
    office: Office,
) -> None:
    """In version 2 it gets the epoch of its abort, however often it asks."""
    producer = office.new()
    office.batch(producer, 1)
    office.waiting = []
    assert office.init(producer=producer).error is CONCURRENT
    office.mark_all()
    for _ in range(2):
        reply = office.init(producer=producer)
        assert (reply.error, reply.producer_epoch) == (OK, 1)
    assert office.new() == (producer[0], 2)
    assert office.init(producer=producer).error is FENCED


# ---- partitions ----------------------------------------------------------------------------


def test_partitions_join(office: Office) -> None:
    producer = office.new()
    assert office.add(producer, 1, 2) == [OK, OK]
    assert office.offsets(producer) is OK
    found = office.described()
    assert found.transaction_state == "Ongoing"
    assert found.transaction_start_time_ms == WALL_MS
    assert [(t.topic, list(t.partitions)) for t in found.topics] == [
        (OFFSETS.topic, [OFFSETS.partition]), ("a", [1, 2]),
    ]  # fmt: skip


def test_producers_that_may_not_add_partitions(office: Office) -> None:
    producer = office.new()
    assert office.add((producer[0], 5), 1) == [FENCED]
    assert office.add((producer[0], 5), 1, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert office.add((7, 0), 1) == [UNMAPPED]
    assert office.add(producer, 1, name="unknown") == [UNMAPPED]
    office.topics["a"] = 2
    lost, fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert office.add(producer, 1, 2) == [fine, lost]
    assert office.state() == "Empty"


def test_brokers_ask_whether_a_partition_is_part_of_a_transaction(office: Office) -> None:
    producer = office.new()
    assert office.batch(producer, 1) == [OK]
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert office.batch(producer, 1, 2, verify=True) == [OK, abortable]
    assert office.batch((producer[0], 3), 1, verify=True) == [FENCED]
    assert office.batch((3, 0), 1, verify=True) == [UNMAPPED]
    office.waiting = []
    assert office.end(producer).error is OK
    assert office.batch(producer, 1, verify=True) == [CONCURRENT]
    office.mark_all()
    assert office.batch(producer, 1, verify=True) == [abortable]


# ---- ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_decided_then_told_then_complete(office: Office, commit: bool) -> None:
    word = "Commit" if commit else "Abort"
    producer = office.new()
    office.add(producer, 1, 2)
    office.waiting = []
    assert office.end(producer, commit).error is OK
    assert office.state() == f"Prepare{word}"
    assert [(m.where, m.epoch, m.commit) for m in office.waiting] == [
        (A[1], 0, commit), (A[2], 0, commit),
    ]  # fmt: skip
    assert office.end(producer, commit).error is CONCURRENT
    assert office.end(producer, not commit).error is ErrorCode.INVALID_TXN_STATE
    office.told(office.waiting[0])
    assert [list(t.partitions) for t in office.described().topics] == [[2]]
    office.told(office.waiting[1])
    assert office.state() == f"Complete{word}"
    assert office.end(producer, commit).error is OK
    assert office.end(producer, not commit).error is ErrorCode.INVALID_TXN_STATE
    assert office.add(producer, 3) == [OK]


def test_requests_wait_for_the_end_to_complete(office: Office) -> None:
    """Only for a while: then it gets a retriable error."""
    producer = office.new()
    office.add(producer, 1)
    office.waiting = []
    office.end(producer)
    early = office.adding(producer, 2)
    assert early.waits
    office.mark_all()
    assert office.codes(early) == [OK]
    assert [list(t.partitions) for t in office.described().topics] == [[2]]
    office.waiting = []
    office.end(producer)
    late = office.adding(producer, 3)
    many = [office.adding(producer, 3) for _ in range(16)]
    assert office.codes(many[-1]) == [CONCURRENT]
    office.wait(999)
    assert late.waits
    office.wait(1)
    assert office.codes(late) == [CONCURRENT]
    last = office.adding(producer, 3)
    for partition in range(4):
        office.step(partial(office.core.resign, partition))
    assert office.codes(last) == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("written", [True, False])
def test_the_next_end_waits_for_the_one_before(office: Office, written: bool) -> None:
    """A producer that immediately gives up its next transaction is not fenced for that."""
    producer = office.new()
    office.batch(producer, 1)
    office.waiting = []
    assert office.end(producer, version=5).producer_epoch == 1
    producer = producer[0], 1
    early = office.adding(producer, 2) if written else None
    end = office.end(producer, False, version=5)
    assert end.waits
    office.mark_all()
    assert early is None or office.codes(early) == [OK]
    assert (end.error, end.producer_epoch) == (OK, 2)
    office.wait(0)
    assert office.state() == "CompleteAbort"
    office.waiting = []
    office.batch((producer[0], 2), 1)
    office.end((producer[0], 2), version=5)
    late = office.end((producer[0], 3), version=5)
    office.wait(1_000)
    assert late.error is CONCURRENT
    assert office.end((producer[0], 4), version=5).error is FENCED
    assert office.end((producer[0], 1), version=5).error is FENCED


def test_without_a_transaction_there_is_nothing_to_end(office: Office) -> None:
    producer = office.new()
    assert office.end(producer).error is ErrorCode.INVALID_TXN_STATE
    assert office.end(producer, False).error is ErrorCode.INVALID_TXN_STATE
    assert office.end((producer[0], 9)).error is FENCED
    assert office.end((producer[0], 9), version=1).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert office.end((77, 0)).error is UNMAPPED
    assert office.end(producer, name="").error is ErrorCode.INVALID_REQUEST


def test_a_marker_that_fails_is_written_again(office: Office) -> None:
    producer = office.new()
    office.add(producer, 1)
    office.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
    office.end(producer)
    assert office.state() == "PrepareCommit"
    office.wait(1_000)
    assert office.state() == "CompleteCommit"
    assert [m.where for m in office.marks] == [A[1]]


def test_a_marker_of_a_coordinator_that_is_not_believed_is_not_done(office: Office) -> None:
    """The transaction is still open there: the marker is retried later, and at each start."""
    producer = office.new()
    office.add(producer, 1)
    office.refusals = [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 2
    office.end(producer)
    office.wait(FENCED_MS - 1)
    assert (office.state(), len(office.refusals)) == ("PrepareCommit", 1)
    office.restart()
    assert (office.state(), office.refusals) == ("PrepareCommit", [])
    office.wait(FENCED_MS)
    assert office.state() == "CompleteCommit"


def test_markers_of_an_earlier_shard_do_not_end_the_next_transaction(office: Office) -> None:
    """Its partition of the journal was given up and read again: the outcome of an older marker does
    not complete the new shard's marker, which is still in flight."""
    producer = office.new()
    office.batch(producer, 1)
    office.waiting = []
    office.end(producer, version=5)
    where = partition_of(office, "t")
    office.step(partial(office.core.resign, where))
    office.load(where)
    stale, fresh = office.waiting
    assert stale._replace(life=0) == fresh._replace(life=0)
    office.told(stale)
    early = office.adding((producer[0], 1), 1)
    assert (office.state(), early.waits) == ("PrepareCommit", True)
    office.told(fresh)
    assert (office.state(), office.codes(early)) == ("Ongoing", [OK])
    office.told(stale)
    assert office.state() == "Ongoing"


def fails(*_: object) -> None:
    raise RuntimeError("an error of ours")


@pytest.mark.parametrize("outcome", ["settled", "late", "timed out", "elsewhere"])
def test_a_write_that_ends_in_an_error_of_ours_is_in_no_others_way(
    office: Office, outcome: str
) -> None:
    told: list[ErrorCode] = []
    step = Step(office.now_ms, office.wall_ms)
    for settle in (fails, lambda _step, error: told.append(error)):
        step.write(99 if outcome == "elsewhere" else 0, [(b"k", b"v")], settle, settle)
    if outcome == "elsewhere":
        assert office.core.appends(step) == []
        assert told == [ErrorCode.NOT_COORDINATOR]
        return
    (append,) = office.core.appends(step)
    if outcome != "settled":
        step.now_ms += APPEND_MS
        with pytest.raises(RuntimeError):
            office.core.tick(step)
        assert told == [ErrorCode.REQUEST_TIMED_OUT]
    if outcome != "timed out":
        with pytest.raises(RuntimeError):
            office.core.settled(append.number, OK, step)
        assert told[-1] is OK


def test_one_that_waited_and_ends_in_an_error_of_ours_is_in_no_others_way(office: Office) -> None:
    producer = office.new()
    office.add(producer, 1)
    one = office.core.shards[partition_of(office, "t")].ids["t"]
    told: list[str] = []
    for again in (fails, lambda _step: told.append("again")):
        one.waiting.append(Waiting(again, fails))
    with pytest.raises(RuntimeError):
        office.end(producer)
    assert told == ["again"]
    for refuse in (fails, lambda _step, _error: told.append("refused")):
        one.waiting.append(Waiting(fails, refuse))
    with pytest.raises(RuntimeError):
        office.step(partial(office.core.resign, partition_of(office, "t")))
    assert told == ["again", "refused"]


FINAL = ("NONE", "INVALID_PRODUCER_EPOCH", "UNSUPPORTED_FOR_MESSAGE_FORMAT")
"""Outcomes of a marker after which its partition needs none."""


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("met", ErrorCode, ids=lambda code: code.name)
def test_each_error_of_a_marker(office: Office, met: ErrorCode, exists: bool) -> None:
    """A leader's word is not enough to give a partition up: the coordinator's own metadata must
    lack it."""
    producer = office.new()
    office.add(producer, 1)
    office.topics["a"] = 2 if exists else 1
    office.refusals = [met]
    office.end(producer)
    gone = met is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists
    done = met.name in FINAL or gone
    assert office.state() == ("CompleteCommit" if done else "PrepareCommit")
    office.wait(FENCED_MS)
    assert office.state() == "CompleteCommit"
    assert len(office.marks) == (not done or met is ErrorCode.NONE)


def test_given_up_partitions_are_logged(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    producer = office.new()
    office.add(producer, 1)
    office.topics["a"] = 0
    office.refusals = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    office.end(producer)
    assert caplog.messages == [
        "transactional id t: its transaction gets no end in a-1: the partition was deleted"
    ]


def test_a_failed_append_changes_nothing(office: Office) -> None:
    """A failed append changes nothing; one with a late outcome counts."""
    producer = office.new()
    office.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert office.add(producer, 1) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert office.state() == "Empty"
    office.add(producer, 1)
    office.held = []
    reply = office.end(producer)
    assert reply.waits
    assert office.init().error is CONCURRENT
    office.wait(30_000)
    assert reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert office.state() == "Ongoing"
    office.release()
    assert office.state() == "CompleteCommit"
    assert [m.commit for m in office.marks] == [True]


def test_an_end_is_written_down_though_the_journal_stood_still(office: Office) -> None:
    """The append takes longer than any client waits: the journal gives it up."""
    producer = office.new()
    office.add(producer, 1)
    office.waiting = []
    office.end(producer)
    office.held = []
    office.mark_all()
    office.wait(60_000)
    assert office.state() == "PrepareCommit"
    office.release(ErrorCode.REQUEST_TIMED_OUT)
    office.wait(1_000)
    assert office.state() == "CompleteCommit"


def test_an_id_that_was_never_written_down_is_not_there(office: Office) -> None:
    office.errors = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert office.init().error is ErrorCode.NOT_COORDINATOR
    assert office.listed() == []
    assert office.described().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert office.new() == (1001, 0)


# ---- version 2 -----------------------------------------------------------------------------


def test_each_end_raises_the_epoch(office: Office) -> None:
    """KIP-890: late batches of an old transaction have another epoch than the new one."""
    producer = office.new()
    office.batch(producer, 1)
    reply = office.end(producer, version=5)
    assert (reply.error, reply.producer_id, reply.producer_epoch) == (OK, 1000, 1)
    assert [m.epoch for m in office.marks] == [1]
    assert office.state() == "CompleteCommit"
    again = office.end(producer, version=5)
    assert (again.error, again.producer_epoch) == (OK, 1)
    assert office.end(producer, False, version=5).error is ErrorCode.INVALID_TXN_STATE
    assert office.batch(producer, 1) == [FENCED]
    assert office.batch((1000, 1), 1) == [OK]


def test_version_2_may_abort_an_empty_transaction(office: Office) -> None:
    producer = office.new()
    assert office.end(producer, True, version=5).error is ErrorCode.INVALID_TXN_STATE
    reply = office.end(producer, False, version=5)
    assert (reply.error, reply.producer_epoch) == (OK, 1)
    office.wait(0)
    assert office.state() == "CompleteAbort"
    reply = office.end((1000, 1), False, version=5)
    assert (reply.error, reply.producer_epoch) == (OK, 2)
    office.wait(0)
    assert office.state() == "CompleteAbort"


def partition_of(office: Office, name: str) -> int:
    shard, _ = office.core.where(name)
    assert shard is not None
    return shard.partition


# ---- time ----------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted(office: Office) -> None:
    producer = office.new(timeout_ms=30_000)
    office.add(producer, 1)
    office.wait(29_000)
    assert office.state() == "Ongoing"
    office.wait(11_000)
    assert office.state() == "CompleteAbort"
    assert [(m.epoch, m.commit) for m in office.marks] == [(1, False)]
    assert office.end(producer).error is FENCED
    assert office.add(producer, 1) == [FENCED]


def test_time_passes_for_a_transaction_while_no_coordinator_is_there(office: Office) -> None:
    """A directory may never be open for as long as the interval between two checks."""
    producer = office.new(timeout_ms=30_000)
    office.add(producer, 1)
    office.now_ms += 29_000
    office.restart()
    assert office.state() == "Ongoing"
    office.now_ms += 1_000
    office.restart()
    assert office.state() == "CompleteAbort"
    assert [(m.epoch, m.commit) for m in office.marks] == [(1, False)]


def test_ids_that_nobody_uses_are_forgotten() -> None:
    office = Office(settings(transactional_id_expiration_ms=3_600_000 * 3))
    office.new("idle")
    producer = office.new("busy")
    office.add(producer, 1, name="busy")
    office.wait(3_600_000 * 2)
    assert office.listed() == ["busy", "idle"]
    office.new("busy")
    office.wait(3_600_000 * 2)
    assert office.listed() == ["busy"]
    office.restart()
    assert office.listed() == ["busy"]


def test_so_many_ids_are_kept() -> None:
    """A new id has room once another is forgotten; existing ids continue."""
    office = Office(settings(kafkalog_transactional_ids_max=3, transactional_id_expiration_ms=1))
    for name in "abc":
        office.new(name)
    assert office.init("d").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert office.init("a").error is OK
    assert office.listed() == ["a", "b", "c"]
    office.wait(3_600_000)
    assert office.new("d")[1] == 0


# ---- restarts ------------------------------------------------------------------------------


def test_a_restart_goes_on_where_the_journal_ends(office: Office) -> None:
    """In each state: an open transaction keeps its remaining time, a decided one its markers."""
    empty, ongoing = office.new("empty"), office.new("open", 40_000)
    office.add(ongoing, 1, name="open")
    commit, abort = office.new("commit"), office.new("abort")
    office.waiting = []
    for name, producer in (("commit", commit), ("abort", abort)):
        office.add(producer, 1, 2, name=name)
        office.end(producer, name == "commit", name=name)
    states = {name: office.state(name) for name in ("empty", "open", "commit", "abort")}
    assert states == {
        "empty": "Empty", "open": "Ongoing", "commit": "PrepareCommit", "abort": "PrepareAbort",
    }  # fmt: skip
    office.wait(25_000)
    office.waiting = []
    office.restart()
    assert sorted((m.transactional_id, m.where, m.commit) for m in office.waiting) == [
        ("abort", A[1], False), ("abort", A[2], False),
        ("commit", A[1], True), ("commit", A[2], True),
    ]  # fmt: skip
    office.mark_all()
    assert office.state("commit") == "CompleteCommit"
    assert office.state("abort") == "CompleteAbort"
    assert office.init("empty").producer_epoch == empty[1] + 1
    office.wait(25_000)
    assert office.state("open") == "CompleteAbort"


def test_while_partitions_load_requests_are_told_so(office: Office) -> None:
    producer = office.new()
    office.core.shards.clear()
    office.core.loading = dict.fromkeys(range(4), EPOCH)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert office.init().error is loading
    assert office.add(producer, 1) == [loading]
    assert office.batch(producer, 1, verify=True) == [loading]
    assert office.end(producer).error is loading
    assert office.offsets(producer) is loading
    assert office.described().error_code == loading
    office.core.loading.clear()
    assert office.init().error is ErrorCode.NOT_COORDINATOR


# ---- lists ---------------------------------------------------------------------------------


def test_transactions_are_listed_by_state_producer_and_duration(office: Office) -> None:
    office.new("empty")
    producer = office.new("open")
    office.add(producer, 1, name="open")
    office.wait(5_000)
    assert office.listed() == ["empty", "open"]
    assert office.listed(state_filters=["Ongoing"]) == ["open"]
    assert office.listed(producer_id_filters=[producer[0]]) == ["open"]
    assert office.listed(duration_filter=6_000, state_filters=["Ongoing"]) == []
    assert office.listed(duration_filter=4_000, state_filters=["Ongoing"]) == ["open"]
    assert office.listed(state_filters=["ongoing", "Dead"]) == []


def test_transactions_are_listed_by_a_pattern_of_their_ids(office: Office) -> None:
    for name in ("billing-1", "billing-2", "stock-1"):
        office.new(name)
    assert office.listed(2, transactional_id_pattern="billing-.*") == ["billing-1", "billing-2"]
    assert office.listed(2, transactional_id_pattern="billing") == []
    assert office.listed(2, transactional_id_pattern=r"^(billing|stock)-[^2]$") == [
        "billing-1", "stock-1",
    ]  # fmt: skip
    assert len(office.listed(2, transactional_id_pattern="")) == 3
    bad = office.ask(apis.LIST_TRANSACTIONS, 2, transactional_id_pattern="(")
    assert bad.error is ErrorCode.INVALID_REGULAR_EXPRESSION


# ---- records -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("state", list(State))
def test_a_status_comes_back_as_it_was_written(level: int, state: State) -> None:
    partitions = frozenset() if state is State.EMPTY else frozenset(A[:3])
    status = Status(9, 3, 60_000, state, partitions, 17, 18, 8, 10, 2)
    _, value = status_record("t", status, level)
    assert value is not None
    found = loaded_status(value)
    if level == 0:  # fields that the version does not have
        status = status._replace(previous_id=-1, next_id=-1, version=0)
    assert found == status
