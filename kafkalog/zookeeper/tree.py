"""The znodes of Kafka with ZooKeeper: their paths, how they are read, how they are written.

Pure: bytes to values and back.  Each kind has a path, `read_...` and `write_...`; the words are
Kafka's.  Source: the tree that Kafka 3.9.2 makes, and its ZkData.scala.

Raises, of every reader: BadZnode, with the path, what was found and what was wanted.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.errors import BadZnode
from kafkalog.metadata.image import NO_LEADER
from kafkalog.wire.values import ZERO_UUID
from kafkalog.zookeeper.documents import Document, document

__all__ = [
    "BROKERS", "CLUSTER_ID", "CONTROLLER", "CONTROLLER_EPOCH", "DELETE_TOPICS", "ELECTION",
    "FEATURE", "ISR_CHANGE", "ISR_CHANGES", "LOG_DIR_EVENT", "LOG_DIR_EVENTS", "OWN_TOPICS",
    "PERSISTENT", "PRODUCER_IDS", "REASSIGNMENT", "TOPICS", "BrokerNode", "ControllerNode",
    "Endpoint", "PartitionState", "ProducerIdBlock", "TopicNode", "broker_path",
    "partition_path", "partitions_path", "read_broker", "read_cluster_id", "read_controller",
    "read_election", "read_epoch", "read_isr_change", "read_log_dir_event", "read_partition",
    "read_producer_ids", "read_reassignment", "read_topic", "topic_path", "write_broker",
    "write_cluster_id", "write_controller", "write_epoch", "write_isr_change",
    "write_log_dir_event", "write_partition", "write_producer_ids", "write_reassignment",
    "write_topic",
]  # fmt: skip

CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"
BROKERS, TOPICS = "/brokers/ids", "/brokers/topics"
CLUSTER_ID, FEATURE, PRODUCER_IDS = "/cluster/id", "/feature", "/latest_producer_id_block"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGNMENT, ELECTION = "/admin/reassign_partitions", "/admin/preferred_replica_election"
ISR_CHANGES, ISR_CHANGE = "/isr_change_notification", "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = "/log_dir_event_notification/log_dir_event_"
"""To paths that end in `_`, ZooKeeper appends a number of ten digits."""
DELEGATION_TOKENS = "/delegation_token/tokens"
OWN_TOPICS = "/kafkalog/topics"
"""Topic settings that Kafka does not know; Kafka does not look there."""

PERSISTENT = (
    "/consumers", BROKERS, TOPICS, "/config/changes", DELETE_TOPICS, "/brokers/seqid", ISR_CHANGES,
    PRODUCER_IDS, LOG_DIR_EVENTS, "/config/topics", "/config/clients", "/config/users",
    "/config/brokers", "/config/ips", OWN_TOPICS,
)  # fmt: skip
"""Znodes without data that a broker creates if they are missing."""

Partitions = tuple[tuple[str, int], ...]
Replicas = Mapping[int, tuple[int, ...]]


# ---- paths --------------------------------------------------------------------------------------


def broker_path(broker: int) -> str:
    """The path of a broker's registration."""
    return f"{BROKERS}/{broker}"


def topic_path(topic: str) -> str:
    """The path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The path of the folder of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The path of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


# ---- the controller -----------------------------------------------------------------------------


class ControllerNode(NamedTuple):
    """The controller's node."""

    broker: int
    timestamp_ms: int
    kraft_epoch: int = -1


def read_controller(data: bytes | None) -> ControllerNode:
    """/controller."""
    found = Document.parse(CONTROLLER, data, range(1, 3))
    return ControllerNode(
        found.whole("brokerid"), found.long("timestamp"), found.whole("kraftControllerEpoch", -1)
    )


def write_controller(node: ControllerNode) -> bytes:
    """/controller, version 2."""
    return document(
        {
            "version": 2,
            "brokerid": node.broker,
            "timestamp": str(node.timestamp_ms),
            "kraftControllerEpoch": node.kraft_epoch,
        }
    )


def read_epoch(data: bytes | None) -> int:
    """/controller_epoch."""
    text = (data or b"").decode("latin-1")
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**31:
        raise BadZnode(f"{CONTROLLER_EPOCH}: found {text[:20]!r}, wanted a whole number")
    return int(text)


def write_epoch(epoch: int) -> bytes:
    """/controller_epoch."""
    return b"%d" % epoch


# ---- brokers ------------------------------------------------------------------------------------


class Endpoint(NamedTuple):
    """An address at which a broker listens."""

    listener: str
    host: str
    port: int
    protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""


class BrokerNode(NamedTuple):
    """A broker's registration; its epoch is the czxid of the znode."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None
    timestamp_ms: int
    features: Mapping[str, tuple[int, int]]
    """Lowest and highest level."""
    jmx_port: int = -1


def read_broker(broker: int, data: bytes | None) -> BrokerNode:
    """/brokers/ids/N, version 1 to 5."""
    found = Document.parse(broker_path(broker), data, range(1, 6))
    if found.has("endpoints"):
        protocols = {}
        if found.has("listener_security_protocol_map"):
            protocols = found.settings("listener_security_protocol_map")
        endpoints = tuple(_endpoint(found, each, protocols) for each in found.texts("endpoints"))
    else:
        port = found.whole("port", limits=range(65536))
        endpoints = (Endpoint("PLAINTEXT", found.text("host"), port, "PLAINTEXT"),)
    rack = found.text("rack") if found.has("rack") else None
    features = {
        name: (each.whole("min_version"), each.whole("max_version"))
        for name, each in found.objects("features").items()
    }
    return BrokerNode(
        endpoints, rack, found.long("timestamp", -1), features, found.whole("jmx_port", -1)
    )


def _endpoint(found: Document, text: str, protocols: Mapping[str, str]) -> Endpoint:
    """`LISTENER://host:port`; the host may be in brackets, and may be missing."""
    listener, colon, place = text.partition("://")
    host, colon_of_port, port = place.rpartition(":")
    if not (listener and colon and colon_of_port and port.isdecimal() and int(port) < 65536):
        raise found.wrong("endpoints", text, "LISTENER://host:port")
    host = host.removeprefix("[").removesuffix("]")
    return Endpoint(listener, host, int(port), protocols.get(listener, listener))


def write_broker(node: BrokerNode) -> bytes:
    """/brokers/ids/N, version 5; `host` and `port`, for readers that know no listeners, are those
    of the first endpoint without encryption."""
    plain = next((each for each in node.endpoints if each.protocol == "PLAINTEXT"), None)
    fields = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": node.jmx_port,
        "timestamp": str(node.timestamp_ms),
        "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e in node.endpoints],
        "listener_security_protocol_map": {e.listener: e.protocol for e in node.endpoints},
        "features": {
            name: {"min_version": low, "max_version": high}
            for name, (low, high) in node.features.items()
        },
    }
    if node.rack is not None:
        fields["rack"] = node.rack
    return document(fields)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# ---- topics -------------------------------------------------------------------------------------


class TopicNode(NamedTuple):
    """A topic: which brokers have each partition."""

    topic_id: uuid.UUID
    """ZERO_UUID: from a Kafka without topic ids."""
    replicas: Replicas
    adding: Replicas
    """The replicas that a move adds, by partition."""
    removing: Replicas
    """The replicas that a move removes, by partition."""


def read_topic(topic: str, data: bytes | None) -> TopicNode:
    """/brokers/topics/T, version 1 to 3."""
    found = Document.parse(topic_path(topic), data, range(1, 4))
    topic_id = ZERO_UUID
    if found.has("topic_id"):
        try:
            topic_id = uuid.UUID(bytes=urlsafe_b64decode(found.text("topic_id") + "=="))
        except ValueError:
            raise found.wrong("topic_id", found.text("topic_id"), "16 bytes in base64") from None
    if not found.has("partitions"):
        raise found.wrong("partitions", None, "an object")
    replicas = found.replicas("partitions")
    adding, removing = found.replicas("adding_replicas"), found.replicas("removing_replicas")
    for name, moved in (("adding_replicas", adding), ("removing_replicas", removing)):
        for partition in moved:
            if partition not in replicas:
                raise found.wrong(name, partition, "a partition of the topic")
    for partition, brokers in replicas.items():
        if not {*brokers} - {*removing.get(partition, ())}:
            wanted = "a broker that is not removed" if brokers else "a broker"
            raise found.wrong(f"partitions.{partition}", list(brokers), wanted)
    return TopicNode(topic_id, replicas, adding, removing)


def write_topic(node: TopicNode) -> bytes:
    """/brokers/topics/T, version 3."""
    return document(
        {
            "version": 3,
            "topic_id": urlsafe_b64encode(node.topic_id.bytes).decode().rstrip("="),
            "partitions": _replicas(node.replicas),
            "adding_replicas": _replicas(node.adding),
            "removing_replicas": _replicas(node.removing),
        }
    )


def _replicas(replicas: Replicas) -> dict[str, list[int]]:
    return {str(partition): list(brokers) for partition, brokers in replicas.items()}


class PartitionState(NamedTuple):
    """A partition's leader and ISR; its partition epoch is the znode's version."""

    leader: int
    """NO_LEADER if there is none."""
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    """The epoch of the controller that wrote it."""
    recovering: bool = False
    """The leader was elected out of sync, and has not recovered yet."""


def read_partition(topic: str, partition: int, data: bytes | None) -> PartitionState:
    """/brokers/topics/T/partitions/P/state."""
    found = Document.parse(partition_path(topic, partition), data, range(1, 2))
    leader, recovery = found.whole("leader"), found.whole("leader_recovery_state", 0)
    epoch, isr = found.whole("leader_epoch"), found.brokers("isr")
    if leader < NO_LEADER:
        raise found.wrong("leader", leader, "a broker's id, or -1")
    if epoch < 0:
        raise found.wrong("leader_epoch", epoch, "0 or more")
    if recovery not in (0, 1):
        raise found.wrong("leader_recovery_state", recovery, "0 or 1")
    return PartitionState(leader, epoch, isr, found.whole("controller_epoch"), bool(recovery))


def write_partition(state: PartitionState) -> bytes:
    """/brokers/topics/T/partitions/P/state."""
    fields = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.recovering:
        fields["leader_recovery_state"] = 1
    return document(fields)


# ---- what is asked of a controller through the tree ---------------------------------------------


def read_reassignment(data: bytes | None) -> dict[tuple[str, int], tuple[int, ...]]:
    """/admin/reassign_partitions: the brokers that each partition is to have."""
    found = Document.parse(REASSIGNMENT, data, range(1, 2))
    rows = found.each(
        "partitions",
        lambda row: ((row.text("topic"), row.whole("partition")), row.wholes("replicas")),
    )
    wanted = dict(rows)
    if len(wanted) < len(rows):
        raise found.wrong("partitions", len(rows), f"each partition once, which are {len(wanted)}")
    return wanted


def write_reassignment(wanted: Mapping[tuple[str, int], tuple[int, ...]]) -> bytes:
    """/admin/reassign_partitions."""
    rows = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in wanted.items()
    ]
    return document({"version": 1, "partitions": rows})


def read_election(data: bytes | None) -> Partitions:
    """/admin/preferred_replica_election: the partitions whose first replica is to lead."""
    return _partitions(ELECTION, data)


def read_isr_change(path: str, data: bytes | None) -> Partitions:
    """/isr_change_notification/isr_change_N: partitions whose state their leader has written."""
    return _partitions(path, data)


def write_isr_change(partitions: Partitions) -> bytes:
    """/isr_change_notification/isr_change_N."""
    rows = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return document({"version": 1, "partitions": rows})


def _partitions(path: str, data: bytes | None) -> Partitions:
    found = Document.parse(path, data, range(1, 2))
    return found.each("partitions", lambda row: (row.text("topic"), row.whole("partition")))


LOG_DIR_FAILED = 1


def read_log_dir_event(path: str, data: bytes | None) -> int:
    """/log_dir_event_notification/log_dir_event_N: the broker that lost a log directory."""
    found = Document.parse(path, data, range(1, 2))
    if found.whole("event") != LOG_DIR_FAILED:
        raise found.wrong("event", found.whole("event"), str(LOG_DIR_FAILED))
    return found.whole("broker")


def write_log_dir_event(broker: int) -> bytes:
    """/log_dir_event_notification/log_dir_event_N."""
    return document({"version": 1, "broker": broker, "event": LOG_DIR_FAILED})


# ---- the cluster --------------------------------------------------------------------------------


def read_cluster_id(data: bytes | None) -> str:
    """/cluster/id."""
    return Document.parse(CLUSTER_ID, data, range(1, 2)).text("id")


def write_cluster_id(cluster_id: str) -> bytes:
    """/cluster/id."""
    return document({"version": "1", "id": cluster_id})


class ProducerIdBlock(NamedTuple):
    """The producer ids that were handed out last."""

    broker: int
    first: int
    last: int


def read_producer_ids(data: bytes | None) -> ProducerIdBlock:
    """/latest_producer_id_block."""
    found = Document.parse(PRODUCER_IDS, data, range(1, 2))
    block = ProducerIdBlock(
        found.whole("broker"), found.long("block_start"), found.long("block_end")
    )
    if not 0 <= block.first <= block.last:
        raise found.wrong("block_end", block.last, f"at least block_start, {block.first}")
    return block


def write_producer_ids(block: ProducerIdBlock) -> bytes:
    """/latest_producer_id_block."""
    return document(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )
