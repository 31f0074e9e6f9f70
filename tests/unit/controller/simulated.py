"""A controller and the brokers that obey it, each by its own pure state: a whole cluster without
sockets, threads and logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalog.cluster.node.state import (
    MemberState,
    leader_and_isr,
    registered,
    stop_replica,
    update_metadata,
)
from kafkalog.controller.events import BrokerResponse, Clock, Options, Send, Tick
from kafkalog.controller.reassign import moving, target
from kafkalog.replication.isr import Isr, Proposal, answered, told
from kafkalog.replication.roles import Drop
from kafkalog.types import TopicPartition
from kafkalog.wire.api import Api
from kafkalog.wire.tables.controller import LEADER_AND_ISR, UPDATE_METADATA
from kafkalog.wire.tables.internal import ALTER_PARTITION
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.events import Commit
from kafkalog.zookeeper.loading import load
from kafkalog.zookeeper.watches import controller
from tests.unit.controller.driven import Driven, broker_epoch

ROUNDS_MAX = 40
"""Rounds of requests and proposals after which a cluster must be quiet."""


class Died(Exception):
    """The controller died in the middle of a decision."""


class Node:
    """A broker; a replica that it follows is at once as far as its leader's, unless it lags."""

    def __init__(self, of: Simulated, number: int) -> None:
        self.of, self.number = of, number
        self.copies: set[TopicPartition] = set()
        """The replicas on its disk."""
        self.start()

    def start(self) -> None:
        """Begin a life: the first image is the tree's."""
        self.of.register(self.number)
        loaded = load(self.of.znodes, self.number)
        found = MemberState(self.number, -1, -1, loaded.controller_epoch, loaded.image, {})
        self.standing = registered(found, broker_epoch(self.of, self.number))
        self.led: dict[TopicPartition, Isr] = {}
        self.lives = True

    def obey(self, api: Api, request: Any) -> Any:
        """Carry out a request; returns the fields of the answer."""
        effects: list[Any] = []
        if api is UPDATE_METADATA:
            self.standing, _, body = update_metadata(self.standing, request)
        elif api is LEADER_AND_ISR:
            self.standing, effects, body = leader_and_isr(self.standing, request)
        else:
            self.standing, effects, body = stop_replica(self.standing, request)
        for effect in effects:
            tp = effect.partition
            if not isinstance(effect, Drop):
                self.copies.add(tp)
                self._turn(tp, effect.held.state)
                continue
            self.led.pop(tp, None)
            if effect.delete:
                self.copies.discard(tp)
        return body

    def _turn(self, tp: TopicPartition, state: Any) -> None:
        if state.leader != self.number:
            self.led.pop(tp, None)
            return
        now = Isr(self.number, state.leader_epoch, state.partition_epoch, state.replicas, state.isr,
                  bool(state.leader_recovery_state))  # fmt: skip
        self.led[tp] = told(self.led.get(tp), now) or self.led[tp]

    def propose(self) -> bool:
        """Ask for the ISRs that are due; returns whether any was changed.

        A node serves no topic that its metadata lacks, so nobody can follow it there.
        """
        done = False
        for tp, now in list(self.led.items()):
            others = [one for one in now.replicas if one not in now.in_sync]
            wanted = (*now.in_sync, *(one for one in others if self._follows(one, tp)))
            if tp.topic in self.standing.image.topics and (wanted != now.in_sync or now.recovering):
                proposal = Proposal(wanted, (-1,) * len(wanted))
                done |= self._asks(tp, now._replace(proposal=proposal))
        return done

    def _follows(self, other: int, tp: TopicPartition) -> bool:
        node, mine = self.of.nodes[other], self.standing.held[tp].state
        held = node.standing.held.get(tp)
        return (
            node.lives and other not in self.of.lagging and other in self.standing.image.brokers
            and held is not None
            and (held.state.leader, held.state.leader_epoch) == (self.number, mine.leader_epoch)
        )  # fmt: skip

    def _asks(self, tp: TopicPartition, asked: Isr) -> bool:
        assert asked.proposal is not None
        row = {
            "partition_index": tp.partition, "leader_epoch": asked.leader_epoch,
            "new_isr_with_epochs": [{"broker_id": one, "broker_epoch": -1}
                                    for one in asked.proposal.isr],
            "leader_recovery_state": 0, "partition_epoch": asked.partition_epoch,
        }  # fmt: skip
        answer = self.of.asks(
            ALTER_PARTITION, 3, broker_id=self.number, broker_epoch=self.standing.epoch,
            topics=[{"topic_id": self.standing.held[tp].topic_id, "partitions": [row]}],
        )  # fmt: skip
        if answer is None or answer.error_code:
            return False
        (row,) = answer.topics[0].partitions
        if tp in self.led and self.led[tp] == asked._replace(proposal=None):
            self.led[tp] = answered(asked, asked, row)._replace(proposal=None)
        return not row.error_code


class Simulated(Driven):
    """Brokers 1 to 4 and their controller, which is none of them."""

    def __init__(self) -> None:
        super().__init__(Options("PLAINTEXT", rebalances=False))
        self.lagging: set[int] = set()
        """Brokers that do not catch up: their copying is throttled."""
        self.dies_after: int | None = None
        """How many writes the controller still makes before it dies."""
        self.writes = 0
        self._tokens = 0
        self.before = self._write
        self.nodes = {number: Node(self, number) for number in (1, 2, 3, 4)}

    # ---- the controller ------------------------------------------------------------------------

    def asks(self, api: Api, version: int, **fields: Any) -> Any:
        """As `ask`, each under its own token; if the controller dies, the next one is asked."""

        def one() -> Any:
            self._tokens += 1
            return self.ask(str(self._tokens), api, version, **fields)

        answer = self._or_other(one)
        return one() if answer is None else answer

    def goes_on(self) -> None:
        """As `run`, even if the controller dies."""
        self._or_other(self.run)

    def _or_other(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Died:
            self.fail_over()
            return None

    def _write(self, commit: Commit) -> None:
        """Die after the last write that is left, even between those of one decision."""
        for at in range(len(commit.multis)):
            if self.dies_after == 0:
                self.dies_after = None
                for each in commit.multis[:at]:
                    self.commit(each)
                raise Died
            self.writes += 1
            if self.dies_after is not None:
                self.dies_after -= 1

    def fail_over(self) -> None:
        """Another node becomes the controller; what was not delivered yet is lost."""
        for left in (self.sent, self.watches, self.events, self.timers):
            left.clear()
        self.controller = controller(Options("PLAINTEXT", rebalances=False))
        self._or_other(self.elect)

    def send(self, send: Send) -> None:
        """Keep a request until it is delivered."""
        self.sent.append(send)

    # ---- the brokers ---------------------------------------------------------------------------

    def kill(self, *numbers: int) -> None:
        """End these brokers; the controller learns of it."""
        for number in numbers:
            self.nodes[number].lives = False
        self.die(*numbers)
        self.goes_on()

    def start(self, number: int) -> None:
        """Begin another life of a broker."""
        self._or_other(self.nodes[number].start)

    def state_or_none(self, topic: str, partition: int) -> tuple[int, int, tuple[int, ...]] | None:
        """As `state`; None: the controller does not know the partition."""
        active = self.controller.active
        assert active is not None
        known = (topic, partition) in active.context.partitions
        return self.state(topic, partition) if known else None

    def deliver(self) -> bool:
        """Deliver what was sent so far, and the answers; returns whether there was anything."""
        sent, self.sent = self.sent, []
        for send in sent:
            node = self.nodes[send.broker]
            if not node.lives or node.standing.epoch != send.body["broker_epoch"]:
                continue
            version = send.api.versions.stop - 1
            data = send.api.encode_request(version, send.body)
            body = node.obey(send.api, send.api.decode_request(version, data))
            data = send.api.encode_response(version, body)
            self.events.append(BrokerResponse(send, send.api.decode_response(version, data)))
            self.goes_on()
        return bool(sent)

    def _propose(self) -> bool:
        changed = [node.propose() for node in self.nodes.values() if node.lives]
        return any(changed)

    def _tick(self) -> bool:
        waits = [one for one in self.timers if one.clock is Clock.RETRY]
        self.timers.clear()
        if waits:
            self.events.append(Tick(Clock.RETRY))
            self.goes_on()
        return bool(waits)

    def settle(self) -> None:
        """Let everything happen that is due, until the cluster is quiet."""
        for _ in range(ROUNDS_MAX):
            busy = [self.deliver(), self._propose(), self._tick()]
            if not any(busy):
                return
        raise AssertionError(f"not quiet after {ROUNDS_MAX} rounds")

    def heal(self) -> None:
        """Every broker lives, and none is throttled."""
        self.lagging.clear()
        for node in self.nodes.values():
            if not node.lives:
                self.start(node.number)
        self.settle()

    def due(self) -> list[TopicPartition]:
        """Moves that could end."""
        active = self.controller.active
        assert active is not None
        context = active.context
        return [
            TopicPartition(*key)
            for key, one in context.partitions.items()
            if moving(one) and {*target(one)} <= {*one.isr} and key[0] not in context.deleted
        ]

    # ---- what must hold ------------------------------------------------------------------------

    def unquiet(self, topic: str) -> list[str]:
        """The faults once nothing is under way; empty: none."""
        gone = tree.topic_path(topic) not in self.znodes
        return [*self._left(topic), *(self._ghosts(topic) if gone else self._unled(topic))]

    def _left(self, topic: str) -> list[str]:
        """Work that is left, for the controller or in the tree."""
        active = self.controller.active
        assert active is not None
        context = active.context
        names = "deleted", "failed", "retrying", "stale", "requested_moves"
        left = [(name, getattr(context, name)) for name in names]
        found = self.controller.problems + [f"{name}: {value}" for name, value in left if value]
        folders = (tree.DELETE_TOPICS, tree.ISR_CHANGES)
        found += [path for path in (tree.REASSIGNMENT, tree.ELECTION) if path in self.znodes]
        found += [path for path in self.znodes if path.rpartition("/")[0] in folders]
        known = {key for key in context.partitions if key[0] == topic}
        node = self.znodes.get(tree.topic_path(topic))
        numbers = set() if node is None else {*tree.read_topic(topic, node.data).replicas}
        return found + [f"known: {known}"] * (known != {(topic, one) for one in numbers})

    def _ghosts(self, topic: str) -> list[str]:
        """The remains of a deleted topic."""
        found = [path for path in self.znodes if topic in path.split("/")]
        for node in self.nodes.values():
            if topic in node.standing.image.topics:
                found.append(f"the metadata of node {node.number}")
            held = [tp for tp in node.standing.held if tp.topic == topic]
            found += [f"{tp} is held by {node.number}" for tp in held]
            copies = [tp for tp in node.copies if tp.topic == topic]
            found += [f"{tp} is on disk of {node.number}" for tp in copies]
        return found

    def _unled(self, topic: str) -> list[str]:
        """Partitions that are not led with a full ISR, or not by all brokers' knowledge."""
        znode = tree.read_topic(topic, self.znodes[tree.topic_path(topic)].data)
        moves = {"adds": znode.adding, "removes": znode.removing}
        found = [f"{name} {value}" for name, value in moves.items() if value]
        for number, replicas in znode.replicas.items():
            tp, state = TopicPartition(topic, number), self.state(topic, number)
            if state is None or state[0] not in replicas or {*state[2]} != {*replicas}:
                found.append(f"{tp} on {replicas}: {state}")
                continue
            for node in self.nodes.values():
                one = node.standing.image.topics.get(topic)
                known = None if one is None else one.partitions.get(number)
                if known is None or (known.leader, known.leader_epoch) != state[:2]:
                    found.append(f"node {node.number} knows {known}, not {state}")
                if (tp in node.standing.held) != (node.number in replicas):
                    found.append(f"{tp} is held by {node.number}, but it is on {replicas}")
        return found
