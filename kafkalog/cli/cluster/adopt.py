"""`kafkalog cluster adopt`: turns a single broker's directory into a cluster node's."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, plural, table
from kafkalog.cli.remote import say

if TYPE_CHECKING:
    from kafkalog.cluster.node.adoption import Adoption
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.zookeeper.loading import Loaded

__all__ = ["run"]


def run(options: argparse.Namespace, words: list[str]) -> int:
    """Show the plan, or execute it."""
    from kafkalog.cluster.node import adoption
    from kafkalog.cluster.node.joining import check_open_to_all
    from kafkalog.server.journal import TRANSACTIONS_TOPIC
    from kafkalog.zookeeper.reading import read_tree
    from kafkalog.zookeeper.session import open_session

    if words or options.dir is None or not options.zookeeper:
        raise UsageError("adopt: give --dir DIR and --zookeeper HOST:PORT,.../CHROOT")
    if not os.path.isdir(options.dir):
        raise UsageError(f"{options.dir}: no such directory")
    image = adoption.read_alone(options.dir)
    node = image.node_id if options.node_id is None else options.node_id
    with open_session(options.zookeeper, lambda _: None) as session:
        loaded = read_tree(session, node)
        check_open_to_all(session, loaded.image, node)  # else no broker would serve the directory
        found = adoption.plan(image, loaded, node)
        _show(options, image, loaded, found)
        if not options.execute:
            say("nothing was changed; --execute does it")
            return 0
        aside = adoption.carry_out(options.dir, found, session)
    say(f"done: {options.dir} is node {node} of cluster {found.cluster}; its old metadata: {aside}")
    say("next:")
    say(f"  kafkalog serve --dir {options.dir} --zookeeper {options.zookeeper} --node-id {node}")
    say("  kafkalog cluster reassign --replication-factor 3 --execute --bootstrap-server ...")
    if TRANSACTIONS_TOPIC in image.topics:  # a single node's has 1, whatever its settings say
        say(f"  kafkalog configs alter --topic {TRANSACTIONS_TOPIC} "
            "--add-config min.insync.replicas=2 --bootstrap-server ...")  # fmt: skip
    return 0


def _show(
    options: argparse.Namespace, image: MetadataImage, loaded: Loaded, found: Adoption
) -> None:
    rows = [[topic.name, str(len(topic.partitions))] for topic in found.topics]
    if rows:
        print(table(["topic", "partitions"], rows, left=frozenset({0})))
    known = loaded.image
    there = (
        f"cluster {known.cluster_id} with {plural(len(known.brokers), 'living node')} and "
        f"{plural(len(known.topics), 'topic')}"
        if known.cluster_id
        else "an empty tree"
    )
    count = sum(len(topic.partitions) for topic in found.topics)
    say(f"{options.dir}: {plural(len(rows), 'topic')}, {plural(count, 'partition')}")
    say(f"{options.zookeeper}: {there}")
    say(f"The directory becomes that of node {found.node} of cluster {found.cluster}, FOR GOOD: it "
        "can no longer be served by a single broker.")  # fmt: skip
    if known.cluster_id and known.cluster_id != image.cluster_id:
        say(f"Its own cluster id, {image.cluster_id} is dropped.")
    if found.controller:
        say("Another controller is elected, so that it sees the topics: for a moment no leader "
            "changes.")  # fmt: skip
