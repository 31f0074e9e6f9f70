"""All failures, each defined once: its C status, Kafka's error number, whether a retry may help.

The data plane's failures name their `kl_status`; kafkalog._native maps one to the other by
reflection and refuses to load when a status has no class here.  A class also inherits the
builtin exception that a Python developer would expect to catch.
"""

import errno
import re
from typing import ClassVar

from kafkalog.types import TopicPartition

__all__ = [
    "ArgumentError",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BadAnswer",
    "BadZnode",
    "BufferTooSmall",
    "Closed",
    "ClusterAuthorizationFailed",
    "CorruptLog",
    "CorruptMessage",
    "DuplicateBrokerRegistration",
    "FencedLeaderEpoch",
    "ForkedHandle",
    "GroupAuthorizationFailed",
    "IllegalSaslState",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidRecordState",
    "InvalidRequest",
    "InvalidSetting",
    "InvalidTimestamp",
    "InvalidTopic",
    "InvalidTxnState",
    "IoFailed",
    "KafkalogError",
    "Locked",
    "LogTruncation",
    "MessageTooLarge",
    "MissingPackage",
    "NoMemory",
    "NoSpace",
    "NotController",
    "NotEnoughReplicas",
    "NotFound",
    "NotLeaderOrFollower",
    "OffsetOutOfRange",
    "OutOfOrderSequenceNumber",
    "PeerGone",
    "ProducerFenced",
    "ReadOnly",
    "RecordListTooLarge",
    "SaslAuthenticationFailed",
    "SslAuthenticationFailed",
    "StaleLog",
    "StorageOffline",
    "Timeout",
    "TopicAuthorizationFailed",
    "TopicExists",
    "TransactionAborted",
    "TransactionCoordinatorFenced",
    "TransactionalIdAuthorizationFailed",
    "Undeserializable",
    "UnexpectedAppendOffset",
    "UnknownSetting",
    "UnknownTopicOrPartition",
    "UnsupportedCompressionType",
    "UnsupportedForMessageFormat",
    "UnsupportedSaslMechanism",
    "UnsupportedVersion",
    "WakeUp",
    "WrongThread",
    "ZooKeeperAway",
]


class KafkalogError(Exception):
    """The root of all failures of kafkalog."""

    code: ClassVar[int | None] = None
    """Kafka's error number; None if Kafka has none."""
    retriable: bool = False
    """True if the same call may succeed later, unchanged."""
    status: ClassVar[str | None] = None
    """Its kl_status; None if only Python raises it."""
    abortable: bool = False
    """On a producer: its transaction can only be aborted; then the producer works again."""
    fatal: bool = False
    """On a producer: it can no longer be used; create another one."""
    partition: TopicPartition | None = None
    """From a consumer's `poll`: the partition that failed; None if not about one."""


_FOLDERS = re.compile(r"(?<![\w/])/(?:[^/\s:,]+/)+")


def for_clients(problem: BaseException) -> str:
    """The message of a failure as a network client may read it: without the folders of data
    files, and of a disk's failure only the kind.
    """
    if isinstance(problem, OSError) or not isinstance(problem, KafkalogError):
        found = (type(problem).__doc__ or "").partition("\n")[0]
        return found if isinstance(problem, KafkalogError) else "An error of the broker."
    return _FOLDERS.sub("", str(problem))


def passes(problem: BaseException) -> bool:
    """True if a resource ran out (space, memory, descriptors): a later attempt may succeed."""
    if isinstance(problem, (NoSpace, NoMemory)):
        return True
    return isinstance(problem, OSError) and problem.errno in (
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    )  # fmt: skip


def told_once(problem: BaseException) -> object:
    """The common part of failures that are logged once: on a full disk each file would get its
    own message."""
    return NoSpace if isinstance(problem, NoSpace) else (type(problem), str(problem))


# ---- the caller's ----------------------------------------------------------------------


class ArgumentError(KafkalogError, ValueError):
    """An argument is out of its range."""

    status: ClassVar[str | None] = "KL_E_ARGUMENT"


class InvalidSetting(ArgumentError):
    """A setting's value does not parse or is out of its range."""

    code = 40
    status = None


class UnknownSetting(InvalidSetting):
    """There is no setting with that name; the message names the nearest one."""


class InvalidTopic(ArgumentError):
    """The name cannot be a topic's: 1 to 249 letters, digits, `.`, `_`, `-`; not `.` or `..`."""

    code = 17
    status = None


class TopicExists(KafkalogError):
    """The directory already holds the topic or partition."""

    code = 36


class UnknownTopicOrPartition(KafkalogError, LookupError):
    """The directory holds no such topic or partition."""

    code = 3
    retriable = True


class MissingPackage(KafkalogError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class Closed(KafkalogError, ValueError):
    """The log, scan or directory was closed; ValueError as for a closed file."""

    status = "KL_E_CLOSED"


class ForkedHandle(KafkalogError, RuntimeError):
    """The handle belongs to the parent process: open another one in this process."""

    status = "KL_E_FORKED"


class WrongThread(KafkalogError, RuntimeError):
    """Another thread is using an object that allows only one thread at a time."""


class WakeUp(KafkalogError):
    """A wait was ended by `wakeup`: nothing is wrong."""


class ReadOnly(KafkalogError):
    """The log was opened for reading."""

    status = "KL_E_READ_ONLY"


class Timeout(KafkalogError, TimeoutError):
    """The timeout has passed; what was waited for may still happen."""

    code = 7
    retriable = True
    status = "KL_E_TIMEOUT"


class BufferTooSmall(KafkalogError, ValueError):
    """The caller's buffer is too small for the result."""

    status = "KL_E_BUFFER_TOO_SMALL"


# ---- the world's -----------------------------------------------------------------------


class NoMemory(KafkalogError, MemoryError):
    """An allocation failed."""

    retriable = True
    status = "KL_E_NO_MEMORY"


class IoFailed(KafkalogError, OSError):
    """A system call failed and nothing was changed; `.errno` says how."""

    code = 56
    retriable = True
    status = "KL_E_IO"


class NoSpace(IoFailed):
    """The disk is full and nothing was changed; passes when space returns."""

    status = "KL_E_NO_SPACE"


class StorageOffline(KafkalogError, OSError):
    """An earlier write-back failed: this log takes no more changes until it is reopened."""

    code = 56
    status = "KL_E_STORAGE"


class Locked(KafkalogError):
    """Another process or handle owns the directory; the message names its pid."""

    retriable = True
    status = "KL_E_LOCKED"


class NotFound(KafkalogError, FileNotFoundError):
    """There is no such file or directory."""

    status = "KL_E_NOT_FOUND"


class CorruptLog(KafkalogError):
    """Bytes on disk are not what was written."""

    status = "KL_E_CORRUPT"


class BadAnswer(KafkalogError):
    """A broker's answer breaks the protocol, or is not Kafka's; its connection was closed."""


class BadZnode(KafkalogError):
    """A znode of the cluster in ZooKeeper does not hold what Kafka would write."""


class StaleLog(KafkalogError):
    """The log changed under a reader: refresh it or start again."""

    retriable = True
    status = "KL_E_STALE"


class PeerGone(KafkalogError, ConnectionError):
    """The other end of a socket went away."""

    status = "KL_E_PEER"


# ---- what Kafka refuses, by Kafka's names ----------------------------------------------


class ZooKeeperAway(KafkalogError, ConnectionError):
    """No server of the ensemble answered in time; it is unknown whether a write was done."""

    retriable = True


class OffsetOutOfRange(KafkalogError, LookupError):
    """The offset is below the log's start or past its end."""

    code = 1
    status: ClassVar[str | None] = "KL_E_OFFSET_OUT_OF_RANGE"


class LogTruncation(OffsetOutOfRange):
    """The log was truncated below the position: another leader has other records there, or none."""

    status: ClassVar[str | None] = None
    offset: int = -1
    """Where the log diverges from what was read; -1: unknown."""


class CorruptMessage(KafkalogError):
    """A record batch fails its checksum, or its lengths cannot be a batch."""

    code = 2
    retriable = True
    status = "KL_E_CORRUPT_MESSAGE"


class MessageTooLarge(KafkalogError, ValueError):
    """A record batch is larger than max.message.bytes."""

    code = 10
    status = "KL_E_MESSAGE_TOO_LARGE"


class RecordListTooLarge(KafkalogError, ValueError):
    """The batches of one append are together larger than a segment."""

    code = 18
    status = "KL_E_RECORD_LIST_TOO_LARGE"


class InvalidRecord(KafkalogError, ValueError):
    """A record breaks the format's or the topic's rules."""

    code = 87
    status = "KL_E_INVALID_RECORD"


class InvalidRequest(KafkalogError, ValueError):
    """The bytes are not a valid message; says which field, what was found and wanted."""

    code = 42


class InvalidTimestamp(KafkalogError, ValueError):
    """A timestamp is further from now than the topic allows."""

    code = 32
    status = "KL_E_INVALID_TIMESTAMP"


class UnsupportedCompressionType(KafkalogError, ValueError):
    """The codec's number is unknown."""

    code = 76
    status = "KL_E_UNSUPPORTED_COMPRESSION_TYPE"


class UnsupportedForMessageFormat(KafkalogError):
    """The message format is older than Kafka 0.11's (magic 0 or 1)."""

    code = 43
    status = "KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT"


class UnsupportedVersion(KafkalogError, ValueError):
    """A request, response or record has an unknown version."""

    code = 35


class OutOfOrderSequenceNumber(KafkalogError):
    """A producer's batch does not follow its last one."""

    code = 45
    status = "KL_E_OUT_OF_ORDER_SEQUENCE_NUMBER"


class InvalidProducerEpoch(KafkalogError):
    """The producer was fenced by a newer one of the same id."""

    code = 47
    status = "KL_E_INVALID_PRODUCER_EPOCH"


class InvalidTxnState(KafkalogError):
    """The batch or marker does not fit the state of its transaction."""

    code = 48
    status = "KL_E_INVALID_TXN_STATE"


class InvalidRecordState(KafkalogError):
    """A member of a share group does not hold the record any more: its lock has ended."""

    code = 121


class TransactionCoordinatorFenced(KafkalogError):
    """The marker comes from a coordinator that a newer one replaced."""

    code = 52
    status = "KL_E_TRANSACTION_COORDINATOR_FENCED"


class UnexpectedAppendOffset(KafkalogError, ValueError):
    """The log ends elsewhere than an append's `expected_offset` or a follower's batch requires."""

    status = "KL_E_UNEXPECTED_APPEND_OFFSET"


class ProducerFenced(KafkalogError):
    """Another producer has the same transactional id now; close this one."""

    code = 90


class Undeserializable(KafkalogError, ValueError):
    """A consumer's deserializer raised: `seek` past the record, or read it as bytes."""


class TransactionAborted(KafkalogError):
    """The transaction was aborted, and with it this record or call."""


class FencedLeaderEpoch(KafkalogError):
    """The leader epoch is older than the log's."""

    code = 74
    retriable = True
    status = "KL_E_FENCED_LEADER_EPOCH"


class NotLeaderOrFollower(KafkalogError):
    """Another node leads the partition."""

    code = 6
    retriable = True
    status = "KL_E_NOT_LEADER_OR_FOLLOWER"


class AuthenticationFailed(KafkalogError):
    """A client and a broker do not accept each other; clients do not retry."""


class SaslAuthenticationFailed(AuthenticationFailed):
    """The name, the password or the token does not authenticate the client, or the broker."""

    code = 58


class SslAuthenticationFailed(AuthenticationFailed):
    """TLS failed: a certificate is not accepted, or there is no common version or suite."""


class UnsupportedSaslMechanism(AuthenticationFailed):
    """The broker does not offer the client's mechanism."""

    code = 33


class IllegalSaslState(AuthenticationFailed):
    """A request came before the login was complete, or a login where none is possible."""

    code = 34


class AuthorizationFailed(KafkalogError):
    """The principal may not do this; clients do not retry."""


class TopicAuthorizationFailed(AuthorizationFailed):
    """The principal may not do this to the topic."""

    code = 29


class GroupAuthorizationFailed(AuthorizationFailed):
    """The principal may not do this to the group."""

    code = 30


class ClusterAuthorizationFailed(AuthorizationFailed):
    """The principal may not do this to the cluster."""

    code = 31


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """The principal may not use the transactional id."""

    code = 53


class NotController(KafkalogError):
    """This node is not the controller, and does not know or cannot reach it."""

    code = 41
    retriable = True


class DuplicateBrokerRegistration(KafkalogError):
    """Another live broker in the cluster has that id."""

    code = 101


class NotEnoughReplicas(KafkalogError):
    """Fewer replicas are in sync than min.insync.replicas requires for acks=all."""

    code = 19
    retriable = True
    status = "KL_E_NOT_ENOUGH_REPLICAS"
