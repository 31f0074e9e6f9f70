"""Partitions on several nodes in virtual time, whose leaders check sequences as Kafka's do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.batch.decode import batch_records
from kafkalog.batch.walk import whole_batches
from kafkalog.client.buffer.delivery import SEQUENCES
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure
from kafkalog.client.link.metadata import PartitionInfo, TopicInfo
from kafkalog.client.link.transport import Address
from kafkalog.client.producer.core import Answer
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support import simulated
from tests.support.simulated import drawn

__all__ = ["Brokers", "Faults", "Log", "Partition", "Seen", "Stored", "Verdict", "World"]

REMEMBERED = 5
"""Batches remembered per producer."""
BEFORE_APPEND = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.INVALID_RECORD,
]
AFTER_APPEND = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


@dataclass
class Faults(simulated.Faults):
    """How often each fault happens."""

    lost: float = drawn(0, 0.01, 0.1)
    """No answer comes."""
    broken: float = drawn(0, 0.01, 0.1)
    """A connection breaks."""
    late: float = drawn(0, 0.5)
    """A request still arrives after that."""
    twice: float = drawn(0, 0.1)
    silent: float = drawn(0, 0, 0.02)
    """A node pauses."""
    unopened: float = drawn(0, 0.2)
    """A node accepts no connection."""
    unasked: float = drawn(0, 0.2)
    """It does not answer other requests (metadata, ids)."""
    # Per tick.
    moves: float = drawn(0, 0.02, 0.2)
    deletes: float = drawn(0, 0, 0.01)
    denies: float = drawn(0, 0, 0.02)
    limits: float = drawn(0, 0.02, 0.1)
    forgets: float = drawn(0, 0.1)
    jumps: float = drawn(0, 0, 0.005)
    refuses: float = drawn(0, 0.02, 0.2)
    """A leader refuses a batch."""
    slow_ms: int = drawn(0, 50, 500)
    """The longest time until a batch is committed."""


class World(simulated.World):
    """Time and the faults of brokers."""

    faults: Faults


class Stored(NamedTuple):
    """A batch in a log."""

    values: tuple[bytes, ...]
    offset: int
    producer: tuple[int, int]
    sequence: int


class Verdict(NamedTuple):
    """A leader's answer, and the current leader if the answer names it."""

    answer: Answer
    leader: int = -1
    epoch: int = -1


class Log:
    """A partition's log, from creation to deletion."""

    def __init__(self, forgets: bool) -> None:
        """`forgets`: like a broker before 2.5, it refuses sequences of producers of which it has no
        state."""
        self.batches: list[Stored] = []
        self.committed = 0
        """The number of batches that all in-sync replicas have."""
        self._forgets = forgets
        self._known: dict[int, deque[Stored]] = {}

    @property
    def end(self) -> int:
        return self.batches[-1].offset + len(self.batches[-1].values) if self.batches else 0

    def append(
        self, values: tuple[bytes, ...], producer: tuple[int, int], sequence: int
    ) -> tuple[ErrorCode, Stored | None]:
        """Append a batch, or find the one that it duplicates."""
        known = self._known.get(producer[0])
        if producer[0] >= 0:
            for one in known or ():
                same = one.producer == producer and one.sequence == sequence
                if same and len(one.values) == len(values):
                    return ErrorCode.NONE, one
            if (code := self._judge(known, producer[1], sequence)) is not ErrorCode.NONE:
                return code, None
        stored = Stored(values, self.end, producer, sequence)
        self.batches.append(stored)
        self._remember(stored)
        return ErrorCode.NONE, stored

    def _judge(self, known: deque[Stored] | None, epoch: int, sequence: int) -> ErrorCode:
        if not known:
            return ErrorCode.UNKNOWN_PRODUCER_ID if sequence and self._forgets else ErrorCode.NONE
        last = known[-1]
        if epoch < last.producer[1]:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        follows = (last.sequence + len(last.values)) % SEQUENCES
        wanted = follows if epoch == last.producer[1] else 0
        return ErrorCode.NONE if sequence == wanted else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _remember(self, stored: Stored) -> None:
        if stored.producer[0] >= 0:
            known = self._known.setdefault(stored.producer[0], deque(maxlen=REMEMBERED))
            known.append(stored)

    def forget(self) -> None:
        """Expire the state of every producer."""
        self._known.clear()

    def truncate(self, keep: int) -> None:
        """Keep the first `keep` batches, and rebuild the producers' state from them."""
        if keep < len(self.batches):
            del self.batches[keep:]
            self._known.clear()
            for one in self.batches:
                self._remember(one)


class Partition:
    """A partition's leader and its logs: a new log each time the topic is created."""

    def __init__(self, leader: int, forgets: bool) -> None:
        self.leader = leader
        self.epoch = 0
        self.bytes_max = 1 << 20
        self.logs = [Log(forgets)]
        self.waiters: list[tuple[Stored, Callable[[Verdict], None]]] = []

    @property
    def log(self) -> Log:
        return self.logs[-1]

    def settle(self, code: ErrorCode | None = None) -> None:
        """Answer the requests whose batch is committed; with `code`, answer all of them so."""
        waiters, self.waiters = self.waiters, []
        log = self.log
        committed = log.batches[log.committed - 1].offset if log.committed else -1
        for stored, done in waiters:
            if code is not None:
                done(Verdict(Answer(code)))
            elif stored.offset <= committed:
                done(Verdict(Answer(0, stored.offset)))
            else:
                self.waiters.append((stored, done))


class Brokers:
    """All partitions, and their faults."""

    def __init__(self, time: World, nodes: int, topics: dict[str, int], forgets: bool) -> None:
        self.time = time
        self.nodes = range(nodes)
        self.ids = {name: UUID(int=i + 1) for i, name in enumerate(topics)}
        self.gone: set[str] = set()
        self.denied: set[str] = set()
        """Topics that the producer may not write to now."""
        self.ever_denied: set[str] = set()
        self.forgets = forgets
        rng = time.rng
        self.partitions = {
            TopicPartition(name, number): Partition(rng.choice(self.nodes), forgets)
            for name, count in topics.items()
            for number in range(count)
        }

    def produce(
        self, node: int, tp: TopicPartition, data: bytes, done: Callable[[Verdict], None]
    ) -> None:
        """A node receives a batch; `done` gets its answer, now, later or never."""
        part, rng = self.partitions[tp], self.time.rng
        if tp.topic in self.gone:
            done(Verdict(Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        elif tp.topic in self.denied:
            done(Verdict(Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        elif node != part.leader:
            told = (part.leader, part.epoch) if rng.random() < 0.5 else (-1, -1)
            done(Verdict(Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), *told))
        elif len(data) > part.bytes_max:
            done(Verdict(Answer(ErrorCode.MESSAGE_TOO_LARGE)))
        elif rng.random() < self.time.faults.refuses:
            done(Verdict(Answer(rng.choice(BEFORE_APPEND))))
        else:
            self._append(part, tp, data, done)

    def _append(
        self, part: Partition, tp: TopicPartition, data: bytes, done: Callable[[Verdict], None]
    ) -> None:
        ((header, whole),) = whole_batches(data)
        values = tuple(record.value or b"" for record in batch_records(header, whole, *tp))
        producer = header.producer_id, header.producer_epoch
        code, stored = part.log.append(values, producer, header.base_sequence)
        if stored is None:
            done(Verdict(Answer(code)))
            return
        rng = self.time.rng
        if rng.random() < self.time.faults.refuses:
            done(Verdict(Answer(rng.choice(AFTER_APPEND))))
        else:
            part.waiters.append((stored, done))
        log, epoch, count = part.log, part.epoch, len(part.log.batches)

        def replicated() -> None:
            if part.log is log and part.epoch == epoch:
                log.committed = max(log.committed, count)
                part.settle()

        self.time.later(rng.randint(0, 3) + rng.randint(0, self.time.faults.slow_ms), replicated)

    # ---- what happens to them --------------------------------------------------------------

    def move(self, tp: TopicPartition) -> None:
        """Elect another leader: it has all committed batches, and some of the others."""
        part, rng = self.partitions[tp], self.time.rng
        part.leader = rng.choice(self.nodes)
        part.epoch += 1
        keep = rng.randint(part.log.committed, len(part.log.batches))
        self.time.note(f"{tp.topic}-{tp.partition}: led by {part.leader}, keeps {keep} batches")
        part.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        part.log.truncate(keep)
        part.log.committed = keep

    def delete(self, topic: str, away_ms: int) -> None:
        """Delete a topic, and recreate it later."""
        self.time.note(f"{topic}: deleted")
        self.gone.add(topic)
        for tp, part in self.partitions.items():
            if tp.topic == topic:
                part.settle(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.time.later(away_ms, lambda: self._make(topic))

    def _make(self, topic: str) -> None:
        self.time.note(f"{topic}: made")
        self.gone.discard(topic)
        self.ids[topic] = UUID(int=self.ids[topic].int + 1000)
        for tp, part in self.partitions.items():
            if tp.topic == topic:
                part.leader, part.epoch = self.time.rng.choice(self.nodes), 0
                part.logs.append(Log(self.forgets))


class Seen(Cluster):
    """The producer's metadata, refreshed without a network."""

    def __init__(self, brokers: Brokers, *rest: object) -> None:
        super().__init__("localhost:1")
        self._brokers = brokers

    def refresh_once(self, names: list[str] | None, create: bool = False) -> None:
        brokers = self._brokers
        self.refused.clear()
        self.nodes = {node: Address("localhost", 1 + node) for node in brokers.nodes}
        self.reached = True
        for name in names or ():
            self.topics.pop(name, None)
            if name in brokers.denied:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                self.refused[name] = failure(code, f"topic {name!r}")
            elif name not in brokers.gone:
                rows = {
                    tp.partition: PartitionInfo(tp.partition, part.leader, part.epoch, (), ())
                    for tp, part in brokers.partitions.items()
                    if tp.topic == name
                }
                self.topics[name] = TopicInfo(name, brokers.ids[name], False, rows)


def gone(node: int) -> errors.KafkalogError:
    """The error of a broken connection."""
    return errors.PeerGone(f"node {node}: the connection broke")
