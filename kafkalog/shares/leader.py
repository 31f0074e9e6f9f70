"""The share groups' records of the partitions that this broker leads: ShareFetch, ShareAcknowledge.

One lock guards all state; logs are read, the persister is called and members are answered without
it.  A thread ends locks and waits, and looks for new records while members wait for some.  What a
request makes ready for others, its own thread carries out, as to switch threads costs more.

Source: KIP-932, and the behaviour of Apache Kafka 4.4's leaders.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog.coordinator.timers import Timers
from kafkalog.errors import KafkalogError
from kafkalog.log.log import handle_of
from kafkalog.logs.limit import limited
from kafkalog.shares import reading
from kafkalog.shares.acquiring import acquire, without
from kafkalog.shares.connections import Connections
from kafkalog.shares.entries import Bury, Effect, Entries, Entry, EntryKey
from kafkalog.shares.figures import Figures, count_acks
from kafkalog.shares.first import first_offset
from kafkalog.shares.news import News, Seen
from kafkalog.shares.partition import AckType, Limits, Refused
from kafkalog.shares.requests import Acks, Answer, Ask, Find, Found, GroupShare, Led
from kafkalog.shares.sessions import FINAL, Key, NoRoom, Session, Sessions, Where
from kafkalog.shares.turns import Turn, full, has_more, looked_up, read_in_turn, refusals
from kafkalog.shares.waiting import Acking, Fetching, Waits
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.coordinator.share_state.persister import Persister

__all__ = ["Shares"]

_logger = limited(__name__)

FETCH, CLOSED = "fetch", "closed"
"""Kinds of timers, besides that of an entry's locks: the time of a ShareFetch, a look at the
connections of sessions."""
CLOSED_MS = 500
"""How soon the end of a connection is noticed while no member waits for records; otherwise it is
noticed with the next look for new records."""
READY_MAX = 32
"""How many other members' requests a thread that brought one tries at most; its own thread tries
the rest."""
WAIT_MAX_MS = 600_000
"""A ShareFetch waits no longer, whatever it asks for."""


class Shares:
    """The share partitions and sessions of a broker.  Safe to use from many threads."""

    def __init__(
        self, persister: Persister, clock: Clock, settings: Callable[[str], GroupShare],
        connections: Connections, sessions_max: int, bytes_max: int, bury: Bury, name: str,
    ) -> None:  # fmt: skip
        """`settings`: those in effect for a group; `bytes_max`: approximate memory for all."""
        self._connections = connections  # the thread's own
        self.bury = bury
        self._clock = clock
        self.settings = settings
        self._bytes_max = bytes_max
        self._lock = threading.RLock()  # guards what follows
        self._wake = threading.Condition(self._lock)
        self.effects: list[Effect] = []
        self._sessions = Sessions(sessions_max, bytes_max // 2)
        self._entries = Entries(persister, self)
        self._timers = Timers()
        self._waits = Waits()
        self._fetches = self._waits.all
        self._news = News()
        self._bringing: set[int] = set()  # threads that brought a request, and try what is ready
        self._number = 0
        self._gone: list[tuple[str, int]] = []  # partitions that left this broker
        self._sleeps_ms = math.inf  # until then the thread needs no timer
        self._acks: Counter[AckType] = Counter()
        self._late: list[Fetching] = []  # the thread's own: their time is over
        self._looks = False  # the thread's own: it is to look for closed connections
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name=f"{name} shares", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; members that wait are answered."""
        with self._lock:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self.run(self._end_all)

    def _end_all(self) -> None:
        for fetch in list(self._fetches.values()):
            self._finish(fetch)

    def figures(self) -> Figures:
        """For metrics."""
        with self._lock:
            sessions = self._sessions
            return Figures(
                len(sessions), sessions.partitions, sessions.bytes + self._entries.bytes,
                self._acks.copy(), self._entries.figures(),
            )  # fmt: skip

    # ---- the owner of the entries ----------------------------------------------------------------

    def run(self, work: Callable[[], object]) -> None:
        """Run `work` under the lock, then carry out the effects."""
        with self._lock:
            work()
            effects, self.effects = self.effects, []
            self._wake_up()
        for effect in effects:
            try:
                effect()
            except Exception:
                _logger.exception("share groups: an answer or a write failed")

    def _wake_up(self) -> None:
        """Wake the thread if it has something to do.  The caller holds the lock."""
        if self._waits.ready and threading.get_ident() not in self._bringing:
            self._wake.notify_all()
        elif self._sleeps_ms != -math.inf:
            next_ms = self._timers.next_ms()
            if self._news or (next_ms is not None and next_ms < self._sleeps_ms):
                self._wake.notify_all()

    def now_ms(self) -> int:
        """The monotonic clock."""
        return int(self._clock.monotonic_s() * 1000)

    def first_offset(self, group: str, led: Led) -> int:
        """Where a group without state begins."""
        return first_offset(self.settings(group).reset, led.log, self._clock.now_ms())

    def changed(self, entry: Entry) -> None:
        """Records may be available, or it cannot be used any more: members that wait try again."""
        self._waits.changed(entry)
        if entry.share is not None:
            self._keep_locks(entry)

    def _keep_locks(self, entry: Entry) -> None:
        share, name = entry.share, entry.lock_timer
        if share is None or share.due_ms == math.inf or entry.refused is not None:
            self._timers.cancel(name)
        else:
            self._timers.set(name, int(share.due_ms))

    # ---- ShareFetch ------------------------------------------------------------------------------

    def fetch(self, ask: Ask, find: Find, answer: Callable[[Answer], None]) -> None:
        """Carry out a ShareFetch; `answer` is called once, from any thread."""
        prepared = self._prepared(ask, find)
        begun: list[Fetching] = []

        def begin() -> None:
            self._number += 1
            until_ms = self.now_ms() + min(max(ask.max_wait_ms, 0), WAIT_MAX_MS)
            fetch = Fetching(self._number, ask, find, until_ms, answer)
            self._fetches[fetch.number] = fetch
            if self._begin(fetch, *prepared):
                begun.append(fetch)

        self._bring(begin, begun)

    def _prepared(self, ask: Ask, find: Find) -> tuple[int, dict[Where, Refused]]:
        """How long members hold records, and which acknowledgements are refused."""
        refused = refusals(ask.acks or {}, ask.mistakes, find)
        return self.settings(ask.key.group).limits.lock_ms, refused

    def _begin(self, fetch: Fetching, lock_ms: int, refused: dict[Where, Refused]) -> bool:
        """Begin, continue or end its session; True: it is to try to acquire records."""
        ask = fetch.ask
        try:
            session = self._sessions.fetch(
                ask.key, ask.epoch, ask.wanted, ask.forgotten, ask.connection,
                acknowledges=ask.acks is not None,
            )  # fmt: skip
        except Refused as why:
            self._refuse(fetch, why)
            return False
        self._waits.without_room.pop(fetch.number, None)
        fetch.begin(session, lock_ms)
        self._look_at_connections()
        if ask.acks is not None:
            self._acknowledge(ask.key, ask.acks, refused, partial(self._acked, fetch))
        if session is None:
            self._release(self._sessions.remove(ask.key))
        nothing = ask.renews or ask.want.records <= 0 or ask.max_bytes <= 0
        if not fetch.wheres or nothing or self._stopping:
            self._finish(fetch)
        return not fetch.over

    def _bring(self, begin: Callable[[], None], begun: Collection[Fetching] = ()) -> None:
        """Carry out a request of this thread: `begun` after `begin`, then what became ready."""
        number = threading.get_ident()
        self._bringing.add(number)
        try:
            self.run(begin)
            for fetch in begun:
                self._attempt_safely(fetch, forced=False)
            for _ in range(READY_MAX):
                with self._lock:
                    ready = self._waits.next()
                if ready is None:
                    break
                self._attempt_safely(ready, forced=False)
        finally:
            with self._lock:
                self._bringing.discard(number)
                self._wake_up()

    def _wait_for(self, fetch: Fetching, seen: Iterable[Seen] = ()) -> None:
        """It waits until its time is over, or one of the logs that it has seen has grown."""
        self._timers.set((FETCH, fetch.number, "", ""), fetch.deadline_ms)
        for one in seen:
            self._news.watch(one)

    def _refuse(self, fetch: Fetching, why: Refused) -> None:
        """Refuse a whole request; one for which there is no room only after its time, so that
        nobody asks again immediately, and not if a session ends before."""
        fetch.why = why
        if not isinstance(why, NoRoom) or self._stopping:
            self._finish(fetch)
            return
        self._waits.without_room[fetch.number] = why.needs
        self._look_at_connections()
        self._wait_for(fetch)

    def _begin_again(self, fetch: Fetching) -> bool:
        """There may be room for the session of a fetch that waits to be refused; True: it is to try
        to acquire records."""
        prepared, found = self._prepared(fetch.ask, fetch.find), list[bool]()

        def begin() -> None:
            if fetch.number in self._waits.without_room:  # it was not answered in the meantime
                found.append(self._begin(fetch, *prepared))

        self.run(begin)
        return any(found)

    def _acked(self, fetch: Fetching, acked: Any) -> None:
        fetch.acked = acked
        self.run(partial(self._maybe_answer, fetch))

    def _finish(self, fetch: Fetching) -> None:
        """It waits for no more records."""
        if fetch.over:
            return
        fetch.over = True
        self._timers.cancel((FETCH, fetch.number, "", ""))
        for key in fetch.entries:
            if self._waits.leave(fetch, key):
                self._news.forget(key)
        self._pass_on(fetch)
        self._maybe_answer(fetch)

    def _pass_on(self, fetch: Fetching) -> None:
        """Others have their turn in each share partition for which it waits, also in those that it
        cannot read any more."""
        for key in fetch.entries:
            if (entry := self._entries.get(key)) is not None:
                self._waits.pass_on(entry)

    def _maybe_answer(self, fetch: Fetching) -> None:
        if fetch.number in self._fetches and (outcome := fetch.outcome()) is not None:
            self._waits.remove(fetch.number)
            self.effects.append(partial(fetch.answer, outcome))

    # ---- acquiring -------------------------------------------------------------------------------

    def _attempt(self, fetch: Fetching, *, forced: bool = False) -> None:
        """Acquire records for a member, or let it wait for some."""
        with self._lock:
            fetch.forced = fetch.forced or forced
            fetch.again = True
            if fetch.trying:
                return
            fetch.trying = True
        try:
            while self._goes_on(fetch):
                self._try(fetch)
        except BaseException:
            fetch.trying = False
            raise

    def _goes_on(self, fetch: Fetching) -> bool:
        with self._lock:
            fetch.trying = fetch.again and not fetch.over
            fetch.again = False
            return fetch.trying

    def _try(self, fetch: Fetching) -> None:
        ask = fetch.ask
        group = self.settings(ask.key.group)
        found = [(where, looked_up(fetch.find, where)) for where in fetch.left]
        turns, seen = list[Turn](), list[Seen]()
        self.run(lambda: self._begin_turns(fetch, found, group, turns, seen))
        reads: list[reading.Read | Refused] = []
        try:
            read_in_turn(turns, reads, ask, group.committed)
        finally:  # those without a read are free again, too
            reads += [reading.NOTHING] * (len(turns) - len(reads))
            self.run(lambda: self._end_turns(fetch, turns, reads, group.limits, seen))

    def _begin_turns(
        self, fetch: Fetching, found: list[tuple[Where, tuple[Led, Any] | Refused]],
        group: GroupShare, turns: list[Turn], seen: list[Seen],
    ) -> None:  # fmt: skip
        """Choose the share partitions to read; `seen`: the logs whose growth matters."""
        for where, one in () if fetch.over else found:
            if isinstance(one, Refused):
                fetch.refused[where] = one
                continue
            (led, state), key = one, EntryKey(fetch.ask.key.group, where)
            if self._entries.get(key) is None and self._is_full:
                fetch.refused[where] = full(self._bytes_max)
                continue
            entry = self._entries.use(key, led)
            self._waits.add(fetch, key)
            if entry.reading:
                entry.blocked[fetch.number] = None
            elif state is None:
                fetch.acquires = fetch.acquires or entry.share is not None
                seen.append(Seen(key, None, group.committed, 0))
            elif (share := entry.share) is not None:
                if share.moved(state.log_start_offset):
                    self._keep_locks(entry)
                bound = state.last_stable_offset if group.committed else state.high_watermark
                handle = handle_of(led.log)  # type: ignore[arg-type]
                seen.append(Seen(key, handle, group.committed, bound))
                turn = Turn.begin(fetch, entry, led, share, bound, group.limits)
                if turn is not None:
                    turns.append(turn)
        self._pass_on(fetch)

    def _end_turns(
        self, fetch: Fetching, turns: list[Turn], reads: list[reading.Read | Refused],
        limits: Limits, seen: Iterable[Seen],
    ) -> None:  # fmt: skip
        """Acquire what was read."""
        size = sum(len(one.data) for one in reads if isinstance(one, reading.Read))
        more = any(map(has_more, turns, reads))  # than one request reads
        enough = not fetch.over and (fetch.forced or more or size >= fetch.ask.min_bytes)
        left = fetch.ask.want.records
        for turn, one in zip(turns, reads, strict=True):
            entry, where = turn.entry, turn.entry.key.where
            entry.reading = False
            if isinstance(one, Refused):
                fetch.refused[where] = one
            elif enough and left > 0 and entry.refused is None and not self._is_full:
                left -= self._acquire(fetch, turn, one, left, limits)
            self._waits.pass_on(entry)
            self._entries.tidy(entry)
        at_once = fetch.acquires and fetch.ask.min_bytes <= 0
        if left < fetch.ask.want.records or fetch.forced or at_once or not fetch.left:
            self._finish(fetch)
        elif not fetch.over:
            self._wait_for(fetch, seen)

    def _acquire(
        self, fetch: Fetching, turn: Turn, one: reading.Read, left: int, limits: Limits
    ) -> int:
        """Acquire records of one partition; returns how many."""
        entry, share = turn.entry, turn.entry.share
        assert share is not None
        want = fetch.ask.want._replace(records=left)
        found = acquire(share, want, turn.offset, one.batches, self.now_ms(), limits)
        acquired = without(share, found, one.aborted)
        self._entries.recount(entry)
        self._keep_locks(entry)
        if acquired:
            self._sessions.acquired(fetch.ask.key, entry.key.where)
            records = reading.covering(one, acquired)
            fetch.found[entry.key.where] = Found(None, records, acquired)
        elif share.next_fetch_offset() != turn.offset:
            fetch.again = True  # there was nothing to deliver; there may be more behind it
        return sum(part.last - part.first + 1 for part in acquired)

    @property
    def _is_full(self) -> bool:
        return self._sessions.bytes + self._entries.bytes > self._bytes_max

    # ---- ShareAcknowledge ------------------------------------------------------------------------

    def acknowledge(
        self, key: Key, epoch: int, acks: Acks, mistakes: Mapping[Where, Refused], find: Find,
        answer: Callable[[Answer], None],
    ) -> None:  # fmt: skip
        """Carry out a ShareAcknowledge; `mistakes`: partitions whose acknowledgements are refused;
        `answer` is called once, from any thread."""
        lock_ms = self.settings(key.group).limits.lock_ms
        refused = refusals(acks, mistakes, find)

        done = lambda acked: answer(Answer(None, acked, {}, lock_ms))  # noqa: E731

        def begin() -> None:
            try:
                self._sessions.acknowledge(key, epoch)
            except Refused as why:
                self.effects.append(partial(answer, Answer(why, {}, {}, 0)))
                return
            self._acknowledge(key, acks, refused, done)
            if epoch == FINAL:
                self._release(self._sessions.remove(key))

        self._bring(begin)

    def _acknowledge(
        self, key: Key, acks: Acks, refused: dict[Where, Refused], done: Callable[[Any], None]
    ) -> None:
        """`refused`: partitions that are not asked."""
        if not acks:
            self.effects.append(partial(done, {}))
            return
        group, now_ms = self.settings(key.group), self.now_ms()
        acking = Acking(acks, done)
        for where, said in acks.items():
            outcome = acking.outcome(where)
            entry, why = self._entries.get(EntryKey(key.group, where)), refused.get(where)
            if why is None and (entry is None or entry.share is None):
                text = "no member has read this partition from this broker"
                why = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            if why is not None or entry is None or entry.share is None:
                self.effects.append(partial(outcome, why))
                continue
            try:
                number = entry.share.acknowledge(key.member, said, now_ms, group.limits)
            except Refused as problem:
                self.effects.append(partial(outcome, problem))
                continue
            for one in said:
                count_acks(self._acks, one)
            self._entries.wait(entry, number, outcome)
            self._entries.write(entry)

    def _release(self, session: Session | None) -> None:
        """A session has ended: what its member holds is available again."""
        if session is None:
            return
        self._waits.room(self._sessions)
        group, member = session.key
        for where in session.acquired:
            entry = self._entries.get(EntryKey(group, where))
            if entry is not None and entry.share is not None:
                entry.share.release(member, self.settings(group).limits)
                self._entries.write(entry)
        if not self._sessions.has_group(group):
            self._entries.rest(group)

    # ---- what happens to the broker --------------------------------------------------------------

    def _look_at_connections(self) -> None:
        """Look for closed ones in a moment, while there are sessions, or requests wait."""
        key = (CLOSED, 0, "", "")
        if key not in self._timers and (len(self._sessions) or self._fetches):
            self._timers.set(key, self.now_ms() + CLOSED_MS)

    def _end_closed(self) -> None:
        """End the sessions and the waits of connections that were closed, and the waits of those on
        which no more requests come: earlier ones may be carried out after them."""
        with self._lock:
            those = {one.ask.connection for one in self._fetches.values()}
            numbers = those.union(self._sessions.connections())
        try:
            gone, silent = self._connections.ended(numbers)
        except KafkalogError as problem:  # the broker is being closed
            _logger.debug("share sessions: %s", problem)
            return
        if gone or silent:
            self.closed(gone, silent)
        with self._lock:
            self._look_at_connections()

    def closed(self, gone: Collection[int], silent: Collection[int] = ()) -> None:
        """Connections are gone, and nobody reads their answers: their sessions end.  The waits of
        `silent` ones end, too."""

        def end() -> None:
            for fetch in list(self._fetches.values()):
                if fetch.ask.connection in gone or fetch.ask.connection in silent:
                    self._finish(fetch)
            for connection in gone:
                for session in self._sessions.closed(connection):
                    self._release(session)

        self.run(end)

    def resigned(self, partitions: Collection[tuple[str, int]]) -> None:
        """This broker does not lead these (topic, partition) any more, or in another epoch.  The
        thread forgets them soon: the persister fences what is written until then."""
        with self._lock:
            self._gone += partitions
            self._wake.notify_all()

    def _forget_gone(self) -> None:
        those, self._gone = set(self._gone), []
        why = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader of the partition has changed")
        for entry in self._entries if those else ():
            if (entry.topic, entry.key.where.partition) in those:
                self._entries.forget(entry, why)
                self._keep_locks(entry)

    # ---- the thread ------------------------------------------------------------------------------

    def _loop(self) -> None:
        while self._goes():
            try:
                self._turn()
            except Exception:
                _logger.exception("share groups: a turn of their thread failed")

    def _goes(self) -> bool:
        """Wait until there is something to do; False: the thread is to end."""
        with self._lock:
            while not (self._stopping or self._waits.ready or self._gone or self._is_due()):
                if self._wait():
                    break
            return not self._stopping

    def _turn(self) -> None:
        with self._lock:
            fetches = list(iter(self._waits.next, None))
            look = self._news.due()
        self.run(self._end_due)
        for fetch in fetches:
            self._attempt_safely(fetch, forced=False)
        late, self._late = self._late, []
        for fetch in late:
            self._attempt_safely(fetch, forced=True)
        if self._looks or (look is not None and self._connections.some_ended()):
            self._looks = False
            self._end_closed()
        if look is not None:
            self.run(partial(self._tell, look.look()))

    def _is_due(self) -> bool:
        next_ms = self._timers.next_ms()
        return next_ms is not None and next_ms <= self.now_ms()

    def _wait(self) -> bool:
        """Wait for the next timer and for changes; True: only for a moment, as logs may grow."""
        if self._news:
            self._wake.wait(self._news.slice_s)
            return True
        next_ms = self._timers.next_ms()
        self._sleeps_ms = math.inf if next_ms is None else next_ms
        self._clock.wait_until(self._wake, None if next_ms is None else next_ms / 1000)
        self._sleeps_ms = -math.inf
        return bool(self._news)

    def _end_due(self) -> None:
        """Forget what has left this broker, and carry out the timers that are due."""
        self._forget_gone()
        now_ms = self.now_ms()
        while (key := self._timers.due(now_ms)) is not None:
            kind, number, group, topic = key
            if kind == FETCH:
                self._late.append(self._fetches[number])
                continue
            if kind == CLOSED:
                self._looks = True
                continue
            entry = self._entries.get(EntryKey(group, Where(UUID(hex=topic), number)))
            if entry is not None and entry.share is not None:
                if entry.share.expire(now_ms, self.settings(group).limits):
                    self._entries.write(entry)
                    self.changed(entry)
                self._keep_locks(entry)

    def _attempt_safely(self, fetch: Fetching, *, forced: bool) -> None:
        waited = fetch.number in self._waits.without_room
        try:
            if forced and not fetch.wheres:
                self.run(partial(self._finish, fetch))
            elif not waited or self._begin_again(fetch):
                self._attempt(fetch, forced=forced)
        except Exception:
            _logger.exception("share group %s: a member's request failed", fetch.ask.key.group)
            self.run(partial(self._finish, fetch))
        if waited:
            self.run(partial(self._waits.room, self._sessions))

    def _tell(self, keys: Iterable[EntryKey]) -> None:
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None:
                self.changed(entry)
