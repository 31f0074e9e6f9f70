"""`kafkalog cluster reassign`: spreads replicas and leaders evenly, with as few copies as
possible."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.cluster import moving, plan
from kafkalog.cli.cluster.looking import Look, chosen, look, sizes
from kafkalog.cli.common import UsageError
from kafkalog.cli.remote import refuse, say

if TYPE_CHECKING:
    from kafkalog.client.link.cluster import Cluster

__all__ = ["run"]


def run(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """Show or execute a plan, or manage moves in progress."""
    moving.check_options(options)
    found = look(cluster)
    some = chosen(found, words)
    for name in ("watch", "cancel"):
        if getattr(options, name):
            why = f"not with --{name}"
            refuse(options, why, execute=False, to=None, replication_factor=None)
    if options.watch and options.cancel:
        raise UsageError("--watch, --cancel: give one of them")
    if options.cancel:
        return moving.cancel(cluster, set(some))
    if options.watch:
        return moving.watch(cluster, set(some))
    racks = _targets(found, options.to)
    factor = options.replication_factor
    if factor is not None and factor > len(racks):
        raise UsageError(f"--replication-factor: found {factor}, wanted at most {len(racks)}: "
                         f"the nodes {', '.join(map(str, racks))}")  # fmt: skip
    layout = {tp: found.partitions[tp].replicas for tp in some}
    moves = plan.moves(layout, plan.evened(layout, racks, factor))
    if not moves:
        say("nothing to move: replicas and leaders are spread evenly")
        return 0
    if options.execute:
        return moving.carry_out(cluster, options, found, moves)
    moving.show(found, sizes(cluster, found), moves)
    say("--execute does it (with --throttle BYTES, clients are not slowed)")
    return 0


def _targets(found: Look, text: str | None) -> dict[int, str | None]:
    """The nodes that may have replicas, and their racks.  Raises: UsageError."""
    if text is None:
        return {node: found.racks.get(node) for node in found.nodes}
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(piece.isdecimal() for piece in pieces):
        raise UsageError(f"--to: found {text!r}, wanted node,node,... as in 1,2,4")
    nodes = sorted({int(piece) for piece in pieces})
    missing = [str(node) for node in nodes if node not in found.nodes]
    if missing:
        there = ", ".join(map(str, found.nodes))
        raise UsageError(f"--to: node {missing[0]} does not exist; the cluster has {there}")
    return {node: found.racks.get(node) for node in nodes}
