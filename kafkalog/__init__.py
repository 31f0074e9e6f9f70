"""kafkalog: an embeddable commit log that is Kafka.

The public names; what is not in __all__ is private.  Everything heavy (numpy, pyarrow, the
codecs) is imported when it is first used, and so are the names below.
"""

from typing import TYPE_CHECKING, Any

from kafkalog import errors as _errors
from kafkalog.errors import *  # noqa: F403
from kafkalog.log.above import Above as _Above
from kafkalog.log.above import give as _give
from kafkalog.types import Found, Record, Sent, Span, TopicPartition

if TYPE_CHECKING:
    from kafkalog import aio, pandas, polars, serializers
    from kafkalog.client.admin import Admin
    from kafkalog.client.assignors import Assignor, Subscriber
    from kafkalog.client.cluster import PartitionInfo, TopicInfo
    from kafkalog.client.configs import ConfigChange, ConfigEntry, ConfigResource
    from kafkalog.client.consumer import Consumer
    from kafkalog.client.delivery import Delivery, Future, ManyFuture, Piece, RecordMetadata
    from kafkalog.client.features import Feature, Features
    from kafkalog.client.groups import Committed, GroupInfo, GroupListing, GroupMetadata, MemberInfo
    from kafkalog.client.nodes import (
        ClusterInfo,
        LogDir,
        NodeInfo,
        QuorumInfo,
        QuorumReplica,
        ReplicaInfo,
        ReplicaOf,
    )
    from kafkalog.client.producer import Interceptor, Outgoing, Producer
    from kafkalog.client.replicas import Reassignment
    from kafkalog.client.results import Results
    from kafkalog.client.topics import CreatedTopic, NewTopic
    from kafkalog.client.transactions import (
        FencedProducer,
        Hanging,
        ProducerInfo,
        TransactionInfo,
        TransactionListing,
    )
    from kafkalog.clock import Clock
    from kafkalog.log.log import Log
    from kafkalog.log.scan import Scan, ScanBatch, StringColumn
    from kafkalog.mirror.mirror import Mirror, MirrorStatus
    from kafkalog.server.broker import Broker
    from kafkalog.store import Store

__version__ = "0.1.0"

__all__ = [
    *_errors.__all__,
    "Admin",
    "Assignor",
    "Broker",
    "Clock",
    "ClusterInfo",
    "Committed",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "Consumer",
    "CreatedTopic",
    "Delivery",
    "Feature",
    "Features",
    "FencedProducer",
    "Found",
    "Future",
    "GroupInfo",
    "GroupListing",
    "GroupMetadata",
    "Hanging",
    "Interceptor",
    "Log",
    "LogDir",
    "ManyFuture",
    "MemberInfo",
    "Mirror",
    "MirrorStatus",
    "NewTopic",
    "NodeInfo",
    "Outgoing",
    "PartitionInfo",
    "Piece",
    "Producer",
    "ProducerInfo",
    "QuorumInfo",
    "QuorumReplica",
    "Reassignment",
    "Record",
    "RecordMetadata",
    "ReplicaInfo",
    "ReplicaOf",
    "Results",
    "Scan",
    "ScanBatch",
    "Sent",
    "Span",
    "Store",
    "StringColumn",
    "Subscriber",
    "TopicInfo",
    "TopicPartition",
    "TransactionInfo",
    "TransactionListing",
    "__version__",
    "aio",
    "pandas",
    "polars",
    "serializers",
]

_LAZY = {
    "Admin": "kafkalog.client.admin",
    "Assignor": "kafkalog.client.assignors",
    "Broker": "kafkalog.server.broker",
    "Clock": "kafkalog.clock",
    "ClusterInfo": "kafkalog.client.nodes",
    "Committed": "kafkalog.client.groups",
    "ConfigChange": "kafkalog.client.configs",
    "ConfigEntry": "kafkalog.client.configs",
    "ConfigResource": "kafkalog.client.configs",
    "Consumer": "kafkalog.client.consumer",
    "CreatedTopic": "kafkalog.client.topics",
    "Delivery": "kafkalog.client.delivery",
    "Feature": "kafkalog.client.features",
    "Features": "kafkalog.client.features",
    "FencedProducer": "kafkalog.client.transactions",
    "Future": "kafkalog.client.delivery",
    "GroupInfo": "kafkalog.client.groups",
    "GroupListing": "kafkalog.client.groups",
    "GroupMetadata": "kafkalog.client.groups",
    "Hanging": "kafkalog.client.transactions",
    "Interceptor": "kafkalog.client.producer",
    "Log": "kafkalog.log.log",
    "LogDir": "kafkalog.client.nodes",
    "ManyFuture": "kafkalog.client.delivery",
    "MemberInfo": "kafkalog.client.groups",
    "Mirror": "kafkalog.mirror.mirror",
    "MirrorStatus": "kafkalog.mirror.mirror",
    "NewTopic": "kafkalog.client.topics",
    "NodeInfo": "kafkalog.client.nodes",
    "Outgoing": "kafkalog.client.producer",
    "PartitionInfo": "kafkalog.client.cluster",
    "Piece": "kafkalog.client.delivery",
    "Producer": "kafkalog.client.producer",
    "ProducerInfo": "kafkalog.client.transactions",
    "QuorumInfo": "kafkalog.client.nodes",
    "QuorumReplica": "kafkalog.client.nodes",
    "Reassignment": "kafkalog.client.replicas",
    "RecordMetadata": "kafkalog.client.delivery",
    "ReplicaInfo": "kafkalog.client.nodes",
    "ReplicaOf": "kafkalog.client.nodes",
    "Results": "kafkalog.client.results",
    "Scan": "kafkalog.log.scan",
    "ScanBatch": "kafkalog.log.scan",
    "Store": "kafkalog.store",
    "StringColumn": "kafkalog.log.scan",
    "Subscriber": "kafkalog.client.assignors",
    "TopicInfo": "kafkalog.client.cluster",
    "TransactionInfo": "kafkalog.client.transactions",
    "TransactionListing": "kafkalog.client.transactions",
}


def _later(module: str, name: str) -> Any:
    """A function of a part that is imported when it is first called."""

    def call(*args: Any, **options: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*args, **options)

    return call


_give(
    _Above(
        _later("kafkalog.metadata.offline", "lend"),
        _later("kafkalog.inspect.verify.files", "verify"),
        _later("kafkalog.store", "store_of"),
    )
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("aio", "pandas", "polars", "serializers"):
        return import_module(f"kafkalog.{name}")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))
