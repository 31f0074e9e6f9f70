"""The brokers for the clients: ours, and Apache Kafka to prove the tests right.

Both have two listeners: one that clients reach directly, and one that they reach through our
proxy, which can cut their connections, see proxy.py.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.kafka.clients.proxy import Proxy
from tests.support import apache

__all__ = ["SETTINGS", "SIDES", "Server", "Unavailable"]

SETTINGS = {
    "auto.create.topics.enable": "false",
    # Not 0: a kafka-python that joins before it has metadata stays without partitions, with
    # Apache Kafka even more often than with us.
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "message.max.bytes": str(4 << 20),
    "log.segment.delete.delay.ms": "100",
}


STOP_S = 120


class Unavailable(Exception):
    """Why a server cannot run here; a test skips with this reason."""


class Server:
    """A broker on a directory; a context manager."""

    name: str

    def __init__(
        self, directory: Path, settings: dict[str, str] | None = None, port: int | None = None
    ) -> None:
        """`port`: where clients connect, for those that use a fixed one; otherwise a free one."""
        self.directory = directory
        self.port, self._inner = port or apache.free_port(), apache.free_port()
        self.proxy = Proxy(("127.0.0.1", self._inner))
        self.settings = {
            **SETTINGS,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CUT:PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CUT://127.0.0.1:{self._inner}",
            "advertised.listeners": (
                f"PLAINTEXT://127.0.0.1:{self.port},CUT://127.0.0.1:{self.proxy.port}"
            ),
            **(settings or {}),
        }

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def cut(self) -> str:
        """The address for clients whose connections the proxy may cut."""
        return f"127.0.0.1:{self.proxy.port}"

    def __enter__(self) -> Server:
        self.proxy.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.proxy.close()

    def start(self) -> None:
        raise AssertionError("each server starts its own way")

    def stop(self) -> None:
        raise AssertionError("each server stops its own way")

    def kill(self) -> None:
        """kill -9."""
        raise AssertionError("each server is killed its own way")

    def answers(self) -> bool:
        """True if it accepts connections."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Kafkalog(Server):
    """Ours, as the command `kafkalog serve`: a separate process, which can be killed, and which
    tests of failing disks in this process do not disturb."""

    name = "kafkalog"
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        properties = self.directory.with_suffix(".properties")
        lines = "".join(f"{name}={value}\n" for name, value in self.settings.items())
        properties.write_text(f"node.id=1\n{lines}")
        command = [sys.executable, "-m", "kafkalog", "serve", "--dir", str(self.directory)]
        with self.directory.with_suffix(".out").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--config", str(properties)], stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                assert self._process.wait(STOP_S) == 0
            finally:
                self.kill()

    def output(self) -> str:
        return self.directory.with_suffix(".out").read_text(errors="replace")


class ApacheKafka(Server):
    """Apache Kafka."""

    name = "kafka"
    _broker: apache.Broker | None = None

    def start(self) -> None:
        try:
            apache.jars()
        except apache.Unavailable as reason:
            raise Unavailable(str(reason)) from None
        controller = apache.free_port()
        settings = dict(self.settings)
        settings["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
        settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        number = settings.get("node.id", "1")
        settings["controller.quorum.voters"] = f"{number}@127.0.0.1:{controller}"
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._broker = apache.Broker(self.directory, lines, port=self.port)
        self._broker.__enter__()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.__exit__()
            self._broker = None

    def kill(self) -> None:
        assert self._broker is not None
        self._broker.kill()

    def output(self) -> str:
        return self._broker.output() if self._broker else ""


SIDES: dict[str, Callable[..., Server]] = {"kafkalog": Kafkalog, "kafka": ApacheKafka}
