"""A program with a consumer, whose fetcher is driven in virtual time as Fetcher drives it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.fetch import sessions
from kafkalog.client.fetch.core import FetchState, Lost, PendingFetch
from kafkalog.client.fetch.epochs import Epochs, FetchPosition
from kafkalog.client.fetch.fetched import Ends, FetchOptions
from kafkalog.client.fetch.reading import Reading
from kafkalog.client.link.failures import failure, passing
from kafkalog.client.link.metadata import NO_NODE, Known, known_in, metadata_of
from kafkalog.simulate.world import Violated
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.client.fetch.simulated_network import TEMPO, WAIT_MS, Flight, Network

__all__ = ["Client"]

NAMED = re.compile(r"(\w+)-(\d+): (.*)")


class Looked(NamedTuple):
    """An answer to a Metadata request."""

    names: list[str]
    answer: Any
    unknown: bool
    """True if the request was for topics missing from the metadata."""


class Client:
    """A program with a consumer; its fetcher is driven as Fetcher drives it."""

    def __init__(self, world: Network) -> None:
        rng = world.rng
        self.world = world
        self.judge = world.judge
        self.known = Known()
        self.options = FetchOptions(
            max_wait_ms=WAIT_MS, committed=world.committed, set_aside=True, nearer_s=3.0,
            out_of_range=rng.choice(["earliest", "latest", "error"]),
            rack=rng.choice(["", "near"]), sessions=rng.random() < 0.85,
        )  # fmt: skip
        self.core = FetchState(self.known, {}, self.options, TEMPO)
        self.reading = Reading(self)  # type: ignore[arg-type]
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.missing: set[TopicPartition] = set()
        self.committed: dict[TopicPartition, tuple[int, int, int | None]] = {}
        """(offset, leader epoch, number of the record before it)."""
        self.inbox: list[Callable[[], None]] = []
        """Answers that the next poll handles."""
        self.found = 0
        self.resetting: dict[int, dict[TopicPartition, Lost]] = {}
        self.looking = False
        self.looked: Looked | None = None
        self.ids: dict[str, UUID] = {}
        """Topic ids as the client knows them."""
        self.next_look_ms = 0

    # The same properties as Fetcher's.

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self.core.positions

    @property
    def ends(self) -> dict[TopicPartition, Ends]:
        return self.core.ends

    @property
    def epochs(self) -> Epochs:
        return self.core.epochs

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        self.core.seek(tp, FetchPosition(offset, epoch))

    # ---- the program -----------------------------------------------------------------------

    def step(self) -> None:
        """Change something at random, then read."""
        world, rng = self.world, self.world.rng
        for tp in sorted(self.assigned):
            if world.chance(world.faults.seeks):
                self._seek_somewhere(tp)
            if world.chance(world.faults.pauses):
                self.pause_or_go_on(tp)
            if rng.random() < 0.1:
                self._commit(tp)
        if world.chance(world.faults.assigns):
            self._assign()
        self._mind_missing()
        records = self.reading.take(rng.choice([1, 3, 10]))
        for record in records:
            self.judge.handed(record)
        if self.reading.empty:
            try:
                self._poll()
            except errors.OffsetOutOfRange as problem:
                self._raised(problem)
        self.check_sessions()
        world.later(rng.randint(1, world.step_ms), self.step)

    def set(
        self, tp: TopicPartition, offset: int, epoch: int = -1, last: int | None = None
    ) -> None:
        """As FetchPositions.seek."""
        self.world.note(f"{tp.topic}-{tp.partition} is set to {offset} of epoch {epoch}")
        self.judge.sought(tp, offset, last)
        self.reading.seek(tp, offset, tp not in self.paused, epoch)
        self.missing.discard(tp)

    def _seek_somewhere(self, tp: TopicPartition) -> None:
        world, rng = self.world, self.world.rng
        at = self.reading.position(tp) or 0
        if tp in self.committed and rng.random() < 0.5:
            self.set(tp, *self.committed[tp])
        elif rng.random() < 0.3:
            self.set(tp, at)
        elif (log := world.leading(tp)) is not None:
            self.set(tp, max(rng.randint(log.start - 2, log.end + 2), 0))

    def _commit(self, tp: TopicPartition) -> None:
        """Note the position, and the epoch with which it can be found again."""
        found, book = self.reading.reached(tp), self.judge.books[tp]
        if found is not None:
            last = book.last if found.leader_epoch >= 0 and found.offset == book.offset else None
            self.committed[tp] = found.offset, found.leader_epoch, last

    def pause_or_go_on(self, tp: TopicPartition) -> None:
        self.judge.dropped(tp, self.reading.position(tp))
        if tp in self.paused:
            self.paused.discard(tp)
            self.reading.go_on(tp)
        else:
            self.paused.add(tp)
            self.reading.pause(tp)

    def _assign(self) -> None:
        """Read one more partition, or one less."""
        world = self.world
        there = [part.tp for part in world.logs.parts]
        tp = world.rng.choice(sorted({*there, *self.assigned}))
        if tp in self.assigned:
            self.assigned.discard(tp)
            self.paused.discard(tp)
            self.missing.discard(tp)
            self.judge.forgotten(tp)
            self.reading.forget(tp)
        else:
            self.assigned.add(tp)
            self.set(tp, *self.committed.get(tp, (0,)))

    def _raised(self, problem: errors.OffsetOutOfRange) -> None:
        """Continue where the failure says, or at the log's start."""
        text = str(problem)
        self.world.note(f"raised: {text}")
        found = NAMED.match(text)
        assert found is not None, text
        tp = TopicPartition(found[1], int(found[2]))
        log = self.world.leading(tp)
        to = problem.offset if isinstance(problem, errors.LogTruncation) else None
        if to is None or to < 0:
            to = 0 if log is None else log.start
        self.judge.announced_count += 1
        self.set(tp, to)

    def _mind_missing(self) -> None:
        """As MissingTopics: now and then, look for partitions that the cluster lacks."""
        world = self.world
        self.missing |= self.core.missing & self.assigned
        if world.now_ms >= self.next_look_ms:
            self.next_look_ms = world.now_ms + world.look_ms
            self._look(sorted({tp.topic for tp in self.assigned}))
        for tp in [tp for tp in sorted(self.missing) if known_in(self.known.topics, tp)]:
            self.missing.discard(tp)
            if tp not in self.paused:
                self.judge.dropped(tp, self.reading.position(tp))
                self.reading.go_on(tp)

    # ---- as Fetcher -----------------------------------------------------------------------

    def _poll(self) -> None:
        world, core = self.world, self.core
        found_before = self.found
        try:
            if core.problem is None:
                if self.looked is not None and not self.looked.unknown:
                    self._take_metadata(self.looked)
                self._send()
                inbox, self.inbox = self.inbox, []
                for take in inbox:
                    take()
                for node in core.overdue(world.now_s):
                    self._lose(node, errors.Timeout(f"node {node}: no answer in time"))
                self._send()
        except errors.KafkalogError as problem:
            core.problem = core.problem or problem
        if self.found > found_before:  # records before a failure are returned before it
            return
        failed, core.problem = core.problem, None
        if failed is None:
            return
        if not passing(failed):
            raise failed
        self.known.forget()

    def _judge(self, pending: int) -> None:
        """Check what the answer to a request sent at `pending` has led to."""
        warnings, self.core.warnings = self.core.warnings, []
        for text in warnings:
            self.world.note(text)
            self.judge.announced(text, pending)
        found = self.core.take()
        for one in found:
            self.judge.fetched(one, pending)
        self.reading.add(found)
        self.found += len(found)

    def _send(self) -> None:
        world, core = self.world, self.core
        self._find_starts()
        plan = core.plan(world.now_s)
        if plan.unknown:
            self._find(plan.unknown)
            plan = core.plan(world.now_s)
        for node, partitions in plan.nodes.items():
            if not core.free(node, world.now_s):
                continue
            if not world.nodes[node].up:
                gone = errors.PeerGone(f"node {node}: nobody listens")
                core.node_failed(node, gone, partitions, world.now_s)
                continue
            pending = core.ask(node, partitions, True, world.now_s)
            if pending is not None:
                self._post(node, pending)
        problem = core.take_trouble()
        if problem is not None and not core.pending:
            raise problem

    def _find(self, unknown: list[TopicPartition]) -> None:
        names = sorted({tp.topic for tp in unknown})
        if self.looked is not None and set(names) <= set(self.looked.names):
            self._take_metadata(self.looked)
            self.core.set_aside(unknown)
        else:
            self._look(names, unknown=True)

    def _look(self, names: list[str], unknown: bool = False) -> None:
        """Request metadata from some node, one request at a time."""
        world = self.world
        node = world.nodes[world.rng.choice(sorted(world.nodes))]
        if self.looking or not names or not node.up:
            return
        self.looking = True

        def answered() -> None:
            self.looked = Looked(names, node.metadata(names), unknown) if node.up else None
            self.looking = False

        world.later(world.travel_ms() * 2, answered)

    def _take_metadata(self, looked: Looked) -> None:
        self.looked = None
        self.known.answered(looked.names, metadata_of(looked.answer))
        for name in looked.names:
            info = self.known.topics.get(name)
            if info is not None and info.topic_id != self.ids.get(name):
                self.ids[name] = info.topic_id
                self.judge.recreated(name)

    def _find_starts(self) -> None:
        """As Resets: each leader is asked once."""
        for leader, some in self.core.resets().items():
            if leader in self.resetting:
                continue
            self.resetting[leader] = some
            pending = self.judge.now()
            if leader == NO_NODE:
                self.inbox.append(lambda to=leader: self._no_starts(to))  # type: ignore[misc]
                continue
            epochs = {
                tp: self.known.topics[tp.topic].partitions[tp.partition].leader_epoch for tp in some
            }
            self._ask_starts(leader, epochs, pending)

    def _ask_starts(self, leader: int, epochs: dict[TopicPartition, int], pending: int) -> None:
        world, where = self.world, self.options.out_of_range
        node = world.nodes[leader]

        def there() -> None:
            found = {tp: node.offset(tp, epoch, where) for tp, epoch in epochs.items()}
            if node.up and not world.chance(world.faults.lost):
                take = lambda: self._got_starts(leader, found, pending)  # noqa: E731
                world.later(world.travel_ms(), lambda: self.inbox.append(take))
            else:
                take = lambda: self._no_starts(leader)  # noqa: E731
                world.later(TEMPO.request_ms, lambda: self.inbox.append(take))

        world.later(world.travel_ms() + max(node.silent_until_ms - world.now_ms, 0), there)

    def _no_starts(self, leader: int) -> None:
        some = self.resetting.pop(leader)
        why = errors.PeerGone(f"node {leader}: nobody says where logs begin")
        self.core.reset_failed(some, why, self.world.now_s)

    def _got_starts(
        self, leader: int, found: dict[TopicPartition, tuple[int, int, int]], pending: int
    ) -> None:
        some = self.resetting.pop(leader)
        codes = [code for code, _, _ in found.values() if code]
        if codes:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if codes[0] == 3 else codes[0]
            self.core.reset_failed(some, failure(code, "offsets"), self.world.now_s)
            return
        for tp, lost in some.items():
            _, offset, epoch = found[tp]
            if self.options.out_of_range != "error":
                self.core.reset(tp, lost, FetchPosition(offset, epoch))
            elif self.core.lost.get(tp) == lost:
                text = f"{tp.topic}-{tp.partition}: {lost.why}, wanted {offset} on"
                self.judge.lost(tp, lost.why)
                try:
                    self.core.reset_failed({tp: lost}, errors.OffsetOutOfRange(text), 0.0)
                except errors.OffsetOutOfRange as problem:
                    self.core.problem = self.core.problem or problem
        self._judge(pending)

    # ---- requests ------------------------------------------------------------------------

    def _post(self, node: int, pending: PendingFetch) -> None:
        world, request = self.world, pending.request
        flight = world.flights[node] = Flight(node, self.judge.now(), self._arrives)
        self.core.sent(node, pending, world.now_s)
        if isinstance(request, dict):
            fields = self.core.epochs.question(pending.offsets, request)
        else:
            ids = request.after.ids
            fields = sessions.fields(request, ids, 1 << 20)
            fields |= {"rack_id": self.options.rack, "isolation_level": world.committed}
        world.post(flight, fields)

    def _arrives(self, flight: Flight, answer: Any) -> None:
        """Keep an answer for the next poll."""
        self.inbox.append(lambda: self._receive(flight, answer))

    def _receive(self, flight: Flight, answer: Any) -> None:
        node = flight.node
        if self.world.flights.get(node) is not flight:
            return
        if isinstance(answer, errors.KafkalogError):
            self._lose(node, answer)
            return
        offsets = self.core.pending[node].offsets
        del self.world.flights[node]
        try:
            self.core.answered(node, answer, self.world.now_s)
        except errors.KafkalogError as problem:
            self._judge_raised(problem)
            self._judge(flight.pending)
            self.core.node_failed(node, problem, offsets, self.world.now_s)
        self._judge(flight.pending)

    def _judge_raised(self, problem: errors.KafkalogError) -> None:
        if isinstance(problem, errors.LogTruncation):
            found = NAMED.match(str(problem))
            assert found is not None
            tp = TopicPartition(found[1], int(found[2]))
            self.judge.lost(tp, found[3])
        elif not passing(problem):
            raise Violated(f"P5: nothing here lasts: {problem}")

    def _lose(self, node: int, problem: errors.KafkalogError) -> None:
        """Close the node's connection."""
        self.world.flights.pop(node).over = True
        pending = self.core.pending.get(node)
        self.core.node_failed(node, problem, pending.offsets if pending else (), self.world.now_s)

    def check_sessions(self) -> None:
        """Check P6."""
        world, core = self.world, self.core
        for number, session in core.sessions.items():
            kept = world.nodes[number].sessions.get(session.session_id)
            if number in core.pending or session.epoch == 0 or kept is None:
                continue
            if world.strays[number]:
                continue
            mine = {
                (session.ids[tp.topic], tp.partition): (at.offset, at.epoch)
                for tp, at in session.offsets.items()
            }
            theirs = {key: (held.offset, held.epoch) for key, held in kept.parts.items()}
            if (session.epoch, mine) != (kept.epoch, theirs):
                raise Violated(
                    f"P6: node {number} remembers {kept.epoch}: {theirs}, and it is believed to "
                    f"remember {session.epoch}: {mine}"
                )
