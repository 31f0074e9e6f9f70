"""The metadata log as the store of a controller, and what the controller answers.

A step's records are appended together, and are in the image once they are committed.  Only the
active controller appends, so nothing is refused because it has changed since: an append that fails
means that another controller is active, or may be.

The rules differ from those of a controller on ZooKeeper, as Apache Kafka's do: one record of a
partition has all that follows from a decision, and its ISR may be empty.  So the steps are this
folder's; they share the queue (kafkalog.controller.core), the rules about topics and settings, and
the placement of replicas with the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalog.controller.active import Active, Answer, NotActive, Periodic, Steps, Work
from kafkalog.controller.context import Context
from kafkalog.controller.events import Clock, Options
from kafkalog.controller.records import Record, TopicPartition
from kafkalog.controller.requests import RequestBatch, Send
from kafkalog.errors import MessageTooLarge
from kafkalog.metadata.image import MetadataImage
from kafkalog.quorum import isr, moves, planned, registrations, topics
from kafkalog.quorum.activation import ABORT, activation, in_batches
from kafkalog.quorum.deciding import level_of
from kafkalog.quorum.sessions import Committed, Sessions
from kafkalog.quorum.writing import (
    Append,
    ChangeKraftVersion,
    MetadataRecord,
    MetadataRecords,
)
from kafkalog.wire import apis
from kafkalog.wire.tables.cluster import UNREGISTER_BROKER
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from kafkalog.wire.tables.later.quorum import (
    ASSIGN_REPLICAS_TO_DIRS,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    CONTROLLER_REGISTRATION,
)

__all__ = ["QuorumStore", "SessionsDue", "Snapshot"]

RECORDS_MAX = 10_000
"""Records in one append, as in Kafka."""
IDLE_MS, UNCLEAN_MS, TOKENS_MS = 500, 300_000, 3_600_000
"""metadata.max.idle.interval.ms, unclean.leader.election.interval.ms and
delegation.token.expiry.check.interval.ms, where the node's settings have none."""


class SessionsDue(NamedTuple):
    """A session may have ended: sent at Sessions.next_ms, or later."""


Step = Callable[..., Steps[dict[str, Any]]]


class Snapshot:
    """The content of the metadata log when a controller becomes active."""

    written_by: Mapping[TopicPartition, int] = {}
    written_at: Mapping[TopicPartition, int] = {}
    unread: frozenset[TopicPartition] = frozenset()
    deleted: frozenset[str] = frozenset()
    problems: Sequence[Exception] = ()

    def __init__(self, image: MetadataImage, in_transaction: bool = False) -> None:
        """`in_transaction`: the log ends inside of a transaction (Replay.in_transaction)."""
        self.whole = image
        """All metadata."""
        self.in_transaction = in_transaction
        self.image = image._replace(topics={}, names={}, brokers={}, configs={})
        """Nothing: the steps of this store read the whole."""


class _Untold(RequestBatch):
    """No requests: brokers follow the metadata log."""

    def leader_and_isr(self, *_: object, **__: object) -> None:
        """Nothing."""

    def stop_replica(self, *_: object, **__: object) -> None:
        """Nothing."""

    def update_metadata(self, *_: object, **__: object) -> None:
        """Nothing."""

    def update_metadata_first(self, *_: object, **__: object) -> None:
        """Nothing."""

    def sends(self) -> list[Send]:
        """None."""
        return []


class QuorumStore(Committed):
    """The records of one active controller."""

    def __init__(
        self, snapshot: Snapshot, sessions: Sessions, bootstrap: Sequence[MetadataRecord],
        wall_ms: Callable[[int], int], options: Options,
    ) -> None:  # fmt: skip
        """`bootstrap`: the first records of a new cluster; `wall_ms`: the time of day, from the
        controller's; `options`: the controller's, for the periods of its clocks."""
        super().__init__(snapshot.whole, sessions, wall_ms)
        self._bootstrap, self._in_transaction = bootstrap, snapshot.in_transaction
        self._options = options
        self.answers: Mapping[int, Answer] = {
            **{key: self._plain(step) for key, step in STEPS.items()},
            **{key: self._answer(step) for key, step in VERSIONED.items()},
        }
        """The answers to all requests of brokers and clients."""

    # ---- the interface of a store ----------------------------------------------------------------

    def requests(self, context: Context, listener: str) -> RequestBatch:
        """A batch that stays empty."""
        return _Untold(context, listener)

    def problem(self, context: Context, record: Record) -> str | None:
        """None: a batch of records has room for every topic that may be created."""
        return None

    @property
    def periodic(self) -> Mapping[Clock, Periodic]:
        """The balance of leaderships, unclean elections, expired tokens, and a record when
        nothing else is written."""
        get = self._options.config.get
        found = {
            Clock.UNCLEAN: self._every(
                moves.elect_unclean, get("unclean.leader.election.interval.ms", UNCLEAN_MS)
            ),
            Clock.TOKENS: self._every(
                planned.expire_tokens, get("delegation.token.expiry.check.interval.ms", TOKENS_MS)
            ),
        }
        if idle_ms := get("metadata.max.idle.interval.ms", IDLE_MS):
            found[Clock.IDLE] = self._every(_idle, idle_ms)
        if self._options.rebalances:
            found[Clock.BALANCE] = self._every(moves.rebalance, self._options.check_ms)
        return found

    def _every(self, step: Callable[..., Steps[None]], period_ms: int) -> Periodic:
        return Periodic(Work(step.__name__, partial(step, self), step), period_ms)

    def first_works(self) -> Sequence[Work]:
        """The records of a new cluster, or the end of what another controller began."""

        def begin(active: Active) -> Steps[None]:
            return activation(self, active, self._bootstrap, self._in_transaction)

        return [Work("activation", begin, activation)]

    def works(self, event: object) -> Iterable[Work]:
        """The reaction to SessionsDue."""
        assert isinstance(event, SessionsDue)
        step = registrations.fence_expired
        return [Work("ends of sessions", partial(step, self), step)]

    def _answer(self, step: Step) -> Answer:
        return lambda active, request, version: step(self, active, request, version)

    def _plain(self, step: Step) -> Answer:
        return lambda active, request, _: step(self, active, request)

    def perform(self, context: Context, wanted: object) -> Generator[Any, Any, Any]:
        """Carry out what a step yielded: metadata records, or another kraft.version."""
        if isinstance(wanted, ChangeKraftVersion):
            (outcome,) = yield wanted
            return outcome
        assert isinstance(wanted, MetadataRecords)
        pieces = in_batches(level_of(self.image), wanted.records, wanted.atomic, RECORDS_MAX)
        left, written = deque(pieces), False
        joined = wanted.atomic and len(pieces) == 1  # all or none: no transaction was needed yet
        while left:
            records = left.popleft()
            try:
                (self.image,) = yield Append(0, records)
                written = True
            except NotActive:
                raise
            except Exception as problem:  # of these records alone
                if isinstance(problem, MessageTooLarge) and (
                    halves := self._halves(records, atomic=joined)
                ):
                    left.extendleft(reversed(halves))
                    joined = False
                    continue
                if written and wanted.atomic:  # the next ones must not be in its transaction
                    (self.image,) = yield Append(0, [ABORT])
                raise
        return None

    def _halves(
        self, records: Sequence[MetadataRecord], *, atomic: bool
    ) -> list[Sequence[MetadataRecord]]:
        """Records that have too many bytes for one append, in several; empty: they have to stay
        together."""
        pieces = in_batches(level_of(self.image), records, atomic, (len(records) + 1) // 2)
        return pieces if len(records) > 1 and len(pieces) > 1 else []


def _idle(store: Committed, active: Active) -> Steps[None]:
    yield MetadataRecords([("NoOpRecord", {})])


def _list_reassignments(store: Committed, active: Active, request: Any) -> Steps[dict[str, Any]]:
    yield MetadataRecords([])
    return moves.list_reassignments(store.image, request)


STEPS: Mapping[int, Step] = {
    BROKER_REGISTRATION.key: registrations.register,
    BROKER_HEARTBEAT.key: registrations.heartbeat,
    UNREGISTER_BROKER.key: registrations.unregister,
    CONTROLLER_REGISTRATION.key: registrations.register_controller,
    apis.UNREGISTER_CONTROLLER.key: registrations.unregister_controller,
    ASSIGN_REPLICAS_TO_DIRS.key: isr.assign_directories,
    ALLOCATE_PRODUCER_IDS.key: topics.allocate_producer_ids,
    apis.CREATE_TOPICS.key: topics.answer_create_topics,
    apis.CREATE_PARTITIONS.key: topics.answer_create_partitions,
    apis.ALTER_CONFIGS.key: planned.replace_settings,
    apis.INCREMENTAL_ALTER_CONFIGS.key: planned.alter_settings,
    apis.ALTER_PARTITION_REASSIGNMENTS.key: moves.alter_reassignments,
    apis.LIST_PARTITION_REASSIGNMENTS.key: _list_reassignments,
    apis.CREATE_DELEGATION_TOKEN.key: planned.create_token,
    apis.RENEW_DELEGATION_TOKEN.key: planned.renew_token,
    apis.EXPIRE_DELEGATION_TOKEN.key: planned.expire_token,
    **{key: partial(planned.protect, key) for key in planned.PROTECTING},
}
"""The handlers, by API key."""
VERSIONED: Mapping[int, Step] = {
    ALTER_PARTITION.key: isr.alter_partition,
    apis.DELETE_TOPICS.key: topics.answer_delete_topics,
    apis.ELECT_LEADERS.key: moves.elect_leaders,
    apis.UPDATE_FEATURES.key: planned.alter_features,
}
"""Those that need the request's version."""
