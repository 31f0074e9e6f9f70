"""Makes a data directory a cluster node's: with the cluster's id, and topics from its tree.

Everything that may refuse the node comes before anything is written, in the tree or in the
directory.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalog.cluster.node.defaults import taken_over
from kafkalog.cluster.node.facts import PLAINTEXT, WARN, Candidate, Facts, Finding, brokers
from kafkalog.cluster.node.gathering import gather
from kafkalog.cluster.node.member import Member
from kafkalog.cluster.node.precheck import findings, protection, refusal
from kafkalog.config.server import ServerConfig
from kafkalog.directory.identity import Found
from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.layout import METADATA_TOPIC, MetaProperties
from kafkalog.errors import ArgumentError
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import MetadataImage
from kafkalog.replication.inter_broker import node_securities
from kafkalog.types import TopicPartition
from kafkalog.zookeeper.registering import await_free, cluster_id, patiently
from kafkalog.zookeeper.security import security_of
from kafkalog.zookeeper.session import Session, Timeouts

__all__ = [
    "Assessed", "assess", "check_adopter", "check_alone", "check_cluster", "enter", "is_known",
    "join",
]  # fmt: skip

_logger = limited(__name__)


class Assessed(NamedTuple):
    """A cluster as a node finds it that is about to join."""

    found: list[Finding]
    """Refusals first."""
    taken: dict[str, object]
    """The settings that it takes over from other brokers, by name."""


def assess(facts: Facts, mine: Candidate) -> Assessed:
    """All findings about a node, and what it takes over.  Pure."""
    return Assessed(findings(facts, mine), taken_over(facts.peers, mine.config))


def enter(
    path: str, found: Found, config: ServerConfig, node: int
) -> tuple[Member, dict[str, object]]:
    """Read the cluster's tree, ask its brokers, and check that this directory may be its node
    `node`; nothing is written.  Also returns the settings that it takes over from the others.

    `found`: the directory's contents.

    Raises: ArgumentError: the directory belongs to another cluster, or was served standalone, or
    a finding of kafkalog.cluster.node.precheck refuses it; InvalidSetting: the security between
    nodes, or at ZooKeeper; DuplicateBrokerRegistration; ZooKeeperAway, MissingPackage.
    """
    check_alone(path, found)
    timeouts = Timeouts(*config.zookeeper_timeouts_ms)
    securities = node_securities(config)
    member = Member(
        config.zookeeper_connect, node, config.inner_listener, config, timeouts,
        config.control_listener, securities, security_of(config),
    )  # fmt: skip
    session, image = member.session, member.image
    try:
        check_cluster(path, found, image.cluster_id, session)
        mine = Candidate(node, config, is_known(found, image.cluster_id))
        facts = patiently(lambda: gather(session, image, node, securities), member.patience_s)
        assessed = assess(facts, mine)
        _heed(assessed.found, session)
        member.use(ServerConfig.of(assessed.taken, config))
        patiently(lambda: await_free(session, node, timeouts), member.patience_s)
    except BaseException:
        member.close()
        raise
    return member, assessed.taken


def check_alone(path: str, found: Found) -> None:
    """Refuse the directory of a node that is alone.

    Raises: ArgumentError.
    """
    if TopicPartition(METADATA_TOPIC, 0) in found.partitions:
        raise ArgumentError(
            f"{path}: found {METADATA_TOPIC}-0, the metadata of a node that is alone; "
            "wanted the directory of a cluster's node, or an empty one: kafkalog cluster adopt "
            "--dir ... --zookeeper ... converts it, with its topics"
        )


def check_adopter(
    session: Session, image: MetadataImage, node: int, config: ServerConfig, whole: bool
) -> None:
    """Refuse to adopt a directory that no node with these settings could serve afterwards.

    `whole`: they are all settings of the node; else it is only checked that it would not undo the
    cluster's protection.

    Raises: ArgumentError, InvalidSetting, ZooKeeperAway.
    """
    mine = Candidate(node, config, False)
    facts = gather(session, image, node, node_securities(config))
    closed = [one for one in facts.peers if PLAINTEXT not in one.endpoints.values()]
    if closed and not whole:
        raise ArgumentError(
            f"the cluster at {session.hosts}: no plain text at "
            f"{brokers(one.node for one in closed)}; "
            "wanted the settings of this node, which say how it reaches them: --config FILE"
        )
    _heed(findings(facts, mine) if whole else protection(facts, mine), session)


def is_known(found: Found, cluster: str) -> bool:
    """True if a directory already belongs to this cluster."""
    return found.meta is not None and bool(cluster) and found.meta.cluster_id == cluster


def _heed(found: list[Finding], session: Session) -> None:
    """Log the warnings, and raise the refusals."""
    for one in found:
        if one.severity == WARN:
            _logger.warning("%s", one)
    if why := refusal(found):
        raise ArgumentError(
            f"the cluster at {session.hosts} cannot take this node: {why} "
            "`kafkalog cluster precheck` shows all findings."
        )


def join(manager: Manager, member: Member, found: Found) -> None:
    """Use the cluster's topics for the directory, which gets its identity with the registration.

    Raises: ArgumentError: the cluster has got another id since `enter`; ZooKeeperAway.
    """
    new = layout.uuid_text(layout.random_topic_id())
    cluster = patiently(lambda: cluster_id(member.session, new), member.patience_s)
    check_cluster(manager.path, found, cluster, member.session)
    member.identify(cluster)
    member.owned = lambda: _write_identity(manager, member.node, cluster)
    manager.state.copied = True
    manager.use(member)
    member.reconfigure = lambda topic: manager.reconfigure(topic=topic)


def check_cluster(path: str, found: Found, cluster: str, session: Session) -> None:
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
