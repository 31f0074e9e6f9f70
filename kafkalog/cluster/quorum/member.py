"""A broker's membership in a KRaft cluster: the source of its metadata.

One thread follows the metadata log, and carries out what its changes mean for this broker's
replicas.  Another one registers the broker and sends its heartbeats.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from uuid import UUID, uuid4

from kafkalog.client.link.transport import Address, Options
from kafkalog.cluster.node import controller_requests
from kafkalog.cluster.node.controller_connection import ControllerConnection
from kafkalog.cluster.quorum import life as lives
from kafkalog.cluster.quorum.joining import Entry, own
from kafkalog.cluster.quorum.life import Life, Registration, Stage
from kafkalog.cluster.quorum.roles import (
    all_roles,
    changed_roles,
    lacks_directories,
    misplaced,
    no_roles,
    unled,
)
from kafkalog.config.server import ServerConfig
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import ArgumentError, Closed, KafkalogError, Timeout, UnsupportedVersion
from kafkalog.logs.limit import limited
from kafkalog.metadata import configs, settings
from kafkalog.metadata.image import METADATA_VERSION, Change, MetadataImage, Partition
from kafkalog.metadata.levels import supported_features
from kafkalog.metadata.requests import NewTopics, Result, SettingChanges, SettingsAsked
from kafkalog.quorum.replica.replica import MetadataReplica
from kafkalog.replication.follower_log import lead_held
from kafkalog.replication.roles import Effect, Lead
from kafkalog.types import TopicPartition
from kafkalog.wire.apis import ASSIGN_REPLICAS_TO_DIRS, BROKER_HEARTBEAT, BROKER_REGISTRATION
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.wire.api import Api

__all__ = ["QuorumMember", "join_quorum"]

_logger = limited(__name__)
T = TypeVar("T")
LOOK_S = 0.2
"""How often a start that waits looks if its process is to end."""
CORDONED_SINCE = 30
"""The metadata.version from which on directories can be cordoned: 4.3-IV0."""


class Seen(Protocol):
    """The leader of the quorum."""

    @property
    def epoch(self) -> int:
        """Its epoch."""

    @property
    def leader(self) -> int:
        """Its node; -1: none is known."""

    @property
    def address(self) -> Address | None:
        """Where it is."""


class Source(Protocol):
    """The metadata as a broker follows them, in a copy or in its process."""

    @property
    def image(self) -> MetadataImage:
        """Those that it has."""

    @property
    def seen(self) -> Seen:
        """The quorum, as known here."""

    def catch_up(self, at_most_s: float, ends: threading.Event) -> None:
        """Wait until the image has what the quorum has committed now.

        Raises: Timeout; Closed: `ends` was set.
        """

    def run(self, changed: Callable[[Change], None]) -> None:
        """Hand over each change of the image, with the lock held, until `close`."""

    def close(self) -> None:
        """End `run`, and all waits."""


Follow = Callable[[threading.RLock, Callable[[], None]], Source]
"""Makes a source: the lock is held while it hands over a change; the call tells of a new leader."""


class QuorumMember:
    """One broker's view of its cluster.  Safe to use from many threads; closed by `close`."""

    def __init__(
        self, manager: Manager, config: ServerConfig, entry: Entry, ends: threading.Event,
        follow: Follow | None = None,
    ) -> None:  # fmt: skip
        """Read the metadata up to what the quorum has committed now; the cluster does not know this
        broker before `register`.  `follow`: the metadata of a controller in this process; None: of
        a replica of the log that is its own; `ends`: set once the process is to end: a start waits
        for nothing then.

        Raises: Timeout: no leader of the quorum answers in time; Closed: `ends` was set;
        ArgumentError: the directory belongs to another cluster, or the cluster uses a feature that
        is not supported; CorruptLog.
        """
        self.node = entry.identity.node
        self.listener = config.inner_listener
        """The listener by which brokers reach each other."""
        self.carry_out: Callable[[Sequence[Effect]], Mapping[TopicPartition, ErrorCode]] = (
            lambda _: {}
        )
        self.registered: Callable[[int], None] = lambda _: None
        self._manager, self._config, self._entry = manager, config, entry
        self._ends = ends
        self._lock = threading.RLock()  # guards what follows; held while listeners are notified
        self._listeners: list[Callable[[Change], None]] = []
        self._acting = False  # roles are carried out
        self._failed: set[TopicPartition] = set()  # their logs went offline
        self._not_obeyed: set[settings.Problem] = set()  # settings with a logged warning
        self._news = threading.Condition()  # guards what follows
        self._life = Life()
        self._broken: Exception | None = None  # why this broker follows the metadata no more
        self._placed: object = None  # the topics whose directories were last compared
        self._closed = threading.Event()
        self._connections: list[ControllerConnection] = []
        self._connection = self.controller_connection()
        self._line = self.controller_connection()
        self._release: Callable[[], None] = lambda: None  # what `close` does last
        self._source = (follow or self._observe)(self._lock, self._turn)
        self._image = self._source.image
        self._registration: Registration | None = None
        self._threads: list[threading.Thread] = []
        try:
            self._source.catch_up(config.initial_broker_registration_timeout_ms / 1000, ends)
        except BaseException:
            self.close()
            raise
        self._image = self._source.image
        manager.use(self)

    def _observe(self, lock: threading.RLock, turned: Callable[[], None]) -> Source:
        entry = self._entry
        replica = MetadataReplica(self._manager, self._config, entry.identity, (), entry.options)
        self._release = replica.stop
        source = replica.follow(lock, turned)
        replica.start()
        return source

    # ---- its life ------------------------------------------------------------------------------

    def register(
        self, endpoints: Sequence[tuple[str, str, int, int]], rack: str | None = None
    ) -> int:
        """Register this broker; returns its epoch once it has its roles and the controllers have
        unfenced it.

        `endpoints`: (listener's name, advertised host, port, Kafka's number of the protocol).

        Raises: ArgumentError: the controllers refuse it; Timeout: it is not registered within
        initial.broker.registration.timeout.ms; Closed: so it is, or its process is to end.
        """
        who = self._entry.identity
        self._registration = Registration(
            self.node, who.cluster_id, uuid4(), endpoints, supported_features(self._image), rack,
            who.directory_id, self._manager.state.closed_epoch,
        )  # fmt: skip
        for name, loop in (("metadata", self._follow), ("heartbeats", self._live)):
            thread = threading.Thread(
                target=loop, name=f"kafkalog broker {self.node} {name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        end_s = time.monotonic() + self._config.initial_broker_registration_timeout_ms / 1000
        with self._news:
            while self._life.stage is not Stage.SERVING:
                self._check_alive()
                left_s = end_s - time.monotonic()
                if self._life.epoch < 0 and left_s <= 0:
                    raise Timeout(
                        f"broker {self.node}: not registered in time: "
                        f"{self._life.problem or 'no controller answered'}"
                    )
                self._news.wait(min(left_s, LOOK_S) if self._life.epoch < 0 else LOOK_S)
            return self._life.epoch

    def _check_alive(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._life.refused:
            raise ArgumentError(
                f"broker {self.node}: the controllers refuse its registration: "
                f"{self._life.refused}; their log says why"
            )
        if self._closed.is_set() or self._ends.is_set():
            raise Closed(f"broker {self.node}: it was closed, or its process ends")

    def let_go(self, retries: int, backoff_ms: int) -> bool:
        """Let the controllers move leaderships from here; returns whether they have done so, in the
        time of so many retries.  Changes of the metadata are not carried out from then on."""
        with self._news:
            self._live_on(lives.leaving)
            done = self._news.wait_for(
                lambda: self._life.stage is Stage.LEFT or self._broken is not None,
                (retries + 1) * backoff_ms / 1000,
            )
        with self._lock:
            self._acting = False
            self._listeners.clear()
        return done

    def close(self) -> None:
        """End the heartbeats; the controllers miss this broker after its session.  Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._news:
            self._news.notify_all()
        for line in self._connections:
            line.close()
        self._source.close()
        for thread in self._threads:
            thread.join()
        with suppress(KafkalogError):
            self._release()

    # ---- what is known -------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The metadata that the quorum has committed, as far as this broker has them."""
        return self._image

    @property
    def clustered(self) -> bool:
        """True: its controllers are other processes."""
        return True

    @property
    def on_zookeeper(self) -> bool:
        """False: its metadata are a log."""
        return False

    @property
    def controller(self) -> int:
        """This broker, as far as clients are concerned: it forwards their requests (KIP-590)."""
        return self.node

    @property
    def epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._life.epoch

    def held(self, tp: TopicPartition) -> Partition | None:
        """This node's replica of a partition."""
        found = self._image.partition(*tp)
        if found is None or not self._acting or self.node not in found.replicas:
            return None
        return None if tp in self._failed else found

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """The topic's id if this node must have that partition."""
        image = self._image
        found = image.partition(topic, partition)
        if found is None or not self._acting or self.node not in found.replicas:
            return None
        return image.topics[topic].id

    def place(self, broker: int) -> Address | None:
        """Where other brokers reach one."""
        found = self._image.brokers.get(broker)
        for name, host, port, _ in found.endpoints if found else ():
            if name == self.listener:
                return Address(host, port)
        return None

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after each change of the image, in the order of changes."""
        with self._lock:
            self._listeners.append(listener)

    def followed(self, call: Callable[[], T]) -> T:
        """The result of `call`, made while no change is under way."""
        with self._lock:
            return call()

    def config(self, topic: str) -> Mapping[str, object] | None:
        """The settings of a topic that override the broker's static ones (for Manager)."""
        return settings.topic_overrides(self.image, topic, self._config.topic, self._not_obeyed)

    # ---- following the metadata ----------------------------------------------------------------

    def _follow(self) -> None:
        try:
            self._source.run(self._changed)
        except Exception as problem:
            if isinstance(problem, Closed) and self._closed.is_set():
                return
            with self._news:
                self._broken = problem
                self._news.notify_all()
            _logger.exception("broker %d: follows the metadata no more: it leads and follows "
                              "nothing until it is restarted", self.node)  # fmt: skip
            with self._lock:
                self._resign()

    def _resign(self) -> None:
        """Take no more roles, and drop those that it has: others may have been given them."""
        begun, self._acting = self._acting, False
        change = unled(self._image)
        self._tell(change)
        if begun:
            self.carry_out(no_roles(change.new))

    def _changed(self, change: Change) -> None:
        """In the follower's thread, with the lock."""
        self._tell(change)
        if self._acting:
            self._act(changed_roles(change))
        if change.old.features != change.new.features and lacks_directories(change.new):
            self._live_on(lives.amends)

    def _tell(self, change: Change) -> None:
        self._image = change.new
        calls = [partial(self._manager.reconfigure, topic=topic)
                 for topic in settings.changed_topics(change)]  # fmt: skip
        for call in (*calls, *(partial(listener, change) for listener in self._listeners)):
            try:
                call()
            except Exception:
                _logger.exception("broker %d: could not follow a change", self.node)

    def _act(self, effects: Sequence[Effect]) -> None:
        if not effects:
            return
        self._failed -= {one.partition for one in effects if not isinstance(one, Lead)}
        lost = self.carry_out(effects)
        leads = {one.partition for one in effects if isinstance(one, Lead)}
        if failed := {tp for tp in lost if tp in leads}:
            self.fail(failed)
            self.report_failed()

    def _begin(self) -> None:
        """Take the roles that the metadata give to this broker, once it is registered."""
        with self._lock:
            if self._acting or self._broken is not None:
                return
            self._acting = True
            image = self._image
            strays = [
                tp for tp in self._manager.partitions()
                if tp.topic != METADATA_TOPIC and self.topic_id(*tp) is None
            ]  # fmt: skip
            for tp in strays:
                _logger.warning("%s-%d: the cluster has no such replica here: its folder is renamed"
                                " to -stray, and kept", *tp)  # fmt: skip
            self._manager.delete_partitions(strays, kind="stray")
            self._act(all_roles(image))

    # ---- registration and heartbeats -----------------------------------------------------------

    def _live_on(self, step: Callable[[Life], Life]) -> Life:
        with self._news:
            self._life = step(self._life)
            self._news.notify_all()
            return self._life

    def _live(self) -> None:
        interval_ms = self._config.broker_heartbeat_interval_ms
        while not self._closed.is_set():
            with self._news:
                before = self._life
                if before.stage is Stage.LEFT or before.refused or self._broken is not None:
                    self._news.wait_for(self._closed.is_set)
                    continue
            try:
                self._exchange(before)
            except KafkalogError as problem:
                if before.problem != str(problem):
                    _logger.info("broker %d: %s", self.node, problem)
                self._live_on(partial(lives.failed, problem=str(problem)))
            except Exception:
                _logger.exception("broker %d: a heartbeat failed", self.node)
                self._closed.wait(interval_ms / 1000)
            with self._news:
                now = self._life
                wait_s = lives.pause_ms(now, interval_ms) / 1000
                if before.stage is now.stage:
                    self._news.wait_for(partial(self._hurries, now), wait_s)

    def _hurries(self, known: Life) -> bool:
        """True if the next request is to be sent now, or none any more."""
        now = self._life
        different = now.stage is not known.stage or now.offline != known.offline
        return different or self._closed.is_set()

    def _exchange(self, life: Life) -> None:
        if life.stage is Stage.REGISTERING:
            assert self._registration is not None
            body = lives.registration_body(self._registration)
            answer = self._line.ask(BROKER_REGISTRATION, body)
            code, epoch = answer.error_code, answer.broker_epoch
            after = self._live_on(lambda one: lives.registered(one, code, epoch))
            if not code:
                _logger.info("broker %d: registered in epoch %d", self.node, epoch)
                self._manager.state.broker_epoch = epoch
                with self._lock:
                    self.registered(epoch)
            elif life.problem != (after.refused or after.problem):
                _logger.warning("broker %d: its registration is refused: %s", self.node,
                                after.refused or after.problem)  # fmt: skip
            return
        body = lives.heartbeat_body(life, self.node, self._image.offset, self._cordoned())
        answer = self._line.ask(BROKER_HEARTBEAT, body)
        after = self._live_on(lambda one: lives.heartbeat_answered(one, answer))
        if after.fenced != life.fenced and after.stage is life.stage:
            _logger.warning("broker %d: is %s", self.node, "fenced" if after.fenced else "unfenced")
        if after.stage is Stage.CATCHING_UP and after.caught_up:
            self._begin()
            self._live_on(lives.ready)
        if after.stage is Stage.SERVING:
            self._assign()

    def _cordoned(self) -> list[UUID] | None:
        """The directory if it gets no new partitions (KIP-1066)."""
        if self._image.features.get(METADATA_VERSION, 0) < CORDONED_SINCE:
            return None
        cordoned = settings.is_cordoned(self._image, self._config)
        return [self._entry.identity.directory_id] if cordoned else []

    def _assign(self) -> None:
        """Tell the controllers which replicas are in this directory (KIP-858)."""
        image = self._image
        if image.topics is self._placed:
            return
        directory_id = self._entry.identity.directory_id
        wrong = misplaced(image, directory_id)
        if wrong:
            topics = [
                {"topic_id": one, "partitions": [{"partition_index": n} for n in numbers]}
                for one, numbers in wrong.items()
            ]
            answer = self._line.ask(ASSIGN_REPLICAS_TO_DIRS, {
                "broker_id": self.node, "broker_epoch": self.epoch,
                "directories": [{"id": directory_id, "topics": topics}],
            })  # fmt: skip
            if answer.error_code:
                _logger.info("AssignReplicasToDirs: error %d", answer.error_code)
        else:
            self._placed = image.topics

    def fail(self, partitions: Collection[TopicPartition]) -> None:
        """The logs of these went offline: they are no longer held."""
        with self._lock:
            self._failed |= set(partitions)

    def report_failed(self) -> None:
        """Let others lead: the controllers learn that this broker's directory is offline; they know
        no smaller unit."""
        offline = (self._entry.identity.directory_id,)
        self._live_on(lambda one: one._replace(offline=offline))

    # ---- the controllers -----------------------------------------------------------------------

    def _where(self) -> tuple[int, Address | None]:
        """The active controller, and its address: it leads the quorum."""
        seen = self._source.seen
        return seen.leader, seen.address

    def _turn(self) -> None:
        for line in self._connections:
            line.turn()
        with self._news:
            self._news.notify_all()

    def await_controller(self, at_most_s: float) -> bool:
        """Wait until an active controller is known; False: none is, or this is closed."""

        def known() -> bool:
            return self._closed.is_set() or self._where()[1] is not None

        with self._news:
            return self._news.wait_for(known, at_most_s) and not self._closed.is_set()

    def connecting(self, *, to_controller: bool = False) -> Options:
        """How this broker connects to others, or to the controller."""
        if to_controller:  # it is the same for all: short, as an end may have to wait for it
            return self._entry.options
        return Options(client_id=str(self.node), security=self._entry.securities.get(self.listener))

    def controller_connection(self) -> ControllerConnection:
        """Another connection to the active controller, for requests that must not wait for
        others."""
        made = ControllerConnection(
            self.node, self._where, self.connecting(to_controller=True),
            lambda: self._source.seen.epoch,
        )  # fmt: skip
        self._connections.append(made)
        return made

    def close_controller_connection(self) -> None:
        """End all waits for the controller, now and later; lines of others stay open."""
        self._connection.close()

    def create_topics(self, asked: NewTopics) -> list[Result]:
        """CreateTopics; one result per topic.

        Raises: as `ControllerConnection.ask`.
        """
        return controller_requests.create_topics(self._connection.ask, asked)

    def allocate_producer_ids(self) -> range:
        """As controller_requests.allocate_producer_ids."""
        return controller_requests.allocate_producer_ids(
            self._connection.ask, self.node, self.epoch
        )

    def describe_configs(self, asked: SettingsAsked) -> list[Result]:
        """DescribeConfigs: the response's `results`."""
        return configs.describe_configs(self.image, asked, self._config)

    def lead(self, log: Log) -> int:
        """As lead_held."""
        return lead_held(log, self.held(TopicPartition(log.topic, log.partition)), self.node)

    def obey(self, api: Api, request: Any) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion(f"broker {self.node}: no controller of KRaft commands brokers")

    def alter_configs(self, asked: SettingChanges, plan: Callable[..., Any]) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion(f"broker {self.node}: the controllers change settings")


def join_quorum(
    manager: Manager, config: ServerConfig, entry: Entry, ends: threading.Event,
    follow: Follow | None = None,
) -> QuorumMember:  # fmt: skip
    """Give the directory its identity, and read the cluster's metadata into it; `ends`, `follow`:
    as QuorumMember.

    Raises: as QuorumMember.
    """
    manager.state.copied = True
    own(manager, entry.identity)
    return QuorumMember(manager, config, entry, ends, follow)
