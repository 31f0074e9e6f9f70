"""One run of a cluster: built, broken by a plan, healed, and checked."""

from __future__ import annotations

import heapq
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalog.config.topic import TopicConfig
from kafkalog.simulate import faults
from kafkalog.simulate.around import Setup
from kafkalog.simulate.cluster import Cluster
from kafkalog.simulate.faults import Step
from kafkalog.simulate.network import Speed
from kafkalog.simulate.rules import Rules
from kafkalog.simulate.world import Violated
from kafkalog.system import MEMORY

__all__ = ["Result", "drawn_setup", "minimised", "run"]


class Result(NamedTuple):
    """The outcome of a run."""

    seed: int
    failure: str
    """Empty: everything held."""
    events: int
    ms: float
    """Virtual time."""
    digest: int
    acknowledged: int
    steps: Sequence[Step]
    """The steps of the plan that were done."""
    trace: Sequence[str]


def drawn_setup(dice: random.Random, nodes: int = 3, durable: bool | None = None) -> Setup:
    """The cluster settings of a seed; `durable` overrides what the seed draws."""
    drawn = dice.random() < 0.6
    durable = drawn if durable is None else durable
    return Setup(
        nodes=nodes,
        partitions=dice.choice((1, 1, 2, 3)),
        replicas=dice.choice((min(3, nodes), min(3, nodes), 2)),
        min_isr=dice.choice((1, 1, 2)),
        durable=durable,
        topic_config=TopicConfig.of(
            {
                "segment.bytes": dice.choice((4096, 1 << 20)),
                "kafkalog.durability": "fsync" if durable else "os",
            }
        ),
        lag_ms=dice.choice((100, 300, 1000)),
        session_ms=dice.choice((200.0, 600.0, 2000.0)),
        disk_ms=dice.choice((0.3, 2.0, 10.0)),
    )


def drawn_speed(dice: random.Random) -> Speed:
    """The network of a seed."""
    return Speed(
        usual_ms=dice.choice((0.3, 1.0, 5.0)),
        slow_share=dice.choice((0.0, 0.01, 0.05)),
        break_share=dice.choice((0.0, 0.001, 0.01)),
    )


def run(
    seed: int, *, events: int = 3_000, nodes: int = 3, rules: Rules | None = None,
    setup: Setup | None = None, steps: Iterable[Step] | None = None, more: bool = True,
    folder: Path | None = None, deletes: bool = False,
) -> Result:  # fmt: skip
    """A run of `events` events, and then the time that the cluster takes to settle.

    `steps`: these instead of the seed's; `more`: its replicas may move, and nodes shut down in
    order, too.  `deletes`: a topic is deleted and created again.
    `folder`: where its disks are created (and removed); None: in memory, if there is /dev/shm.
    """
    dice = random.Random(f"{seed}-setup")
    drawn, speed = drawn_setup(dice, nodes), drawn_speed(dice)
    setup = setup or drawn
    planned = _planned(seed, setup, more, deletes) if steps is None else steps
    memory = Path(MEMORY)
    where = folder or (memory if memory.is_dir() else None)
    done: list[Step] = []
    failure, acknowledged = "", 0
    with tempfile.TemporaryDirectory(prefix="kafkalog-simulate-", dir=where) as made:
        cluster = Cluster(Path(made), seed, setup, rules or Rules(), speed)
        try:
            cluster.start()
            cluster.add_clients(dice)
            _break(cluster, planned, done, events)
            cluster.settle()
        except Violated as found:
            failure = str(found)
            cluster.world.note("!!!", failure)
        finally:
            cluster.close()
        world = cluster.world
        acknowledged = sum(getattr(one, "acknowledged", 0) for one in cluster.clients)
        return Result(
            seed, failure, world.events, world.now_ms, world.digest, acknowledged, done,
            world.trace,
        )  # fmt: skip


def _planned(seed: int, setup: Setup, more: bool, deletes: bool) -> Iterator[Step]:
    plan = faults.plan(random.Random(f"{seed}-plan"), setup)
    if deletes:
        plan = heapq.merge(plan, faults.recreations(random.Random(f"{seed}-deletes"), setup))
    if not more:
        return plan
    moves = faults.moves(random.Random(f"{seed}-moves"), setup)
    return heapq.merge(plan, moves, faults.stops(random.Random(f"{seed}-stops"), setup))


def _break(cluster: Cluster, steps: Iterable[Step], done: list[Step], events: int) -> None:
    """Do one step after another until `events` events have happened."""
    waiting = iter(steps)

    def next_one() -> None:
        step = next(waiting, None)
        if step is not None:
            due_ms = max(0.0, step.at_ms - cluster.world.now_ms)
            cluster.world.later(due_ms, lambda: this_one(step))

    def this_one(step: Step) -> None:
        if ended[0]:
            return
        done.append(step)
        faults.do(step, cluster)
        next_one()

    ended = [False]
    next_one()
    while cluster.world.events < events and cluster.world.happen():
        pass
    ended[0] = True


def minimised(found: Result, again: Callable[[Sequence[Step]], Result]) -> Result:
    """The same failure with fewer steps: halves, quarters, single ones are left out in turn as
    long as it stays.  `again` runs its seed with other steps."""
    kind = found.failure.partition(":")[0]
    best = found
    size = max(1, len(best.steps) // 2)
    while True:
        at = 0
        while at < len(best.steps):
            fewer = [*best.steps[:at], *best.steps[at + size :]]
            tried = again(fewer)
            if tried.failure.partition(":")[0] == kind:
                best = tried
            else:
                at += size
        if size == 1:
            return best
        size //= 2
