"""`kafkalog cluster drain`: moves leaderships, or all replicas, off a node, so that it can stop."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.cluster import moving, plan
from kafkalog.cli.cluster.elect import elect
from kafkalog.cli.cluster.looking import Look, look, sizes
from kafkalog.cli.common import UsageError, plural, warn
from kafkalog.cli.remote import say

if TYPE_CHECKING:
    from kafkalog.cli.cluster.plan import Move
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.types import TopicPartition

__all__ = ["run"]


def run(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """Show the plan, or execute it; returns 1 if something stays on the node."""
    moving.check_options(options)
    found = look(cluster)
    node = _node(found, words)
    racks = {n: found.racks.get(n) for n in found.nodes}
    mine = {tp: nodes for tp, nodes in found.layout.items() if node in nodes}
    then = plan.drained(found.layout, node, racks) if options.replicas else _handed_on(found, node)
    then = {tp: then[tp] for tp in mine}
    moves = plan.moves(mine, then)
    # The first replica is already another one: that one must lead.
    led = [
        tp
        for tp in mine
        if tp not in moves and found.partitions[tp].leader == node and then[tp][0] != node
    ]
    stays = [tp for tp, nodes in then.items() if node in (nodes if options.replicas else nodes[:1])]
    what = "keeps" if options.replicas else "leads"
    if not moves and not led:
        say(f"node {node} {what} nothing that another node could take")
    elif options.execute:
        if _do(cluster, options, found, moves, led):
            return 1
    else:
        if moves:
            moving.show(found, sizes(cluster, found), moves)
        if led:
            say(f"{plural(len(led), 'partition')} to be led by the first replica")
        say("--execute does it")
    if stays:
        more = "" if options.replicas else "; --replicas moves the replicas, too"
        some = ", ".join(f"{tp.topic}-{tp.partition}" for tp in stays[:5])
        warn(f"{plural(len(stays), 'partition')} stay with node {node}, as no other node can take "
             f"them: {some}{', ...' if len(stays) > 5 else ''}{more}")  # fmt: skip
    elif options.execute and not options.no_wait:
        say(f"node {node} {what} nothing: it can be stopped")
    return 1 if stays else 0


def _node(found: Look, words: list[str]) -> int:
    if len(words) != 1 or not words[0].isdecimal():
        given = f"found {' '.join(words)!r}, wanted one of" if words else "which node? there are"
        raise UsageError(f"drain: {given} {', '.join(map(str, found.nodes))}")
    node = int(words[0])
    if node not in found.nodes and not any(node in nodes for nodes in found.layout.values()):
        there = ", ".join(map(str, found.nodes))
        raise UsageError(f"drain: no node {node}; the cluster has {there}")
    return node


def _handed_on(found: Look, node: int) -> plan.Layout:
    """Each partition that the node leads gets another leader that is in sync."""
    some = {
        tp: info.replicas
        for tp, info in found.partitions.items()
        if node in (info.leader, *info.replicas[:1])
    }
    able = {tp: found.nodes.keys() & set(found.partitions[tp].isr) - {node} for tp in some}
    return {**found.layout, **plan.unled(some, node, able)}


def _do(
    cluster: Cluster, options: argparse.Namespace, found: Look, moves: dict[TopicPartition, Move],
    led: list[TopicPartition],
) -> int:  # fmt: skip
    failed = elect(cluster, "preferred", led) if led else {}
    for tp, why in failed.items():
        warn(f"{tp.topic}-{tp.partition}: {why}")
    if moves and moving.carry_out(cluster, options, found, moves):
        return 1
    return 1 if failed else 0
