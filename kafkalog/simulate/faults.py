"""The faults of a cluster: a plan of steps, drawn by seed, each of which can be left out.

Each run draws its own mix (a swarm): rare faults find other mistakes than frequent ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog.simulate.around import Setup
from kafkalog.simulate.cluster import Cluster
from kafkalog.simulate.ensemble import ENSEMBLE

__all__ = ["Step", "do", "moves", "plan", "recreations", "stops"]

KINDS = (
    "kill", "kill", "power", "pause", "cut", "one-way", "isolate", "no-zookeeper", "expire",
    "slow-disk", "clock", "resign", "delete", "heal",
)  # fmt: skip


class Step(NamedTuple):
    """One fault, or something that heals or changes the cluster."""

    at_ms: float
    kind: str
    node: int
    other: int
    ms: float
    """How long it lasts."""

    def __str__(self) -> str:
        return f"{self.at_ms / 1000:.3f} s: {self.kind} {self.node} {self.other} {self.ms:.0f} ms"


def plan(dice: random.Random, setup: Setup) -> Iterator[Step]:
    """Steps without end, ordered by time."""
    kinds = [one for one in dict.fromkeys(KINDS) if dice.random() < 0.6] or ["kill"]
    if not setup.durable:
        kinds = [one for one in kinds if one != "power"] or ["kill"]
    weights = [dice.choice((1, 1, 3, 10)) for _ in kinds]
    every_ms = dice.choice((60.0, 150.0, 400.0, 1000.0))
    long_ms = dice.choice((30.0, 200.0, 800.0))
    at_ms = 200.0
    while True:
        at_ms += dice.expovariate(1 / every_ms)
        kind = dice.choices(kinds, weights)[0]
        node = dice.randint(1, setup.nodes)
        other = (node + dice.randrange(setup.nodes - 1)) % setup.nodes + 1
        yield Step(at_ms, kind, node, other, dice.expovariate(1 / long_ms))


def moves(dice: random.Random, setup: Setup) -> Iterator[Step]:
    """Reassignments from time to time; none if each node has all partitions, and not in every
    run."""
    if setup.nodes <= setup.replicas or dice.random() < 0.3:
        return
    every_ms = dice.choice((400.0, 1500.0))
    at_ms = 500.0
    while True:
        at_ms += dice.expovariate(1 / every_ms)
        yield Step(at_ms, "move", dice.randint(1, setup.nodes), dice.randint(1, setup.nodes), 0.0)


def stops(dice: random.Random, setup: Setup) -> Iterator[Step]:
    """Orderly shutdowns from time to time, not in every run."""
    if dice.random() < 0.3:
        return
    every_ms = dice.choice((200.0, 800.0))
    at_ms = 300.0
    while True:
        at_ms += dice.expovariate(1 / every_ms)
        yield Step(at_ms, "stop", dice.randint(1, setup.nodes), 0, dice.expovariate(1 / 100.0))


def recreations(dice: random.Random, setup: Setup) -> Iterator[Step]:
    """A topic is created, deleted and created again, from time to time."""
    every_ms = dice.choice((100.0, 400.0, 1000.0))
    at_ms = 300.0
    while True:
        at_ms += dice.expovariate(1 / every_ms)
        yield Step(at_ms, "recreate", dice.randint(1, setup.nodes), 0, 0.0)


def do(step: Step, cluster: Cluster) -> None:
    """Do it, if it can be done."""
    node, world = cluster.nodes[step.node], cluster.world
    both = [(step.node, step.other), (step.other, step.node)]
    everybody = [one for one in cluster.network.places if one != step.node]
    around = [link for one in everybody for link in ((step.node, one), (one, step.node))]
    zookeeper = [(step.node, ENSEMBLE), (ENSEMBLE, step.node)]
    links = {
        "cut": both, "one-way": both[:1], "isolate": around, "no-zookeeper": zookeeper,
    }.get(step.kind)  # fmt: skip
    world.note("---", step.kind, step.node, step.other, f"{step.ms:.0f} ms")
    if links is not None:
        cluster.network.cut(links)
        world.later(step.ms, lambda: cluster.network.heal(links))
    elif step.kind in ("kill", "power") and node.up:
        node.kill(power_cut=step.kind == "power")
        world.later(step.ms, lambda: None if node.up else node.start())
    elif step.kind == "stop" and node.up and not node.stopping:
        node.stop(lambda: world.later(step.ms, lambda: None if node.up else node.start()))
    elif step.kind == "pause" and node.up:
        node.paused_until_ms = world.now_ms + step.ms
    elif step.kind == "expire" and node.up and node.link.session:
        cluster.ensemble.expire(node.link.session)
    elif step.kind == "slow-disk":
        node.disk_factor = 100.0
        world.later(step.ms, lambda: setattr(node, "disk_factor", 1.0))
    elif step.kind == "clock":
        node.skew_ms = (step.ms - 100) * 1000
    elif step.kind == "resign":
        cluster.resign()
    elif step.kind == "delete":
        cluster.delete_records(step.node)
    elif step.kind == "move":
        cluster.move(step.node, step.other)
    elif step.kind == "recreate":
        cluster.recreate(step.node)
    elif step.kind == "heal":
        cluster.network.heal()
