"""A producer's transactions: the id for its transactional id, what joins, how each ends.

Version 2 of KIP-890 if the brokers have it: a partition joins with the first write to it, and each
end raises the epoch.  Otherwise version 1: every partition is added with a request first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from kafkalog import errors
from kafkalog.client.buffer.accumulator import PartitionQueue
from kafkalog.client.calls.groups import CommittedOffset, offset_row
from kafkalog.client.link.chunks import portions, topic_rows
from kafkalog.client.link.cluster import GROUP, TRANSACTION, Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, passing, says_nothing
from kafkalog.client.link.handling import Handling, handling
from kafkalog.client.producer.background_calls import Line
from kafkalog.client.producer.identity import Identity
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Membership", "Transactional"]

_logger = logging.getLogger(__name__)
FEATURE = "transaction.version"
PAUSE_S = 0.02
"""Before a partition is added again: the last transaction may still be ending."""
_FATAL = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""After these a transactional producer can no longer be used."""
_DENIED = (
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


class Membership(Protocol):
    """The member that commits for a group, as a consumer's group_metadata() returns it."""

    @property
    def group(self) -> str:
        """The group's id."""

    @property
    def generation(self) -> int:
        """-1: not a member."""

    @property
    def member_id(self) -> str:
        """Empty: not a member."""

    @property
    def instance_id(self) -> str | None:
        """The id of a static member; None: it is dynamic."""


class Transactional(Identity):
    """A producer id that belongs to a transactional id.  For the sender's thread only, except for
    reads, and calls in its line."""

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        super().__init__(wanted=False)
        self.transactional_id = transactional_id
        self.ready = False
        self.open = False
        """A transaction is open; if there is an error it can only be aborted."""
        self.second = False
        """Version 2 of KIP-890."""
        self.begun_count = 0
        """Transactions so far."""
        self.ending: bool | None = None
        """The end that was sent and is not known to have succeeded (True: a commit)."""
        self._deciding = threading.Lock()  # guards the ends of `open` and `ending`
        self._timeout_ms = timeout_ms
        self._unsure = False
        """A request that begins it at the coordinator was sent and did not succeed."""
        self._joined: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._pause_s = PAUSE_S
        """The next backoff of AddPartitionsToTxn: short at first, as the end of the transaction
        before is usually near."""

    @property
    def produce_version(self) -> int:
        return 12 if self.second else 11

    @property
    def started(self) -> bool:
        """True if the coordinator may know of the transaction."""
        return bool(self._joined or self._groups or self._unsure)

    # ---- the coordinator -----------------------------------------------------------------

    def initialise(self, cluster: Cluster) -> None:
        """Get the id and a new epoch: earlier producers with this transactional id are fenced.

        Raises: what the coordinator answers.
        """
        connection = self._coordinator(cluster)
        body = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self._timeout_ms,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        version = connection.version_of(apis.INIT_PRODUCER_ID, at_most=5)
        answer = connection.call(apis.INIT_PRODUCER_ID, body, version)
        if answer.error_code in _DENIED:  # the right may be given later: it is called again then
            check_code(answer.error_code, f"transactional id {self.transactional_id!r}")
        self._check(answer.error_code, apis.INIT_PRODUCER_ID)
        known = connection.features.get(FEATURE, 0) >= 2
        self.second = known and connection.version_of(apis.END_TXN) >= 5
        self.take(answer.producer_id, answer.producer_epoch)
        self.ready = True

    def _coordinator(self, cluster: Cluster) -> Connection:
        return cluster.connect(cluster.coordinator(self.transactional_id, TRANSACTION))

    def _check(self, code: int, api: Api, of: str = "") -> None:
        """Raise the failure of a code, and apply it to the transaction; `of`: more about what was
        requested than the request's name."""
        try:
            what = f"transactional id {self.transactional_id!r}: {of or api.name}"
            check_code(code, what, api=api)
        except errors.KafkalogError as problem:
            if not passing(problem):
                self._note(problem)
            raise

    def _note(self, problem: errors.KafkalogError) -> None:
        if problem.code in _FATAL:
            self.doom(problem)
        elif self.open:
            self.spoil(problem)

    def spoil(self, problem: errors.KafkalogError) -> None:
        """The open transaction can only be aborted."""
        problem.abortable = not problem.fatal
        self.error = self.error or problem

    def failed(self, problem: errors.KafkalogError, sent: bool) -> None:
        """A batch was given up: the transaction cannot be committed."""
        # After an epoch that is too old the coordinator says at the abort whether it is fenced.
        if problem.code == ErrorCode.INVALID_PRODUCER_EPOCH and self.open:
            self.spoil(problem)
        else:
            self._note(problem)

    def begin(self) -> None:
        """Records sent from now on belong to a new transaction."""
        self.open, self.error, self.ending = True, None, None
        self.begun_count += 1

    def not_in_doubt(self) -> None:
        """Raises: InvalidTxnState: a commit was sent, and is not known to have failed."""
        if self.ending:
            raise errors.InvalidTxnState(
                f"transactional id {self.transactional_id!r}: the commit was not answered and may "
                "have succeeded: call commit_transaction again, or close the producer"
            )

    def not_given_up(self, number: int | None = None) -> None:
        """Raise if an abort has dropped records of the transaction, even if it is still open.

        `number`: `begun_count` as it was when the transaction began.  Raises: InvalidTxnState.
        """
        another = number not in (None, self.begun_count)
        if another or not self.open or self.ending is False:
            raise errors.InvalidTxnState(
                f"transactional id {self.transactional_id!r}: the transaction was aborted: "
                "abort_transaction again if that failed, or begin the next one"
                if self.ending is False and not another
                else f"transactional id {self.transactional_id!r}: the transaction has ended"
            )

    def decide(self, commit: bool) -> None:
        """Set how it ends: of two threads that end it the first decides.

        Raises: InvalidTxnState: it has ended, or will end the other way.
        """
        with self._deciding:
            if commit or not self.open:
                self.not_given_up()
            else:
                self.not_in_doubt()
            self.ending = commit

    def join(
        self, line: Line, queues: Mapping[int, Sequence[PartitionQueue]]
    ) -> list[PartitionQueue]:
        found = [x for some in queues.values() for x in some if x.tp not in self._joined]
        if self.second:  # the leaders add them at the coordinator
            self._joined.update(queue.tp for queue in found)
            return []
        if found and line.free:
            line.begin(partial(self._join, found))
        return found

    def _join(self, found: Sequence[PartitionQueue], cluster: Cluster) -> None:
        """In the line."""
        try:
            for some in portions([queue.tp for queue in found]):
                self._announce(cluster, some)
        except errors.KafkalogError as problem:
            now_s, most_s = time.monotonic(), cluster.options.retry_backoff_max_ms / 1000
            if passing(problem):
                cluster.forget_coordinators()
                if self._troubles.failed("join", problem, now_s):
                    _logger.warning("the records of a transaction wait: %s", problem)
            else:
                self._note(problem)
            for queue in found:
                queue.retry_at_s = now_s + self._pause_s
            self._pause_s = min(self._pause_s * 2, most_s)
            return
        self._pause_s = PAUSE_S
        self._troubles.ended("join")
        self._joined.update(queue.tp for queue in found)

    def _announce(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
        body = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": topic_rows(partitions),
        }
        connection = self._coordinator(cluster)
        version = connection.version_of(apis.ADD_PARTITIONS_TO_TXN, at_most=3)
        self._unsure = True
        answer = connection.call(apis.ADD_PARTITIONS_TO_TXN, body, version)
        codes = {
            row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        for code in sorted(codes, key=lambda c: c == ErrorCode.OPERATION_NOT_ATTEMPTED):
            self._check(code, apis.ADD_PARTITIONS_TO_TXN)
        self._unsure = False

    def end(self, cluster: Cluster, commit: bool) -> None:
        """Commit or abort the transaction; called again after a transient failure it continues
        where it stopped.

        Raises: what the coordinator answers; for a commit also the transaction's own failure.
        """
        if self.fatal is not None:
            raise self.fatal
        if commit and self.error is not None:
            raise self.error
        spoilt = self.error is not None or self._unsure
        # A failed request may still have begun it.
        if self.started or (spoilt and self.second):
            self._end(cluster, commit, spoilt)
        if not self.ready:
            self.initialise(cluster)  # a new epoch: requests lost on the way stay without effect
        with self._deciding:
            self.open, self.error, self.ending = False, None, None

    def _end(self, cluster: Cluster, commit: bool, spoilt: bool) -> None:
        connection = self._coordinator(cluster)
        body = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }
        version = connection.version_of(apis.END_TXN, at_most=5 if self.second else 4)
        self.decide(commit)
        answer = connection.call(apis.END_TXN, body, version)
        code = answer.error_code
        if says_nothing(code):  # it may have been done: send the same again
            check_code(
                code, f"transactional id {self.transactional_id!r}: EndTxn", api=apis.END_TXN
            )
        if code and handling(code, apis.END_TXN) is Handling.RAISE:
            self.ending = None
        if not (code == ErrorCode.INVALID_TXN_STATE and not commit and self._only_unsure):
            self._check(code, apis.END_TXN)
        if version >= 5 and answer.producer_id >= 0:
            self.take(answer.producer_id, answer.producer_epoch)
        elif spoilt:
            self.ready = False
        self._joined.clear()
        self._groups.clear()
        self._unsure = False

    @property
    def _only_unsure(self) -> bool:
        """True if the coordinator may rightly know no transaction."""
        return self._unsure and not self._joined and not self._groups

    # ---- offsets -------------------------------------------------------------------------

    def send_offsets(
        self, cluster: Cluster, offsets: Mapping[TopicPartition, CommittedOffset], by: Membership
    ) -> None:
        """Commit offsets of a group with the transaction.

        Raises: InvalidTxnState: another thread has ended it; what the coordinators answer: then the
        transaction can only be aborted.
        """
        self.not_given_up()
        self.not_in_doubt()
        if self.fatal is not None or self.error is not None:
            raise self.fatal or self.error or AssertionError
        if not self.second and by.group not in self._groups:
            connection = self._coordinator(cluster)
            body = {
                "transactional_id": self.transactional_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "group_id": by.group,
            }
            self._unsure = True
            answer = connection.call(apis.ADD_OFFSETS_TO_TXN, body)
            self._check(answer.error_code, apis.ADD_OFFSETS_TO_TXN)
            self._unsure = False
        self._groups.add(by.group)
        for some in portions(list(offsets.items())):
            self._commit(cluster, some, by)

    def _commit(
        self,
        cluster: Cluster,
        offsets: Sequence[tuple[TopicPartition, CommittedOffset]],
        by: Membership,
    ) -> None:
        """Commit the offsets of one request."""
        rows = ((tp.topic, offset_row(tp, what)) for tp, what in offsets)
        body = {
            "transactional_id": self.transactional_id,
            "group_id": by.group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "generation_id_or_member_epoch": by.generation,
            "member_id": by.member_id,
            "group_instance_id": by.instance_id,
            "topics": topic_rows(rows),
        }
        connection = cluster.connect(cluster.coordinator(by.group, GROUP))
        version = connection.version_of(apis.TXN_OFFSET_COMMIT, at_most=5 if self.second else 4)
        answer = connection.call(apis.TXN_OFFSET_COMMIT, body, version)
        for topic in answer.topics:
            for row in topic.partitions:
                of = f"offsets of group {by.group!r}, {topic.name}-{row.partition_index}"
                self._check(row.error_code, apis.TXN_OFFSET_COMMIT, of)
