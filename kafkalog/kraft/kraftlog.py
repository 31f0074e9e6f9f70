"""The metadata of a data directory: `__cluster_metadata-0`, the log of a single KRaft node.

The node is the whole quorum: it leads as soon as it opens the log, in a new epoch, and a
record on disk is committed.
"""

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafkalog.directory.manager import Manager
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import (
    Closed,
    KafkalogError,
    NoSpace,
    ReadOnly,
    UnknownTopicOrPartition,
    passes,
)
from kafkalog.kraft import directory, features, plan, registrations
from kafkalog.kraft.allowed import check_leadable
from kafkalog.kraft.batches import (
    BATCH_BYTES,
    LEADER_CHANGE,
    control_batch,
    data_batches,
    leader_change_value,
    records_in,
)
from kafkalog.kraft.following import Followers, Listener
from kafkalog.kraft.loading import (
    QUORUM_STATE,
    Loaded,
    known_epoch,
    load,
    render_own_state,
)
from kafkalog.kraft.plan import Plan, Record, Site
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import SnapshotName
from kafkalog.kraft.snapshotting import Snapshotting
from kafkalog.kraft.tail import Tail
from kafkalog.kraft.turns import Turn, Turns, failed
from kafkalog.log.log import Log, handle_of
from kafkalog.logs.limit import limited
from kafkalog.metadata import configs, settings
from kafkalog.metadata.changes import broker_fields
from kafkalog.metadata.image import (
    ELIGIBLE_REPLICAS,
    METADATA_VERSION,
    Broker,
    MetadataImage,
    Partition,
)
from kafkalog.metadata.requests import (
    Elections,
    FeatureChanges,
    MorePartitions,
    NewTopics,
    Result,
    SettingsAsked,
    TopicMoves,
    TopicNamed,
)
from kafkalog.metadata.source import Charge, Planned, Quorum, free

__all__ = ["Listener", "MetadataLog"]

FREEING = {"RemoveTopicRecord", "ConfigRecord"}
"""Records that free space, or let retention free it: on a full disk they get the reserve."""


T = TypeVar("T")


_logger = limited(__name__)


class MetadataLog:
    """The metadata of one directory, and its partitions' folders, which follow it.

    `image` may be read at any time by any thread.  Changes are made one after another, and each is
    on disk before it is visible.  Close it before its Manager.
    """

    def __init__(self, manager: Manager, log: Log, loaded: Loaded) -> None:
        """Use `open` instead."""
        self.manager = manager
        self.image: MetadataImage = loaded.replay.image
        """The current metadata; a new object after each change."""
        self.problems: list[str] = list(loaded.problems)
        """Sentences about what was found and ignored."""
        self.adopted: tuple[str, ...] = ()
        """Topics that were adopted at the start."""
        self.batch_bytes = BATCH_BYTES
        """A change with more bytes of records than this becomes a transaction of several
        batches."""
        assert manager.meta is not None
        self._meta = manager.meta
        self._site = Site(self._directory_id(), manager.config)
        self._log = log
        self._loaded = loaded
        self._epoch = -1
        self._closed = False
        self._lock = threading.RLock()  # held for a whole change, including listeners and folders
        self._turns = Turns()
        self._followers = Followers(manager, loaded.removed)
        self._not_obeyed: set[settings.Problem] = set()  # settings that were warned about
        self._snapshots = Snapshotting(manager, log)
        self._tail = Tail(log, manager.path)

    # ---- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls, manager: Manager, adopt: bool = False, number: int = 1,
        check: Callable[[MetadataImage], None] = lambda _: None,
    ) -> "MetadataLog":  # fmt: skip
        """Read the metadata of a directory, and in mode "w" lead it from now on.

        A directory that Manager created has none yet, and gets it.  `adopt`: adopts topics whose
        folders are there without metadata; their records are neither deleted nor compacted
        before a setting says so.  `number`: the node's id if meta.properties has none.  `check`:
        raises for metadata that are not to be led; before anything is written.
        Raises: ArgumentError (folders without metadata, or of a cluster of several nodes),
        NotFound (mode "r": there is none), CorruptLog, IoFailed; errors of `check`.
        """
        wanted = directory.identity(manager, adopt, number)
        here = directory.has_metadata(manager)
        if not here:
            check(directory.first_image(manager, wanted))
            directory.prepare(manager, wanted)
        log = manager.get(METADATA_TOPIC, 0)
        loaded = load(log, wanted.cluster_id or "", wanted.node_id)
        if manager.mode == "w" and here:
            check_leadable(manager, log, loaded, wanted, check)
            directory.prepare(manager, wanted)
        manager.meta = wanted
        metadata = cls(manager, log, loaded)
        if manager.mode == "w":
            metadata._start(adopt)
        manager.use(metadata)
        return metadata

    def _start(self, adopt: bool) -> None:
        known, told = known_epoch(self._log, self.image, self._meta.node_id)
        fresh = METADATA_VERSION not in self.image.features
        self._lead(known + 1)
        records = list(directory.first_records(self.manager)) if fresh else self._formatted()
        if adopt:  # in versions that those allow; after a crash they are written again
            self._append(records)
            records = []
        if fresh or adopt:
            taken = directory.adoption(self.manager, self.image)
            self.adopted = tuple(f["name"] for name, f in taken if name == "TopicRecord")
            records += taken
        self._append(records)
        self.image = self._loaded.replay.image
        records = directory.elections(self.image, unclean=not self.manager.state.clean)
        self._append(records, owe=True)
        self.image = self._loaded.replay.image
        if fresh or not told:
            self._save_quorum_state()
        self._settle()
        if fresh or records:
            self._log.flush()
        strays = directory.settle_folders(self.manager, self.image, self._loaded.removed)
        for problem in strays.values():
            _logger.warning("%s", problem)
        self.problems += strays.values()
        self._site = self._site._replace(blocked=frozenset(tp.topic for tp in strays))
        self._followers.make_folders(self.image, self.image.topics)
        self._followers.unmade.clear()  # they are created when they are used
        self._tail.keep_space()

    def _formatted(self) -> list[Record]:
        """Records for a directory that Kafka 4.4 formatted and no broker has run on."""
        if not self.image.features.get(ELIGIBLE_REPLICAS):
            return []
        return features.least_in_sync(self.image, self._site.config)

    def _settle(self) -> None:
        """A new directory: its files and the log's are synced at the same time."""
        if self.manager.state.directory.gathers:
            handle_of(self._log).flush_start()
            folder = os.path.basename(self._log.path)
            self.manager.state.directory.settle([f"{folder}/{QUORUM_STATE}"])

    def _lead(self, epoch: int) -> None:
        self._epoch = epoch
        value = leader_change_value(self._meta.node_id)
        batch = control_batch(
            [(LEADER_CHANGE, value)], self._tail.end_offset, epoch, self.manager.clock.now_ms()
        )
        handle_of(self._log).lead(epoch)  # written now, and synced with the first flush
        self._tail.append(batch, owe=True)
        self._loaded.take(records_in(batch))

    def _directory_id(self) -> uuid.UUID:
        # Only Kafka before 3.7 wrote none; there it may be missing as long as we only read.
        return self._meta.directory_id or uuid.UUID(int=0)

    def _save_quorum_state(self) -> None:
        # Last: Kafka and we take a higher epoch from the log itself.
        voter = self._directory_id() if self._loaded.kraft_version else None
        data = render_own_state(self._meta.node_id, self._epoch, voter)
        with Directory(self._log.path) as folder:
            if self.manager.state.directory.gathers:
                folder.gather()  # see _settle: the log syncs its folder
            if folder.read(QUORUM_STATE, 1 << 16) != data:
                folder.replace(QUORUM_STATE, data)

    def register(
        self, endpoints: Sequence[tuple[str, str, int, int]], rack: str | None = None
    ) -> int:
        """Write this broker's registration; returns its broker epoch.

        `endpoints`: (listener's name, advertised host, port, Kafka's number of the security
        protocol).  Raises: as write.
        """
        with self._lock:
            # The epoch is the record's own offset; the abort of a transaction left by a crash comes
            # first.
            epoch = self._tail.end_offset + int(self._loaded.replay.in_transaction)
            broker = Broker(
                id=self.image.node_id,
                epoch=epoch,
                incarnation_id=uuid.uuid4(),
                endpoints=tuple(endpoints),
                features=directory.supported_features(self.image),
                rack=rack,
                fenced=False,
                in_controlled_shutdown=False,
                directories=(self._directory_id(),),
            )
            # Nothing depends on it before the next change: a start need not wait for the disk.
            record = "RegisterBrokerRecord", broker_fields(broker)
            self._write([record], flush=False, owe=True)
            self.manager.state.broker_epoch = epoch
            return epoch

    def close(self) -> None:
        """Fence this broker's registration, and flush.  Idempotent.

        Records that do not fit on a full disk are dropped with a warning: the next start needs
        none.
        Raises: IoFailed, StorageOffline; it is closed then, too.
        """
        with self._lock:
            if self._closed:
                return
            try:
                if self.manager.mode == "w":
                    self._stop()
            finally:
                self._closed = True

    def _stop(self) -> None:
        broker = self.image.brokers.get(self.image.node_id)
        if broker is not None and not broker.fenced:
            # Otherwise the next controller waits for its session to end before it may register;
            # that of a quorum accepts it sooner only after a controlled shutdown.
            fields = {"broker_id": broker.id, "broker_epoch": broker.epoch, "fenced": 1,
                      "in_controlled_shutdown": 1}  # fmt: skip
            self._append([("BrokerRegistrationChangeRecord", fields)], owe=True)
        try:
            self._log.flush()
            self.image = self._loaded.replay.image
            self._save_quorum_state()
        except NoSpace as error:
            _logger.warning("%s: closed without its last records: %s", self._log.path, error)
        if not self._tail.owes:
            self._snapshots.take_if_due(self._loaded)
        self._tail.keep_space()

    def __enter__(self) -> "MetadataLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- writing -------------------------------------------------------------------------------

    @property
    def clustered(self) -> bool:
        """A single node."""
        return False

    @property
    def on_zookeeper(self) -> bool:
        """Its metadata are a log."""
        return False

    @property
    def controller(self) -> int:
        """This node: there is no other."""
        return self.image.node_id

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each change, in the order of changes, in the thread that changes
        it. By then, folders of new partitions exist; those of removed ones still do."""
        with self._lock:
            self._followers.listen(listener)

    def write(self, records: Iterable[Record], flush: bool = True) -> MetadataImage:
        """Write records, all or none; on return they are on disk and in `image`.

        `flush` False: they are synced with the next change, or when it is closed.

        Raises: IoFailed, NoSpace (nothing changed), StorageOffline, ReadOnly, Closed.
        """
        return self._write(records, flush)

    def _write(
        self, records: Iterable[Record], flush: bool = True, owe: bool = False
    ) -> MetadataImage:
        """`owe`: see Tail."""
        with self._lock:
            self._check()
            if records := list(records):
                self._append(records, owe)
                self._show(flush)
            return self.image

    def _show(self, flush: bool = True) -> None:
        """Sync what was appended since the last call, then update `image`, then the followers."""
        old, new = self.image, self._loaded.replay.image
        if new is old:
            return
        if flush:
            self._log.flush()
        self.image = new
        self._followers.follow(self._loaded.replay.change(old))
        if not self._tail.owes:
            self._snapshots.take_if_due(self._loaded)
        self._tail.keep_space()

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"{self._log.path}: the metadata was closed")
        if self.manager.mode != "w":
            raise ReadOnly(f"{self._log.path}: is open for reading only")

    def _append(self, records: Sequence[Record], owe: bool = False) -> None:
        if not records:
            return
        frees = all(name in FREEING for name, _ in records)
        batches = self._batches([self._encoded(name, fields) for name, fields in records])
        done = 0
        try:
            for batch in batches:
                self._tail.append(batch, owe, frees)
                done += 1
        finally:
            # Also feed what was begun and failed: the next write aborts it.
            self._loaded.take(raw for batch in batches[:done] for raw in records_in(batch))
            self._snapshots.written(sum(map(len, batches[:done])))

    def _encoded(self, name: str, fields: Any) -> bytes:
        return encode(name, fields, self._loaded.replay.image)

    def _batches(self, values: list[bytes]) -> list[bytes]:
        """A single batch is atomic; several batches are a transaction."""
        now_ms = self.manager.clock.now_ms()
        head = []
        if self._loaded.replay.in_transaction:
            head.append(self._encoded("AbortTransactionRecord", {"reason": "unfinished"}))
        for begin, end in (([], []), (["BeginTransactionRecord"], ["EndTransactionRecord"])):
            whole = [*head, *(self._encoded(name, {}) for name in begin), *values]
            whole += [self._encoded(name, {}) for name in end]
            start = self._tail.end_offset
            batches = data_batches(whole, start, self._epoch, now_ms, self.batch_bytes)
            if len(batches) == 1:
                break
        return batches

    # ---- what is asked for ----------------------------------------------------------------------

    def create_topics(self, asked: NewTopics, charge: Charge = free) -> list[Result]:
        """CreateTopics: the response's `topics`, one result per topic.

        A topic whose folders cannot be created is removed again.  `charge`: see Site, here and in
        the next two.
        """
        site = self._site._replace(charge=charge)
        return self._plan(lambda image: plan.create_topics(image, asked, site), self._take_back)

    def _take_back(self, results: list[Result]) -> None:
        """The topics among `results` whose folders cannot be created."""
        unmade = {name: why for name, why in self._followers.unmade.items() if passes(why)}
        made = [result for result in results
                if not result["error_code"] and result["topic_id"] in self.image.names]  # fmt: skip
        mine = [result for result in made if result["name"] in unmade]
        try:
            self.write([("RemoveTopicRecord", {"topic_id": result["topic_id"]}) for result in mine])
        except KafkalogError:
            return  # they stay: their folders are created when they are used
        for result in mine:
            result.update(failed(unmade[result["name"]]))

    def delete_topics(self, asked: Sequence[TopicNamed], charge: Charge = free) -> list[Result]:
        """DeleteTopics: the response's `responses`."""
        site = self._site._replace(charge=charge)
        return self._plan(lambda image: plan.delete_topics(image, asked, site))

    def create_partitions(self, asked: MorePartitions, charge: Charge = free) -> list[Result]:
        """CreatePartitions: the response's `results`."""
        site = self._site._replace(charge=charge)
        return self._plan(lambda image: plan.create_partitions(image, asked, site))

    def describe_configs(self, asked: SettingsAsked) -> list[Result]:
        """DescribeConfigs: the response's `results`."""
        return configs.describe_configs(self.image, asked, self._site.config)

    def update_features(self, asked: FeatureChanges) -> Result:
        """UpdateFeatures: the error for the whole request, if any."""
        version = self._loaded.kraft_version
        return self._plan(
            lambda image: features.update_features(image, asked, self._site.config, version)
        )[0]

    def elect_leaders(self, asked: Elections) -> list[Result]:
        """ElectLeaders: the response's `replica_election_results`."""
        return plan.elect_leaders(self.image, asked)

    def alter_partition_reassignments(self, asked: Iterable[TopicMoves]) -> list[Result]:
        """AlterPartitionReassignments: the response's `responses`."""
        return plan.alter_partition_reassignments(self.image, asked)

    def unregister_broker(self, broker_id: int) -> Result:
        """UnregisterBroker: the error, if any."""
        return self._plan(lambda image: registrations.unregister_broker(image, broker_id))[0]

    def unregister_controller(self, controller_id: int) -> Result:
        """UnregisterController: the error, if any."""
        return self._plan(lambda image: registrations.unregister_controller(image, controller_id))[
            0
        ]

    def quorum(self) -> Quorum:
        """This log's state for DescribeQuorum."""
        with self._lock:
            mine = self._directory_id() if self._loaded.kraft_version else None
            return Quorum(self._epoch, self._tail.end_offset, mine)

    def alter(self, planned: Callable[[MetadataImage], Planned]) -> list[Result]:
        """Carry out a change that is planned on top of the image; its results."""
        return self._plan(lambda image: Plan(*planned(image)))

    def allocate_producer_ids(self) -> range:
        """A block of producer ids that was never handed out.

        Raises: as write.
        """
        with self._lock:
            records, block = plan.allocate_producer_ids(self._loaded.replay.image)
            self.write(records)
            return block

    def _plan(
        self,
        plan_of: Callable[[MetadataImage], Plan],
        settle: Callable[[list[Result]], None] | None = None,
    ) -> list[Result]:
        """Carry out a request; changes of several threads share a sync."""
        turn = Turn(plan_of, settle)
        self._turns.join(turn)
        with self._lock:
            if not turn.done:
                self._take_turns()
        return turn.results()

    def _take_turns(self) -> None:
        where = self._log.path
        with self._turns.taken() as turns:
            self._check()
            self._followers.unmade.clear()
            for turn in turns:
                turn.begin(self._loaded.replay.image, self._append, where)
            try:
                self._show()
            except KafkalogError as error:
                for turn in turns:
                    turn.lose(error, where)
            for turn in turns:
                turn.end()

    # ---- what others ask of it -----------------------------------------------------------------

    def config(self, topic: str) -> Mapping[str, object] | None:
        """The topic settings that override the broker's static ones (for Manager)."""
        static = self.manager.config.topic
        return settings.topic_overrides(self.image, topic, static, self._not_obeyed)

    def topic_id(self, topic: str, partition: int) -> uuid.UUID | None:
        """The topic's id if it has that partition (for Manager)."""
        found = self.image.topics.get(topic)
        return found.id if found is not None and partition in found.partitions else None

    def followed(self, call: Callable[[], T]) -> T:
        """Call `call` while no change is creating folders."""
        with self._lock:
            return call()

    def lead(self, log: Log) -> int:
        """Let an open log append in the leader epoch that the metadata has; returns that epoch.

        If the log's own epoch is higher (it was written without the metadata), the metadata's is
        raised. Call it before a broker's first append.  Raises: UnknownTopicOrPartition; as write.
        """
        with self._lock:
            mine = log.leader_epoch
            known = self._led(log.topic, log.partition)
            if mine > known.leader_epoch:
                topic_id = self.image.topics[log.topic].id
                change = {"topic_id": topic_id, "partition_id": log.partition,
                          "leader": known.leader}  # fmt: skip
                raises = mine - known.leader_epoch
                self._write([("PartitionChangeRecord", change)] * raises, owe=True)
                known = self._led(log.topic, log.partition)
        handle_of(log).lead(known.leader_epoch)
        return known.leader_epoch

    def _led(self, topic: str, partition: int) -> Partition:
        found = self.image.partition(topic, partition)
        if found is None:
            raise UnknownTopicOrPartition(f"found no partition {partition} of topic {topic}")
        return found

    # ---- snapshots -----------------------------------------------------------------------------

    def take_snapshot(self) -> SnapshotName | None:
        """As Snapshotting.take; None also while records wait for space.

        Raises: IoFailed, NoSpace, ReadOnly, Closed.
        """
        with self._lock:
            self._check()
            return None if self._tail.owes else self._snapshots.take(self._loaded, self.image)
