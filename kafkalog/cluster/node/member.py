"""A broker's membership in a cluster on ZooKeeper: the source of its metadata.

Partitions and brokers come from the controller's requests, settings from the tree.  Changes of
the metadata are requested from the controller.  Followers of the image see no difference to other
sources.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.failures import check_code
from kafkalog.client.link.transport import Address, Options
from kafkalog.cluster.node import controller_requests
from kafkalog.cluster.node.controller_connection import ControllerConnection
from kafkalog.cluster.node.protection import Protection
from kafkalog.cluster.node.session_watch import SessionWatch
from kafkalog.cluster.node.state import (
    MemberState,
    failed,
    leader_and_isr,
    not_deleted,
    registered,
    stop_replica,
    update_metadata,
    vanished,
    without,
    without_leftovers,
)
from kafkalog.cluster.node.unsupported_watch import UnsupportedWatch
from kafkalog.config.broker import BrokerConfig
from kafkalog.controller.settings import Plan, altered, each, mark_refused
from kafkalog.log.log import Log
from kafkalog.logs.limit import limited
from kafkalog.metadata import configs, settings
from kafkalog.metadata.image import BROKER, TOPIC, Change, MetadataImage, Partition
from kafkalog.metadata.requests import NewTopics, Result, SettingChanges, SettingsAsked
from kafkalog.metadata.source import Planned
from kafkalog.replication.follower_log import lead_held
from kafkalog.replication.inter_broker import NodeSecurity
from kafkalog.replication.roles import Effect
from kafkalog.types import TopicPartition
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kafkalog.zookeeper import altering, entities, own_settings, tree
from kafkalog.zookeeper.loading import PROTOCOLS, Znode
from kafkalog.zookeeper.reading import read_tree
from kafkalog.zookeeper.registering import earlier_s, patiently, register
from kafkalog.zookeeper.security import ZooKeeperSecurity
from kafkalog.zookeeper.session import USUAL, Create, Life, Seen, Timeouts, open_session

__all__ = ["Member"]

_logger = limited(__name__)
T = TypeVar("T")
OPEN: Mapping[str, NodeSecurity] = MappingProxyType({})
Listener = Callable[[Change], None]
CONTROLS = {
    LEADER_AND_ISR.key: (leader_and_isr, without),
    STOP_REPLICA.key: (stop_replica, not_deleted),
}
"""The function that carries out a request, and the one that corrects the state on failures."""


class Member:
    """One broker's view of its cluster.  Safe to use from many threads; closed by `close`."""

    def __init__(
        self, hosts: str, node: int, listener: str, config: BrokerConfig,
        timeouts: Timeouts = USUAL, control_listener: str = "",
        securities: Mapping[str, NodeSecurity] = OPEN,
        at_zookeeper: ZooKeeperSecurity | None = None,
    ) -> None:  # fmt: skip
        """Read the tree; the cluster does not know this broker before `register`.

        `listener`: the one by which brokers reach each other; `control_listener`: by which they
        reach the controller, empty: by the same.  `config`: the broker's settings at its start.
        `securities`: those of this node's connections by listeners that are not PLAINTEXT;
        `at_zookeeper`: that of its sessions.

        Raises: ZooKeeperAway, MissingPackage.
        """
        self.node = node
        self.carry_out: Callable[[Sequence[Effect]], Mapping[TopicPartition, ErrorCode]] = (
            lambda _: {}
        )
        """Carries out what the controller wants of this node's replicas, in order.  Called in the
        thread of the request, which is answered when it returns.  Returns the partitions that
        others must lead, because they are offline here, and those that could not be deleted, with
        the reason."""
        self.listener = listener
        """The listener by which brokers reach each other."""
        self._control_listener = control_listener or listener
        self._securities, self._config = securities, config
        self._not_obeyed: set[settings.Problem] = set()  # settings with a logged warning
        self.timeouts = timeouts
        self.patience_s = max(timeouts.connection_ms, 2 * timeouts.session_ms) / 1000
        """How long a start waits for ZooKeeper, once it was reached."""
        self._lock = threading.RLock()  # guards what follows; held while listeners are notified
        self._listeners: list[Listener] = []
        self.reconfigure: Callable[[str | None], None] = lambda _: None
        """Applies the current settings of a topic, or of all, to open logs."""
        self._leaders: dict[int, Address] = {}  # newer than the image
        self._connections: list[ControllerConnection] = []
        self._connection = self.controller_connection()
        self._closed = threading.Event()
        self._places: tuple[Sequence[tree.Endpoint], str | None] | None = None
        self.registered: Callable[[int], None] = lambda _: None
        """Called with each epoch that this broker gets."""
        self.owned: Callable[[], None] = lambda: None
        """Called once it is registered for the first time, before any request of the controller is
        carried out: the directory is this broker's from now on."""
        told: queue.SimpleQueue[Life | Seen | None] = queue.SimpleQueue()
        self.at_zookeeper = at_zookeeper
        self.session = open_session(hosts, told.put, timeouts, at_zookeeper)
        inner = {name: self._protocol(name) for name in (listener, self._control_listener)}
        tokens = bool(config.get("delegation.token.secret.key"))
        self._unsupported = UnsupportedWatch(self.session, node, inner, tokens)
        self._protection = Protection(self.session, lambda: self.image, self._use, tokens)
        calls = self._set, self._begun, self._looked, self._missed
        self._watching = SessionWatch(self.session, told, *calls)
        self._unread: dict[str, UUID] = {}  # topics whose settings could not be read yet
        self._standing = self._at_start()
        patiently(self._protection.look, self.patience_s)
        self._heard = self._compared = -1, -1
        """Epochs (controller, broker): of the last UpdateMetadata, of the topics last compared."""

    def _at_start(self) -> MemberState:
        loaded = patiently(lambda: read_tree(self.session, self.node), self.patience_s)
        for problem in loaded.problems:
            _logger.warning("%s", problem)
        controller = -1 if loaded.controller is None else loaded.controller.broker
        image = without_leftovers(loaded.image)
        return MemberState(self.node, -1, controller, loaded.controller_epoch, image, {})

    def identify(self, cluster: str) -> None:
        """Set the cluster id, which the first node that found none in the tree has created."""
        with self._lock:
            image = self.image._replace(cluster_id=cluster)
            self._standing = self._standing._replace(image=image)

    def use(self, config: BrokerConfig) -> None:
        """Take other settings, before the broker uses them."""
        self._config = config

    # ---- its life ------------------------------------------------------------------------------

    def register(
        self, endpoints: Sequence[tuple[str, str, int, int]], rack: str | None = None
    ) -> int:
        """Report that this broker lives, and where; returns its epoch.  The controller's requests
        come next.

        `endpoints`: (listener's name, advertised host, port, Kafka's number of the protocol).

        Raises: ZooKeeperAway, DuplicateBrokerRegistration.
        """
        with self._lock:
            names = {number: name for name, number in PROTOCOLS.items()}
            places = [
                tree.Endpoint(name, host, port, names[protocol])
                for name, host, port, protocol in endpoints
            ]
            self._places = places, rack
            epoch = patiently(self._register, self.patience_s)
            self.owned()
        self._watching.start()
        if not self._protection.is_whole:
            self._watching.look()
        return epoch

    def _register(self) -> int:
        assert self._places is not None
        epoch = register(self.session, self.node, *self._places, earlier_s(self.timeouts))
        self._standing = registered(self._standing, epoch)
        self.registered(epoch)
        return epoch

    def _begun(self) -> None:
        """The session ended, and with it the registration: another life begins, for which what
        the controller said before is void.  Leaderships continue until it says more.
        """
        _logger.warning(
            "broker %d: its session with ZooKeeper ended; it registers again", self.node
        )
        self._protection.forget()
        with self._lock:
            self._register()

    def let_go(self, retries: int, backoff_ms: int) -> bool:
        """Ask the controller to move leaderships from here (ControlledShutdown); returns whether
        this broker no longer leads anything that others keep, too."""
        for again in range(retries + 1):
            if again and self._closed.wait(backoff_ms / 1000):
                break
            body = {"broker_id": self.node, "broker_epoch": self.epoch}
            try:
                answer = self._connection.ask(CONTROLLED_SHUTDOWN, body)
                check_code(answer.error_code, "controlled shutdown")
            except errors.KafkalogError as problem:
                _logger.warning("broker %d: %s", self.node, problem)
                continue
            if not answer.remaining_partitions:
                return True
        return False

    def close(self) -> None:
        """End the registration and the session.  Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._watching.stop()
        for line in self._connections:
            line.close()
        self.session.close()

    # ---- what is known -------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The metadata that the controller sent last."""
        return self._standing.image

    @property
    def clustered(self) -> bool:
        """True if it is one of several nodes, of which one decides."""
        return True

    @property
    def on_zookeeper(self) -> bool:
        """True: its metadata are in ZooKeeper."""
        return True

    @property
    def controller(self) -> int:
        """The broker that is the controller; -1: not known."""
        return self._standing.controller

    @property
    def epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._standing.epoch

    def held(self, tp: TopicPartition) -> Partition | None:
        """This node's replica of a partition, as the controller's LeaderAndIsr described it."""
        found = self._standing.held.get(tp)
        return None if found is None else found.state

    def place(self, broker: int) -> Address | None:
        """Where other brokers reach one; for a leader, the address sent with its leadership.

        The controller sends those of the listener by which it reaches brokers itself: while the
        listener between brokers is changed, that may be another one.
        """
        sent = self._leaders.get(broker)
        found = self.image.brokers.get(broker)
        others = [Address(host, port) for name, host, port, _ in (found.endpoints if found else ())
                  if name != self.listener]  # fmt: skip
        return self._endpoint(broker, self.listener) if sent is None or sent in others else sent

    def connecting(self, *, to_controller: bool = False) -> Options:
        """How this node connects to others, or to the controller."""
        listener = self._control_listener if to_controller else self.listener
        return Options(client_id=str(self.node), security=self._securities.get(listener))

    def _protocol(self, listener: str) -> int:
        found = self._securities.get(listener)
        return PROTOCOLS["PLAINTEXT"] if found is None else found.number

    def _endpoint(self, broker: int, listener: str) -> Address | None:
        found = self.image.brokers.get(broker)
        for name, host, port, _ in found.endpoints if found else ():
            if name == listener:
                return Address(host, port)
        return None

    def _where(self) -> tuple[int, Address | None]:
        """The controller, and the address at which it takes brokers' requests.

        Without a separate listener, that may have been sent with a leadership.
        """
        controller = self.controller
        if self._control_listener == self.listener:
            return controller, self.place(controller)
        return controller, self._endpoint(controller, self._control_listener)

    def listen(self, listener: Listener) -> None:
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

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """The topic's id if this node must have that partition (for Manager)."""
        found = self._standing.held.get(TopicPartition(topic, partition))
        return None if found is None else found.topic_id

    # ---- what the controller says ----------------------------------------------------------------

    def obey(self, api: Api, request: Any) -> Mapping[str, Any]:
        """Carry out a request of the controller; returns the fields of its response."""
        with self._lock:
            if api.key != STOP_REPLICA.key:
                self._learn((topic.topic_name, topic.topic_id) for topic in request.topic_states)
            if api.key == UPDATE_METADATA.key:
                self._leaders.clear()
                self._standing, change, answer = update_metadata(self._standing, request)
                self._turn()
                if change is not None:
                    self._tell(change)
                    self._heard = self._standing.controller_epoch, self._standing.epoch
                    if self._heard != self._compared:
                        self._watching.look()
                return answer
            decide, without_lost = CONTROLS[api.key]
            self._standing, effects, answer = decide(self._standing, request)
            self._turn()
            if api.key == LEADER_AND_ISR.key and not answer["error_code"]:
                self._leaders.update(
                    (one.broker_id, Address(one.host_name, one.port))
                    for one in request.live_leaders
                )
            if lost := self.carry_out(effects):
                self._standing, answer = without_lost(self._standing, answer, lost)
            return answer

    def _turn(self) -> None:
        for line in self._connections:
            line.turn()

    def _looked(self) -> bool:
        """The tree may have changed, or be within reach again; False: it is not wholly readable."""
        self._protection.look()
        if self._unread:
            with self._lock:
                self._learn(())
        self._compare()
        self._unsupported.look()
        return self._protection.is_whole

    def _compare(self) -> None:
        """Forget topics that the tree lacks, once under each controller and in each life of this
        broker: they were deleted while it was away, or a controller died before it said so."""
        with self._lock:
            heard, before = self._heard, self.image
        if heard == self._compared:
            return
        self.session.sync(tree.TOPICS)
        names = self.session.children(tree.TOPICS)
        if names is None:
            return
        with self._lock:
            self._standing, change = vanished(self._standing, before, names)
            self._compared = heard
            if change is not None:
                for topic in change.gone:
                    _logger.info("broker %d: topic %s is not in ZooKeeper any more: it was deleted",
                                 self.node, topic.name)  # fmt: skip
                self._tell(change)

    def _learn(self, topics: Iterable[tuple[str, UUID]]) -> None:
        """Read the settings of topics that were not known before."""
        new = self._unread | {
            name: topic_id
            for name, topic_id in topics
            if (known := self.image.topics.get(name)) is None or known.id != topic_id
        }
        if not new:
            return
        try:
            found = self._topic_settings(new)
        except errors.ZooKeeperAway:
            self._unread = new  # until it is back
            found = {}
        else:
            self._unread = {}
        old = self.image
        configs = {key: said for key, said in old.configs.items()
                   if not (key[0] == TOPIC and key[1] in new)}  # fmt: skip
        configs |= {(TOPIC, name): said for name, said in found.items() if said}
        changed = tuple(
            (TOPIC, name)
            for name in new
            if configs.get((TOPIC, name)) != old.configs.get((TOPIC, name))
        )
        if changed:
            image = old._replace(configs=configs)
            self._standing = self._standing._replace(image=image)
            self._tell(Change(old, image, (), (), changed))

    def _topic_settings(self, topics: Mapping[str, UUID | None]) -> dict[str, dict[str, str]]:
        """The settings of topics with these ids; without those that are unreadable.

        Raises: ZooKeeperAway.
        """
        paths = [path for name in topics for path in own_settings.paths_of(name)]
        znodes = self.session.look([(path, False, False) for path in paths])
        data = [one.data if isinstance(one, Znode) else None for one in znodes]
        found = {}
        for (name, topic_id), *both in zip(topics.items(), data[::2], data[1::2], strict=True):
            try:
                found[name] = own_settings.merged(name, topic_id, *both)
            except errors.BadZnode as problem:  # the former settings stay in effect
                _logger.warning("%s", problem)
        self._unsupported.settings({("topics", name): said for name, said in found.items()})
        return found

    def _missed(self) -> None:
        """Any settings may have changed: read all again."""
        image = self.image
        topics = {*image.topics, *(name for kind, name in image.configs if kind == TOPIC)}
        brokers = {entities.DEFAULT, str(self.node), *map(str, image.brokers)}
        brokers |= {name for kind, name in image.configs if kind == BROKER and name}
        self._set(
            [*(("topics", name) for name in topics), *(("brokers", name) for name in brokers)]
        )
        self._protection.forget_clients()

    def _set(self, changed: Sequence[entities.Entity]) -> None:
        """Read the settings of these again: they were changed."""
        found: dict[tuple[int, str], Mapping[str, str]] = {}
        topics = self.image.topics
        names = {one[1]: topics[one[1]].id if one[1] in topics else None
                 for one in changed if one[0] == "topics"}  # fmt: skip
        for name, own in self._topic_settings(names).items():
            found[TOPIC, name] = own
        for entity in (one for one in changed if one[0] == "brokers"):
            znode = self.session.read(entities.config_path(entity))
            name = "" if entity[1] == entities.DEFAULT else entity[1]
            try:
                found[BROKER, name] = entities.read_config(entity, znode.data) if znode else {}
            except errors.BadZnode as problem:
                _logger.warning("%s", problem)
        self._protection.read_clients(one for one in changed if one[0] in entities.QUOTAS)
        with self._lock:
            old = self.image
            configs = {key: said for key, said in {**old.configs, **found}.items() if said}
            image = old._replace(configs=configs)
            self._standing = self._standing._replace(image=image)
            self._tell(Change(old, image, (), (), tuple(found)))

    def _use(self, **parts: Any) -> None:
        """Replace parts of the image, such as all ACLs."""
        with self._lock:
            old = self.image
            image = old._replace(**parts)
            self._standing = self._standing._replace(image=image)
            self._tell(Change(old, image, (), (), ()))

    def _tell(self, change: Change) -> None:
        """Report a change to all listeners; one that fails does not affect the others."""
        calls = [partial(self.reconfigure, topic) for topic in settings.changed_topics(change)]
        for call in (*calls, *(partial(listener, change) for listener in self._listeners)):
            try:
                call()
            except Exception:
                _logger.exception("broker %d: could not follow a change", self.node)

    # ---- reports to the controller ---------------------------------------------------------------

    def fail(self, partitions: Collection[TopicPartition]) -> None:
        """The logs of these went offline: they are no longer held."""
        with self._lock:
            self._standing = failed(self._standing, partitions)

    def report_failed(self) -> None:
        """Have the controller ask which logs are offline: it sends again what this node must hold.

        Raises: ZooKeeperAway; it may be called again.
        """
        event = tree.write_log_dir_event(self.node)
        self.session.commit([Create(tree.LOG_DIR_EVENT, event, sequence=True)])

    # ---- what is asked of the controller -------------------------------------------------------

    def controller_connection(self) -> ControllerConnection:
        """Another connection to the controller, for requests that must not wait for others."""
        made = ControllerConnection(self.node, self._where, self.connecting(to_controller=True))
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

    def alter_configs(self, asked: SettingChanges, plan: Plan) -> list[Result]:
        """AlterConfigs and IncrementalAlterConfigs of this broker's own settings, as brokers on
        ZooKeeper do them: no controller of Apache Kafka changes those of another broker.

        Raises: ZooKeeperAway.
        """
        image, results = self.image, []
        for one in each(asked):
            kind, name = one.resources[0].kind, one.resources[0].name
            znodes = [self.session.read(path) for path in altering.paths_of(kind, name)]
            known = altering.settings_in(kind, name, None, znodes)
            result, change = altered(image, one, known, plan, self._config)
            if change is not None:
                written = altering.operations(kind, name, None, znodes, change.changes)
                if not self.session.commit(written).done:
                    mark_refused(result)
            results.append(result)
        return results

    def alter(self, planned: Callable[[MetadataImage], Planned]) -> list[Result]:
        """Change ACLs, credentials or quotas in the tree, on top of everything that was written
        there before; `planned`: the records and the results.

        Raises: as Protection.alter.
        """
        self.session.sync(entities.CHANGES)
        if not self._watching.looked(self.timeouts.session_ms / 1000):
            raise errors.ZooKeeperAway(f"ZooKeeper at {self.session.hosts}: it is not read in time")
        return self._protection.alter(planned)

    def describe_configs(self, asked: SettingsAsked) -> list[Result]:
        """DescribeConfigs: the response's `results`."""
        return configs.describe_configs(self.image, asked, self._config)

    def lead(self, log: Log) -> int:
        """As lead_held."""
        return lead_held(log, self.held(TopicPartition(log.topic, log.partition)), self.node)

    def allocate_producer_ids(self) -> range:
        """As controller_requests.allocate_producer_ids."""
        return controller_requests.allocate_producer_ids(
            self._connection.ask, self.node, self.epoch
        )
