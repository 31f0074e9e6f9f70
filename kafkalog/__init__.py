"""kafkalog: an embeddable commit log that is Kafka.

The public names; what is not in __all__ is private.  Everything heavy (numpy, pyarrow, the
codecs) is imported when it is first used, and so are the names below.
"""

from typing import TYPE_CHECKING, Any

from kafkalog import errors as _errors
from kafkalog.errors import *  # noqa: F403
from kafkalog.log.hooks import Hooks as _Hooks
from kafkalog.log.hooks import give as _give
from kafkalog.types import Found, Record, Sent, Span, TopicPartition

if TYPE_CHECKING:
    from kafkalog import aio, pandas, polars, serializers
    from kafkalog.client.admin import Admin
    from kafkalog.client.buffer.delivery import Delivery, Future, ManyFuture, Piece, RecordMetadata
    from kafkalog.client.calls.configs import ConfigChange, ConfigEntry, ConfigResource
    from kafkalog.client.calls.features import Feature, Features
    from kafkalog.client.calls.groups import (
        Committed,
        GroupInfo,
        GroupListing,
        GroupMetadata,
        MemberInfo,
    )
    from kafkalog.client.calls.nodes import (
        ClusterInfo,
        LogDir,
        NodeInfo,
        QuorumInfo,
        QuorumReplica,
        ReplicaInfo,
        ReplicaOf,
    )
    from kafkalog.client.calls.replicas import Reassignment
    from kafkalog.client.calls.results import Results
    from kafkalog.client.calls.topics import CreatedTopic, NewTopic
    from kafkalog.client.calls.transactions import (
        FencedProducer,
        Hanging,
        ProducerInfo,
        TransactionInfo,
        TransactionListing,
    )
    from kafkalog.client.consumer.assignors import Assignor, Subscriber
    from kafkalog.client.consumer.consumer import Consumer
    from kafkalog.client.link.cluster import PartitionInfo, TopicInfo
    from kafkalog.client.producer.producer import Interceptor, Outgoing, Producer
    from kafkalog.clock import Clock
    from kafkalog.log.log import Log
    from kafkalog.log.scan.scan import Scan, ScanBatch, StringColumn
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
    "Assignor": "kafkalog.client.consumer.assignors",
    "Broker": "kafkalog.server.broker",
    "Clock": "kafkalog.clock",
    "ClusterInfo": "kafkalog.client.calls.nodes",
    "Committed": "kafkalog.client.calls.groups",
    "ConfigChange": "kafkalog.client.calls.configs",
    "ConfigEntry": "kafkalog.client.calls.configs",
    "ConfigResource": "kafkalog.client.calls.configs",
    "Consumer": "kafkalog.client.consumer.consumer",
    "CreatedTopic": "kafkalog.client.calls.topics",
    "Delivery": "kafkalog.client.buffer.delivery",
    "Feature": "kafkalog.client.calls.features",
    "Features": "kafkalog.client.calls.features",
    "FencedProducer": "kafkalog.client.calls.transactions",
    "Future": "kafkalog.client.buffer.delivery",
    "GroupInfo": "kafkalog.client.calls.groups",
    "GroupListing": "kafkalog.client.calls.groups",
    "GroupMetadata": "kafkalog.client.calls.groups",
    "Hanging": "kafkalog.client.calls.transactions",
    "Interceptor": "kafkalog.client.producer.producer",
    "Log": "kafkalog.log.log",
    "LogDir": "kafkalog.client.calls.nodes",
    "ManyFuture": "kafkalog.client.buffer.delivery",
    "MemberInfo": "kafkalog.client.calls.groups",
    "Mirror": "kafkalog.mirror.mirror",
    "MirrorStatus": "kafkalog.mirror.mirror",
    "NewTopic": "kafkalog.client.calls.topics",
    "NodeInfo": "kafkalog.client.calls.nodes",
    "Outgoing": "kafkalog.client.producer.producer",
    "PartitionInfo": "kafkalog.client.link.cluster",
    "Piece": "kafkalog.client.buffer.delivery",
    "Producer": "kafkalog.client.producer.producer",
    "ProducerInfo": "kafkalog.client.calls.transactions",
    "QuorumInfo": "kafkalog.client.calls.nodes",
    "QuorumReplica": "kafkalog.client.calls.nodes",
    "Reassignment": "kafkalog.client.calls.replicas",
    "RecordMetadata": "kafkalog.client.buffer.delivery",
    "ReplicaInfo": "kafkalog.client.calls.nodes",
    "ReplicaOf": "kafkalog.client.calls.nodes",
    "Results": "kafkalog.client.calls.results",
    "Scan": "kafkalog.log.scan.scan",
    "ScanBatch": "kafkalog.log.scan.scan",
    "Store": "kafkalog.store",
    "StringColumn": "kafkalog.log.scan.scan",
    "Subscriber": "kafkalog.client.consumer.assignors",
    "TopicInfo": "kafkalog.client.link.cluster",
    "TransactionInfo": "kafkalog.client.calls.transactions",
    "TransactionListing": "kafkalog.client.calls.transactions",
}


def _later(module: str, name: str) -> Any:
    """A function of a part that is imported when it is first called."""

    def call(*args: Any, **options: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*args, **options)

    return call


_give(
    _Hooks(
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
