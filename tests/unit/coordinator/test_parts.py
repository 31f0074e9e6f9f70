"""Partitions, timers, and the thread in front of the core."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.clock import ManualClock, SystemClock
from kafkalog.coordinator import partitions
from kafkalog.coordinator.core import LOAD_AGAIN_MS
from kafkalog.coordinator.groups.core import SERVED, GroupCoordinatorState
from kafkalog.coordinator.groups.records import _cached_offset_key, offset_key
from kafkalog.coordinator.journal import JournalBatch, journal_batches
from kafkalog.coordinator.partitions import CACHED_CHARACTERS_MAX, java_hash, partition_for
from kafkalog.coordinator.step import Call, JournalRecord, Producer, Step
from kafkalog.coordinator.thread import Coordinator
from kafkalog.coordinator.timers import STALE_MAX, Timers
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import LIMIT_S
from tests.unit.coordinator.group_calls import Desk, config
from tests.unit.coordinator.test_states import codes
from tests.unit.coordinator.virtual_core import EPOCH, HOST, MemoryJournal, Reply

Wait = Callable[..., None]
Groups = Coordinator[GroupCoordinatorState]


def new_id() -> str:
    return f"{random.getrandbits(64):016x}"


# ---- partitions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("grüße", 98768023),
        ("\U0001f600", 1772899),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    """As Java computes it; the last text has two surrogates."""
    assert java_hash(text) == value


def test_the_smallest_hash_is_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
    assert all(0 <= partition_for(f"group-{i}", 7) < 7 for i in range(100))


# ---- timers --------------------------------------------------------------------------------


def test_timers_come_up_in_order_at_their_last_time(rng: random.Random) -> None:
    """Compared with a plain dict."""
    timers, model = Timers(), {}
    now_ms = 0
    for _ in range(5_000):
        key = ("k", rng.randrange(30), "", "")
        roll = rng.random()
        if roll < 0.6:
            model[key] = now_ms + rng.randrange(100)
            timers.set(key, model[key])
        elif roll < 0.75:
            model.pop(key, None)
            timers.cancel(key)
        else:
            now_ms += rng.randrange(20)
            found = []
            while (due := timers.due(now_ms)) is not None:
                found.append(model.pop(due))
            assert found == sorted(found)
            assert all(at_ms <= now_ms for at_ms in found)
            assert all(at_ms > now_ms for at_ms in model.values())
        assert len(timers) == len(model)
        assert (key in timers) == (key in model)
        assert timers.next_ms() == (min(model.values()) if model else None)


# ---- the thread ----------------------------------------------------------------------------


class SlowJournal(MemoryJournal):
    """The test decides when outcomes arrive, from another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[ErrorCode], None]] = []
        self.fails: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[JournalRecord],
        done: Callable[[ErrorCode], None],
        producer: Producer | None = None,
    ) -> None:
        if self.fails is not None:
            raise self.fails
        self.put(partition, records)
        self.waiting.append(done)

    def read(self, partition: int, epoch: int = EPOCH) -> Iterator[JournalBatch]:
        self.gate.wait(LIMIT_S)
        return super().read(partition, epoch)

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(ErrorCode.NONE)


@pytest.fixture
def journal() -> SlowJournal:
    return SlowJournal()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Brought(Coordinator[GroupCoordinatorState]):
    """The submitting thread does the request if no other thread is at work, as in a broker."""

    def submit(self, api: Api, request: Call, *, here: bool = True) -> None:
        super().submit(api, request, here=here)


KINDS = pytest.mark.parametrize("kind", [Coordinator, Brought])


@pytest.fixture(params=[Coordinator, Brought])
def coordinator(
    request: pytest.FixtureRequest, journal: SlowJournal, clock: ManualClock
) -> Iterator[Groups]:
    made = request.param(GroupCoordinatorState(config(), new_id), journal, clock, name="group")
    made.start()
    yield made
    journal.gate.set()
    made.close(0)


def submit(coordinator: Groups, api: Api, version: int, **fields: Any) -> Reply:
    reply = Reply(api, version)
    body = api.decode_request(version, api.encode_request(version, fields))
    coordinator.submit(api, Call(body, version, "client", HOST, reply))
    return reply


def commit(coordinator: Groups, offset: int) -> Reply:
    partitions = [{"partition_index": 0, "committed_offset": offset}]
    topics = [{"name": "t", "partitions": partitions}]
    return submit(coordinator, apis.OFFSET_COMMIT, 8, group_id="g", topics=topics)


def state(coordinator: Groups, wait_until: Wait) -> int:
    """The error of an OffsetFetch, used as a probe."""
    reply = submit(coordinator, apis.OFFSET_FETCH, 7, group_id="g", topics=None)
    wait_until(lambda: not reply.waits, "an answer")
    return int(reply.error_code)


def loaded(coordinator: Groups, wait_until: Wait) -> None:
    coordinator.load(dict.fromkeys(range(4), EPOCH), 4)
    wait_until(lambda: state(coordinator, wait_until) == 0, "loaded")


def test_cancelled_timers_are_forgotten() -> None:
    """Their names come from clients, and their times may lie far ahead."""
    timers = Timers()
    kept = ("session", 0, "g", "kept")
    timers.set(kept, 5_000_000)
    for number in range(10 * STALE_MAX):
        key = ("session", 0, "g", str(number))
        timers.set(key, 1_000_000 + number)
        timers.cancel(key)
    for number in range(10 * STALE_MAX):  # earlier each time
        timers.set(kept, 4_000_000 - number)
    assert len(timers) == 1
    assert len(timers._heap) + len(timers._queued) <= 2 * (STALE_MAX + 2)
    assert timers.next_ms() == 4_000_000 - 10 * STALE_MAX + 1
    assert timers.due(4_000_000) == kept and timers.next_ms() is None


def test_long_names_are_not_cached() -> None:
    """A client may choose any number of them."""
    long = ["x" * CACHED_CHARACTERS_MAX + str(number) for number in range(3)]
    before = partitions._cached.cache_info().currsize, _cached_offset_key.cache_info().currsize
    for name in long:
        assert java_hash(name) == java_hash(name)
        assert offset_key(name, TopicPartition("t", 0)) == offset_key(name, TopicPartition("t", 0))
    after = partitions._cached.cache_info().currsize, _cached_offset_key.cache_info().currsize
    assert after == before
    assert java_hash("polygenelubricants") == -(1 << 31)


def test_requests_are_answered_while_partitions_load(
    coordinator: Groups, journal: SlowJournal, wait_until: Wait
) -> None:
    assert state(coordinator, wait_until) == ErrorCode.NOT_COORDINATOR
    journal.gate.clear()
    coordinator.load(dict.fromkeys(range(4), EPOCH), 4)
    assert state(coordinator, wait_until) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    journal.gate.set()
    wait_until(lambda: state(coordinator, wait_until) == 0, "loaded")
    coordinator.resign(partition_for("g", 4))
    assert state(coordinator, wait_until) == ErrorCode.NOT_COORDINATOR


def test_loads_of_earlier_epochs_are_dropped(
    coordinator: Groups, journal: SlowJournal, wait_until: Wait
) -> None:
    """Epochs 5, 7 and, continuing, 8 begin during the first read: only the last read counts."""
    partition = partition_for("g", 4)
    whole, began, go_on = journal.read, queue.Queue[int](), threading.Semaphore(0)

    def read(partition: int, epoch: int) -> Iterator[JournalBatch]:
        began.put(epoch)
        assert go_on.acquire(timeout=LIMIT_S)
        return whole(partition, epoch)

    journal.read = read  # type: ignore[method-assign]
    coordinator.load({partition: 5}, 4)
    assert began.get(timeout=LIMIT_S) == 5
    coordinator.resign(partition)
    coordinator.load({partition: 7}, 4)
    coordinator.lead_on(partition, 8)
    for epoch in (7, 8):
        assert state(coordinator, wait_until) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        go_on.release()
        assert began.get(timeout=LIMIT_S) == epoch
    assert state(coordinator, wait_until) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    go_on.release()
    wait_until(lambda: state(coordinator, wait_until) == 0, "loaded")
    assert coordinator.core.shards[partition].epoch == 8


@pytest.mark.parametrize("led", [True, False])
def test_later_metadata_win_over_an_earlier_load(
    coordinator: Groups, journal: SlowJournal, wait_until: Wait, led: bool
) -> None:
    """The later metadata win, though the read in the earlier epoch is requested after them."""
    partition = partition_for("g", 4)
    whole, looks = journal.read, queue.Queue[int]()

    def read(partition: int, epoch: int) -> Iterator[JournalBatch]:
        looks.put(epoch)
        if epoch == 5:
            raise errors.NotLeaderOrFollower("its log is in another epoch")
        return whole(partition, epoch)

    def again(step: Step) -> None:
        coordinator.core.leads(partition, 5, step)
        coordinator.resign(partition)  # as if from another thread, before the step is carried out
        if led:
            coordinator.load({partition: 7}, 4)

    journal.read = read  # type: ignore[method-assign]
    coordinator.load({partition: 5}, 4)
    wait_until(lambda: coordinator.core.unread == {partition: 5}, "it was refused")
    coordinator.post(again)
    assert sorted(looks.get(timeout=LIMIT_S) for _ in range(3 if led else 2)) == (
        [5, 5, 7] if led else [5, 5]
    )
    if led:
        wait_until(lambda: state(coordinator, wait_until) == 0, "loaded")
        assert coordinator.core.shards[partition].epoch == 7
    else:
        assert state(coordinator, wait_until) == ErrorCode.NOT_COORDINATOR
        assert not coordinator.core.unread


def test_loads_before_a_deletion_are_dropped(
    coordinator: Groups, journal: SlowJournal, wait_until: Wait
) -> None:
    """The next topic of that name starts in the same epoch."""
    partition = partition_for("g", 4)
    began, go_on = queue.Queue[int](), threading.Semaphore(0)

    def read(partition: int, epoch: int) -> Iterator[JournalBatch]:
        began.put(epoch)
        assert go_on.acquire(timeout=LIMIT_S)
        return iter(())

    journal.read = read  # type: ignore[method-assign]
    coordinator.load({partition: 0}, 4)
    began.get(timeout=LIMIT_S)
    coordinator.resign(partition)
    coordinator.load({partition: 0}, 4)
    go_on.release()
    began.get(timeout=LIMIT_S)
    assert state(coordinator, wait_until) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    go_on.release()
    wait_until(lambda: state(coordinator, wait_until) == 0, "loaded")


def test_a_partition_that_cannot_be_read_is_tried_again(
    coordinator: Groups, journal: SlowJournal, clock: ManualClock, wait_until: Wait
) -> None:
    whole = journal.read
    attempts: list[int] = []

    def read(partition: int, epoch: int) -> Iterator[JournalBatch]:
        attempts.append(partition)
        raise errors.StorageOffline(f"partition {partition}")

    journal.read = read  # type: ignore[method-assign]
    coordinator.load(dict.fromkeys(range(4), EPOCH), 4)
    gone = ErrorCode.NOT_COORDINATOR
    for times in (1, 2):
        wait_until(lambda times=times: len(attempts) == 4 * times, "tried")
        wait_until(lambda: state(coordinator, wait_until) == gone, "given up")
        wait_until(lambda: len(coordinator.core.timers) == 4, "a time to try again")
        if times == 2:
            journal.read = whole  # type: ignore[method-assign]
        clock.advance(LOAD_AGAIN_MS)
    wait_until(lambda: state(coordinator, wait_until) == 0, "read")
    coordinator.resign(partition_for("g", 4))
    assert state(coordinator, wait_until) == gone


def test_answers_wait_for_the_journal_without_a_thread(
    coordinator: Groups, journal: SlowJournal, clock: ManualClock, wait_until: Wait
) -> None:
    loaded(coordinator, wait_until)
    replies = [commit(coordinator, offset) for offset in range(10)]
    wait_until(lambda: sum(len(b.records) for b in journal.read(partition_for("g", 4))) == 10,
               "all written")  # fmt: skip
    assert all(reply.waits for reply in replies)
    journal.finish()
    wait_until(lambda: not any(reply.waits for reply in replies), "answers")
    assert [codes(reply) for reply in replies] == [[ErrorCode.NONE]] * 10
    late = commit(coordinator, 11)
    wait_until(lambda: journal.waiting, "written")
    clock.advance(5_000)
    wait_until(lambda: not late.waits, "the timeout")
    assert codes(late) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    journal.fails = errors.StorageOffline("gone")
    failed = commit(coordinator, 12)
    wait_until(lambda: not failed.waits, "the failure")
    assert codes(failed) == [ErrorCode.NOT_COORDINATOR]
    journal.fails = MemoryError()
    failed = commit(coordinator, 13)
    wait_until(lambda: not failed.waits, "an unexpected failure")
    assert codes(failed) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert state(coordinator, wait_until) == 0


def test_timers_run_on_the_clock(coordinator: Groups, clock: ManualClock, wait_until: Wait) -> None:
    loaded(coordinator, wait_until)
    fields = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
              "member_id": "", "protocol_type": "consumer",
              "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    joined = submit(coordinator, apis.JOIN_GROUP, 3, **fields)
    assert state(coordinator, wait_until) == 0
    assert joined.waits
    clock.advance(3_000)
    wait_until(lambda: not joined.waits, "the initial delay is over")
    assert joined.generation_id == 1


def test_closing_answers_everything(
    coordinator: Groups, journal: SlowJournal, wait_until: Wait
) -> None:
    """Writes in flight first, then waiting requests; later requests immediately."""
    loaded(coordinator, wait_until)
    fields = {"group_id": "h", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
              "member_id": "", "protocol_type": "consumer",
              "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    joining = submit(coordinator, apis.JOIN_GROUP, 3, **fields)
    written = commit(coordinator, 1)
    wait_until(lambda: journal.waiting, "written")
    closing = threading.Thread(target=coordinator.close)
    closing.start()
    journal.finish()
    closing.join(LIMIT_S)
    assert not closing.is_alive()
    assert codes(written) == [ErrorCode.NONE]
    assert joining.error is ErrorCode.NOT_COORDINATOR
    assert codes(commit(coordinator, 2)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    for api in SERVED:
        version = api.max_version
        assert not refused(coordinator, api, version).waits


def test_closing_waits_for_the_journal_only_so_long(
    coordinator: Groups, journal: SlowJournal, wait_until: Wait
) -> None:
    """Even if the clock does not advance."""
    loaded(coordinator, wait_until)
    written = commit(coordinator, 1)
    wait_until(lambda: journal.waiting, "written")
    coordinator.close(0.01)
    assert codes(written) == [ErrorCode.NOT_COORDINATOR]
    journal.finish()


def refused(coordinator: Groups, api: Api, version: int) -> Reply:
    """Submit an empty request, which a closed coordinator answers immediately."""
    return submit(coordinator, api, version)


def test_an_error_of_ours_is_an_answer(
    coordinator: Groups,
    wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged and answered, and the thread continues."""
    loaded(coordinator, wait_until)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(coordinator.core._handlers, apis.HEARTBEAT, broken)
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    reply = submit(coordinator, apis.HEARTBEAT, 4, **fields)
    wait_until(lambda: not reply.waits, "an answer")
    assert reply.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert state(coordinator, wait_until) == 0


@KINDS
def test_requests_from_many_threads(kind: type[Groups], wait_until: Wait) -> None:
    """On the real clock, each request is answered and written."""
    store = MemoryJournal()
    coordinator = kind(GroupCoordinatorState(config(), new_id), store, SystemClock(), name="group")
    coordinator.start()
    coordinator.load(dict.fromkeys(range(4), EPOCH), 4)
    wait_until(lambda: state(coordinator, wait_until) == 0, "loaded")
    replies: list[Reply] = []

    def many() -> None:
        for offset in range(200):
            replies.append(commit(coordinator, offset))

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    coordinator.post(partial(coordinator.core.drop_topics, frozenset(["other"])))
    coordinator.close()
    assert [codes(reply) for reply in replies] == [[ErrorCode.NONE]] * 1_600
    assert sum(len(b.records) for b in store.read(partition_for("g", 4))) == 1_600


@pytest.fixture
def brought(clock: ManualClock, wait_until: Wait) -> Iterator[tuple[Groups, SlowJournal]]:
    """A coordinator whose journal completes an append when the test says so."""
    journal = SlowJournal()
    made = Brought(GroupCoordinatorState(config(), new_id), journal, clock, name="group")
    made.start()
    loaded(made, wait_until)
    yield made, journal
    made.close(0)


def test_a_single_request_is_answered_by_its_thread(
    brought: tuple[Groups, SlowJournal],
) -> None:
    """No other thread is involved."""
    coordinator, journal = brought
    journal.append = partial(MemoryJournal.append, journal)  # type: ignore[method-assign]
    for offset in range(3):
        assert codes(commit(coordinator, offset)) == [ErrorCode.NONE]


def test_the_outcome_of_one_append_never_overtakes_that_of_another(
    brought: tuple[Groups, SlowJournal], wait_until: Wait
) -> None:
    """An immediate outcome comes after an earlier outcome that has not been handled yet."""
    coordinator, journal = brought
    first = commit(coordinator, 1)

    def append(partition: int, *more: Any) -> None:
        disk = threading.Thread(target=journal.finish)
        disk.start()
        disk.join()
        MemoryJournal.append(journal, partition, *more)

    journal.append = append  # type: ignore[method-assign]
    second = commit(coordinator, 2)
    wait_until(lambda: not first.waits and not second.waits, "answers")
    found = submit(coordinator, apis.OFFSET_FETCH, 7, group_id="g", topics=None)
    wait_until(lambda: not found.waits, "an answer")
    assert [p.committed_offset for t in found.topics for p in t.partitions] == [2]


def test_a_working_thread_handles_later_requests(
    brought: tuple[Groups, SlowJournal], wait_until: Wait
) -> None:
    """They return immediately; the coordinator's own thread takes over after a while."""
    coordinator, journal = brought
    at_work, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def append(partition: int, *more: Any) -> None:
        ran.append(threading.get_ident())
        if len(ran) == 1:
            at_work.set()
            assert go_on.wait(LIMIT_S)
        MemoryJournal.append(journal, partition, *more)

    journal.append = append  # type: ignore[method-assign]
    replies: list[Reply] = []
    first = threading.Thread(target=lambda: replies.append(commit(coordinator, 1)))
    first.start()
    assert at_work.wait(LIMIT_S)
    others = [commit(coordinator, 2) for _ in range(3)]
    assert all(reply.waits for reply in others)
    go_on.set()
    first.join(LIMIT_S)
    wait_until(lambda: not any(reply.waits for reply in others), "answers")
    assert set(ran) == {first.ident}
    assert codes(replies[0]) == [ErrorCode.NONE]


def test_threads_that_must_not_wait_only_queue(
    brought: tuple[Groups, SlowJournal], wait_until: Wait
) -> None:
    """A broker may have so few threads that two waiting for a disk would be all of them."""
    coordinator, journal = brought
    ran: list[int] = []

    def append(partition: int, *more: Any) -> None:
        ran.append(threading.get_ident())
        MemoryJournal.append(journal, partition, *more)

    journal.append = append  # type: ignore[method-assign]
    coordinator.borrows = False
    reply = commit(coordinator, 1)
    wait_until(lambda: not reply.waits, "an answer")
    assert threading.get_ident() not in ran


# ---- reading a log -------------------------------------------------------------------------


def test_the_batches_of_a_log(log_dir: Path) -> None:
    """Compressed and transactional batches, markers, null keys and values."""
    with kafkalog.Log(log_dir) as log:
        log.append(b"v", key=b"k")
        log.append_many([b"a" * 1000, None, b""], keys=[b"1", None, b"3"], compression="zstd")
        log.append_marker(7, 0, True)
        log.append_marker(8, 0, False)
        found = list(journal_batches(log))
    assert [[(r.offset, r.key, r.value) for r in b.records] for b in found] == [
        [(0, b"k", b"v")],
        [(1, b"1", b"a" * 1000), (2, None, None), (3, b"3", b"")],
        [],
        [],
    ]
    assert [(b.producer_id, b.marker) for b in found] == [(-1, None), (-1, None), (7, 1), (8, 0)]


def test_a_timer_that_fails_does_not_drop_the_others_of_its_tick() -> None:
    """One group has a bug; sessions that end at the same time still end."""
    desk = Desk()
    for name in ("one", "broken", "other"):
        desk.stable(1, name)
    groups = {name: shard.groups[name]
              for shard in desk.core.shards.values() for name in shard.groups}  # fmt: skip
    groups["broken"].members = None  # type: ignore[assignment]
    desk.now_ms += 1 << 30
    with pytest.raises((TypeError, AttributeError)):
        desk.core.tick(Step(desk.now_ms, desk.wall_ms))
    assert not groups["one"].members
    assert not groups["other"].members
