"""The controllers' listener of a node: its own network threads, its replica of the metadata log.

No data plane is behind it: every request, also Fetch of the metadata log, is answered in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafkalog.config.server import ServerConfig
from kafkalog.directory.manager import Manager
from kafkalog.disk.secret import secret_of
from kafkalog.errors import KafkalogError, Timeout
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import BROKER
from kafkalog.server.admission import Admission, authorizer_of
from kafkalog.server.authentication import Authentication, Mechanisms
from kafkalog.server.connection_limits import apply_limits
from kafkalog.server.controllers.active import ActiveController
from kafkalog.server.controllers.node import ControllerNode, ReplicaMetadata
from kafkalog.server.controllers.registration import OwnRegistration
from kafkalog.server.controllers.routes import CONTROLLERS_ROUTES
from kafkalog.server.dispatch import Dispatch
from kafkalog.server.dynamic import apply_each, in_effect
from kafkalog.server.endings import end_all
from kafkalog.server.handlers.api_versions import rows_of
from kafkalog.server.listener_keys import ListenerKeys
from kafkalog.server.mechanisms import mechanisms_of
from kafkalog.server.metrics.network import Serving
from kafkalog.server.network import listeners as places
from kafkalog.server.network.reactor import Reactor
from kafkalog.server.quotas import ClientQuotas
from kafkalog.server.request_log import RequestLog
from kafkalog.server.threads.serial_executor import SerialExecutor
from kafkalog.server.threads.workers import Workers
from kafkalog.wire import apis

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.replication.membership import ControllerConnection, QuorumReplica

__all__ = ["ControllerServer", "Quorum"]

_logger = limited(__name__)

STOP_MS = 10_000
"""How long it waits at its end for requests in flight to be answered."""
Part = TypeVar("Part")


class Quorum(NamedTuple):
    """The parts of a controller that its server does not know how to make."""

    node: int
    replica: Callable[[Sequence[tuple[str, str, int]]], QuorumReplica]
    """Makes the replica of the metadata log, not started; given the own controllers' listeners:
    name, host, port."""
    line: Callable[[QuorumReplica], ControllerConnection]
    """A connection to the active controller."""
    features: Callable[[MetadataImage], Sequence[tuple[str, int, int]]]
    """The features that are supported: name, lowest and highest level."""


class ControllerServer:
    """One controller: its listeners, and its replica.  Ended by `stop`."""

    def __init__(
        self, config: ServerConfig, given: Mapping[str, object], manager: Manager, quorum: Quorum
    ) -> None:
        """Bind the controllers' listeners, and open the metadata log; nothing is served before
        `start`.

        Raises: IoFailed (an address that cannot be bound), InvalidSetting, CorruptLog.
        """
        self._config, self._manager = config, manager
        self._name = f"kafkalog controller {quorum.node}"
        self._undo: list[Callable[[], object]] = []
        listeners = places.of_controllers(config)
        self._keys = ListenerKeys(config, listeners, self._name)
        try:
            self._build(config, given, listeners, quorum)
        except BaseException:
            self.abandon()
            raise

    def _owned(self, part: Part, end: Callable[[Part], object]) -> Part:
        """The part, which `end` will end."""
        self._undo.append(partial(end, part))
        return part

    def _build(
        self, config: ServerConfig, given: Mapping[str, object],
        listeners: tuple[places.Listener, ...], quorum: Quorum,
    ) -> None:  # fmt: skip
        mechanisms = self._mechanisms(listeners)
        self._reactor = reactor = Reactor(config, node_id=quorum.node)
        self._undo.append(self._keys.join)  # once the reactor has stopped
        self._owned(reactor, Reactor.close)
        for key in (apis.PRODUCE.key, apis.FETCH.key):
            reactor.intercept(key, True)
        for number in (*mechanisms, *self._keys.identified()):
            reactor.authenticate(number)
        bound = {one.name: places.listen(reactor, one, number, self._keys.contexts.get(number))
                 for number, one in enumerate(listeners)}  # fmt: skip
        self.advertised = places.plan(config, bound, listeners=listeners)
        """Where brokers and other controllers reach it."""
        self.replica = quorum.replica(self.advertised)
        """Not started before `start`."""
        self._undo.append(self.replica.stop)
        self._admission = self._owned(Admission(reactor, authorizer_of(config)), Admission.join)
        metadata = ReplicaMetadata(self.replica, config)
        self._admission.follow(metadata)
        authentication = Authentication(
            config, listeners, mechanisms, self._admission, self._manager.clock, self._keys.identify
        )
        quotas = ClientQuotas(
            reactor.buckets, self._manager.clock, config,
            lambda number: self._admission.principal(number).name,
        )  # fmt: skip
        quotas.follow(metadata)
        self._node = ControllerNode(
            quorum.node, config, given, self._manager, metadata, self.replica, self._admission,
            quotas, authentication, ActiveController(self.replica, listeners, self._admission),
            listeners, rows_of(CONTROLLERS_ROUTES.announced),
            lambda request: dispatch.serve(request),
        )  # fmt: skip
        dispatch = Dispatch(self._node, CONTROLLERS_ROUTES)
        names = [one.name for one in listeners]
        self.serving = Serving(reactor, dispatch.errors, authentication, names)
        """The parts that metrics are read from."""
        self._request_log = RequestLog(reactor, self._admission, names, self._name)
        self._undo.insert(0, self._request_log.join)
        bulk = self._owned(SerialExecutor(f"{self._name} bulk"), SerialExecutor.stop)
        self._workers = self._owned(
            Workers(reactor, dispatch, self._name, bulk, quotas.resolve), Workers.join
        )
        protocols = {one.name: int(one.protocol) for one in listeners}
        endpoints = [(*one, protocols[one.name]) for one in self.advertised]
        self._registration = OwnRegistration(
            quorum.node, endpoints, self.replica, quorum.line(self.replica), quorum.features
        )

    def _mechanisms(self, listeners: Sequence[places.Listener]) -> dict[int, Mechanisms]:
        """The SASL mechanisms of each listener that has some, by its number."""
        manager = self._manager
        return mechanisms_of(
            self._config, listeners, lambda: self.replica.image, manager.clock,
            lambda: secret_of(manager.state.directory),
        )  # fmt: skip

    def _obey(self, image: MetadataImage) -> None:
        """Apply the settings that can change while it runs."""
        config, names = in_effect(self._config, image), [one.name for one in self.advertised]
        apply_each(
            lambda: self._workers.resize(config.num_io_threads),
            lambda: self._reactor.set_threads(config.num_network_threads),
            lambda: apply_limits(self._reactor, config, image, names),
            lambda: self._keys.apply(config),
            lambda: self._request_log.apply(config),
        )

    def _changed(self, change: Change) -> None:
        settings = any(kind == BROKER for kind, _ in change.resources)
        if settings or change.old.quotas is not change.new.quotas:
            self._obey(change.new)

    def start(self) -> None:
        """Serve, and take part in the quorum."""
        self._reactor.start()
        self._owned(self._reactor, self._end_requests)
        self._keys.start(self._reactor)
        self._admission.start(self._name)
        self.replica.listen(self._changed)
        self._obey(self.replica.image)
        self.replica.start()
        self._undo.append(self.replica.stop)  # while the answers of others still arrive
        self._registration.start()
        self._undo.append(self._registration.stop)

    def pause(self, on: bool) -> None:
        """As Reactor.pause: other nodes get no answers."""
        self._reactor.pause(on)

    def _end_requests(self, reactor: Reactor) -> None:
        try:
            reactor.stop(STOP_MS)
        except Timeout as problem:
            _logger.warning("%s: %s", self._name, problem)

    @property
    def node(self) -> ControllerNode:
        """The parts, for use inside this project."""
        return self._node

    def stop(self) -> None:
        """Resign, answer requests in flight, and end.  Idempotent.

        Raises: the first failure, after everything has ended.
        """
        end_all(self._undo, self._name)

    def abandon(self) -> None:
        """Stop as in a crash: no request is answered any more, nothing is written."""
        reactor: Any = getattr(self, "_reactor", None)
        if reactor is not None:
            with suppress(KafkalogError):
                reactor.stop(0)
        replica: Any = getattr(self, "replica", None)
        if replica is not None:
            replica.abandon()
        while self._undo:
            with suppress(Exception):  # a crash asks nobody
                self._undo.pop()()
