"""The network and the nodes of a simulated fetcher, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafkalog import errors
from kafkalog.client.fetch.core import Tempo
from kafkalog.types import TopicPartition
from tests.support import simulated
from tests.support.simulated import World, drawn
from tests.unit.client.fetch.simulated_judge import Judge
from tests.unit.client.fetch.simulated_leaders import Logs, Replica
from tests.unit.client.fetch.simulated_nodes import Node, Visit

__all__ = ["TEMPO", "WAIT_MS", "Faults", "Flight", "Network"]

TEMPO = Tempo(request_ms=5_000, pause_ms=50, pause_max_ms=500)
WAIT_MS = 300
METADATA_MS = 4_000


@dataclass
class Faults(simulated.Faults):
    """How often each fault happens."""

    slow_ms: int = drawn(5, 100, 1_000)
    """The longest time until a node knows the controller's decision; it stays."""
    lost: float = drawn(0, 0, 0.02)
    """No answer comes."""
    broken: float = drawn(0, 0.01, 0.1)
    """A connection breaks."""
    late: float = drawn(0.5, calm=0)
    """A request still arrives after that."""
    twice: float = drawn(0, 0, 0.05)
    throttles: float = drawn(0, 0, 0.05)
    # Per tick.
    appends: float = drawn(0.25, calm=0)
    stops: float = drawn(0, 0, 0.003)
    silent: float = drawn(0, 0, 0.002)
    evicts: float = drawn(0, 0, 0.02)
    full: float = drawn(0, 0, 0.1)
    nearer: float = drawn(0, 0.1)
    moves: float = drawn(0, 0.005, 0.02)
    unclean: float = drawn(0, 0.5, 1)
    lags: float = drawn(0, 0.02, 0.05)
    retains: float = drawn(0, 0.01, 0.03)
    deletes: float = drawn(0, 0, 0.002)
    grows: float = drawn(0, 0, 0.001)
    transacts: float = drawn(0, 0.02)
    jumps: float = drawn(0, 0, 0.001)
    # Per step of the program.
    seeks: float = drawn(0, 0.005, 0.05)
    pauses: float = drawn(0, 0.005, 0.05)
    assigns: float = drawn(0, 0, 0.005)


class Flight:
    """A request in flight."""

    def __init__(self, node: int, pending: int, take: Callable[[Flight, Any], None]) -> None:
        self.node = node
        self.pending = pending
        """When it was sent, by the judge's numbers."""
        self.take = take
        self.over = False
        """True if it is answered, or abandoned."""

    def end(self, answer: Any) -> None:
        """Take an answer, or the failure of the connection."""
        if not self.over:
            self.over = True
            self.take(self, answer)

    def breaks(self) -> None:
        self.end(errors.PeerGone(f"node {self.node}: the connection broke"))


class Network(World):
    """Time, the nodes, and messages between them and the consumer."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.faults = Faults()
        self.committed = rng.random() < 0.4
        self.step_ms = rng.choice([50, 150, 300])
        self.look_ms = rng.choice([500, METADATA_MS])
        self.unclean = rng.random() < 0.6
        count = rng.choice([2, 3])
        self.logs = Logs(self, list(range(count)), rng.randint(2, count))
        self.nodes = {number: Node(number, self.logs) for number in range(count)}
        self.strays = dict.fromkeys(self.nodes, 0)
        """Requests that may still arrive at a node, or wait there."""
        self.judge = Judge(self.logs, self.committed)
        self.logs.create("a", 2)
        self.logs.create("b", rng.choice([1, 2]))
        self.version = 0
        self.publish(0)
        self.flights: dict[int, Flight] = {}
        """By node, the request that waits for an answer."""

    @property
    def now_s(self) -> float:
        return 1_000 + self.now_ms / 1000

    def leading(self, tp: TopicPartition) -> Replica | None:
        part = self.logs.part(tp)
        return None if part is None else part.leading

    # ---- the network -----------------------------------------------------------------------

    def publish(self, slow_ms: int) -> None:
        """Let each node learn the present topics and leaders after some time."""
        self.version += 1
        version, view = self.version, dict[str, Any]()
        view[""] = sorted(self.logs.alive)
        for name, topic in self.logs.topics.items():
            rows = [(part.leader, part.epoch, sorted(part.replicas)) for part in topic.parts]
            view[name] = topic.topic_id, rows

        def learn(node: Node) -> None:
            if node.version < version:
                node.version, node.view = version, view

        for node in self.nodes.values():
            self.later(self.logs.delay_ms(slow_ms), lambda node=node: learn(node))

    def post(self, flight: Flight, fields: dict[str, Any]) -> None:
        """Send a request; its connection may break before or after it arrives."""
        self.strays[flight.node] += 1
        self.later(self.travel_ms(), lambda: self._arrive(flight, fields))
        if self.chance(self.faults.broken):
            self.later(self.travel_ms() * 2, lambda: flight.breaks())
        if self.chance(self.faults.twice):
            self.strays[flight.node] += 1
            other = Flight(flight.node, 0, lambda *_: None)
            self.later(self.travel_ms() * 3, lambda: self._arrive(other, fields))

    def _arrive(self, flight: Flight, fields: dict[str, Any]) -> None:
        node = self.nodes[flight.node]
        if not node.up or (flight.over and not self.chance(self.faults.late)):
            self._end(flight)
        elif node.silent_until_ms > self.now_ms:
            wait_ms = node.silent_until_ms - self.now_ms
            self.later(wait_ms, lambda: self._arrive(flight, fields))
        elif "session_id" not in fields:
            self._answer(flight, node.ends(fields))
        elif isinstance(visit := node.take(fields), Visit):
            if (answer := node.look(visit, late=False)) is not None:
                self._answer(flight, answer)
            else:
                self.later(self.rng.randint(1, WAIT_MS), lambda: self._look(flight, visit))
        else:
            self._answer(flight, visit)

    def _look(self, flight: Flight, visit: Visit) -> None:
        answer = self.nodes[flight.node].look(visit, late=True)
        if self.nodes[flight.node].up:
            self._answer(flight, answer)
        else:
            self._end(flight)

    def _end(self, flight: Flight) -> None:
        """End it without an answer."""
        self.strays[flight.node] -= 1
        flight.breaks()

    def _answer(self, flight: Flight, answer: Any) -> None:
        self.strays[flight.node] -= 1
        if self.chance(self.faults.throttles):
            answer.throttle_time_ms = self.rng.randint(1, 1_000)
        if not self.chance(self.faults.lost):
            self.later(self.travel_ms(), lambda: flight.end(answer))
