"""A broker in this process: Kafka's protocol on a port, over one data directory."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalog.client.link.transport import Transport
from kafkalog.clock import Clock, SystemClock
from kafkalog.config.protection import refuse_protections
from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.directory.identity import check_unlocked
from kafkalog.disk.secret import secret_of
from kafkalog.errors import Closed, ForkedHandle, KafkalogError
from kafkalog.log.hooks import hooks
from kafkalog.log.owner import absolute
from kafkalog.logs.limit import limited
from kafkalog.server.admission import Admission, authorizer_of
from kafkalog.server.appends import Appends
from kafkalog.server.authentication import Authentication
from kafkalog.server.client_telemetry import telemetry_of
from kafkalog.server.controller_apis.interface import ControllerApis
from kafkalog.server.controller_apis.single_node import SingleNode
from kafkalog.server.coordinators import (
    follow_coordinators,
    group_coordinator,
    transaction_coordinator,
)
from kafkalog.server.dead_letters import DeadLetters
from kafkalog.server.dispatch import Dispatch
from kafkalog.server.dynamic import check_in_effect, follow_settings
from kafkalog.server.endings import AT_EXIT, end_all
from kafkalog.server.faults import Faults
from kafkalog.server.handlers import routes_of
from kafkalog.server.handlers.leaders import follow_addresses
from kafkalog.server.handlers.tokens import expire_tokens
from kafkalog.server.listener_keys import ListenerKeys
from kafkalog.server.mechanisms import mechanisms_of
from kafkalog.server.metrics.network import Serving
from kafkalog.server.metrics.watch import BrokerParts, Watch
from kafkalog.server.metrics.watched import Watched
from kafkalog.server.network import listeners as places
from kafkalog.server.network.in_process import InProcessTransport
from kafkalog.server.network.reactor import NO_CONTROL, Reactor
from kafkalog.server.node import Node
from kafkalog.server.opening import Opened, candidate
from kafkalog.server.partitions import Partitions
from kafkalog.server.planning import Plan, complete, planned_of
from kafkalog.server.quotas import ClientQuotas
from kafkalog.server.request_log import RequestLog
from kafkalog.server.share_persister import SharePersister
from kafkalog.server.shares import share_parts
from kafkalog.server.threads.acknowledger import Acknowledger
from kafkalog.server.threads.deletions import Deletions
from kafkalog.server.threads.serial_executor import SerialExecutor
from kafkalog.server.threads.ticks import follow as follow_clock
from kafkalog.server.threads.workers import Workers
from kafkalog.server.transactions.markers import Markers
from kafkalog.server.transactions.producer_ids import ProducerIds
from kafkalog.server.transactions.write_guards import Guards
from kafkalog.shares.leader import Shares

if TYPE_CHECKING:
    from kafkalog.replication.membership import Controlling
    from kafkalog.server.controller_apis.forwarder import ControllerForwarder
    from kafkalog.server.replica_manager import ReplicaManager

__all__ = ["Broker", "node_of", "serve_until"]

_logger = limited(__name__)

STOP_MS = 10_000
"""How long the broker waits at its end for requests in flight to be answered."""
HAND_OVER_S = 10.0
"""How long a cluster's node waits at its end for followers in sync to have everything."""
DIRECTORY = 2
"""Cleanup steps that run last; the first two are the directory's."""

Part = TypeVar("Part")


class Broker(Watched):
    """A broker that serves any Kafka client from one data directory, which it owns.

    Everything runs in its own threads: you can use it together with asyncio, whose loop it never
    blocks.  Closed by `close`, or as a context manager.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        listeners: str | Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the directory at `path`, which is created if it is missing, and serve it.

        `listeners`: host:port or NAME://host:port, several separated by commas or in a list; port
        0 takes a free one.  None: what `config` says, else a free port of 127.0.0.1.  An empty
        list: no port, and only this process reaches the broker (see `kafkalog.Store`).
        `config`: settings by Kafka's names (docs/settings.md), both the broker's and defaults for
        topics.  One default of a single node differs from `kafkalog serve`:
        group.initial.rebalance.delay.ms is 0.

        Raises: Locked with the owner's pid, UnknownSetting, InvalidSetting (also if `config` or
        the metadata ask for access control, which is not supported yet), CorruptLog,
        ArgumentError (a directory of several nodes, without metadata, or with ACLs; a cluster that
        this node does not fit, see `kafkalog cluster precheck`), IoFailed (an address that cannot
        be bound).
        """
        self._path = absolute(path)
        self._clock: Clock = clock or SystemClock()
        self._manual = not isinstance(self._clock, SystemClock)
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._store: Any = None
        self._inside: InProcessTransport | None = None
        self._ends: threading.Event = getattr(self, "_ends", None) or threading.Event()
        self._undo: list[Any] = []  # ends the parts that were started, in their order
        self._begin(self._plan(complete(config, listeners), listeners))
        AT_EXIT.add(self)

    def _plan(self, given: dict[str, object], listeners: str | Sequence[str] | None) -> Plan:
        """Raises: as Broker; nothing has changed."""
        refuse_protections(given)
        config = ServerConfig.of(given)
        check_served(config)
        planned = planned_of(config, listeners)
        mechanisms = mechanisms_of(
            config, planned, lambda: self._metadata.image, self._clock, lambda: self._secret
        )
        return Plan(config, ServerConfig.without_texts_of_secrets(given), planned, mechanisms)

    def _begin(self, plan: Plan) -> None:
        """Open the directory, and serve it.  Raises: as Broker; everything has ended then."""
        self._planned, planned = plan, plan.listeners
        self._config, self._given, self._mechanisms = plan.config, plan.given, plan.mechanisms
        try:
            check_unlocked(self.path)  # first: its owner has the port, and the node's number
            self._keys = ListenerKeys(self._config, planned, self._name)
            places.try_to_listen(self._config, (*planned, *places.of_controllers(self._config)))
            self._watch = Watch(self._config, self._name)
            self._open()
            self._serve(planned)
        except BaseException:
            self._closed = True
            with suppress(ValueError):  # restart decides if this process's clients go on
                self._undo.remove(self._inside.close if self._inside else None)
            with suppress(Exception):  # the first error says more
                self._end()
            raise
        _logger.info("%s: node %d of cluster %s serves %s", self.path, self._node.node_id,
                     self._node.image.cluster_id, self._shown_address())  # fmt: skip

    @property
    def path(self) -> str:
        """The data directory, absolute."""
        return self._path

    @property
    def _name(self) -> str:
        """The names of its threads begin so."""
        return f"kafkalog {os.path.basename(self._path)}"

    # ---- beginning -------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the directory, its logs and metadata."""
        self._controller: Controlling | None = None
        self._replicas: ReplicaManager | None = None
        opened = Opened(self.path, self._config, self._given, self._clock, self._undo, self._ends)
        self._config, self._given = opened.config, dict(opened.given)
        self._manager, self._metadata = opened.manager, opened.metadata
        self._kraft, self._zookeeper, self._quorum = opened.kraft, opened.zookeeper, opened.quorum
        self._member, self._controllers = opened.member, opened.controllers
        if self._controllers is not None:
            self._watching.follow_controllers(self._controllers)
        self._secret = secret_of(self._manager.state.directory) if self._mechanisms else b""
        if self._kraft is not None and self._config.delegation_token_secret_key:
            expire_tokens(self._manager, self._kraft, self._config)

    # A part is built after those that it uses, and ends before them: `_undo` has the ends.

    def _owned(self, part: Part, end: Callable[[Part], object]) -> Part:
        """The part, which `end` will end."""
        self._undo.append(partial(end, part))
        return part

    def _serve(self, planned: Sequence[places.Listener]) -> None:
        """Build the parts over the open directory, and start them."""
        config, metadata, clock, name = self._config, self._metadata, self._clock, self._name
        reactor, advertised = self._listening(planned)
        protocol = {one.name: int(one.protocol) for one in planned}
        endpoints = [(*one, protocol[one.name]) for one in advertised if one.port]
        partitions = self._partitions(reactor, endpoints)
        acknowledger = self._owned(Acknowledger(reactor, clock, name), Acknowledger.stop)
        appends = Appends(partitions, reactor, acknowledger, clock)
        bulk = self._owned(SerialExecutor(f"{name} bulk"), SerialExecutor.stop)
        deletions = self._owned(Deletions(partitions.low_watermark, clock, name), Deletions.stop)
        peers = forwarder = None
        if self._member is not None:  # a single node starts sooner without these imports
            from kafkalog.server.controller_apis.forwarder import ControllerForwarder
            from kafkalog.server.transactions.inter_broker_client import InterBrokerClient

            peers = self._owned(InterBrokerClient(self._member, name), InterBrokerClient.stop)
            made = ControllerForwarder(self._member, name)
            forwarder = self._owned(made, ControllerForwarder.stop)
        guards = Guards()
        partitions.on_resignation = guards.leave
        shared = share_parts(
            config, metadata, partitions, appends, reactor, clock, name, bulk.submit, peers,
            lambda: self._node,
        )  # fmt: skip
        self._owned(shared.persister, SharePersister.stop)
        self._owned(shared.letters, DeadLetters.stop)
        groups = group_coordinator(
            config, metadata, partitions, appends, clock, bulk.submit, shared.carry_out,
            lambda asked: self._node.controller_apis.create_topics(asked),
        )  # fmt: skip
        allocator = None if forwarder is None else forwarder.submit
        producer_ids = ProducerIds(metadata.allocate_producer_ids, allocator)
        markers = self._owned(
            Markers(partitions, appends, groups, guards, name, peers), Markers.stop
        )
        continuations = self._owned(SerialExecutor(f"{name} transactions"), SerialExecutor.stop)
        transactions = transaction_coordinator(
            config, metadata, partitions, appends, producer_ids, markers, clock
        )
        admission = self._admission = Admission(reactor, authorizer_of(config))
        self._owned(admission, Admission.join)
        admission.follow(metadata)
        authentication = Authentication(
            config, planned, self._mechanisms, admission, clock, self._keys.identify
        )
        owner = admission.principal
        quotas = ClientQuotas(reactor.buckets, clock, config, lambda number: owner(number).name)
        self._node = Node(
            config=config, given=self._given, manager=self._manager, metadata=metadata,
            partitions=partitions, reactor=reactor, admission=admission, quotas=quotas,
            authentication=authentication,
            coordinator=groups, acknowledger=acknowledger, advertised=advertised,
            producer_ids=producer_ids, bulk=bulk, transactions=transactions, guards=guards,
            share_states=shared.states, persister=shared.persister, shares=shared.records,
            markers=markers, continuations=continuations, deletions=deletions,
            controller_apis=self._controller_apis(forwarder), peers=peers, letters=shared.letters,
            telemetry=telemetry_of(config, metadata, reactor, clock),
        )  # fmt: skip
        self._start(self._node, endpoints)

    def _listening(
        self, planned: Sequence[places.Listener]
    ) -> tuple[Reactor, tuple[places.Advertised, ...]]:
        """The I/O threads, not started, with their ports bound; and the addresses for clients."""
        names = [one.name for one in planned]
        control = self._control_listener
        reactor = Reactor(
            self._config, node_id=self._metadata.image.node_id, manual_clock=self._manual,
            control_listener=names.index(control) if control in names else NO_CONTROL,
        )  # fmt: skip
        self._owned(reactor, Reactor.close)
        for number in (*self._mechanisms, *self._keys.identified()):
            reactor.authenticate(number)
        self._undo.insert(-1, self._keys.join)  # once the reactor has stopped
        bound = {one.name: places.listen(reactor, one, number, self._keys.contexts.get(number))
                 for number, one in enumerate(planned)}  # fmt: skip
        return reactor, places.plan(self._config, bound) if planned else ()

    def _partitions(
        self, reactor: Reactor, endpoints: Sequence[tuple[str, str, int, int]]
    ) -> Partitions:
        """The logs: a single node leads all, a member does what the controller commands."""
        if self._kraft is not None:
            self._kraft.register(endpoints, self._config.broker_rack or None)
        if self._member is None:
            return Partitions(self._manager, self._metadata, reactor)
        from kafkalog.server.replica_manager import ReplicaManager, replica_manager
        from kafkalog.server.threads.isr_maintenance import IsrMaintenance

        replicas = replica_manager(self._manager, self._member, reactor, self._config)
        self._replicas = self._owned(replicas, ReplicaManager.close)
        lag_ms = self._config.replica_lag_time_max_ms
        isr_maintenance = IsrMaintenance(replicas, self._member, reactor, lag_ms, self._name)
        self._owned(isr_maintenance, IsrMaintenance.stop).start()
        return replicas

    def _controller_apis(self, forwarder: "ControllerForwarder | None") -> ControllerApis:
        """A member of a cluster has a `forwarder`; one on ZooKeeper may become the controller."""
        if self._member is None or forwarder is None:
            assert self._kraft is not None
            check = partial(check_in_effect, self._keys.check, self._config)
            return SingleNode(self._kraft, self._config, check)
        if self._quorum is not None:
            from kafkalog.server.controller_apis.quorum_broker import QuorumBroker

            return QuorumBroker(self._quorum, forwarder, self._admission)
        from kafkalog.server.controller_apis.member import ClusterMember

        assert self._zookeeper is not None
        self._controller = candidate(self._zookeeper, self._config)
        self._undo.append(self._controller.stop)
        if self._config.delegation_token_secret_key:
            controller = self._controller

            def as_controller(work: Callable[[], None]) -> None:
                if controller.is_active:
                    forwarder.submit(work)

            expire_tokens(self._manager, self._zookeeper, self._config, as_controller)
        return ClusterMember(self._zookeeper, self._controller, forwarder)

    def _start(self, node: Node, endpoints: Sequence[tuple[str, str, int, int]]) -> None:
        """Start all parts."""
        reactor = node.reactor
        routes = routes_of(node.on_zookeeper, node.under_controllers, node.telemetry.enabled)
        dispatch = Dispatch(node, routes)
        workers = self._owned(
            Workers(reactor, dispatch, self._name, node.bulk, node.quotas.resolve), Workers.join
        )
        names = [one.name for one in node.advertised]
        request_log = RequestLog(reactor, node.admission, names, self._name)
        self._undo.append(request_log.join)  # once the reactor has stopped
        self._owned(reactor, lambda it: it.stop(STOP_MS))
        self._faults = self._owned(Faults(node, dispatch, workers.reroute), Faults.stop)
        for one in (node.coordinator, node.transactions, node.share_states):
            self._owned(one, lambda it: it.close())
        self._owned(node.shares, Shares.stop)
        self._undo.append(follow_clock(reactor, self._clock, self._name))
        self._inside = self._inside or InProcessTransport(reactor, self.path)
        self._inside.reach(reactor)
        self._undo.append(self._inside.close)
        follow_coordinators(node)
        follow_addresses(node)
        node.quotas.follow(node.metadata)
        for one in (node.coordinator, node.transactions, node.share_states):
            one.start()
        node.shares.start()
        reactor.start()
        self._keys.start(reactor)
        node.admission.start(self._name)
        follow_settings(node, workers, self._keys, request_log)
        if self._member is not None:  # last: the controller's requests come immediately
            self._register(self._member, endpoints)
            if self._controller is not None:
                self._controller.start()
                self._undo.append(self._controller.stop)  # while it can still answer
            self._undo.append(self._controlled_shutdown)
        serving = Serving(reactor, dispatch.errors, node.authentication, names)
        self._watching.follow_broker(BrokerParts(node, serving, self._replicas, self._controls))

    @property
    def _controls(self) -> Callable[[], bool] | None:
        """Says if it is the active controller; None: another node is, or one of its own parts."""
        if self._member is None:
            return lambda: True
        controller = self._controller
        return None if controller is None else lambda: controller.is_active

    def _register(self, member: Any, endpoints: Sequence[tuple[str, str, int, int]]) -> None:
        """Become a broker of the cluster, unless this process is to end: controllers may keep one
        fenced for any time."""
        if self._ends.is_set():
            raise Closed(f"{self.path}: its process ends")
        try:
            member.register(endpoints, self._config.broker_rack or None)
        except Closed:
            if self._ends.is_set():
                self._controlled_shutdown()  # the controllers may have registered it
            raise

    def _controlled_shutdown(self) -> None:
        """Let other nodes lead what is led here, before anything ends."""
        config = self._config
        if self._member is None or not config.controlled_shutdown_enable:
            return
        assert self._replicas is not None
        if late := self._replicas.hand_over(HAND_OVER_S):
            _logger.warning(
                "%s: hands over %d partitions, first %s-%d, before all replicas in sync have"
                " everything: what only acks=1 acknowledged may be lost",
                self.path, len(late), *late[0],
            )  # fmt: skip
        retries = config.controlled_shutdown_max_retries
        if not self._member.let_go(retries, config.controlled_shutdown_retry_backoff_ms):
            _logger.warning("%s: stops while it leads partitions that nobody else can", self.path)
        self._replicas.stop_leading()

    # ---- in use -------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for Kafka clients: host:port of each listener except the controller's."""
        places_of_clients = [
            one for one in self._node.advertised if one.name != self._control_listener
        ]
        return places.bootstrap_servers(places_of_clients)

    @property
    def _control_listener(self) -> str:
        """The listener that only nodes and the controller use; empty if there is none."""
        return "" if self._member is None else self._config.control_plane_listener_name.upper()

    @property
    def config(self) -> ServerConfig:
        """The settings that the broker was started with."""
        return self._config

    @property
    def transport(self) -> Transport:
        """The transport by which clients of this process reach it; no socket is visible to others.

        Raises: Closed.
        """
        self._check()
        assert self._inside is not None
        return self._inside

    @property
    def store(self) -> Any:
        """A `kafkalog.Store` over this broker: topics, logs and clients in this process.

        The same object each time.

        Raises: Closed.
        """
        self._check()
        with self._closing:
            if self._store is None:
                self._store = hooks().store(self)
            return self._store

    def _here(self) -> None:
        if self._pid != os.getpid():
            raise ForkedHandle(f"{self.path}: the broker runs in the parent process")

    def _check(self) -> None:
        self._here()
        if self._closed:
            raise Closed(f"{self.path}: the broker is closed")

    def _shown_address(self) -> str:
        return self.bootstrap_servers or "this process"

    @property
    def faults(self) -> Faults:
        """Faults on demand, to test clients of the broker; none is set initially."""
        self._here()
        return self._faults

    def pause(self) -> None:
        """Freeze like a stopped process: connections stay open, and nothing is read or
        answered until `resume`, or `close`.

        Raises: Closed.
        """
        self._pause(True)

    def resume(self) -> None:
        """Continue after `pause`.

        Raises: Closed.
        """
        self._pause(False)

    def _pause(self, on: bool) -> None:
        self._node.reactor.pause(on)
        if self._controllers is not None:
            self._controllers.pause(on)

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._shown_address()
        return f"Broker({self.path!r}, {state})"

    # ---- ending ------------------------------------------------------------------------------

    def restart(self, config: Mapping[str, object]) -> None:
        """Restart in this process with other settings: all of them, as for a new Broker, whose
        listeners they name.  By `process.roles` and the settings next to it, a single node
        becomes a node of a quorum, and the other way round (docs/quorum.md).

        It ends in order and begins again: connections are closed, and clients, also those of this
        process, connect again and retry.  What this process has opened of its logs is closed.

        Raises: UnknownSetting, InvalidSetting: nothing has changed; another error of Broker: it
        serves with the settings that it had; Closed: it could not, and is closed.
        """
        self._check()  # before the lock, which nobody releases in a forked child
        with self._closing:
            self._check()
            assert self._inside is not None
            before, plan = self._planned, self._plan(complete(config, None), None)
            self._undo.remove(self._inside.close)  # its clients connect again
            try:
                self._end_life()
                self._again(plan, before)
            except BaseException as problem:
                if not self._closed:
                    raise
                AT_EXIT.discard(self)
                self._inside.close()
                raise Closed(f"{self.path}: could not restart: {problem}") from problem

    def _end_life(self) -> None:
        try:
            self._end()
        except BaseException:
            self._closed = True  # all has ended; a disk that fails is not opened again
            raise

    def _again(self, plan: Plan, before: Plan) -> None:
        try:
            self._begin(plan)
        except Exception:
            if self._ends.is_set():
                raise
            _logger.warning("%s: goes on with the settings that it had", self.path)
            self._begin(before)
            self._closed = False
            raise

    def abandon(self) -> dict[str, int]:
        """Stop as in a crash: no more requests are answered, nothing is flushed or written.

        Returns for each open log's folder the offset up to which it was on disk, as after a power
        cut.  Empty if the broker was already closed.
        """
        if self._pid != os.getpid():
            return {}
        with self._closing:
            if self._closed:
                return {}
            self._closed = True
            AT_EXIT.discard(self)
            self._end_watch()
            with suppress(KafkalogError):  # requests were in flight: that is the point
                self._node.reactor.stop(0)
            if self._controllers is not None:
                self._controllers.abandon()
            if self._member is not None:
                self._member.close()
                self._undo.remove(self._controlled_shutdown)
            self._node.transactions.close(0)  # decisions are no longer carried out
            # The directory and its metadata skip what they do in an orderly shutdown.
            while len(self._undo) > DIRECTORY:
                with suppress(Exception):  # a crash asks nobody
                    self._undo.pop()()
            self._undo.clear()
            return self._manager.abandon()

    def close(self) -> None:
        """Close the clients of this process, answer requests in flight, flush everything, and write
        the clean-shutdown marker.

        Idempotent.  In a forked child it only drops the handles.

        Raises: the first failure, after everything was closed.
        """
        if self._pid != os.getpid():
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
            AT_EXIT.discard(self)
            self._end()
        _logger.info("%s: closed", self.path)

    def _end(self) -> None:
        self._end_watch()
        end_all(self._undo, self.path)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def node_of(broker: Broker) -> Node:
    """The broker's parts, for use inside this project."""
    return broker._node


def serve_until(ends: threading.Event, path: str, config: Mapping[str, object]) -> Broker:
    """A broker of a process that is to end once `ends` is set: no start waits for a cluster then.

    Raises: as Broker; Closed: `ends` was set during the start, and everything has ended.
    """

    class Served(Broker):
        _ends = ends

    return Served(path, config=config)
