"""A consumer's positions: the decisions about them, in a world in which things go wrong.

The core, its sessions and epochs, the metadata, and the path of records to the reader are the real
ones; logs, nodes, network, program and time are modelled (simulated_leaders.py, simulated_nodes.py,
simulated_network.py, simulated_client.py), and simulated_judge.py judges.

What must hold whatever happens:

P1  records of a partition are handed out in order, none twice and none left out, except after a
    seek or an announced move of the position
P2  what is handed out was in its leader's log, in that epoch, and committed
P3  a log that was truncated below the position is noticed and announced before any later record is
    handed out, and nothing else counts as truncation; only a leader's refusal loses a position
P4  the answer to a request sent before a seek, a pause or a recreation changes nothing
P5  once faults end, each partition is read to its end in bounded time
P6  while no request is in flight, a node's fetch session holds exactly what the client believes it
    holds
"""

from __future__ import annotations

from tests.support.simulated import simulation
from tests.unit.client.fetch.simulated_client import Client
from tests.unit.client.fetch.simulated_network import TEMPO, Faults, Network
from tests.unit.client.fetch.simulated_nodes import Node

__all__ = ["World", "simulate"]

FAULTY_MS = 25_000
STRAY_MS = 6_000
SETTLE_MS = 20_000


class World(Network):
    """The consumer, and what goes wrong around it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.client = Client(self)

    def tick(self) -> None:
        """Records are appended and replicated, and things go wrong."""
        rng, faults, logs = self.rng, self.faults, self.logs
        for part in logs.parts:
            if self.chance(faults.appends):
                logs.append(part, rng.randint(1, 4))
            some = {node for node in part.replicas if rng.random() < 0.7}
            logs.replicate(part, some)
            if self.chance(faults.lags):
                logs.lag(part)
            if self.chance(faults.retains):
                logs.retain(part)
            if self.chance(faults.transacts):
                logs.transact(part)
            if self.chance(faults.moves) or part.leader not in logs.alive:
                logs.elect(part, self.unclean and self.chance(faults.unclean))
                self.publish(logs.slow_ms * 3)
        for node in self.nodes.values():
            self._disturb(node)
        if self.chance(faults.grows):
            logs.grow(rng.choice(sorted(logs.topics)))
            self.publish(logs.slow_ms * 3)
        if self.chance(faults.deletes) and "b" in logs.topics:
            count = len(logs.topics.pop("b").parts)
            self.note("b is deleted")
            self.publish(logs.slow_ms)
            self.later(rng.choice([10, 1_000, 5_000]), lambda: self._recreate(count))
        if self.chance(faults.jumps):
            self.now_ms += rng.randint(1_000, 20_000)
            self.note("the clock jumped")
        self.later(rng.randint(20, 200), self.tick)

    def _recreate(self, count: int) -> None:
        self.logs.create("b", count)
        self.publish(self.logs.slow_ms)

    def _disturb(self, node: Node) -> None:
        rng, faults = self.rng, self.faults
        node.nearer, node.room = faults.nearer, not self.chance(faults.full)
        if self.chance(faults.stops) and node.up and len(self.logs.alive) > 1:
            self.note(f"node {node.number} stops")
            node.up = False
            self.logs.alive.discard(node.number)
            if (flight := self.flights.get(node.number)) is not None:
                flight.breaks()
            self.publish(self.logs.slow_ms)
            self.later(rng.randint(10, 8_000), lambda: self._restart(node))
        if self.chance(faults.silent):
            node.silent_until_ms = self.now_ms + rng.randint(100, 2 * TEMPO.request_ms)
            self.note(f"node {node.number} pauses")
        if self.chance(faults.evicts):
            node.sessions.clear()

    def _restart(self, node: Node) -> None:
        self.note(f"node {node.number} starts")
        node.restart()
        self.logs.alive.add(node.number)
        self.publish(self.logs.slow_ms)


def play(world: World) -> None:
    """Run once: faults for a while, then none, after which everything must be read."""
    world.faults = Faults.draw(world.rng)
    world.logs.slow_ms = world.faults.slow_ms
    for part in world.logs.parts:
        world.client.assigned.add(part.tp)
        world.client.set(part.tp, 0)
    world.later(0, world.tick)
    world.later(0, world.client.step)
    world.run(FAULTY_MS)
    world.note("no more faults")
    world.faults = Faults()
    world.run(world.now_ms + STRAY_MS)
    _must_settle(world)


simulate = simulation(World, play)


def _must_settle(world: World) -> None:
    """Check P5."""
    client, logs = world.client, world.logs
    for tp in sorted(client.paused):
        client.pause_or_go_on(tp)
    for part in logs.parts:
        if part.leading is not None and part.leading.open_at is not None:
            logs.transact(part)
    world.publish(0)
    world.step_ms = 50
    world.settle("P5", SETTLE_MS, lambda: _unread(world))


def _unread(world: World) -> str:
    """A partition whose readable records are not all read; empty: there is none."""
    for tp in sorted(world.client.assigned):
        log, at = world.leading(tp), world.client.reading.position(tp) or 0
        if log is not None and at < (log.stable if world.committed else log.high):
            return f"{tp.topic}-{tp.partition} is read up to {at} of {log.high}"
    return ""
