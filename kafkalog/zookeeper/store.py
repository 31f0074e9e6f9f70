"""ZooKeeper as the store of a controller: its records become operations on znodes.

Each record is one multi, which first checks that no later controller was elected, and then that
the znodes are as the controller knows them: by their versions, which are kept here, and by the
partition epochs, which are the versions of partitions' states.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kafkalog.controller.active import Answer, NotActive
from kafkalog.controller.context import NEVER_LED, Claim, Context
from kafkalog.controller.leader_election import Leadership
from kafkalog.controller.records import (
    DONE,
    UNREADABLE,
    Confirmation,
    ElectionEnd,
    LastProducerId,
    Outcome,
    PartitionChange,
    PartitionsCreation,
    PartitionState,
    PartitionStates,
    ProducerIds,
    Record,
    RequestedMoves,
    Settings,
    SettingsChange,
    TopicCreation,
    TopicDeletion,
    TopicRemoval,
)
from kafkalog.controller.requests import RequestBatch
from kafkalog.errors import BadZnode
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import TOPIC, Partition
from kafkalog.zookeeper import altering, entities, own_settings, tree
from kafkalog.zookeeper.documents import ZNODE_BYTES_MAX
from kafkalog.zookeeper.events import Commit, Read, ReadZnodes
from kafkalog.zookeeper.loading import Loaded, Znode
from kafkalog.zookeeper.session import (
    ANY_VERSION,
    Check,
    Committed,
    Create,
    Delete,
    Operation,
    Set,
)

__all__ = ["Reads", "Removals", "ZooKeeperRecords"]

_logger = limited(__name__)
T = TypeVar("T")
SAID_MAX = 1000
"""Different errors of unreadable znodes that are logged by one controller."""
ACTIVE = 0
"""The index of the operation, in each multi, that checks that this is the active controller."""
TOPIC_ZNODE = 1
"""The index of the operation that writes a topic's replicas."""
NO_BLOCK = tree.ProducerIdBlock(-1, -1, -1)
Performing = Generator[Commit | ReadZnodes, Any, T]
Operations = tuple[Operation, ...]


class Reads(NamedTuple):
    """A step's wish to read these."""

    reads: Sequence[Read]


class Removals(NamedTuple):
    """A step's wish to remove these; what is already gone is fine, too."""

    paths: Sequence[str]


class ZooKeeperRecords:
    """The records of one active controller."""

    answers: Mapping[int, Answer] = {}

    def __init__(self, claim: Claim, loaded: Loaded) -> None:
        self._claim = claim
        self.image = loaded.image
        """The metadata when this controller became active."""
        self._topic_versions: dict[str, int] = dict(loaded.assigned_at)
        """The version of a topic's znode; a topic that is not here is written at any version."""
        self._settings: dict[tuple[int, str], list[Znode | None]] = {}
        """The znodes of the settings that were asked for last."""
        self._producer_ids: Znode | None = None
        """The last block that was given out, as the tree has it; None: not read yet."""
        self._said: set[str] = {str(problem) for problem in loaded.problems}
        """The errors of unreadable znodes that were logged."""

    def parsed(self, read: Callable[..., T], *arguments: Any) -> T | None:
        """The parsed content of a znode; None if it is unreadable, which is logged once."""
        try:
            return read(*arguments)
        except BadZnode as problem:
            if str(problem) not in self._said and len(self._said) < SAID_MAX:
                self._said.add(str(problem))
                _logger.warning("%s", problem)
            return None

    def topic_read(self, topic: str, version: int | None) -> None:
        """A topic's znode was read, in this version; None: it is gone."""
        self._topic_versions.pop(topic, None)
        if version is not None:
            self._topic_versions[topic] = version

    # ---- the interface of a store ----------------------------------------------------------------

    def perform(self, context: Context, wanted: object) -> Performing[Any]:
        """Carry out what a step yielded: records, a query, Reads or Removals."""
        if isinstance(wanted, Reads):
            return (yield from _look(wanted.reads))
        if isinstance(wanted, PartitionStates):
            return (yield from self._states(wanted))
        if isinstance(wanted, Settings):
            return (yield from self._settings_of(context, wanted))
        if isinstance(wanted, LastProducerId):
            return (yield from self._last_producer_id())
        if isinstance(wanted, Removals):
            return (yield from self._remove(wanted.paths))
        assert isinstance(wanted, Sequence)
        return (yield from self._write(context, wanted))

    def requests(self, context: Context, listener: str) -> RequestBatch:
        """A batch of requests to brokers."""
        return RequestBatch(context, listener)

    def problem(self, context: Context, record: Record) -> str | None:
        """Why a topic's znode would be too large; None: it is not."""
        if isinstance(record, TopicCreation):
            size, count = len(tree.write_topic(_new_node(record))), len(record.replicas)
        elif isinstance(record, PartitionsCreation):
            node = _larger_node(context, record)
            size, count = len(tree.write_topic(node)), len(node.replicas)
        else:
            return None
        if size <= ZNODE_BYTES_MAX:
            return None
        return f"the description of {count} partitions is larger than {ZNODE_BYTES_MAX} bytes"

    # ---- queries ---------------------------------------------------------------------------------

    def _states(
        self, wanted: PartitionStates
    ) -> Performing[dict[tuple[str, int], PartitionState | str | None]]:
        znodes = yield from _look([Read(tree.partition_path(*key)) for key in wanted.keys])
        found: dict[tuple[str, int], PartitionState | str | None] = {}
        for key, znode in zip(wanted.keys, znodes, strict=True):
            found[key] = None
            if znode is not None:
                state = self.parsed(tree.read_partition, *key, znode.data)
                found[key] = UNREADABLE if state is None else partition_state(state, znode.version)
        return found

    def _settings_of(self, context: Context, wanted: Settings) -> Performing[list[dict[str, str]]]:
        paths = [altering.paths_of(*one) for one in wanted.resources]
        found = yield from _look([Read(path) for those in paths for path in those])
        znodes, self._settings = iter(found), {}
        for one, those in zip(wanted.resources, paths, strict=True):
            self._settings[one] = [next(znodes) for _ in those]
        return [
            altering.settings_in(*one, _topic_id(context, *one), self._settings[one])
            for one in wanted.resources
        ]

    def _last_producer_id(self) -> Performing[int | None]:
        if self._producer_ids is None:
            (self._producer_ids,) = yield from _look([Read(tree.PRODUCER_IDS)])
        known = self._producer_ids
        if known is None:
            return None
        last = self.parsed(tree.read_producer_ids, known.data) if known.data else NO_BLOCK
        if last is None:
            self._producer_ids = None  # it may be readable the next time
            return None
        return last.last

    # ---- records ---------------------------------------------------------------------------------

    def _write(self, context: Context, records: Sequence[Record]) -> Performing[list[Outcome]]:
        """Write records, in their order; those of one sequence are independent of each other."""
        if any(isinstance(one, TopicRemoval) for one in records):
            outcomes = []
            for one in records:
                assert isinstance(one, TopicRemoval)
                outcomes.append((yield from self._remove_topic(context, one.topic)))
            return outcomes
        created = [one for one in records if isinstance(one, TopicCreation)]
        reads = [Read(path) for one in created for path in own_settings.paths_of(one.name)]
        left = iter((yield from _look(reads)))  # by an earlier topic of the same name
        folders = self._folders(context, records)
        multis = [
            self._creation(one, next(left), next(left))
            if isinstance(one, TopicCreation)
            else self._operations(context, one)
            for one in records
        ]
        found = yield from self._commit([*folders, *multis])
        return [self._outcome(one, each)
                for one, each in zip(records, found[len(folders):], strict=True)]  # fmt: skip

    def _commit(self, multis: Sequence[Sequence[Operation]]) -> Performing[list[Committed]]:
        if not multis:
            return []
        check = Check(tree.CONTROLLER_EPOCH, self._claim.epoch_version)
        found = yield Commit(0, [(check, *one) for one in multis])
        if any(one.refused == ACTIVE and not one.done for one in found):
            raise NotActive
        return list(found)

    def _operations(self, context: Context, record: Record) -> Operations:
        """The znodes of a record, without the check that comes first."""
        if isinstance(record, PartitionChange):
            return tuple(self._partitions(context, record))
        if isinstance(record, PartitionsCreation):
            data = tree.write_topic(_larger_node(context, record))
            return (self._set_topic(record.topic, data),)
        if isinstance(record, TopicDeletion):
            return (Create(f"{tree.DELETE_TOPICS}/{record.topic}"),)
        if isinstance(record, SettingsChange):
            one = record.kind, record.name
            topic_id = _topic_id(context, *one)
            return altering.operations(*one, topic_id, self._settings[one], record.changes)
        if isinstance(record, ProducerIds):
            assert self._producer_ids is not None
            data = tree.write_producer_ids(tree.ProducerIdBlock(*record))
            return (Set(tree.PRODUCER_IDS, data, self._producer_ids.version),)
        if isinstance(record, RequestedMoves):
            path, left = tree.REASSIGNMENT, record.left
            return (Set(path, tree.write_reassignment(left)) if left else Delete(path),)
        if isinstance(record, ElectionEnd):
            return (Delete(tree.ELECTION),)
        assert isinstance(record, Confirmation)
        return ()

    def _outcome(self, record: Record, found: Committed) -> Outcome:
        if isinstance(record, ProducerIds):
            self._block_given(record, found.done)
        if not found.done:
            stale: Iterable[tuple[str, int]] = ()
            if isinstance(record, PartitionChange) and (
                not record.replicas or found.refused > TOPIC_ZNODE
            ):
                stale = record.after
            return Outcome(False, found.why, frozenset(stale))
        if isinstance(record, TopicCreation):
            self._topic_versions[record.name] = 0
        elif isinstance(record, PartitionsCreation) or (
            isinstance(record, PartitionChange) and record.replicas
        ):
            self._topic_written(record.topic)
        return DONE

    def _topic_written(self, topic: str) -> None:
        if topic in self._topic_versions:
            self._topic_versions[topic] += 1

    def _set_topic(self, topic: str, data: bytes) -> Operation:
        return Set(tree.topic_path(topic), data, self._topic_versions.get(topic, ANY_VERSION))

    def _partitions(self, context: Context, record: PartitionChange) -> Iterable[Operation]:
        if record.replicas:
            now = {key[1]: one for key, one in context.partitions.items() if key[0] == record.topic}
            now |= {key[1]: one for key, one in record.after.items()}
            data = tree.write_topic(_node(context, record.topic, now))
            yield self._set_topic(record.topic, data)
        for key, after in record.after.items():
            before = context.partitions[key]
            if after.partition_epoch == before.partition_epoch:
                continue
            state = tree.PartitionState(
                after.leader, after.leader_epoch, after.isr, self._claim.epoch,
                bool(after.leader_recovery_state),
            )  # fmt: skip
            path, data = tree.partition_path(*key), tree.write_partition(state)
            first = before.leader_epoch == NEVER_LED
            yield Create(path, data) if first else Set(path, data, before.partition_epoch)

    def _folders(self, context: Context, records: Sequence[Record]) -> list[Operations]:
        """The znodes that will hold partitions without a state yet, the outer before the inner;
        those that already exist are fine, too."""
        first = [
            key for one in records if isinstance(one, PartitionChange) for key in one.after
            if context.partitions[key].leader_epoch == NEVER_LED
            and one.after[key].leader_epoch != NEVER_LED
        ]  # fmt: skip
        outer = dict.fromkeys(tree.partitions_path(topic) for topic, _ in first)
        inner = [tree.partition_path(*key).removesuffix("/state") for key in first]
        return [(Create(path),) for path in [*outer, *inner]]

    def _creation(
        self, record: TopicCreation, config: Znode | None, own: Znode | None
    ) -> Operations:
        """`config`, `own`: the znodes of settings that an earlier topic of that name left."""
        theirs, ours = own_settings.split(record.settings)
        path, data = entities.config_path(("topics", record.name)), entities.write_config(theirs)
        return (
            Create(path, data) if config is None else Set(path, data, config.version),
            *altering.own_change(record.name, record.topic_id, ours, own),
            Create(tree.topic_path(record.name), tree.write_topic(_new_node(record))),
        )

    def _block_given(self, record: ProducerIds, done: bool) -> None:
        known, self._producer_ids = self._producer_ids, None  # others write it, too
        if done and known is not None:
            data = tree.write_producer_ids(tree.ProducerIdBlock(*record))
            self._producer_ids = known._replace(data=data, version=known.version + 1)

    # ---- removals --------------------------------------------------------------------------------

    def _remove(self, paths: Sequence[str]) -> Performing[list[Committed]]:
        """`paths`: the inner before the outer."""
        return (yield from self._commit([(Delete(path),) for path in paths]))

    def _remove_topic(self, context: Context, topic: str) -> Performing[Outcome]:
        """Remove a topic; the request goes last, so that a next controller can continue."""
        keys = sorted(key for key in context.partitions if key[0] == topic)
        states = [tree.partition_path(*key) for key in keys]
        paths = [
            *(path for state in states for path in (state, state.removesuffix("/state"))),
            tree.partitions_path(topic), tree.topic_path(topic), *own_settings.paths_of(topic),
        ]  # fmt: skip
        found = yield from self._remove(paths)
        for path, one in zip(paths, found, strict=True):
            if not one.done and one.why != "NoNode":
                return Outcome(False, f"{path}: {one.why}")
        yield from self._remove([f"{tree.DELETE_TOPICS}/{topic}"])
        self.topic_read(topic, None)
        return DONE


def partition_state(state: tree.PartitionState, version: int) -> PartitionState:
    """A partition's state as rules know it."""
    now = Leadership(state.leader, state.leader_epoch, state.isr, state.recovering)
    return PartitionState(now, version, state.controller_epoch)


def _look(reads: Sequence[Read]) -> Performing[Sequence[Any]]:
    if not reads:
        return ()
    return (yield ReadZnodes(0, reads))  # type: ignore[no-any-return]


def _topic_id(context: Context, kind: int, name: str) -> Any:
    return context.ids.get(name) if kind == TOPIC else None


def _new_node(record: TopicCreation) -> tree.TopicNode:
    return tree.TopicNode(record.topic_id, record.replicas, {}, {})


def _larger_node(context: Context, record: PartitionsCreation) -> tree.TopicNode:
    now = {
        key[1]: one.replicas for key, one in context.partitions.items() if key[0] == record.topic
    }
    return tree.TopicNode(context.ids[record.topic], {**now, **record.replicas}, {}, {})


def _node(context: Context, topic: str, partitions: dict[int, Partition]) -> tree.TopicNode:
    return tree.TopicNode(
        context.ids[topic],
        {number: one.replicas for number, one in partitions.items()},
        {number: one.adding_replicas for number, one in partitions.items() if one.adding_replicas},
        {number: one.removing_replicas for number, one in partitions.items()
         if one.removing_replicas},
    )  # fmt: skip
