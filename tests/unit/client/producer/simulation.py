"""A producer: its decisions, in a world in which things go wrong.

The core, its batches, the accumulator, the producer id's state and the metadata are the real ones;
partitions, nodes, connections and time are modelled (simulated_cluster.py).

What must hold whatever happens, with idempotence:

P1  acknowledged records are in their partition once, at the reported offset
P2  acknowledged records are in the order in which they were sent
P3  records that were refused without a doubt are nowhere
P4  records that may have been stored are in their partition at most once
P5  no batch waits longer than delivery.timeout.ms
P6  an error of one topic fails no record of another
P7  a record is refused as out of order only after another was refused or abandoned
P8  once faults end, everything sent is acknowledged in bounded time, and nothing is left waiting

Without idempotence P1 and P4 allow duplicates, and P2 does not apply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog._native import direct
from kafkalog.client.buffer.accumulator import Accumulator, Bounds, PartitionQueue
from kafkalog.client.buffer.delivery import Batch, Future, SendOptions
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.client.producer.core import Doubt, Ended, Say, SenderState
from kafkalog.client.producer.producer_id import ProducerId
from kafkalog.client.producer.producer_metadata import ProducerMetadata
from kafkalog.simulate.world import Violated
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import simulation
from tests.unit.client.producer import simulated_cluster
from tests.unit.client.producer.simulated_cluster import Brokers, Faults, Log, Seen, Verdict, gone

__all__ = ["World", "simulate"]

_send = direct("intake_send")
BEGIN_S = 1_000.0
FAULTY_MS = 30_000
HEALED_MS = 20_000
"""Within this time, everything sent after the last fault is acknowledged."""
STRAY_MS = 15_000
"""How late a request may arrive at a node, long after its connection broke."""
REQUEST_S = 5.0
IN_DOUBT = "may have been stored"
RECORD_ROOM = 400
CLIENT = Options(
    request_timeout_ms=int(REQUEST_S * 1000), retry_backoff_ms=50, retry_backoff_max_ms=500
)


class Sent(NamedTuple):
    """A record."""

    tp: TopicPartition
    value: bytes
    future: Future


class Flight:
    """A request in flight."""

    def __init__(self, batches: dict[TopicPartition, Batch], until_s: float) -> None:
        self.batches = batches
        self.until_s = until_s
        self.data = {tp: bytes(batch.data or b"") for tp, batch in batches.items()}
        self.firsts = {tp for tp, batch in batches.items() if batch.sequence == 0}
        self.told: dict[TopicPartition, Verdict] = {}


class Link:
    """A connection, which keeps its requests in order."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.open = False
        self.dumb = False
        """No more answers come."""
        self.flying: deque[Flight] = deque()
        self.there_ms = self.back_ms = 0


class Line:
    """A producer's other requests: one at a time, each of which takes time."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.cluster = cluster
        self.free = True
        self._world = world
        self._settle: Callable[[], None] | None = None

    def begin(
        self, call: Callable[[Cluster], Any], then: Callable[[Any, Any], object] | None = None
    ) -> None:
        self.free = False
        self._world.later(self._world.travel_ms() * 2, lambda: self._make(call, then))

    def _make(self, call: Callable[[Cluster], Any], then: Any) -> None:
        result, problem = None, None
        try:
            if self._world.chance(self._world.faults.unasked):
                raise errors.PeerGone("nobody answers")
            result = call(self.cluster)
        except errors.KafkalogError as found:
            problem = found
        self._settle = lambda: then and then(result, problem)
        self._world.turn()

    def settle(self) -> None:
        if (settle := self._settle) is not None:
            self._settle, self.free = None, True
            settle()


class World(simulated_cluster.World):
    """Time, the brokers, the network, and the producer as its sender drives it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.faults = Faults()
        self.idempotent = rng.random() < 0.8
        self.brokers = Brokers(self, rng.choice([1, 2, 3]), {"a": 2, "b": 1}, rng.random() < 0.3)
        self.sent: list[Sent] = []
        self.silent_ms = dict.fromkeys(self.brokers.nodes, 0)
        self.options = SendOptions(
            acks=-1, codec=0, level=None, in_flight=rng.choice([1, 2, 5]), request_bytes=4_000,
            delivery_s=rng.choice([3.0, 8.0, 20.0]), retries=rng.choice([1, 3, 1 << 31, 1 << 31]),
            metadata_s=10.0, metadata_idle_s=300.0, adaptive=False, availability_s=0,
        )  # fmt: skip
        self.pid = ProducerId(wanted=self.idempotent)
        self.core = SenderState(self.options, CLIENT, self.pid, rng.random)
        self.pid.changed = self.core.begin_sequences
        bounds = Bounds(rng.choice([300, 1_000, 3_000]), 60_000, rng.choice([0.0, 0.02]))
        self.waiting = Accumulator(bounds, (False, False), lambda: None, lambda: self.now_s)
        self.core.waiting = self.waiting
        self.cluster: Cluster = Seen(self.brokers)
        self.line = Line(self, Seen(self.brokers))
        self.metadata = ProducerMetadata(
            self.cluster, self.options.metadata_s, 300.0, self._fail, lambda: self.now_s
        )
        self.underway: set[Flight] = set()
        """Requests that may still arrive at a node."""
        self._links: dict[int, Link] = {}
        self._wake_ms = -1
        self._aged: set[int] = set()  # batches that had timed out at the end of the last turn

    @property
    def now_s(self) -> float:
        return BEGIN_S + self.now_ms / 1000

    # ---- the producer ----------------------------------------------------------------------

    def send(self, tp: TopicPartition, value: bytes) -> None:
        """As Producer.send, unless it would wait."""
        intake = self.waiting.intakes.get(tp.topic)
        if intake is None:
            self.waiting.wanted.setdefault(tp.topic, None)
            self.turn()
            return
        args = value, None, 1, tp.partition, None
        future: Future | None = _send(intake.native, *args)
        if future is None:
            try:
                self.waiting.room(intake, tp.partition, RECORD_ROOM, 0.0, self.waiting.turn)
            except errors.Timeout:  # as many wait as may
                return
            if (batch := self.waiting.queues[tp].open) is not None:
                batch.begun_s = self.now_s
            future = _send(intake.native, *args)
            assert future is not None
        self.sent.append(Sent(tp, value, future))
        self.turn()

    def turn(self) -> None:
        """As Sender._turn."""
        now_s = self.now_s
        self.line.settle()
        next_s = self.waiting.close_due(now_s, False)
        self.core.expire(now_s, self._flying())
        self._do()
        next_s = min(next_s, self._ensure_id(now_s))
        self.core.check_id()
        self._do()
        self.metadata.refresh(now_s, self.waiting, self.line)  # type: ignore[arg-type]
        while True:
            plan = self.core.plan(now_s, self.metadata.leader, self._takes)
            next_s = min(next_s, plan.next_s)
            if plan.lost and self.line.free:
                next_s = min(next_s, max(self.metadata.next_s, now_s + 0.001))
            if not plan.nodes:
                break
            for node, queues in plan.nodes.items():
                self._send_to(node, queues, now_s)
            self.waiting.close_due(now_s, False)
        self._check_age(now_s)
        self._wake(min(next_s, now_s + 1.0))

    def _wake(self, at_s: float) -> None:
        """Schedule another turn by then."""
        at_ms = max(int((at_s - BEGIN_S) * 1000) + 1, self.now_ms + 1)
        if not self.now_ms < self._wake_ms <= at_ms:
            self._wake_ms = at_ms
            self.later(at_ms - self.now_ms, lambda: self._woken(at_ms))

    def _woken(self, at_ms: int) -> None:
        if at_ms == self._wake_ms:  # otherwise an earlier turn was scheduled
            self._wake_ms = -1
            self.turn()

    def _ensure_id(self, now_s: float) -> float:
        due_s = self.pid.due_s(now_s, lambda: not self._flying())
        if due_s <= now_s and self.line.free and self.line.cluster.reached:
            self.line.begin(self._new_id, self._got_id)
        return due_s if due_s > now_s else now_s + 1.0

    def _new_id(self, _cluster: Cluster) -> int:
        return 100 + self.events

    def _got_id(self, number: int | None, problem: errors.KafkalogError | None) -> None:
        if number is None:
            self.pid.refused(self.now_s + 0.05)
        else:
            self.note(f"producer id {number}")
            self.pid.take(number, 0)
            self.pid.serve()

    def _do(self) -> None:
        effects, self.core.effects = self.core.effects, []
        for one in effects:
            match one:
                case Ended(batch, problem, base_offset):
                    self.note(f"{_named(batch)} ended: {problem or base_offset}")
                    if problem is not None:
                        self.waiting.failed(problem, batch.records)
                    self.waiting.drop(batch)
                    batch.end(problem, base_offset)
                case Doubt(tp):
                    self.metadata.doubt(tp)
                case Say():
                    pass
                case _:
                    raise Violated(f"P8: found {one}: nothing here is fatal")

    def _fail(self, queue: PartitionQueue, problem: errors.KafkalogError) -> None:
        self.core.fail(queue, problem)
        self._do()

    # ---- the network -----------------------------------------------------------------------

    def _flying(self) -> list[Batch]:
        return [b for link in self._links.values() for f in link.flying for b in f.batches.values()]

    def _takes(self, node: int) -> bool:
        link = self._links.get(node)
        if link is None:
            return True
        return link.open and len(link.flying) < self.options.in_flight

    def _send_to(self, node: int, queues: list[PartitionQueue], now_s: float) -> None:
        batches = self.core.pack(queues, now_s)
        self._do()
        if not batches:
            return
        for batch in batches.values():
            self.note(f"{_named(batch)} to {node}, attempt {batch.attempts}")
        flight = Flight(batches, now_s + REQUEST_S)
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = Link(node)
            self.later(self.travel_ms() * 2, lambda: self._opened(link, flight))
            link.flying.append(flight)
        else:
            link.flying.append(flight)
            self._post(link, flight)

    def flights(self) -> set[Flight]:
        """Requests in flight, or waiting for their connection; their batches may have ended."""
        return self.underway.union(*(link.flying for link in self._links.values()))

    def _opened(self, link: Link, flight: Flight) -> None:
        if self._links.get(link.node) is not link:
            return
        if self.chance(self.faults.unopened):
            self._lose(link, gone(link.node), posted=False)
        else:
            link.open = True
            flight.until_s = self.now_s + REQUEST_S
            self._post(link, flight)
        self.turn()

    def _post(self, link: Link, flight: Flight) -> None:
        """Send a request; its connection may break before or after it arrives."""
        self.later(int((flight.until_s - self.now_s) * 1000) + 1, lambda: self._overdue(link))
        self.underway.add(flight)
        link.there_ms = max(link.there_ms, self.now_ms + self.travel_ms())
        self.later(link.there_ms - self.now_ms, lambda: self._arrive(link, flight))
        if self.chance(self.faults.broken):
            self.later(self.travel_ms(), lambda: self._break(link))

    def _arrive(self, link: Link, flight: Flight) -> None:
        alive = self._links.get(link.node) is link
        if not alive and not self.chance(self.faults.late):
            self.underway.discard(flight)
            return
        wait_ms = max(self.silent_ms[link.node] - self.now_ms, 0)
        if not alive:
            wait_ms = max(wait_ms, self.rng.randint(0, STRAY_MS))
        self.later(wait_ms, lambda: self._handle(link, flight))

    def _handle(self, link: Link, flight: Flight) -> None:
        self.underway.discard(flight)

        def told(tp: TopicPartition, verdict: Verdict) -> None:
            if tp in flight.told:
                return
            flight.told[tp] = verdict
            if len(flight.told) == len(flight.data):
                self._answer(link)

        for tp, data in flight.data.items():
            self.brokers.produce(link.node, tp, data, partial(told, tp))
            log = self.brokers.partitions[tp].log
            if self.idempotent and self.chance(self.faults.twice) and _holds(log, flight, tp):
                self.brokers.produce(link.node, tp, data, lambda _: None)

    def _answer(self, link: Link) -> None:
        """Return the answers that are ready, in the order of their requests."""
        if self.chance(self.faults.lost):
            link.dumb = True
        for flight in link.flying:
            if len(flight.told) < len(flight.data):
                return
            link.back_ms = max(link.back_ms, self.now_ms + self.travel_ms())
            self.later(link.back_ms - self.now_ms, partial(self._receive, link, flight))

    def _receive(self, link: Link, flight: Flight) -> None:
        if self._links.get(link.node) is not link or link.dumb:
            return
        if not link.flying or link.flying[0] is not flight:
            return  # it was already answered
        link.flying.popleft()
        for tp, batch in flight.batches.items():
            verdict = flight.told[tp]
            moved = verdict.leader >= 0 and self.cluster.learn_leader(
                tp, verdict.leader, verdict.epoch, None
            )
            self.note(f"{_named(batch)}: {ErrorCode(verdict.answer.code).name}")
            self.core.answered(batch, verdict.answer._replace(moved=moved), self.now_s)
            self._do()
        self.turn()

    def _overdue(self, link: Link) -> None:
        late = link.flying and link.flying[0].until_s <= self.now_s
        if self._links.get(link.node) is link and late:
            self._lose(link, errors.Timeout(f"node {link.node}: no answer in time"))
            self.turn()

    def _break(self, link: Link) -> None:
        if self._links.get(link.node) is link:
            self._lose(link, gone(link.node))
            self.turn()

    def _lose(self, link: Link, problem: errors.KafkalogError, posted: bool = True) -> None:
        self.note(f"{problem}")
        del self._links[link.node]
        for flight in link.flying:
            self.core.lost(flight.batches.values(), problem, self.now_s, posted)
        self.metadata.doubt_node(link.node)
        self._do()

    # ---- what must hold --------------------------------------------------------------------

    def _check_age(self, now_s: float) -> None:
        """No batch outlives two turns that find it too old (P5)."""
        limit_s = now_s - self.options.delivery_s
        aged = {n for n, b in self.waiting.unfinished.items() if b.begun_s <= limit_s and b.count}
        if both := aged & self._aged:
            batch = self.waiting.unfinished[min(both)]
            raise Violated(f"P5: {_named(batch)} is {now_s - batch.begun_s:.1f} s old")
        self._aged = aged

    def check(self) -> None:
        """Compare the outcome of every record with the logs (P1 to P4, P6, P7)."""
        places: dict[TopicPartition, dict[bytes, list[tuple[int, int]]]] = {}
        for tp, part in self.brokers.partitions.items():
            found = places.setdefault(tp, {})
            for life, log in enumerate(part.logs):
                for batch in log.batches:
                    for index, value in enumerate(batch.values):
                        found.setdefault(value, []).append((life, batch.offset + index))
        last: dict[tuple[TopicPartition, int], int] = {}
        gaps: set[TopicPartition] = set()
        for one in self.sent:
            there = places[one.tp].get(one.value, [])
            what = f"{one.tp.topic}-{one.tp.partition} {one.value!r}"
            lives = [life for life, _ in there]
            if self.idempotent and len({*lives}) < len(lives):
                raise Violated(f"P1, P4: {what} is there twice: {there}")
            problem = one.future.exception()
            if problem is None:
                self._check_taken(one, what, there, last)
                continue
            if IN_DOUBT not in str(problem) and there:
                raise Violated(f"P3: {what} is at {there}, and was refused: {problem}")
            denied = getattr(problem, "code", 0) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if denied and one.tp.topic not in self.brokers.ever_denied:
                raise Violated(f"P6: {what} was refused: {problem}")
            late = getattr(problem, "code", 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            once = len(self.brokers.partitions[one.tp].logs) == 1
            sure = IN_DOUBT not in str(problem)  # otherwise it is part of a batch that is there
            if late and sure and once and one.tp not in gaps:
                raise Violated(f"P7: {what} was refused: {problem}")
            gaps.add(one.tp)

    def _check_taken(
        self,
        one: Sent,
        what: str,
        there: list[tuple[int, int]],
        last: dict[tuple[TopicPartition, int], int],
    ) -> None:
        offset = one.future.result().offset
        found = [life for life, at in there if at == offset]
        if not found:
            raise Violated(f"P1: {what} was acknowledged at {offset}, and is at {there}")
        if len(found) > 1:
            return  # a late request put it in a later log, too: it is unknown which was meant
        before = last.get((one.tp, found[-1]), -1)
        if self.idempotent and offset <= before:
            raise Violated(f"P2: {what} is at {offset}, what was sent before at {before}")
        last[one.tp, found[-1]] = offset

    def check_quiet(self) -> None:
        """Check that nothing is left waiting (P8)."""
        self.turn()  # this puts the last queues aside
        left = [queue.tp for queue in self.waiting.queues.values() if not queue.empty]
        if left or self.waiting.unfinished or self.waiting.used or self._flying():
            raise Violated(f"P8: found {left}, {self.waiting.used} bytes, wanted nothing to wait")


def _named(batch: Batch) -> str:
    sequence = f"{batch.pid[0]}/{batch.sequence}"
    return (
        f"{batch.tp.topic}-{batch.tp.partition} batch {batch.number:x} ({sequence}+{batch.count})"
    )


def _holds(log: Log, flight: Flight, tp: TopicPartition) -> bool:
    """True if the request's batch is the last one in a log: it may arrive again."""
    batch, last = flight.batches[tp], log.batches[-1:]
    return bool(last) and (last[0].producer, last[0].sequence) == (batch.pid, batch.sequence)


# ---- a run -----------------------------------------------------------------------------------


def _tick(world: World) -> None:
    """Records are sent, and things go wrong."""
    rng, faults, brokers = world.rng, world.faults, world.brokers
    tps = list(brokers.partitions)
    for _ in range(rng.choice([0, 1, 1, 2, 8])):
        tp = rng.choice(tps)
        number = len(world.sent)
        world.send(tp, b"%05d" % number + b"." * rng.choice([5, 50, 250]))
    if world.chance(faults.moves):
        brokers.move(rng.choice(tps))
    if world.chance(faults.deletes) and not brokers.gone:
        brokers.delete(rng.choice(["a", "b"]), rng.randint(0, 2_000))
    if world.chance(faults.denies):
        brokers.denied ^= {"b"}
        brokers.ever_denied.add("b")
    if world.chance(faults.limits):
        part = brokers.partitions[rng.choice(tps)]
        part.bytes_max = rng.choice([200, 450, 1_000, 1 << 20])
        world.note(f"batches have {part.bytes_max} bytes at most")
    if world.chance(faults.forgets):
        _forget(world, rng.choice(tps))
    if world.chance(faults.silent):
        node = rng.choice(brokers.nodes)
        world.silent_ms[node] = world.now_ms + rng.randint(100, 12_000)
        world.note(f"node {node} pauses")
    if world.chance(faults.jumps):
        world.now_ms += rng.randint(1_000, 30_000)
        world.note("the clock jumped")
    if world.now_ms < FAULTY_MS:
        world.later(rng.randint(1, 200), lambda: _tick(world))


def _forget(world: World, tp: TopicPartition) -> None:
    """A leader forgets its producers, unless it could then accept a first batch twice."""
    first = any(tp in flight.firsts for flight in world.flights())
    first |= any(b.tp == tp and b.sequence == 0 for b in world.waiting.unfinished.values())
    if not first:
        world.note(f"{tp.topic}-{tp.partition} forgets its producers")
        world.brokers.partitions[tp].log.forget()


def play(world: World) -> None:
    """Run once: faults for a while, then none, after which everything sent must be acknowledged."""
    world.faults = Faults.draw(world.rng, () if world.brokers.forgets else ("forgets",))
    world.later(0, lambda: _tick(world))
    world.run(FAULTY_MS)
    world.note("no more faults")
    world.faults = Faults()
    brokers = world.brokers
    brokers.denied.clear()
    for part in brokers.partitions.values():
        part.bytes_max = 1 << 20
    world.run(world.now_ms + STRAY_MS + int(2 * REQUEST_S * 1000 + world.options.delivery_s * 1000))
    before = len(world.sent)
    for tp in brokers.partitions:
        world.send(tp, b"last %d" % len(world.sent))
    world.run(world.now_ms + HEALED_MS)
    for tp, value, future in world.sent:
        if not future.done():
            raise Violated(f"P8: {tp.topic}-{tp.partition} {value!r} waits still")
    for tp, _, future in world.sent[before:]:
        if (problem := future.exception()) is not None:
            raise Violated(f"P8: {tp.topic}-{tp.partition}: found {problem}, wanted no failure")
    world.check()
    world.check_quiet()


simulate = simulation(World, play)
