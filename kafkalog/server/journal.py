"""The coordinators' journals: partitions of `__consumer_offsets`, `__transaction_state` and
`__share_group_state`."""

from collections.abc import Callable, Iterator, Sequence

from kafkalog.coordinator.journal import JournalBatch, journal_batches
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.step import JournalRecord, Producer
from kafkalog.errors import NotLeaderOrFollower
from kafkalog.server.appends import Appends
from kafkalog.server.failures import code_of
from kafkalog.server.partitions import Partitions
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "OFFSETS_TOPIC",
    "REPLICATION_SETTINGS",
    "SHARE_STATE_TOPIC",
    "TRANSACTIONS_TOPIC",
    "Journal",
    "offsets_partition",
]

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
REPLICATION_SETTINGS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
}
"""The settings with the number of replicas of each."""


def offsets_partition(group_id: str, count: int) -> TopicPartition | None:
    """The partition for a group's offsets, of `count`; None if there is none."""
    return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, count)) if count else None


class Journal:
    """Where a coordinator writes its durable state.  Safe to call from any thread."""

    def __init__(self, topic: str, partitions: Partitions, appends: Appends) -> None:
        self._topic = topic
        self._partitions = partitions
        self._appends = appends

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[JournalRecord],
        done: Callable[..., None],
        producer: Producer | None = None,
    ) -> None:
        """As Appends.append; `done` takes the error code, NONE if it succeeded, and the offset of
        the first record, -1 if nothing was appended."""
        base_offset = -1

        def placed(offset: int) -> None:
            nonlocal base_offset
            base_offset = offset

        def outcome(problem: Exception | None) -> None:
            done(ErrorCode.NONE if problem is None else code_of(problem), base_offset)

        where = TopicPartition(self._topic, partition)
        self._appends.append(where, epoch, records, producer, outcome, placed=placed)

    def read(self, partition: int, epoch: int) -> Iterator[JournalBatch]:
        """All batches of a partition; none if nothing was ever written.

        Raises: NotLeaderOrFollower: it is not led in `epoch`; any error of opening and reading a
        log.
        """
        log = self._partitions.existing_log(self._topic, partition)
        if log is None:
            return
        if log.leader_epoch != epoch:
            raise NotLeaderOrFollower(
                f"{self._topic}-{partition}: found leader epoch {log.leader_epoch}, wanted {epoch}"
            )
        yield from journal_batches(log)
