"""A client's view of a cluster whose brokers know different amounts of it.

The belief (kafkalog/client/link/metadata.py) is the real one; cluster, brokers and network are
modelled.  Brokers lag behind the controller; some send no topic ids, or no epochs either.  Answers
are lost, late, duplicated and reordered.  Errors in other answers name leaders by the topic's name.

What must hold whatever happens, by the judge's own books:

M1  no older leader epoch of a topic id replaces a newer one that metadata has given
M2  a topic with another id is believed from the first answer, and keeps nothing of the old one;
    a leader that an error named is dropped after metadata has contradicted it a few times
M3  an answer about some topics changes nothing about the others
M4  a topic that an answer reports as gone is gone; a topic that it refuses is in `refused`
M5  a topic never loses a partition
M6  `version` changes whenever a leader does
M7  once the brokers agree, a few answers are enough to know exactly what they know
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from kafkalog.client.link.metadata import (
    CONTRADICTED_MAX,
    NO_NODE,
    Known,
    MetadataAnswer,
    PartitionInfo,
    TopicAnswer,
    TopicInfo,
)
from kafkalog.client.link.transport import Address
from kafkalog.simulate.world import Violated
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support import simulated
from tests.support.simulated import simulation

__all__ = ["World", "simulate"]

NAMES = ["a", "b", "c", "d"]
STEPS = 300
SETTLED = CONTRADICTED_MAX + 2
"""The number of answers that counts as a few."""
NO_ID = UUID(int=0)
Leaders = dict[int, tuple[int, int]]
"""By partition: (leader, epoch)."""


class State(NamedTuple):
    """The state of the cluster at one time."""

    nodes: dict[int, Address]
    topics: dict[str, tuple[UUID, Leaders]]
    denied: frozenset[str]


class Broker:
    """A broker that knows the history up to some state, and speaks some version of Metadata."""

    def __init__(self, node: int, ids: bool, epochs: bool) -> None:
        self.node, self.ids, self.epochs = node, ids, epochs
        self.at = 0

    def answer(self, state: State, names: list[str] | None) -> MetadataAnswer:
        topics = []
        for name in state.topics if names is None else names:
            topic_id, leaders = state.topics.get(name, (NO_ID, {}))
            code = ErrorCode.NONE if name in state.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if name in state.denied:
                code, leaders = ErrorCode.TOPIC_AUTHORIZATION_FAILED, {}
            rows = {
                number: PartitionInfo(number, leader, epoch if self.epochs else -1, (), ())
                for number, (leader, epoch) in leaders.items()
            }
            info = TopicInfo(name, topic_id if self.ids else NO_ID, False, rows)
            topics.append(TopicAnswer(code, info))
        racks = dict.fromkeys(state.nodes)
        return MetadataAnswer(dict(state.nodes), racks, "one", min(state.nodes), topics)


class Judge:
    """Compares one belief with the answers it was given."""

    def __init__(self) -> None:
        self.truth: dict[tuple[UUID, int], set[tuple[int, int]]] = {}
        """Every (leader, epoch) that a partition of a topic id has had."""
        self.said: dict[tuple[UUID, int], int] = {}
        """The highest epoch that metadata has given for it."""
        self.rumours: dict[tuple[UUID, int], tuple[tuple[int, int], int]] = {}
        """The leader that an error named, and the number of later answers about the topic."""

    def heard(self, answer: MetadataAnswer) -> None:
        for code, info in answer.topics:
            if not code and info.topic_id.int:
                for number, row in info.partitions.items():
                    key = info.topic_id, number
                    self.said[key] = max(self.said.get(key, -1), row.leader_epoch)
                    if key in self.rumours:
                        named, count = self.rumours[key]
                        self.rumours[key] = named, count + 1

    def answered(self, known: Known, names: list[str] | None, answer: MetadataAnswer) -> None:
        """Check M2 and M4 right after an answer."""
        for code, info in answer.topics:
            now = known.topics.get(info.name)
            if code:
                check(now is None, f"M4: {info.name} is believed, the answer says {code}")
                refused = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                check(refused == (info.name in known.refused), f"M4: {info.name}: refused")
                continue
            check(now is not None, f"M2: {info.name} was answered and is not believed")
            assert now is not None
            check(now.topic_id == info.topic_id, f"M2: {now} after an answer of {info.topic_id}")
            if not info.topic_id.int:
                check(now == info, f"M2: {now}, the answer without an id was {info}")
        if names is None:
            listed = {info.name for _, info in answer.topics}
            check(set(known.topics) <= listed, f"M4: {set(known.topics)} of {listed}")

    def holds(self, known: Known) -> None:
        """Check M1, M2 and M5, at any time."""
        for info in known.topics.values():
            if not info.topic_id.int:
                continue
            for number, row in info.partitions.items():
                key, now = (info.topic_id, number), (row.leader, row.leader_epoch)
                epoch = self.said.get(key, -1)
                check(row.leader_epoch >= epoch, f"M1: {info.name}: {row}, epoch {epoch} is known")
                if now not in self.truth[key]:
                    named, count = self.rumours.get(key, (None, 0))
                    check(named == now, f"M2: {info.name}: {row} of {self.truth[key]}")
                    check(count <= CONTRADICTED_MAX, f"M2: {info.name}: {row} after {count}")
            known_of = {number for topic_id, number in self.said if topic_id == info.topic_id}
            check(known_of <= info.partitions.keys(), f"M5: {info.name}: {info.partitions.keys()}")


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Violated(what)


class Before(NamedTuple):
    """The belief before an event."""

    version: int
    topics: dict[str, TopicInfo]


def before_of(known: Known) -> Before:
    topics = {n: i._replace(partitions=dict(i.partitions)) for n, i in known.topics.items()}
    return Before(known.version, topics)


def leaders_of(topics: dict[str, TopicInfo]) -> dict[tuple[str, UUID, int], int]:
    return {
        (info.name, info.topic_id, number): row.leader
        for info in topics.values()
        for number, row in info.partitions.items()
    }


class World(simulated.World):
    """A cluster, its brokers, and a client with two beliefs, one of which learns from the other."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        nodes = {node: Address("h", node) for node in range(1, 5)}
        self.history = [State(nodes, {}, frozenset())]
        kinds = [(True, True)] * 6 + [(False, True), (False, False)]
        self.brokers = [Broker(node, *rng.choice(kinds)) for node in nodes]
        self.brokers[0].ids = self.brokers[0].epochs = True
        self.known, self.asker = Known(), Known()
        self.judges = {id(self.known): Judge(), id(self.asker): Judge()}
        self.due: deque[tuple[Known, list[str] | None, MetadataAnswer]] = deque()
        self.made = 0
        self.believed = 0

    # ---- the cluster -------------------------------------------------------------------------

    def change(self) -> None:
        """Change something in the cluster; brokers learn it later."""
        rng, old = self.rng, self.history[-1]
        nodes, denied = dict(old.nodes), set(old.denied)
        topics = {name: (one, dict(rows)) for name, (one, rows) in old.topics.items()}
        kind = rng.choice(["lead"] * 6 + ["make", "make", "delete", "grow", "move", "swap", "deny"])
        name = rng.choice(NAMES)
        if kind == "make" or (kind == "grow" and name not in topics):  # also over an old one
            self.made += 1
            rows = {
                p: (rng.choice([*nodes]), rng.choice([0, 0, 3]))
                for p in range(rng.choice([1, 2, 3]))
            }
            topics[name] = UUID(int=self.made), rows
        elif kind == "delete":
            topics.pop(name, None)
        elif kind == "grow":
            rows = topics[name][1]
            rows[len(rows)] = rng.choice([*nodes]), 0
        elif kind == "lead" and name in topics:
            rows = topics[name][1]
            number = rng.choice([*rows])
            after = rng.choice([1, 1, 1, 4])  # unclean, or several unseen elections
            rows[number] = rng.choice([*nodes, NO_NODE]), rows[number][1] + after
        elif kind == "move":  # the same node at another address
            nodes[rng.choice([*nodes])] = Address("h", 100 + len(self.history))
        elif kind == "swap":  # another node replaces it
            gone = rng.choice([*nodes])
            nodes[10 + len(self.history)] = nodes.pop(gone)
        elif kind == "deny":
            denied ^= {name}
        for topic_id, rows in topics.values():
            for number, row in rows.items():
                for judge in self.judges.values():
                    judge.truth.setdefault((topic_id, number), set()).add(row)
        self.note(f"{kind} {name}: {topics.get(name)}")
        self.history.append(State(nodes, topics, frozenset(denied)))

    def hear(self) -> None:
        """A broker catches up, partly or fully."""
        broker = self.rng.choice(self.brokers)
        broker.at = self.rng.randint(broker.at, len(self.history) - 1)

    # ---- the client --------------------------------------------------------------------------

    def ask(self) -> None:
        """Send a request; its answer is lost, comes once, or twice."""
        rng, broker = self.rng, self.rng.choice(self.brokers)
        names = None if rng.random() < 0.2 else rng.sample(NAMES, rng.randint(1, 3))
        answer = broker.answer(self.history[broker.at], names)
        known = rng.choice([self.known, self.asker])
        self.due.extend([(known, names, answer)] * rng.choice([0, 1, 1, 1, 2]))

    def take(self) -> None:
        """Deliver a pending answer, not always the oldest."""
        if self.due:
            self.due.rotate(-self.rng.choice([0, 0, 0, 1, 2]))
            self.deliver(*self.due.popleft())

    def deliver(self, known: Known, names: list[str] | None, answer: MetadataAnswer) -> None:
        judge = self.judges[id(known)]
        self.note(f"{'known' if known is self.known else 'asker'} {names}: {answer}")
        before, others = (
            before_of(known),
            set(known.topics) - set(NAMES if names is None else names),
        )
        known.refused.clear()
        judge.heard(answer)
        known.answered(names, answer)
        judge.answered(known, names, answer)
        check(known.nodes == answer.nodes, f"M7: nodes {known.nodes}, answered {answer.nodes}")
        for name in others:
            check(known.topics.get(name) == before.topics[name], f"M3: {name}: {known.topics}")
        self.seen(known, before)
        self.believed += 1

    def learn(self) -> None:
        """The first belief learns some topics from the second."""
        names, before = self.rng.sample(NAMES, 2), before_of(self.known)
        if not self.asker.nodes:
            return
        topics = [TopicAnswer(0, self.asker.topics[n]) for n in names if n in self.asker.topics]
        told = self.asker
        answer = MetadataAnswer(told.nodes, told.racks, "one", told.controller_id, topics)
        mine = self.judges[id(self.known)]
        mine.heard(answer)
        self.known.learn(self.asker, names)
        mine.answered(self.known, names, answer)
        for name in set(before.topics) - set(names):
            check(self.known.topics.get(name) == before.topics[name], f"M3: {name}")
        self.seen(self.known, before)

    def hint(self) -> None:
        """An error in another answer names a leader, as its broker knows it."""
        rng, known = self.rng, self.known
        broker = rng.choice(self.brokers)
        state = self.history[broker.at]
        name = rng.choice(NAMES)
        if name not in state.topics or not broker.epochs:
            return
        number, (leader, epoch) = rng.choice([*state.topics[name][1].items()])
        before = before_of(known)
        self.note(f"hint {name}-{number}: {leader}, {epoch}")
        at = state.nodes.get(leader) if rng.random() < 0.7 else None
        news = known.learn_leader(TopicPartition(name, number), leader, epoch, at)
        if (info := known.topics.get(name)) and (row := info.partitions.get(number)):
            if row != before.topics[name].partitions.get(number):
                check((row.leader, row.leader_epoch) == (leader, epoch), f"M2: {row} by a hint")
                self.judges[id(known)].rumours[info.topic_id, number] = (leader, epoch), 0
            check(not news or row.leader in known.nodes, f"M7: news of {name}: {row}")
        self.seen(known, before)

    def seen(self, known: Known, before: Before) -> None:
        self.judges[id(known)].holds(known)
        was, now = leaders_of(before.topics), leaders_of(known.topics)
        moved = {key for key in was.keys() & now.keys() if was[key] != now[key]}
        moved |= now.keys() - was.keys()
        check(not moved or known.version != before.version, f"M6: version after {moved}")

    def forget(self) -> None:
        self.known.forget(self.rng.choice([None, *NAMES]))
        if self.rng.random() < 0.2:
            self.known.rebootstrap()
            check(not self.known.nodes and not self.known.topics, "M7: begun again")

    # ---- the end -----------------------------------------------------------------------------

    def end(self) -> None:
        """Check M7: faults end."""
        now = self.history[-1]
        for broker in self.brokers:
            broker.at = len(self.history) - 1
        for known in (self.known, self.asker):
            for _ in range(SETTLED):
                self.deliver(known, None, self.brokers[0].answer(now, None))
            found = {
                info.name: (
                    info.topic_id,
                    {n: (row.leader, row.leader_epoch) for n, row in info.partitions.items()},
                )
                for info in known.topics.values()
            }
            wanted = {n: one for n, one in now.topics.items() if n not in now.denied}
            check(found == wanted, f"M7: {found}, wanted {wanted}")
            check(known.nodes == now.nodes, f"M7: {known.nodes}, wanted {now.nodes}")


def play(world: World) -> None:
    """One event after another; then the brokers agree."""
    events: list[Callable[[], None]] = [
        *[world.change] * 3, *[world.hear] * 6, *[world.ask] * 8, *[world.take] * 9,
        *[world.hint] * 3, *[world.learn] * 3, world.forget,
    ]  # fmt: skip
    for _ in range(STEPS):
        world.rng.choice(events)()
    world.end()


simulate = simulation(World, play)
