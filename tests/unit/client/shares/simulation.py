"""Members of a share group: their decisions, in a world in which things go wrong.

Each one's core (ShareState, Holding) is the real one, and so are the share partitions of the
leaders; threads, network, sessions and time are modelled.

What must hold whatever happens:

S1  a record whose acceptance or rejection was reported as carried out is never acquired again
S2  an acknowledgement that is reported as carried out was carried out, as it was said
S3  leaders get only what a program has said, once
S4  each acknowledgement that was said has one outcome
S5  no record is acquired more often than the limit
S6  a record is handed out only in the session that acquired it, and once unless it was renewed
S7  once faults end, all records are done in bounded time: each was accepted, rejected, or delivered
    as often as the limit allows
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafkalog import errors
from kafkalog.client.shares.core import Request, ShareState
from kafkalog.client.shares.holding import GAP, TYPES, Holding, Place, Source
from kafkalog.shares.acquiring import Batch, Want, acquire
from kafkalog.shares.partition import (
    TERMINAL,
    Acknowledgement,
    Limits,
    Refused,
    SharePartition,
)
from kafkalog.simulate.world import Violated
from kafkalog.types import Record, SharedRecord
from kafkalog.wire.error_codes import ErrorCode
from tests.support import simulated
from tests.support.simulated import drawn, simulation

__all__ = ["Simulated", "simulate"]

PLACES = tuple(Place(UUID(int=7), "t", number) for number in range(3))
NODES = (1, 2)
MEMBERS = ("a", "b", "c")
RECORDS, LIMIT = 40, 5
LIMITS = Limits(lock_ms=2_000, deliveries=LIMIT, in_flight=200)
REQUEST_MS, POLL_MS = 1_000, 50
FAULTY_MS, SETTLE_MS = 20_000, 120_000
ACCEPT, RELEASE, REJECT, RENEW = (TYPES[one] for one in ("accept", "release", "reject", "renew"))
Key = tuple[Place, int]


@dataclass
class Faults(simulated.Faults):
    """How often things go wrong."""

    lost_request: float = drawn(0.0, 0.02, 0.1)
    lost_answer: float = drawn(0.0, 0.02, 0.1)
    slow: float = drawn(0.0, 0.05)
    """A message takes longer than its sender waits."""
    reset: float = drawn(0.0, 0.02)
    """A node forgets the session of a request."""
    moves: float = drawn(0.0, 0.05)
    """A partition gets another leader, at each moment of the world."""
    unwritten: float = drawn(0.0, 0.05)
    """A state cannot be written."""
    idle: float = drawn(0.0, 0.2)
    """A program works longer than the locks last."""


class Session:
    """A node's knowledge of a member."""

    def __init__(self, connection: int, places: set[Place]) -> None:
        self.connection, self.places, self.epoch = connection, places, 1


class Watched(Holding):
    """Remembers of which session each outcome is."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Source | None = None
        """The session of which something is heard now."""
        self.sources: deque[tuple[Source | None, dict[int, int]]] = deque()
        """For each outcome: the session, and the acknowledgements."""

    def ended(self, place: Place, acks: dict[int, int], problem: Any) -> None:
        count = len(self.outcomes)
        super().ended(place, acks, problem)
        if len(self.outcomes) > count:
            self.sources.append((self.of, dict(acks)))

    def lost(self, source: Source, why: str) -> None:
        before, self.of = self.of, source
        super().lost(source, why)
        self.of = before


class Member:
    """A program with its consumer's core."""

    def __init__(self, world: Simulated, name: str) -> None:
        self.world, self.name = world, name
        self.holding = Watched()
        self.state = ShareState(self.holding, world.rng.random() < 0.5, (0.05, 0.5))
        self.connections: Counter[int] = Counter()
        self.said: dict[Key, list[tuple[Source, int]]] = {}
        """Acknowledgements that have no outcome: of several sessions, if a leader gave the record
        again in the meantime."""
        self.acquired: Counter[Key] = Counter()
        """How often a record may be handed out: it was acquired, or renewed."""

    def poll(self) -> None:
        """As a poll of the consumer; then the next one is planned."""
        world, now_s = self.world, self.world.now_ms / 1000
        self.holding.conclude()
        for place, offsets, problem in self.holding.take_outcomes():
            source, acks = self.holding.sources.popleft()
            for offset in offsets:
                world.ended(self, (place, offset), (source, acks[offset]), problem)
        self.state.want(world.leaders if not world.rng.random() < 0.05 else world.old_leaders)
        for request in self.state.plan(not self.holding.full, now_s):
            self.send(request)
        current = {one.source for one in self.state.sessions.values()}
        for record in self.holding.take(world.rng.randint(1, 5)):
            held = self.holding._out[record.topic, record.partition, record.offset]
            if held.source not in current and not held.again:
                raise Violated(f"S6: {self.name}: {record.offset} of a session that has ended")
            world.handed(self, held.place, record)
            self.acknowledge(held.place, record, held.source)
        pause_ms = POLL_MS
        if world.faulty and world.chance(world.faults.idle):
            pause_ms = LIMITS.lock_ms + 100
        world.later(pause_ms, self.poll)

    def acknowledge(self, place: Place, record: SharedRecord, source: Source) -> None:
        kinds = [ACCEPT] * 4 + ([RELEASE, REJECT, RENEW] if self.world.faulty else [])
        kind = self.world.rng.choice(kinds)
        self.said.setdefault((place, record.offset), []).append((source, kind))
        self.holding.acknowledge(record, kind)

    def send(self, request: Request) -> None:
        """Send a request, and wait for its answer."""
        world, node = self.world, request.source.node
        self.state.sent(request)
        world.sent(self, request)
        connection = self.connections[node]
        world.carry("lost_request", lambda: world.handle(self, node, connection, request))
        world.later(REQUEST_MS, lambda: self.late(node, connection, request))

    def late(self, node: int, connection: int, request: Request) -> None:
        if self.connections[node] == connection and self.state.pending.get(node) is request:
            self.connections[node] += 1
            self.holding.of = request.source
            self.state.failed(node, errors.Timeout("no answer"), self.world.now_ms / 1000)
            self.world.later(self.world.travel_ms(), lambda: self.world.closed(self, node))

    def take(self, node: int, connection: int, request: Request, answer: Any) -> None:
        """An answer arrives; those of connections that have ended do not."""
        if self.connections[node] != connection or self.state.pending.get(node) is not request:
            return
        self.holding.of = request.source
        for found in self.state.answered(node, answer, self.world.now_ms / 1000):
            rows = [row(found.place, offset) for part in found.ranges
                    for offset in range(part.first_offset, part.last_offset + 1)]  # fmt: skip
            self.holding.add(found.place, found.source, found.ranges, rows)
            for one in rows:
                self.acquired[found.place, one.offset] += 1


def row(place: Place, offset: int) -> Record:
    return Record(offset, 0, None, b"x", (), place.topic, place.number, 0, 0)


class Simulated(simulated.World):
    """The leaders, and all members."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed)
        self.faults = Faults.draw(self.rng)
        self.faulty = True
        self.leaders = {place: self.rng.choice(NODES) for place in PLACES}
        self.old_leaders = dict(self.leaders)
        self.shares = {place: SharePartition(0) for place in PLACES}
        self.kept: dict[Place, dict[int, Any]] = {place: {} for place in PLACES}
        self.starts = dict.fromkeys(PLACES, 0)
        self.sessions: dict[tuple[int, str], Session] = {}
        self.deliveries: Counter[Key] = Counter()
        self.done: set[Key] = set()
        """Records whose end was reported."""
        self.carried: set[tuple[str, Key, int, Source]] = set()
        """Acknowledgements that leaders have carried out."""
        self.members = [Member(self, name) for name in MEMBERS]
        for one in self.members:
            self.later(self.rng.randint(0, POLL_MS), one.poll)
        self.later(POLL_MS, self.turn)

    # ---- the network ---------------------------------------------------------------------------

    def carry(self, fault: str, event: Any) -> None:
        if self.faulty and self.chance(getattr(self.faults, fault)):
            return
        slow_ms = REQUEST_MS if self.faulty and self.chance(self.faults.slow) else 0
        self.later(slow_ms + self.travel_ms(), event)

    def turn(self) -> None:
        """Time passes for the leaders: locks end, partitions move."""
        for place, share in self.shares.items():
            share.expire(int(self.now_ms), LIMITS)
            self.write(place)
            if self.faulty and self.chance(self.faults.moves):
                self.move(place)
        self.later(POLL_MS, self.turn)

    def move(self, place: Place) -> None:
        """Another node leads, which knows what was written."""
        self.note("moves", place.number)
        self.old_leaders[place] = self.leaders[place]
        self.leaders[place] = self.rng.choice(NODES)
        rows = [SimpleNamespace(first_offset=offset, last_offset=offset, delivery_state=state,
                                delivery_count=count)
                for offset, (state, count) in sorted(self.kept[place].items())
                if offset >= self.starts[place]]  # fmt: skip
        self.shares[place] = SharePartition(self.starts[place], rows)  # type: ignore[arg-type]

    def write(self, place: Place) -> bool:
        """Write what waits for it; False: that has failed."""
        share = self.shares[place]
        write = share.begin_write()
        if write is None:
            return True
        done = not (self.faulty and self.chance(self.faults.unwritten))
        if done:
            self.starts[place] = max(self.starts[place], write.start_offset)
            for one in write.rows:
                for offset in range(one.first_offset, one.last_offset + 1):
                    self.kept[place][offset] = one.delivery_state, one.delivery_count
        share.end_write(done=done, now_ms=int(self.now_ms), limits=LIMITS)
        return done

    # ---- a node --------------------------------------------------------------------------------

    def handle(self, member: Member, node: int, connection: int, request: Request) -> None:
        """A request arrives."""
        if member.connections[node] != connection and self.chance(0.5):
            return  # the node knew that it was closed
        key = node, member.name
        if self.faulty and self.chance(self.faults.reset) and key in self.sessions:
            self.end(key)
        answer = SimpleNamespace(error_code=0, error_message=None, responses=[])
        session = self.sessions.get(key)
        if request.epoch == 0:
            session = self.sessions[key] = Session(connection, set(request.added))
        elif session is None:
            answer.error_code = ErrorCode.SHARE_SESSION_NOT_FOUND
        elif session.epoch != request.epoch:
            answer.error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            session.epoch += 1
            session.places = (session.places | {*request.added}) - {*request.forgotten}
        if not answer.error_code and session is not None:
            rows = list(self.rows(member, node, session, request))
            answer.responses = [SimpleNamespace(topic_id=PLACES[0].topic_id, partitions=rows)]
        self.carry("lost_answer", lambda: member.take(node, connection, request, answer))

    def rows(self, member: Member, node: int, session: Session, request: Request) -> Iterator[Any]:
        wanted = session.places if request.fetches else set()
        for place in sorted({*request.acks, *wanted}):
            leads = self.leaders[place] == node
            acked = 0 if place not in request.acks else (
                self.acknowledge(member, place, request.acks[place], request.source) if leads
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )  # fmt: skip
            reads = place in wanted
            yield SimpleNamespace(
                partition_index=place.number, error_message=None, acknowledge_error_message=None,
                error_code=(0 if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER) if reads else acked,
                acknowledge_error_code=acked, records=b"",
                current_leader=SimpleNamespace(leader_id=-1, leader_epoch=-1),
                acquired_records=self.acquired(member, place) if reads and leads else [],
            )  # fmt: skip

    def acknowledge(
        self, member: Member, place: Place, acks: dict[int, int], source: Source
    ) -> int:  # fmt: skip
        said = [Acknowledgement(one, one, [kind]) for one, kind in sorted(acks.items())]
        try:
            self.shares[place].acknowledge(member.name, said, int(self.now_ms), LIMITS)
        except Refused as refused:
            return refused.code
        if not self.write(place):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        for offset, kind in acks.items():
            self.carried.add((member.name, (place, offset), kind, source))
        return 0

    def acquired(self, member: Member, place: Place) -> list[Any]:
        share = self.shares[place]
        first = share.next_fetch_offset()
        batches = [Batch(one, min(one + 3, RECORDS - 1)) for one in range(0, RECORDS, 4)]
        there = [one for one in batches if one.last >= first]
        want = Want(member.name, self.rng.randint(1, 8), 4, self.rng.random() < 0.5)
        found = acquire(share, want, first, there, int(self.now_ms), LIMITS) if there else []
        for one in found:
            for offset in range(one.first, one.last + 1):
                key = place, offset
                self.deliveries[key] = max(self.deliveries[key], one.deliveries)
                if key in self.done:
                    raise Violated(f"S1: {member.name} acquires {place.number}-{offset} again")
                if one.deliveries > LIMIT:
                    raise Violated(f"S5: {place.number}-{offset}: {one.deliveries} deliveries")
        return [SimpleNamespace(first_offset=one.first, last_offset=one.last,
                                delivery_count=one.deliveries) for one in found]  # fmt: skip

    def closed(self, member: Member, node: int) -> None:
        """A connection has ended, and its session."""
        session = self.sessions.get((node, member.name))
        if session is not None and session.connection < member.connections[node]:
            self.end((node, member.name))

    def end(self, key: tuple[int, str]) -> None:
        session = self.sessions.pop(key)
        for place in session.places:
            if self.leaders[place] == key[0]:
                self.shares[place].release(key[1], LIMITS)
                self.write(place)

    # ---- the rules -----------------------------------------------------------------------------

    def sent(self, member: Member, request: Request) -> None:
        for place, acks in request.acks.items():
            for offset, kind in acks.items():
                said = member.said.get((place, offset), ())
                if kind != GAP and (request.source, kind) not in said:
                    raise Violated(f"S3: {member.name} sends {kind} of {place.number}-{offset}")

    def handed(self, member: Member, place: Place, record: SharedRecord) -> None:
        self.note(member.name, "gets", place.number, record.offset, record.delivery_count)
        if member.acquired[place, record.offset] <= 0:
            raise Violated(f"S6: {member.name}: {place.number}-{record.offset} came twice")
        member.acquired[place, record.offset] -= 1

    def ended(self, member: Member, key: Key, one: tuple[Any, int], problem: Any) -> None:
        (place, offset), (source, kind) = key, one
        self.note(member.name, "hears of", place.number, offset, problem)
        said = member.said.get(key, [])
        if one not in said:
            raise Violated(f"S4: {member.name}: {place.number}-{offset} has another outcome")
        said.remove(one)
        if not said:
            del member.said[key]
        if problem is not None:
            return
        if kind == RENEW:
            member.acquired[key] += 1
        if (member.name, key, kind, source) not in self.carried:
            raise Violated(f"S2: {member.name}: {place.number}-{offset} was not carried out")
        if kind in (ACCEPT, REJECT):
            self.done.add(key)

    def missing(self) -> list[Any]:
        """All that is not done yet."""
        found: list[Any] = []
        for place, share in self.shares.items():
            open_ = [one for one in share.holds if one.value.state not in TERMINAL]
            if open_ or share.end < RECORDS:
                found.append((place.number, share.end, open_[:2]))
        return found + [one.said for one in self.members if one.said]

    def judge(self) -> None:
        """None is lost."""
        over = {key for _, key, kind, _ in self.carried if kind in (ACCEPT, REJECT)}
        for place in PLACES:
            for offset in range(RECORDS):
                if (place, offset) not in over and self.deliveries[place, offset] < LIMIT:
                    raise Violated(f"S7: {place.number}-{offset} is lost")


def _faulty(world: Simulated) -> None:
    world.run(FAULTY_MS)
    world.faulty = False
    world.faults = Faults()


def _settled(world: Simulated) -> None:
    world.settle("S7", SETTLE_MS, world.missing)
    world.judge()


simulate = simulation(Simulated, _faulty, _settled)
