"""One run of a quorum: started, broken by drawn faults, healed, checked, and without its leader."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from kafkalog.simulate.quorum.cluster import Cluster
from kafkalog.simulate.quorum.setup import drawn_setup
from kafkalog.simulate.run import Result
from kafkalog.simulate.world import Violated

__all__ = ["outcome", "run"]


def run(seed: int, events: int = 3_000, given: Mapping[str, Any] | None = None) -> Result:
    """A run of `events` events, and then the time that the quorum takes to settle.

    `given`: fields of Setup that are not drawn.
    """
    setup = drawn_setup(random.Random(f"{seed}-setup"))._replace(**(given or {}))
    cluster = Cluster(seed, setup)
    return outcome(cluster, seed, events, lambda: len(cluster.checks.acknowledged))


def outcome(
    cluster: Cluster, seed: int, events: int, acknowledged: Callable[[], int]
) -> Result:  # fmt: skip
    """The outcome of a cluster that is not started yet."""
    failure = ""
    try:
        cluster.start()
        while cluster.world.events < events and cluster.world.happen():
            pass
        cluster.settle()
        cluster.outlive()
    except Violated as found:
        failure = str(found)
        cluster.world.note("!!!", failure)
    world = cluster.world
    return Result(
        seed, failure, world.events, world.now_ms, world.digest, acknowledged(), (), world.trace,
    )  # fmt: skip
