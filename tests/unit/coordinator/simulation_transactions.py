"""Transactions: a coordinator, its producers and their partitions in a world with faults, see
simulated_world.py.

What must hold whatever happens:

X1  a transaction is atomic: all of its batches end the same way, the way that its producer was
    answered
X2  once faults end no transaction stays open for longer than its timeout and one check interval
X3  a producer writes nothing after a newer one of its transactional id may write
X4  of version 2: no batch of one transaction becomes part of another
X5  with nothing in flight, a restart would not change what the coordinator knows
X6  without faults a producer of version 2 gets at most retriable errors, and is never refused
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kafkalog.coordinator.step import Step
from kafkalog.coordinator.transactions.core import Results, TransactionCoordinatorState
from kafkalog.coordinator.transactions.records import status_record
from kafkalog.coordinator.transactions.requests import ProducerClaim
from kafkalog.coordinator.transactions.shard import Marker, Outside
from kafkalog.coordinator.transactions.transaction import EPOCH_MAX, Status
from kafkalog.server.transactions.write_guards import Guard, Guards
from kafkalog.simulate.world import Violated
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import drawn, simulation
from tests.unit.coordinator import simulated_world
from tests.unit.coordinator.simulated_log import Partition
from tests.unit.coordinator.simulated_world import Patience, World
from tests.unit.coordinator.transaction_calls import settings

IDS = ("one", "two")
PARTITIONS = 4
OLD_ID = 500
"""The first of the producer ids that were assigned before the run."""
TIMEOUT_MS = 20_000
PATIENCE = Patience(request_ms=5_000, slow_ms=15_000, append_ms=40_000)
FAULTY_MS = 120_000
SETTLE_MS = 120_000
CALM_MS = 60_000
CONFIG = settings(transaction_abort_timed_out_transaction_cleanup_interval_ms=5_000)
OK = ErrorCode.NONE
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}  # fmt: skip
APPEND_ERRORS = [
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT,
]  # fmt: skip


@dataclass
class Faults(simulated_world.Faults):
    """Faults of transactions."""

    lost: float = drawn(0, 0.01, 0.1)
    twice: float = drawn(0, 0.05, 0.3)
    slow: float = drawn(0, 0.02, 0.1)
    append_fails: float = drawn(0, 0.02, 0.2)
    append_fails_written: float = drawn(0, 0.5)
    append_slow: float = drawn(0, 0.02)
    marker_fails: float = drawn(0, 0.1)
    crash: float = drawn(0, 0.001, 0.02)
    dies: float = drawn(0, 0.02, 0.1)


class TransactionWorld(World[TransactionCoordinatorState]):
    """A world with partitions to write to, and a record of the producers' answers."""

    kind_of_faults: type[Faults] = Faults
    faulty_ms = FAULTY_MS
    """How long a run has faults."""

    def __init__(
        self,
        seed: int,
        core: Callable[..., TransactionCoordinatorState] = TransactionCoordinatorState,
    ) -> None:
        super().__init__(seed, PATIENCE, APPEND_ERRORS)
        self.make_core = core
        self.ids = count(1000)
        self.level = self.rng.choice([0, 1, 2])
        self.parts = {TopicPartition("a", n): Partition() for n in range(PARTITIONS)}
        self.guards = Guards()
        self.entitled: dict[str, tuple[int, int]] = {}
        """By transactional id: the newest producer id and epoch of a new producer."""
        self.given: dict[tuple[int, int], int] = {}
        """Producer ids and epochs, and the numbers of the producers that got them."""
        self.told: dict[str, bool] = {}
        """By tag: the end that its producer got an answer for; True: committed."""
        self.version2: set[str] = set()
        self.calm = False
        """A run without faults: any refusal is a bug."""
        self.written = 0
        for number, name in enumerate(IDS):
            if self.rng.random() < 0.3:  # the epochs of its producer id are nearly used up
                epoch = EPOCH_MAX - self.rng.randint(1, 20)
                before = Status(OLD_ID + number, epoch, TIMEOUT_MS, version=self.level)
                self.journal.put(0, [status_record(name, before, self.level)])
        self.restart()

    def new_core(self) -> TransactionCoordinatorState:
        outside = Outside(
            lambda: next(self.ids), lambda _topic: PARTITIONS, lambda _group: None,
            lambda: self.level,
        )  # fmt: skip
        return self.make_core(CONFIG, outside)

    def keeps_unfinished(self) -> bool:
        return self.rng.random() < 0.5

    def effect(self, effect: Marker) -> None:
        """Write a marker to its partition."""
        marker = effect

        def write() -> None:
            error = OK
            if self.rng.random() < self.faults.marker_fails:
                error = ErrorCode.KAFKA_STORAGE_ERROR
            if error is OK or self.rng.random() < 0.5:  # reported as failed, but written
                with self.guards.ending(marker.where, marker.producer):
                    found = self.parts[marker.where].mark(marker)
                error = found if error is OK else error
                kind = "commit" if marker.commit else "abort"
                who = f"{marker.producer_id}/{marker.epoch}"
                self.note(f"{kind} of {who} in {marker.where.partition}")
            self.step(lambda step: self.core.marked(marker, error, step))

        self.later(self.travel_ms(), write, self)  # it dies with the coordinator's process

    def produce(self, producer: Producer, where: TopicPartition, sequence: int, tag: str) -> None:
        """Produce a batch as on a broker: verified unless its transaction is open there."""
        identity, v2 = producer.identity, producer.version == 2

        def request(answered: Callable[[Any], None]) -> None:
            if self.parts[where].is_open(identity):
                answered(self._written(producer, identity, where, sequence, tag))
                return
            asked = ProducerClaim(producer.name, *identity)

            def allowed(_: Step, results: Results) -> None:
                if results[where] is not OK:
                    answered(results[where])
                    return
                guard = self.guards.begin(where, *identity)
                self.later(self.travel_ms(), lambda: append(guard), self)

            def append(guard: Guard) -> None:
                with self.guards.writing(guard) as holds:
                    error = ErrorCode.INVALID_TXN_STATE
                    if holds:
                        error = self._written(producer, identity, where, sequence, tag)
                    answered(error)

            def event(step: Step) -> None:
                if v2:
                    self.core.join(step, asked, [where], 2, allowed)
                else:
                    allowed(step, self.core.verify(asked, [where]))

            self.step(event)

        self.post(request, lambda error: producer.produced(where, sequence, tag, error))

    def _written(
        self, producer: Producer, identity: tuple[int, int], where: TopicPartition,
        sequence: int, tag: str,
    ) -> ErrorCode:  # fmt: skip
        error, new = self.parts[where].append(identity, sequence, tag)
        if new:
            self.written += 1
            self.note(f"{tag} in {where.partition} by {identity}")
            if identity < self.entitled[producer.name]:
                raise Violated(f"X3: {tag} by {identity}, which was fenced")
        return error

    # ---- what must hold --------------------------------------------------------------------

    def check(self) -> None:
        """Check X1 and X4 for transactions that have ended."""
        ends: dict[str, set[bool]] = {}
        for where, part in self.parts.items():
            for tags, commit in part.ended:
                if len(tags) > 1 and tags & self.version2:
                    raise Violated(f"X4: {sorted(tags)} ended together in {where.partition}")
                for tag in tags:
                    ends.setdefault(tag, set()).add(commit)
        for tag, found in ends.items():
            if tag not in self.version2:
                continue
            if len(found) > 1:
                raise Violated(f"X1: {tag} was committed and aborted")
            if tag in self.told and found != {self.told[tag]}:
                raise Violated(f"X1: {tag} ended as {found}, its producer got {self.told[tag]}")

    def refused(self, producer: Producer, what: str, error: ErrorCode) -> None:
        """Check X6."""
        if self.calm and producer.version == 2:
            raise Violated(f"X6: {what} of {producer.tag}, {producer.identity}: {error.name}")

    def open(self) -> list[str]:
        return [
            f"{where.partition}: {producer_id}/{known.epoch}"
            for where, part in self.parts.items()
            for producer_id, known in part.known.items()
            if known.open is not None
        ]

    def check_journal(self) -> None:
        """Check X5."""
        shard = self.core.shards[0]
        if any(one.pending is not None for one in shard.ids.values()):
            return
        other = self.make_core(CONFIG, shard.outside).new_shard(0, self.life)
        self.core.load(other, self.journal.read(0), 0)
        version = self.level >= 1

        def picture(found: Any) -> Any:
            return {
                name: one.status._replace(last_epoch=-1) if version else one.status[:7]
                for name, one in found.ids.items()
            }

        if picture(other) != picture(shard):
            raise Violated(f"X5: {picture(shard)} is written as {picture(other)}")


@dataclass
class Producer:
    """A client with a transactional id that acts as Java's; may die at any time."""

    world: TransactionWorld
    name: str
    number: int
    """Newer producers of the same id have higher numbers."""
    version: int
    identity: tuple[int, int] = (-1, -1)
    alive: bool = True
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    tags: int = 0
    tag: str = ""
    left: list[TopicPartition] = field(default_factory=list)
    failed: bool = False

    def _later(self, ms: int, what: Callable[[], None]) -> None:
        self.world.later(ms, lambda: what() if self.alive else None)

    def _heard(self, then: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda answer: then(answer) if self.alive else None

    def start(self) -> None:
        fields = {"transactional_id": self.name, "transaction_timeout_ms": TIMEOUT_MS}
        self.world.send(apis.INIT_PRODUCER_ID, 4, fields, self._heard(self._started))

    def _started(self, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        if error is OK:
            self.identity = answer.producer_id, answer.producer_epoch
            if self.world.given.setdefault(self.identity, self.number) != self.number:
                raise Violated(f"X3: {self.identity} was given twice")
            newest = self.world.entitled.get(self.name, self.identity)
            self.world.entitled[self.name] = max(newest, self.identity)
            self.world.note(f"{self.name} {self.number} is {self.identity}")
            self._begin()
        else:
            self._later(100, self.start)

    def _begin(self) -> None:
        rng = self.world.rng
        self.tags += 1
        self.tag = f"{self.name}-{self.number}-{self.tags}"
        if self.version == 2:
            self.world.version2.add(self.tag)
        self.failed = False
        self.left = rng.sample(list(self.world.parts), rng.randint(1, 3))
        if self.version == 2:
            self._produce()
        else:
            self._add()

    def _add(self) -> None:
        fields = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.identity[0],
            "v3_and_below_producer_epoch": self.identity[1],
            "v3_and_below_topics": [{"name": "a", "partitions": [w.partition for w in self.left]}],
        }

        def added(answer: Any) -> None:
            error = None
            if answer is not None:
                (topic,) = answer.results_by_topic_v3_and_below
                error = ErrorCode(topic.results_by_partition[0].partition_error_code)
            if error is OK:
                self._produce()
            elif error is None or error in AGAIN:
                self._later(50, self._add)
            else:
                self.die()

        self.world.send(apis.ADD_PARTITIONS_TO_TXN, 3, fields, self._heard(added))

    def _produce(self) -> None:
        for where in self.left:
            sequence = self.sequences.get(where, 0)
            self.sequences[where] = sequence + 1
            self.world.produce(self, where, sequence, self.tag)

    def produced(self, where: TopicPartition, sequence: int, tag: str, error: Any) -> None:
        if not self.alive or tag != self.tag or where not in self.left:
            return
        if error is OK:
            self.left.remove(where)
        elif error is None and self.world.rng.random() < 0.3:
            self.failed = True  # it gives up on the batch, which may still arrive
            self.left.remove(where)
        elif error is None or error in AGAIN:
            self._later(50, lambda: self._again(where, sequence, tag))
            return
        elif error is ErrorCode.INVALID_PRODUCER_EPOCH:
            self.world.refused(self, "a batch", error)
            self.die()
            return
        else:
            self.world.refused(self, "a batch", error)
            self.failed = True
            self.left.remove(where)
        if not self.left:
            self._later(self.world.rng.choice([0, 10, 1_000]), self._end)

    def _again(self, where: TopicPartition, sequence: int, tag: str) -> None:
        if tag == self.tag and where in self.left:
            self.world.produce(self, where, sequence, tag)

    def _end(self) -> None:
        commit = not self.failed and self.world.rng.random() < 0.8
        self._decide(commit, self.tag)

    def _decide(self, commit: bool, tag: str) -> None:
        fields = {
            "transactional_id": self.name, "producer_id": self.identity[0],
            "producer_epoch": self.identity[1], "committed": commit,
        }  # fmt: skip

        def ended(answer: Any) -> None:
            error = None if answer is None else ErrorCode(answer.error_code)
            if error is OK:
                self.world.told[tag] = commit
                if self.version == 2:
                    self.identity = answer.producer_id, answer.producer_epoch
                    self.sequences.clear()
                if self.version == 1 and self.failed:
                    self.die()  # it no longer knows its sequences
                    return
                self._later(self.world.rng.choice([0, 5, 500]), self._begin)
            elif error is None or error in AGAIN:
                self._later(50, lambda: self._decide(commit, tag))
            else:
                self.world.refused(self, "the end", error)
                self.die()

        api, version = apis.END_TXN, 5 if self.version == 2 else 4
        self.world.send(api, version, fields, self._heard(ended))

    def die(self) -> None:
        """Die without ending the transaction; requests in flight may still arrive."""
        if self.alive:
            self.alive = False
            self.world.note(f"{self.name} {self.number} dies")


def play_calm(world: TransactionWorld) -> None:
    """One run without faults; only messages take time."""
    world.calm = True
    world.faults = Faults(delay_ms=world.rng.choice([1, 20, 200]))
    for number, name in enumerate(IDS):
        Producer(world, name, number, 2).start()
    world.run(CALM_MS)
    world.check()


def play(world: TransactionWorld) -> None:
    """One run: faults for a while, then none, until all transactions must end."""
    rng = world.rng
    world.faults = world.kind_of_faults.draw(rng)
    failing = world.faults.append_fails > 0
    versions = {name: rng.choice([1, 2]) for name in IDS}
    numbers = count()
    clients: list[Producer] = []

    def start(name: str) -> None:
        clients.append(Producer(world, name, next(numbers), versions[name]))
        clients[-1].start()

    def second() -> None:
        for name in IDS:
            alive = [one for one in clients if one.alive and one.name == name]
            for one in alive:
                if rng.random() < world.faults.dies:
                    one.die()
            # Sometimes another producer starts while the old one is unaware of it.
            if not alive or (len(alive) < 3 and rng.random() < 0.02):
                start(name)
        world.check()
        if not world.faults.append_fails and rng.random() < 0.2:
            world.check_journal()
        if world.now_ms < world.faulty_ms:
            world.later(1_000, second)

    second()
    world.run(world.faulty_ms)
    world.faults = Faults()
    for one in clients:
        one.die()
    world.run(world.now_ms + PATIENCE.request_ms + PATIENCE.slow_ms)
    world.settle("X2", SETTLE_MS, world.open)
    world.check()
    if not failing:  # a failed append may be written anyway
        world.run(world.now_ms + 60_000)
        world.check_journal()


simulate = simulation(TransactionWorld, play)
simulate_calm = simulation(TransactionWorld, play_calm)
