"""`kafkalog cluster adopt`: turns a single broker's directory into a cluster node's."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kafkalog.cli.cluster.precheck import checked_settings
from kafkalog.cli.common import UsageError, plural, table
from kafkalog.cli.remote import say
from kafkalog.cli.serve import settings_from

if TYPE_CHECKING:
    from kafkalog.cluster.node.adoption import Adoption
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.zookeeper.loading import Loaded

__all__ = ["run"]


def run(options: argparse.Namespace, words: list[str]) -> int:
    """Show the plan, or execute it."""
    from kafkalog.cluster.node import adoption
    from kafkalog.cluster.node.joining import check_adopter
    from kafkalog.server.journal import TRANSACTIONS_TOPIC
    from kafkalog.zookeeper.reading import read_tree
    from kafkalog.zookeeper.security import security_of
    from kafkalog.zookeeper.session import Timeouts, open_session

    if words or options.dir is None:
        raise UsageError("adopt: give --dir DIR and --zookeeper HOST:PORT,.../CHROOT")
    if not os.path.isdir(options.dir):
        raise UsageError(f"{options.dir}: no such directory")
    config = checked_settings(settings_from(options))
    hosts = config.zookeeper_connect
    if not hosts:
        raise UsageError("adopt: give --zookeeper HOST:PORT,.../CHROOT, or a --config with it")
    image = adoption.read_alone(options.dir)
    node = config.node_id if config.explicit("node.id") else image.node_id
    timeouts, security = Timeouts(*config.zookeeper_timeouts_ms), security_of(config)
    with open_session(hosts, lambda _: None, timeouts, security) as session:
        loaded = read_tree(session, node)
        whole = options.config is not None  # else only what protects the cluster is known to matter
        check_adopter(session, loaded.image, node, config, whole)
        found = adoption.plan(image, loaded, node)
        _show(options.dir, hosts, image, loaded, found)
        if not options.execute:
            say("nothing was changed; --execute does it")
            return 0
        aside = adoption.carry_out(options.dir, found, session)
    say(f"done: {options.dir} is node {node} of cluster {found.cluster}; its old metadata: {aside}")
    say("next:")
    how = f" --config {options.config}" if options.config is not None else ""
    say(f"  kafkalog serve --dir {options.dir}{how} --zookeeper {hosts} --node-id {node}")
    say("  kafkalog cluster reassign --replication-factor 3 --execute --bootstrap-server ...")
    if TRANSACTIONS_TOPIC in image.topics:  # a single node's has 1, whatever its settings say
        say(f"  kafkalog configs alter --topic {TRANSACTIONS_TOPIC} "
            "--add-config min.insync.replicas=2 --bootstrap-server ...")  # fmt: skip
    return 0


def _show(
    directory: str, hosts: str, image: MetadataImage, loaded: Loaded, found: Adoption
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
    say(f"{directory}: {plural(len(rows), 'topic')}, {plural(count, 'partition')}")
    say(f"{hosts}: {there}")
    say(f"The directory becomes that of node {found.node} of cluster {found.cluster}, FOR GOOD: it "
        "can no longer be served by a single broker.")  # fmt: skip
    if known.cluster_id and known.cluster_id != image.cluster_id:
        say(f"Its own cluster id, {image.cluster_id} is dropped.")
    if found.controller:
        say("Another controller is elected, so that it sees the topics: for a moment no leader "
            "changes.")  # fmt: skip
