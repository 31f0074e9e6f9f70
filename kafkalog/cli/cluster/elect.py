"""`kafkalog cluster elect`: elects the preferred replica, or (unclean) any live one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.cluster.looking import Look, chosen, look
from kafkalog.cli.common import CommandError, agreed, plural, warn
from kafkalog.cli.remote import say
from kafkalog.client.calls.replicas import elect_leaders
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.client.link.metadata import PartitionInfo
    from kafkalog.types import TopicPartition

__all__ = ["elect", "run"]


def run(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """Elect, and print the new leaders; 1: some elections failed."""
    found = look(cluster)
    some = chosen(found, words)
    if options.unclean:
        return _unclean(cluster, options, found, some)
    wanted = [tp for tp in some if not _led("preferred", found.partitions[tp])]
    if not wanted:
        say("the first replica of each partition leads: nothing to elect")
        return 0
    return _elect(cluster, "preferred", wanted)


def _unclean(
    cluster: Cluster, options: argparse.Namespace, found: Look, some: list[TopicPartition]
) -> int:
    wanted = [tp for tp in some if not _led("unclean", found.partitions[tp])]
    if not wanted:
        say("each partition has a leader: nothing to elect")
        return 0
    what = (
        f"{plural(len(wanted), 'partition')} without a leader "
        f"({', '.join(f'{tp.topic}-{tp.partition}' for tp in wanted[:5])}"
        f"{', ...' if len(wanted) > 5 else ''}): live replicas will lead, and records that only "
        "others had are lost."
    )
    if not options.yes and not agreed(what):
        raise CommandError(f"{what} Nothing was done: start a node that was in sync, or give --yes")
    return _elect(cluster, "unclean", wanted)


def _elect(cluster: Cluster, kind: str, wanted: list[TopicPartition]) -> int:
    failed = elect(cluster, kind, wanted)
    found = look(cluster)
    for tp in wanted:
        if tp not in failed and tp in found.partitions:
            say(f"{tp.topic}-{tp.partition}: node {found.partitions[tp].leader} leads")
    for tp, why in failed.items():
        warn(f"{tp.topic}-{tp.partition}: {why}")
    return 1 if failed else 0


def elect(cluster: Cluster, kind: str, wanted: list[TopicPartition]) -> dict[TopicPartition, str]:
    """Elect leaders; returns the errors of failed elections."""
    results = elect_leaders(cluster, kind, wanted, cluster.options.request_timeout_ms)
    failed = {
        tp: str(problem)
        for tp, problem in results.errors.items()
        if problem.code != ErrorCode.ELECTION_NOT_NEEDED
    }
    _until_known(cluster, kind, [tp for tp in wanted if tp not in failed])
    return failed


def _until_known(cluster: Cluster, kind: str, elected: list[TopicPartition]) -> None:
    """Wait until the broker that we ask knows the new leader: the controller answers before its
    UpdateMetadata has reached every broker.  After a timeout, the broker's old state counts."""
    backoff = cluster.backoff(cluster.options.request_timeout_ms)
    while True:
        partitions = look(cluster).partitions
        if all(_led(kind, partitions[tp]) for tp in elected if tp in partitions) or backoff.over():
            return
        backoff.wait()


def _led(kind: str, info: PartitionInfo) -> bool:
    return info.leader >= 0 if kind == "unclean" else info.leader == info.replicas[0]
