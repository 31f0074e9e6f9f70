"""Transactions over several nodes: a coordinator on one, leaders of partitions on others.

To the world of simulation_transactions.py this adds nodes that learn of changes late, each at its
own time: where the coordinator is, which partitions exist, who leads them.  Questions to the
coordinator and its markers travel between nodes, get lost, and come late.  Nodes die, partitions
change their leaders, the coordinator moves, topics are deleted and created again.

Real are the coordinator's core, the guards, the permission to write, the questions and answers of
AddPartitionsToTxn on the wire, and what a marker's outcome means.  A partition is one log that its
current leader appends to: copying it is kafkalog.simulate's part.  A controller sends each node its
changes in their order, so a node that becomes the coordinator knows those before.  A topic is
created again only once all nodes have heard of its deletion, and a coordinator that is deposed
answers nothing more.

Besides X1 to X6 these must hold:

X7  nothing that a coordinator has allowed is written behind the marker that ends its transaction,
    or to a topic created since
X8  once faults end, each decided end is completed
X9  a marker ends no transaction that goes on
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafkalog.coordinator.step import Call, Step
from kafkalog.coordinator.transactions.core import Results, TransactionCoordinatorState
from kafkalog.coordinator.transactions.requests import ProducerClaim
from kafkalog.coordinator.transactions.shard import Marker, Outside
from kafkalog.coordinator.transactions.transaction import State
from kafkalog.server.transactions.inter_broker_client import question, results_of
from kafkalog.server.transactions.permission import Permission
from kafkalog.server.transactions.write_guards import Guard, Guards
from kafkalog.simulate.world import Violated
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import drawn, simulation
from tests.unit.coordinator.simulated_log import Partition
from tests.unit.coordinator.simulated_world import First, Patience
from tests.unit.coordinator.simulation_transactions import (
    CONFIG,
    SETTLE_MS,
    Faults,
    Producer,
    TransactionWorld,
    play,
    play_calm,
)
from tests.unit.coordinator.virtual_core import HOST, Reply

NODES = 3
ANSWER_MS = 10_000
"""How long a node waits for another's answer; then it hangs up, and its request arrives no more."""
PATIENCE = Patience(request_ms=2_000, slow_ms=15_000, append_ms=40_000)
"""Clients often give up before a node does."""
OK = ErrorCode.NONE
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
}  # fmt: skip
"""Errors after which clients send the batch again."""


class Node:
    """The state of one broker, and the writes that it has in progress."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.life = 0
        """How often it died."""
        self.guards = Guards()
        self.coordinator = 0, 0
        """The coordinator's life, and its node."""
        self.leaders: dict[TopicPartition, int] = {}
        """By partition that it knows; -1: none."""
        self.epochs: dict[TopicPartition, int] = {}
        """The leader epochs that it knows."""
        self.news: deque[Callable[[], None]] = deque()
        """Changes that it has not heard of, in their order."""
        self.ready_ms = 0
        """When it has heard of all of them."""

    def leads(self, where: TopicPartition) -> bool:
        return self.leaders.get(where) == self.number


@dataclass
class NodesFaults(Faults):
    """The coordinator dies more rarely."""

    crash: float = drawn(0, 0.001, 0.004)


class NodesWorld(TransactionWorld):
    """Several nodes; the coordinator is on one of them, its `home`."""

    kind_of_faults = NodesFaults
    faulty_ms = 60_000

    def __init__(
        self,
        seed: int,
        core: Callable[..., TransactionCoordinatorState] = TransactionCoordinatorState,
    ) -> None:
        self.nodes = [Node(number) for number in range(NODES)]
        self.home = self.home_before = 0
        super().__init__(seed, core)
        self.patience = PATIENCE
        self.leaders: dict[TopicPartition, int] = {}
        """As it is; -1: nobody leads at this moment."""
        self.epochs: dict[TopicPartition, int] = {}
        self.moves = self.rng.choice([0, 0.05, 0.3])
        """Probabilities of changes in each second."""
        self.resigns = self.rng.choice([0, 0.05, 0.5])
        """Probability that the coordinator resigns, and moves without a death."""
        self.dies = self.rng.choice([0, 0.05])
        self.deletes = self.rng.choice([0, 0, 0.1])
        self.fresh = self.rng.choice([0, 0.1])
        """The probability that a leader does not know its partition yet when a marker comes."""
        self.late = self.rng.choice([0, 0.1, 0.5])
        """The probability that a message between nodes takes nearly as long as it may."""
        self._deleting = False
        self.questions = 0
        """How many batches another node's coordinator allowed."""
        self._create()

    # ---- what nodes hear -----------------------------------------------------------------------

    def tell(self, node: Node, change: Callable[[], None]) -> None:
        """Let a node hear of a change, after all earlier ones."""
        node.news.append(change)
        node.ready_ms = max(node.ready_ms, self.now_ms + self.travel_ms())
        self.later(node.ready_ms - self.now_ms, lambda: self._hear(node, 1))

    @staticmethod
    def _hear(node: Node, count: int) -> None:
        for _ in range(min(count, len(node.news))):
            node.news.popleft()()

    def move(self, where: TopicPartition) -> None:
        """Another leader, or the same one in another epoch; it leads from when it hears of it."""
        leader, part = self.rng.randrange(NODES), self.parts[where]
        epoch = self.epochs[where] = self.epochs[where] + 1
        self.leaders[where] = -1
        self.note(f"{where.partition} is to be led by node {leader} in epoch {epoch}")
        for node in self.nodes:
            self.tell(node, partial(self._hears, node, where, leader, epoch, part))

    def _hears(
        self, node: Node, where: TopicPartition, leader: int, epoch: int, part: Partition
    ) -> None:
        if self.parts[where] is not part or self._deleting:
            return
        if node.leads(where) or leader == node.number:
            node.guards.leave([where])
        node.leaders[where], node.epochs[where] = leader, epoch
        if leader == node.number and self.epochs[where] == epoch:
            self.leaders[where] = leader

    def delete(self) -> None:
        """Delete the topic, and create it again once each node has heard of that.  What its leaders
        do until then is lost with it, so they do nothing."""
        if self._deleting:
            return
        self._deleting = True
        self.note("the topic is deleted")
        self.leaders = dict.fromkeys(self.parts, -1)
        left = {node.number for node in self.nodes}

        def hears(node: Node) -> None:
            node.guards.leave(list(self.parts))
            node.leaders.clear()
            node.epochs.clear()
            left.discard(node.number)
            if not left:
                self.later(self.rng.choice([0, 5, 500]), self._create)

        for node in self.nodes:
            self.tell(node, partial(hears, node))

    def _create(self) -> None:
        self._deleting = False
        self.parts = {where: Partition() for where in self.parts}
        self.epochs = dict.fromkeys(self.parts, -1)
        self.note("the topic is created")
        for where in self.parts:
            self.move(where)

    def restart(self) -> None:
        """The coordinator moves, to a node that has heard of all that was before."""
        self.home_before, self.home = self.home, self.rng.randrange(NODES)
        home = self.nodes[self.home]
        self._hear(home, len(home.news))
        super().restart()
        now = self.life, self.home
        home.coordinator = now
        for node in self.nodes:
            self.tell(node, partial(self._follows, node, now))

    @staticmethod
    def _follows(node: Node, now: tuple[int, int]) -> None:
        node.coordinator = max(node.coordinator, now)

    def crashed(self) -> None:
        """The coordinator's node died with all that it was doing, and comes back at once."""
        self.kill(self.nodes[self.home_before])

    def kill(self, node: Node) -> None:
        self.note(f"node {node.number} dies")
        node.life += 1
        node.guards = Guards()
        if not self._deleting:
            for where in self.parts:
                if node.leads(where):
                    self.move(where)

    def second(self) -> None:
        """The events that may happen in a second."""
        if self.now_ms >= self.faulty_ms:
            return
        for where in self.parts:
            if not self._deleting and self.rng.random() < self.moves:
                self.move(where)
        if self.rng.random() < self.dies:
            self.kill(self.rng.choice(self.nodes))
        if self.rng.random() < self.resigns:
            self.restart()  # without a death: its markers are still on their way
        if self.rng.random() < self.deletes:
            self.delete()
        self.later(1_000, self.second)

    # ---- between nodes -------------------------------------------------------------------------

    def ask(
        self, request: Callable[[Callable[[Any], None]], None], then: Callable[[Any], None]
    ) -> None:
        """Send a request to another node, once; `then` gets the answer, or None."""
        first = First(then)

        def arrive() -> None:
            if not first.over:  # else they have hung up
                request(lambda answer: self._sends(lambda: first(answer)))

        self._sends(arrive)
        self.later(ANSWER_MS, lambda: first(None))

    def _sends(self, event: Callable[[], None]) -> None:
        slow = self.rng.random() < self.late and not self.calm
        if self.rng.random() >= self.faults.lost:
            self.later(self.rng.randint(0, ANSWER_MS) if slow else self.travel_ms(), event)

    def new_core(self) -> TransactionCoordinatorState:
        def partitions(_topic: str) -> int:
            return len(self.nodes[self.home].leaders)

        outside = Outside(
            lambda: next(self.ids), partitions, lambda _group: None, lambda: self.level
        )
        return self.make_core(CONFIG, outside)

    # ---- markers -------------------------------------------------------------------------------

    def effect(self, effect: Marker) -> None:
        """Write a marker to its partition, as far as the coordinator's node knows where it is."""
        life, node = self.life, self.nodes[self.home]

        def outcome(error: ErrorCode) -> None:
            if life == self.life:
                self.step(lambda step: self.core.marked(effect, error, step))

        leader = node.leaders.get(effect.where)
        if leader is None:
            self.later(0, lambda: outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif leader in (-1, node.number):
            self.later(self.rng.randint(0, 3), lambda: outcome(self._mark(node, effect)))
        else:
            other = self.nodes[leader]
            self.ask(
                lambda answered: answered(self._mark(other, effect, afar=True)),
                lambda error: outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER if error is None else error),
            )

    def _mark(self, node: Node, marker: Marker, afar: bool = False) -> ErrorCode:
        where, rng = marker.where, self.rng
        if where not in node.leaders or (afar and rng.random() < self.fresh):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self._leads_now(node, where, node.epochs[where]):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = OK
        if rng.random() < self.faults.marker_fails:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        if error is OK or rng.random() < 0.5:  # reported as failed, but written
            ended = len(self.parts[where].ended)
            with node.guards.ending(where, marker.producer):
                found = self.parts[where].mark(marker)
            if len(self.parts[where].ended) > ended:
                self._check_end(marker)
            error = found if error is OK else error
            kind = "commit" if marker.commit else "abort"
            who = f"{marker.producer_id}/{marker.epoch} by {marker.coordinator_epoch}"
            self.note(f"{kind} of {who} in {where.partition}: {found.name}")
        return error

    def _check_end(self, marker: Marker) -> None:
        """Check X9, when a marker has ended something."""
        one = self.core.shards[0].ids.get(marker.transactional_id)
        if one is None or one.status.state is not State.ONGOING:
            return
        if one.status.producer_id == marker.producer_id:
            raise Violated(f"X9: {marker} ended a transaction that goes on")

    def _leads_now(self, node: Node, where: TopicPartition, epoch: int) -> bool:
        """True if an append of a node that was accepted in this epoch succeeds."""
        return self.leaders[where] == node.number and self.epochs[where] == epoch

    # ---- batches -------------------------------------------------------------------------------

    def produce(self, producer: Producer, where: TopicPartition, sequence: int, tag: str) -> None:
        """Send a batch to a node that takes itself for the leader."""
        identity = producer.identity

        def request(answered: Callable[[Any], None]) -> None:
            leading = [node for node in self.nodes if node.leads(where)]
            if leading:
                write = _Write(self, producer, identity, where, sequence, tag, answered)
                write.begin(self.rng.choice(leading))
            else:
                answered(AGAIN)

        self.post(request, lambda error: producer.produced(where, sequence, tag, error))


class _Write:
    """A batch that a leader was sent."""

    def __init__(
        self, world: NodesWorld, producer: Producer, identity: tuple[int, int],
        where: TopicPartition, sequence: int, tag: str, answered: Callable[[Any], None],
    ) -> None:  # fmt: skip
        self.world, self.producer, self.where = world, producer, where
        self.identity, self.sequence, self.tag = identity, sequence, tag
        self.answered = answered
        self.seen: tuple[Partition, int] | None = None
        """The partition, and how many markers it had, when the coordinator allowed the batch."""

    def begin(self, node: Node) -> None:
        world, where = self.world, self.where
        self.node, self.life, self.epoch = node, node.life, node.epochs[where]
        if world.parts[where].is_open(self.identity):
            self._append(None)
            return
        asked, joins = ProducerClaim(self.producer.name, *self.identity), self.producer.version == 2
        life, home = node.coordinator
        self.permission = Permission(
            node.guards, [where], *self.identity, remote=home != node.number
        )
        if home == node.number:
            self._ask_here(asked, joins)
            return
        fields = question(asked, [where], joins)
        world.ask(partial(self._arrive, life, fields), self._heard)

    def _ask_here(self, asked: ProducerClaim, joins: bool) -> None:
        world, where = self.world, self.where

        def event(step: Step) -> None:
            core = world.core
            if world.home != self.node.number:
                self._allowed(None, {where: ErrorCode.NOT_COORDINATOR})
            elif joins:
                core.join(step, asked, [where], 2, self._allowed)
            else:
                self._allowed(step, core.verify(asked, [where]))

        world.step(event)

    def _arrive(self, life: int, fields: dict[str, Any], answered: Callable[[Any], None]) -> None:
        """The question arrives at the node where the leader believes the coordinator."""
        world, api, version = self.world, apis.ADD_PARTITIONS_TO_TXN, 5
        reply = Reply(api, version)

        def answer(body: dict[str, Any]) -> None:
            reply(body)
            if life == world.life:
                self._note_yes(results_of(reply.body, [self.where]))
                answered(reply.body)

        decoded = api.decode_request(version, api.encode_request(version, fields))
        asked = Call(decoded, version, "node", HOST, answer)

        def event(step: Step) -> None:
            if life == world.life:
                world.core.request(api, asked, step)
            else:
                world.core.refuse(api, asked, step, ErrorCode.NOT_COORDINATOR)
                reply(dict(step.answers.pop()[1]))
                answered(reply.body)

        world.step(event)

    def _note_yes(self, results: Results) -> None:
        if results[self.where] is OK:
            part = self.world.parts[self.where]
            self.seen = part, len(part.markers)

    def _heard(self, answer: Any) -> None:
        if self.node.life == self.life:
            results = results_of(answer, [self.where])
            self.world.questions += results[self.where] is OK
            self._allowed(None, results)

    def _allowed(self, step: Step | None, results: Results) -> None:
        if step is not None:
            self._note_yes(results)
        guard = self.permission.answered(results)[self.where]
        if guard is None:
            error = results[self.where]
            again = error in RETRIED or (
                error is ErrorCode.CONCURRENT_TRANSACTIONS and self.producer.version == 1
            )
            self.answered(AGAIN if again else error)
            return
        self.world.later(self.world.rng.choice([0, 1, 20]), lambda: self._append(guard))

    def _append(self, guard: Guard | None) -> None:
        node = self.node
        if node.life != self.life:
            return
        if guard is None:
            self.answered(self._written())
            return
        with node.guards.writing(guard) as holds:
            if holds:
                error = self._written()
            elif guard.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                error = AGAIN
            else:
                error = guard.error
        node.guards.end(guard)
        self.answered(error)

    def _written(self) -> ErrorCode:
        world, where = self.world, self.where
        if where not in self.node.leaders:
            return AGAIN
        if not world._leads_now(self.node, where, self.epoch):
            return AGAIN
        before = world.written
        error = world._written(self.producer, self.identity, where, self.sequence, self.tag)
        if world.written > before and self.seen is not None:
            self._check()
        return error

    def _check(self) -> None:
        """Check X7."""
        assert self.seen is not None
        part, count = self.seen
        (producer_id, epoch), now = self.identity, self.world.parts[self.where]
        if part is not now:
            raise Violated(f"X7: {self.tag} was allowed before the topic was created again")
        for one in now.markers[count:]:
            ends = one.epoch > epoch or (one.epoch == epoch and one.version < 2)
            if one.producer_id == producer_id and ends:
                raise Violated(f"X7: {self.tag} is behind its marker in {self.where.partition}")


def _completed(world: NodesWorld) -> None:
    """Check X8."""
    world.settle("X8", SETTLE_MS, lambda: world.core.unfinished and "a decided end lacks markers")


simulate = simulation(NodesWorld, lambda world: world.later(1_000, world.second), play, _completed)
simulate_calm = simulation(NodesWorld, play_calm)
