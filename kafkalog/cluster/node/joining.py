"""Makes a data directory a cluster node's: with the cluster's id, and topics from its tree."""

from __future__ import annotations

from kafkalog.cluster.node.member import Member
from kafkalog.config.server import ServerConfig
from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.layout import METADATA_TOPIC, MetaProperties
from kafkalog.errors import ArgumentError
from kafkalog.metadata.zookeeper.registering import cluster_id, patiently
from kafkalog.metadata.zookeeper.session import Timeouts
from kafkalog.types import TopicPartition

__all__ = ["join"]

ACLS = ("/kafka-acl", "/kafka-acl-extended/prefixed")
"""Their children are kinds of resources; the children of these are names that have rules."""


def join(manager: Manager, config: ServerConfig) -> Member:
    """Read the cluster's tree, and use its topics for the directory.

    Raises: ArgumentError: the directory belongs to another cluster, or was served standalone;
    ZooKeeperAway, MissingPackage.
    """
    if TopicPartition(METADATA_TOPIC, 0) in manager.partitions(METADATA_TOPIC):
        raise ArgumentError(
            f"{manager.path}: found {METADATA_TOPIC}-0, the metadata of a node that is alone; "
            "wanted the directory of a cluster's node, or an empty one: kafkalog cluster adopt "
            "--dir ... --zookeeper ... converts it, with its topics"
        )
    member = Member(
        config.zookeeper_connect, config.node_id, config.inner_listener, manager.config,
        Timeouts(*config.zookeeper_timeouts_ms), config.control_listener,
    )  # fmt: skip
    try:
        patiently(lambda: _check_open_to_all(member), member.patience_s)
        patiently(lambda: _identify(manager, member, config.node_id), member.patience_s)
    except BaseException:
        member.close()
        raise
    manager.state.copied = True
    manager.use(member)
    member.reconfigure = lambda topic: manager.reconfigure(topic=topic)
    return member


def _check_open_to_all(member: Member) -> None:
    """Refuse a cluster with ACLs: clients that Kafka's brokers keep out would get in here."""
    read = member.session.children
    rules = [
        f"{root}/{kind}/{name}"
        for root in ACLS
        for kind in read(root) or ()
        for name in read(f"{root}/{kind}") or ()
    ]
    credentials = member.image.foreign.get("SCRAM", 0)
    if rules or credentials:
        found = f"access rules ({rules[0]})" if rules else f"credentials of {credentials} users"
        raise ArgumentError(
            f"ZooKeeper at {member.session.hosts}: found {found}, which are not enforced yet; "
            "wanted a cluster that is open to all"
        )


def _identify(manager: Manager, member: Member, node: int) -> None:
    """As Kafka's brokers on ZooKeeper do it, so that either can take over the other's directory."""
    meta = manager.meta
    assert meta is not None, "a writing manager has read or written it"
    fresh = not manager.partitions()
    known = (
        meta.cluster_id
        if meta.cluster_id and not fresh
        else layout.uuid_text(layout.random_topic_id())
    )
    cluster = cluster_id(member.session, known)
    if not fresh and meta.cluster_id not in (None, cluster):
        raise ArgumentError(
            f"{manager.path}: found cluster {meta.cluster_id}, wanted {cluster}, whose ZooKeeper "
            f"is at {member.session.hosts}"
        )
    member.identify(cluster)
    wanted = MetaProperties(0, node, cluster, meta.directory_id)
    if wanted != meta:
        data = layout.render_meta_properties(wanted)
        manager.state.directory.replace(layout.META_PROPERTIES, data)
        manager.meta = wanted
