"""A controller of a KRaft cluster in this process, alone: `process.roles=controller`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kafkalog.clock import SystemClock
from kafkalog.config.protection import refuse_protections
from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.directory.identity import check_unlocked
from kafkalog.errors import InvalidSetting
from kafkalog.log.owner import absolute
from kafkalog.logs.limit import limited
from kafkalog.server.controller_server import ControllerServer
from kafkalog.server.endings import end_all
from kafkalog.server.metrics.watch import Watch
from kafkalog.server.metrics.watched import Watched
from kafkalog.server.network import listeners as places
from kafkalog.server.opening import Opened

__all__ = ["Controller"]

_logger = limited(__name__)


class Controller(Watched):
    """One controller over a formatted data directory, which it owns.  It has no partitions but that
    of the metadata log.  Closed by `close`, or as a context manager."""

    def __init__(self, path: str, config: Mapping[str, object]) -> None:
        """`config`: settings by Kafka's names.

        Raises: Locked with the owner's pid, UnknownSetting, InvalidSetting, CorruptLog,
        ArgumentError (a directory that is not formatted, or another node's), IoFailed (an address
        that cannot be bound).
        """
        self.path = absolute(path)
        given = dict(config)
        refuse_protections(given)
        self.config = ServerConfig.of(given)
        check_served(self.config)
        if self.config.serves_clients:
            raise InvalidSetting("process.roles: found a broker, wanted controller")
        self._closing = threading.Lock()
        self._undo: list[Any] = []
        try:
            check_unlocked(self.path)  # first: its owner has the port
            places.try_to_listen(self.config, places.of_controllers(self.config))
            self._watch = Watch(self.config, "kafkalog controller")
            given = ServerConfig.without_texts_of_secrets(given)
            opened = Opened(self.path, self.config, given, SystemClock(), self._undo)
        except BaseException:
            with suppress(Exception):  # the first error says more
                self._end()
            raise
        self.config = opened.config
        assert opened.controllers is not None
        self._server = opened.controllers
        self._watch.follow_controllers(self._server)
        _logger.info("%s: controller %d of cluster %s serves %s", self.path,
                     self._server.node.node_id, self._server.node.image.cluster_id,
                     self.bootstrap_controllers)  # fmt: skip

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses for brokers, other controllers, and clients of controllers."""
        return places.bootstrap_servers(self._server.advertised)

    @property
    def server(self) -> ControllerServer:
        """Its listeners and its replica, for use inside this project."""
        return self._server

    def close(self) -> None:
        """Resign if it is the active controller, and end.  Idempotent.

        Raises: the first failure, after everything was closed.
        """
        with self._closing:
            self._end()

    def _end(self) -> None:
        self._end_watch()
        end_all(self._undo, self.path)

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
