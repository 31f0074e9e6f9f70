"""kafkalog: an embeddable commit log that is Kafka.

The public names are in __all__; everything else is private.  The failures that programs catch
most often are here; all are in `kafkalog.errors`.  Heavy packages (numpy, pyarrow, the codecs) are
imported at first use, and so are most of the names below.
"""

import typing as _t

from kafkalog import errors, types
from kafkalog.errors import (
    Closed,
    ForkedHandle,
    KafkalogError,
    Locked,
    NoSpace,
    OffsetOutOfRange,
    Timeout,
    UnexpectedAppendOffset,
)
from kafkalog.log.hooks import Hooks as _Hooks
from kafkalog.log.hooks import give as _give
from kafkalog.types import (
    AppendedOffsets,
    FoundOffset,
    Record,
    SentBatches,
    SharedRecord,
    TopicPartition,
)

if _t.TYPE_CHECKING:
    from kafkalog import aio, arrow, opentelemetry, pandas, polars, serializers
    from kafkalog.client.admin import Admin
    from kafkalog.client.buffer.delivery import (
        Delivery,
        Future,
        ManyFuture,
        RecordMetadata,
        SentRange,
    )
    from kafkalog.client.calls.acls import AclBinding, AclBindingFilter
    from kafkalog.client.calls.configs import ConfigChange, ConfigEntry, ConfigResource
    from kafkalog.client.calls.features import Feature, Features
    from kafkalog.client.calls.groups import (
        CommittedOffset,
        GroupInfo,
        GroupListing,
        GroupMetadata,
        MemberInfo,
    )
    from kafkalog.client.calls.nodes import (
        ClusterInfo,
        LogDir,
        NodeInfo,
        ReplicaInfo,
        ReplicaOf,
    )
    from kafkalog.client.calls.quorum import QuorumInfo, QuorumReplica, RaftVoterEndpoint
    from kafkalog.client.calls.replicas import Reassignment
    from kafkalog.client.calls.results import Results
    from kafkalog.client.calls.share_groups import ShareOffset
    from kafkalog.client.calls.streams_groups import (
        StreamsGroupInfo,
        StreamsMemberInfo,
        StreamsTask,
        SubtopologyInfo,
    )
    from kafkalog.client.calls.tokens import DelegationToken
    from kafkalog.client.calls.topics import CreatedTopic, NewTopic
    from kafkalog.client.calls.transactions import (
        FencedProducer,
        HangingTransaction,
        ProducerInfo,
        TransactionInfo,
        TransactionListing,
    )
    from kafkalog.client.calls.users import (
        ScramCredentialInfo,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from kafkalog.client.consumer.assignors import Assignor, Subscriber
    from kafkalog.client.consumer.consumer import Consumer
    from kafkalog.client.link.metadata import PartitionInfo, TopicInfo
    from kafkalog.client.producer.producer import Interceptor, OutgoingRecord, Producer
    from kafkalog.client.shares.consumer import ShareConsumer
    from kafkalog.clock import Clock
    from kafkalog.collector import MetricsCollector
    from kafkalog.log.log import Log
    from kafkalog.log.scan.scan import Scan, ScanBatch, StringColumn
    from kafkalog.mirror.mirror import Mirror, MirrorStatus
    from kafkalog.security.acls import Acl, AclFilter
    from kafkalog.server.broker import Broker
    from kafkalog.store import Store

__version__ = "0.1.0"

__all__ = [
    "Acl",
    "AclBinding",
    "AclBindingFilter",
    "AclFilter",
    "Admin",
    "AppendedOffsets",
    "Assignor",
    "Broker",
    "Clock",
    "Closed",
    "ClusterInfo",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "Consumer",
    "CreatedTopic",
    "DelegationToken",
    "Delivery",
    "Feature",
    "Features",
    "FencedProducer",
    "ForkedHandle",
    "FoundOffset",
    "Future",
    "GroupInfo",
    "GroupListing",
    "GroupMetadata",
    "HangingTransaction",
    "Interceptor",
    "KafkalogError",
    "Locked",
    "Log",
    "LogDir",
    "ManyFuture",
    "MemberInfo",
    "MetricsCollector",
    "Mirror",
    "MirrorStatus",
    "NewTopic",
    "NoSpace",
    "NodeInfo",
    "OffsetOutOfRange",
    "OutgoingRecord",
    "PartitionInfo",
    "Producer",
    "ProducerInfo",
    "QuorumInfo",
    "QuorumReplica",
    "RaftVoterEndpoint",
    "Reassignment",
    "Record",
    "RecordMetadata",
    "ReplicaInfo",
    "ReplicaOf",
    "Results",
    "Scan",
    "ScanBatch",
    "ScramCredentialInfo",
    "SentBatches",
    "SentRange",
    "ShareConsumer",
    "ShareOffset",
    "SharedRecord",
    "Store",
    "StreamsGroupInfo",
    "StreamsMemberInfo",
    "StreamsTask",
    "StringColumn",
    "Subscriber",
    "SubtopologyInfo",
    "Timeout",
    "TopicInfo",
    "TopicPartition",
    "TransactionInfo",
    "TransactionListing",
    "UnexpectedAppendOffset",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "__version__",
    "aio",
    "arrow",
    "errors",
    "opentelemetry",
    "pandas",
    "polars",
    "serializers",
    "types",
]

_LAZY = {
    "Acl": "kafkalog.security.acls",
    "AclBinding": "kafkalog.client.calls.acls",
    "AclBindingFilter": "kafkalog.client.calls.acls",
    "AclFilter": "kafkalog.security.acls",
    "Admin": "kafkalog.client.admin",
    "Assignor": "kafkalog.client.consumer.assignors",
    "Broker": "kafkalog.server.broker",
    "Clock": "kafkalog.clock",
    "ClusterInfo": "kafkalog.client.calls.nodes",
    "CommittedOffset": "kafkalog.client.calls.groups",
    "ConfigChange": "kafkalog.client.calls.configs",
    "ConfigEntry": "kafkalog.client.calls.configs",
    "ConfigResource": "kafkalog.client.calls.configs",
    "Consumer": "kafkalog.client.consumer.consumer",
    "CreatedTopic": "kafkalog.client.calls.topics",
    "DelegationToken": "kafkalog.client.calls.tokens",
    "Delivery": "kafkalog.client.buffer.delivery",
    "Feature": "kafkalog.client.calls.features",
    "Features": "kafkalog.client.calls.features",
    "FencedProducer": "kafkalog.client.calls.transactions",
    "Future": "kafkalog.client.buffer.delivery",
    "GroupInfo": "kafkalog.client.calls.groups",
    "GroupListing": "kafkalog.client.calls.groups",
    "GroupMetadata": "kafkalog.client.calls.groups",
    "HangingTransaction": "kafkalog.client.calls.transactions",
    "Interceptor": "kafkalog.client.producer.producer",
    "Log": "kafkalog.log.log",
    "LogDir": "kafkalog.client.calls.nodes",
    "ManyFuture": "kafkalog.client.buffer.delivery",
    "MemberInfo": "kafkalog.client.calls.groups",
    "MetricsCollector": "kafkalog.collector",
    "Mirror": "kafkalog.mirror.mirror",
    "MirrorStatus": "kafkalog.mirror.mirror",
    "NewTopic": "kafkalog.client.calls.topics",
    "NodeInfo": "kafkalog.client.calls.nodes",
    "OutgoingRecord": "kafkalog.client.producer.producer",
    "PartitionInfo": "kafkalog.client.link.metadata",
    "Producer": "kafkalog.client.producer.producer",
    "ProducerInfo": "kafkalog.client.calls.transactions",
    "QuorumInfo": "kafkalog.client.calls.quorum",
    "QuorumReplica": "kafkalog.client.calls.quorum",
    "RaftVoterEndpoint": "kafkalog.client.calls.quorum",
    "Reassignment": "kafkalog.client.calls.replicas",
    "RecordMetadata": "kafkalog.client.buffer.delivery",
    "ReplicaInfo": "kafkalog.client.calls.nodes",
    "ReplicaOf": "kafkalog.client.calls.nodes",
    "Results": "kafkalog.client.calls.results",
    "Scan": "kafkalog.log.scan.scan",
    "ScanBatch": "kafkalog.log.scan.scan",
    "ScramCredentialInfo": "kafkalog.client.calls.users",
    "SentRange": "kafkalog.client.buffer.delivery",
    "ShareOffset": "kafkalog.client.calls.share_groups",
    "StreamsGroupInfo": "kafkalog.client.calls.streams_groups",
    "StreamsMemberInfo": "kafkalog.client.calls.streams_groups",
    "StreamsTask": "kafkalog.client.calls.streams_groups",
    "SubtopologyInfo": "kafkalog.client.calls.streams_groups",
    "ShareConsumer": "kafkalog.client.shares.consumer",
    "Store": "kafkalog.store",
    "StringColumn": "kafkalog.log.scan.scan",
    "Subscriber": "kafkalog.client.consumer.assignors",
    "TopicInfo": "kafkalog.client.link.metadata",
    "TransactionInfo": "kafkalog.client.calls.transactions",
    "TransactionListing": "kafkalog.client.calls.transactions",
    "UserScramCredentialDeletion": "kafkalog.client.calls.users",
    "UserScramCredentialUpsertion": "kafkalog.client.calls.users",
}
_MODULES = ("aio", "arrow", "opentelemetry", "pandas", "polars", "serializers")


def _later(module: str, name: str) -> _t.Any:
    """A function whose module is imported at the first call."""

    def call(*args: _t.Any, **options: _t.Any) -> _t.Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*args, **options)

    return call


_give(
    _Hooks(
        _later("kafkalog.kraft.offline", "lend"),
        _later("kafkalog.inspect.verify.files", "verify"),
        _later("kafkalog.store", "store_of"),
    )
)


if not _t.TYPE_CHECKING:  # otherwise a type checker would accept any name as public

    def __getattr__(name):
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"kafkalog.{name}")
        if name not in _LAZY:
            known = " (kafkalog.errors has it)" if name in errors.__all__ else ""
            raise AttributeError(f"module 'kafkalog' has no attribute {name!r}{known}")
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
