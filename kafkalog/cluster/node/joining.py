"""Makes a data directory a cluster node's: with the cluster's id, and topics from its tree.

Everything that may refuse the node comes before anything is written, in the tree or in the
directory.
"""

from __future__ import annotations

from kafkalog.cluster.node.member import Member
from kafkalog.config.server import ServerConfig
from kafkalog.directory.identity import Found
from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.layout import METADATA_TOPIC, MetaProperties
from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.zookeeper.registering import await_free, cluster_id, patiently
from kafkalog.metadata.zookeeper.session import Session, Timeouts
from kafkalog.types import TopicPartition

__all__ = ["check_open_to_all", "enter", "join"]

ACLS = ("/kafka-acl", "/kafka-acl-extended/prefixed")
"""Their children are kinds of resources; the children of these are names that have rules."""


def enter(path: str, found: Found, config: ServerConfig, node: int) -> Member:
    """Read the cluster's tree, and check that this directory may be its node `node`; nothing is
    written.

    `found`: the directory's contents.

    Raises: ArgumentError: the directory belongs to another cluster, or was served standalone, or
    the cluster is not open to all; DuplicateBrokerRegistration; ZooKeeperAway, MissingPackage.
    """
    if TopicPartition(METADATA_TOPIC, 0) in found.partitions:
        raise ArgumentError(
            f"{path}: found {METADATA_TOPIC}-0, the metadata of a node that is alone; "
            "wanted the directory of a cluster's node, or an empty one: kafkalog cluster adopt "
            "--dir ... --zookeeper ... converts it, with its topics"
        )
    timeouts = Timeouts(*config.zookeeper_timeouts_ms)
    member = Member(
        config.zookeeper_connect, node, config.inner_listener, config, timeouts,
        config.control_listener,
    )  # fmt: skip
    session = member.session
    try:
        patiently(lambda: check_open_to_all(session, member.image), member.patience_s)
        _check_cluster(path, found, member.image.cluster_id, session)
        patiently(lambda: await_free(session, node, timeouts), member.patience_s)
    except BaseException:
        member.close()
        raise
    return member


def join(manager: Manager, member: Member, found: Found) -> None:
    """Use the cluster's topics for the directory, which gets its identity with the registration.

    Raises: ArgumentError: the cluster has got another id since `enter`; ZooKeeperAway.
    """
    new = layout.uuid_text(layout.random_topic_id())
    cluster = patiently(lambda: cluster_id(member.session, new), member.patience_s)
    _check_cluster(manager.path, found, cluster, member.session)
    member.identify(cluster)
    member.owned = lambda: _write_identity(manager, member.node, cluster)
    manager.state.copied = True
    manager.use(member)
    member.reconfigure = lambda topic: manager.reconfigure(topic=topic)


def check_open_to_all(session: Session, image: MetadataImage) -> None:
    """Refuse a cluster with ACLs: clients that Kafka's brokers keep out would get in here."""
    read = session.children
    rules = [
        f"{root}/{kind}/{name}"
        for root in ACLS
        for kind in read(root) or ()
        for name in read(f"{root}/{kind}") or ()
    ]
    credentials = image.foreign.get("SCRAM", 0)
    if rules or credentials:
        found = f"access rules ({rules[0]})" if rules else f"credentials of {credentials} users"
        raise ArgumentError(
            f"ZooKeeper at {session.hosts}: found {found}, which are not enforced yet; "
            "wanted a cluster that is open to all"
        )


def _check_cluster(path: str, found: Found, cluster: str, session: Session) -> None:
    """Refuse another cluster's directory, as Kafka does; one without partitions joins any."""
    known = found.meta.cluster_id if found.meta is not None and found.partitions else None
    if known in (None, cluster):
        return
    if cluster:
        raise ArgumentError(
            f"{path}: found cluster {known}, wanted {cluster}, whose ZooKeeper is at "
            f"{session.hosts}"
        )
    raise ArgumentError(
        f"{path}: found cluster {known}, but no cluster in ZooKeeper at {session.hosts}; wanted "
        "the ZooKeeper, and the chroot, of that cluster"
    )


def _write_identity(manager: Manager, node: int, cluster: str) -> None:
    """As Kafka's brokers on ZooKeeper do it, so that either can take over the other's directory:
    a registered broker owns its directory."""
    meta = manager.meta
    directory_id = layout.random_topic_id() if meta is None else meta.directory_id
    wanted = MetaProperties(0, node, cluster, directory_id)
    if wanted != meta:
        data = layout.render_meta_properties(wanted)
        manager.state.directory.replace(layout.META_PROPERTIES, data)
        manager.meta = wanted
