"""Registers this controller with the active one (KIP-919).

Other controllers and clients then know its listeners, and the features that it supports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage
from kafkalog.wire.apis import CONTROLLER_REGISTRATION

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change
    from kafkalog.replication.membership import ControllerConnection, QuorumReplica

__all__ = ["SINCE", "OwnRegistration", "is_due"]

_logger = limited(__name__)

SINCE = 15
"""The first metadata.version that has registrations of controllers: 3.7-IV0."""
RETRY_S, RETRY_MAX_S = 0.1, 10.0
"""Until a failed request is repeated: the first wait, which doubles each time, and the longest."""


def is_due(image: MetadataImage, node: int, incarnation: UUID) -> bool:
    """True if the metadata lack the registration of this life of a controller."""
    if image.features.get(METADATA_VERSION, 0) < SINCE:
        return False
    known = image.controllers.get(node)
    return known is None or known.incarnation_id != incarnation


class OwnRegistration:
    """One thread, which asks whenever the registration is due."""

    def __init__(
        self, node: int, endpoints: Sequence[tuple[str, str, int, int]], replica: QuorumReplica,
        line: ControllerConnection,
        features: Callable[[MetadataImage], Sequence[tuple[str, int, int]]],
    ) -> None:  # fmt: skip
        """`endpoints`: (listener's name, host, port, Kafka's number of the protocol); `line`: to
        the active controller, closed with this; `features`: (name, lowest, highest level)."""
        self._node, self._endpoints, self._replica = node, endpoints, replica
        self._line, self._features = line, features
        self._incarnation = uuid4()
        self._ended = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"kafkalog controller {node} registration", daemon=True
        )

    def start(self) -> None:
        """Register, and again if the metadata lose it."""
        self._replica.listen(self._changed)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more.  Idempotent."""
        self._ended.set()
        self._news.set()
        self._line.close()
        if self._thread.is_alive():
            self._thread.join()

    def _changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if old.controllers is not new.controllers or old.features != new.features:
            self._news.set()

    def _run(self) -> None:
        wait_s, said = RETRY_S, ""
        while not self._ended.is_set():
            self._news.clear()
            if not is_due(self._replica.image, self._node, self._incarnation):
                wait_s = RETRY_S
                self._news.wait()
                continue
            problem = self._register()
            if problem and problem != said:
                _logger.info("controller %d: is not registered yet: %s", self._node, problem)
            said = problem
            self._ended.wait(wait_s)  # also for the record of a registration that was taken
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    def _register(self) -> str:
        """Ask once; returns why it was refused, or an empty text."""
        image = self._replica.image
        body: dict[str, Any] = {
            "controller_id": self._node, "incarnation_id": self._incarnation,
            "zk_migration_ready": False,
            "listeners": [
                {"name": name, "host": host, "port": port, "security_protocol": protocol}
                for name, host, port, protocol in self._endpoints
            ],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, low, high in self._features(image)
            ],
        }  # fmt: skip
        try:
            answer = self._line.ask(CONTROLLER_REGISTRATION, body)
        except KafkalogError as problem:
            return str(problem)
        except Exception as problem:  # it is asked again
            _logger.exception("controller %d: its registration failed", self._node)
            return repr(problem)
        if answer.error_code:
            return f"error {answer.error_code}: {answer.error_message}"
        _logger.info("controller %d: registered", self._node)
        return ""
