"""The control plane of a test's cluster: a controller of its own in this process, without Java."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from kafkalog.clock import SystemClock
from kafkalog.disk.layout import random_topic_id, uuid_text
from kafkalog.kraft.format import Format, format_directory, read_meta
from kafkalog.server.controller import Controller
from kafkalog.testing.port import HOST, Port
from kafkalog.wire.apis import UNREGISTER_BROKER

__all__ = ["NODE", "OwnController"]

NODE = 100
"""The controller's number."""
LISTENER = "CONTROLLER"
WAIT_S = 10.0
SETTINGS: Mapping[str, object] = {
    # A test's process may pause for long.  A killed node is missed at once: see `forget`.
    "broker.session.timeout.ms": 60_000,
}


class OwnController:
    """The only voter of a quorum, on the directory at `path`.  Closed by `close`."""

    def __init__(self, path: str, config: Mapping[str, object]) -> None:
        """`config`: settings of all nodes, by Kafka's names."""
        self._port = Port()
        try:
            if read_meta(path) is None:
                wanted = Format(uuid_text(random_topic_id()), NODE)
                format_directory(path, wanted, SystemClock())
            own = {
                "process.roles": "controller", "node.id": NODE,
                "listeners": f"{LISTENER}://{HOST}:{self._port.number}",
            }  # fmt: skip
            self._controller = Controller(path, {**SETTINGS, **config, **self._common, **own})
        except BaseException:
            self._port.close()
            raise

    @property
    def _common(self) -> dict[str, object]:
        return {
            "controller.quorum.voters": f"{NODE}@{HOST}:{self._port.number}",
            "controller.listener.names": LISTENER,
        }

    def settings(self, node: int, protocol: str = "PLAINTEXT") -> dict[str, object]:
        """The settings of a broker under it; `protocol`: of the broker's listener."""
        return {
            **self._common, "process.roles": "broker", "node.id": node,
            "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT,{protocol}:{protocol}",
        }  # fmt: skip

    def forget(self, node: int) -> None:
        """Let others lead what a node led that was killed: its session is over, and it registers
        again when it starts.

        Raises: AssertionError: not in time.
        """
        api, done = UNREGISTER_BROKER, threading.Event()
        body = api.encode_request(api.max_version, {"broker_id": node})
        request = api.decode_request(api.max_version, body)
        replica = self._controller.server.replica
        replica.ask(api, request, api.max_version, lambda _: done.set())
        if not done.wait(WAIT_S):
            raise AssertionError(f"node {node}: not forgotten within {WAIT_S:g} s")

    def close(self) -> None:
        """End it, and release its port."""
        try:
            self._controller.close()
        finally:
            self._port.close()
