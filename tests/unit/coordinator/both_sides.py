"""The two coordinators that each script runs against: Apache Kafka's over its port, and ours.

A script sees both through `Side`.  Their answers are recorded with member ids replaced by their
order, so that the two transcripts can be compared.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkalog.wire import apis, headers
from kafkalog.wire.api import Api
from kafkalog.wire.values import Struct
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.coordinator.group_calls import Desk, config

CLIENT = "client"
PATIENCE_S = LIMIT_S
ARRIVAL_S = 0.1
LOOK_S = 0.02
"""Pause between two checks that cost more than a look at an answer: of sockets, of groups."""
SETTINGS = {
    # Members that start a group together must arrive in this time, however slow the machine is.
    "group.initial.rebalance.delay.ms": 2_000,
    "group.min.session.timeout.ms": 100,
    "offset.metadata.max.bytes": 64,
    "group.max.size": 3,
}
TOPICS = {"t": 2, "u": 1}
MEMBER_ID = re.compile(r"(client|host-\w)-[-0-9a-f]{12,}")
# Fields that do not depend on the coordinator, and texts for people.
LEFT_OUT = {"throttle_time_ms", "error_message"}


def plain(value: Any, names: dict[str, str]) -> Any:
    """A response as comparable data, with member ids replaced by `names`."""
    if isinstance(value, Struct):
        return {name: plain(v, names) for name, v in value if name not in LEFT_OUT}
    if isinstance(value, list):
        # Kafka keeps members and topics in hash maps, so their order differs.
        return sorted((plain(item, names) for item in value), key=repr)
    if isinstance(value, str):
        return names.get(value) or MEMBER_ID.sub(r"\1-?", value)
    return value


def unread_bytes(ports: tuple[int, int]) -> int:
    """Bytes that wait in this machine's socket with these ports, its own and its peer's."""
    for family in ("tcp6", "tcp"):  # a JVM's tcp6 socket listens to both
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            _, own, peer, _, queues, *_ = line.split()
            if (int(own.rpartition(":")[2], 16), int(peer.rpartition(":")[2], 16)) == ports:
                return int(queues.rpartition(":")[2], 16)
    return 0  # the socket is closed


class Pending:
    """A request that was sent to Kafka; its answer arrives on a separate thread."""

    def __init__(self, port: int, api: Api, version: int, fields: dict[str, Any]) -> None:
        self.api = api
        self.version = version
        self.body: Any = None
        self.failed: Exception | None = None
        self.done = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._ports = port, int(self._socket.getsockname()[1])
        frame = headers.encode_request_header(api, version, 7, CLIENT)
        frame += api.encode_request(version, fields)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        threading.Thread(target=self._receive, daemon=True).start()

    def read(self) -> bool:
        """True if Kafka has read the whole request from its socket, which takes as long as the
        machine needs."""
        return self.done.is_set() or not unread_bytes(self._ports)

    def _receive(self) -> None:
        try:
            with self._socket, self._socket.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                frame = stream.read(size)
                _, pos = headers.decode_response_header(self.api, self.version, frame)
                self.body = self.api.decode_response(self.version, frame, pos)
        except Exception as error:
            self.failed = error
        self.done.set()


class Side(ABC):
    """A coordinator, and the transcript of its answers."""

    def __init__(self) -> None:
        self.transcript: list[tuple[str, Any]] = []
        self.names: dict[str, str] = {}
        self.groups: set[str] = set()
        """The groups of this script; others exist too."""

    @abstractmethod
    def send(self, api: Api, version: int, fields: dict[str, Any]) -> Any:
        """Send a request on a separate connection."""

    @abstractmethod
    def answered(self, sent: Any) -> bool:
        """True if the answer has arrived."""

    @abstractmethod
    def until(self, condition: Callable[[], bool], what: str, pause_s: float = 0.005) -> None:
        """Let time pass until the condition holds; `pause_s`: between two checks."""

    def park(self, api: Api, version: int, fields: dict[str, Any]) -> Any:
        """Send a request that may have to wait, so that it arrives before the next one."""
        self.groups.add(fields["group_id"])
        return self.send(api, version, fields)

    def see(self, label: str, sent: Any) -> Any:
        """Wait for the answer to a request, and add it to the transcript."""
        self.until(lambda: self.answered(sent), label)
        body = sent.body
        self.name(getattr(body, "member_id", ""))
        told = plain(body, self.names)
        if sent.api is apis.LIST_GROUPS:
            told["groups"] = [one for one in told["groups"] if one["group_id"] in self.groups]
        self.transcript.append((label, told))
        return body

    def name(self, member_id: str) -> None:
        if member_id.startswith((CLIENT + "-", "host-")):
            self.names.setdefault(member_id, f"member {len(self.names)}")

    def ask(self, api: Api, version: int, **fields: Any) -> Any:
        """Send a request, and add its answer to the transcript."""
        self.groups.add(fields.get("group_id", ""))
        return self.see(f"{api.name} v{version} {self._told(fields)}",
                        self.send(api, version, fields))  # fmt: skip

    def _told(self, fields: Any) -> str:
        text = str(fields)
        for member_id, name in self.names.items():
            text = text.replace(member_id, name)
        return text


class KafkaSide(Side):
    """Apache Kafka."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    def prepare(self) -> None:
        """Create the topics, and have Kafka create __consumer_offsets."""
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in TOPICS.items()
        ]
        self.until(self._reachable, "a connection")
        made = self.send(apis.CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 10_000})
        self.until(lambda: self.answered(made), "topics")

        self.wait_for_groups()

    def wait_for_groups(self) -> None:
        """Wait until all partitions of __consumer_offsets are loaded."""
        self.until(self._reachable, "a connection")
        asked = {"key": "g", "key_type": 0}
        every = [f"g{number}" for number in range(40)]  # several per partition

        def coordinates() -> bool:
            found = self.send(apis.FIND_COORDINATOR, 3, asked)
            told = self.send(apis.DESCRIBE_GROUPS, 5, {"groups": every})
            self.until(lambda: self.answered(found) and self.answered(told), "a coordinator")
            return not found.body.error_code and not any(g.error_code for g in told.body.groups)

        self.until(coordinates, "__consumer_offsets", LOOK_S)

    def _reachable(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), PATIENCE_S).close()
            return True
        return False

    def send(self, api: Api, version: int, fields: dict[str, Any]) -> Pending:
        return Pending(self.port, api, version, fields)

    def park(self, api: Api, version: int, fields: dict[str, Any]) -> Pending:
        sent: Pending = super().park(api, version, fields)
        sent.done.wait(LOOK_S)
        self.until(sent.read, "the request is read", LOOK_S)
        # Nothing shows when the group has it: after this time it has, answered or not.
        sent.done.wait(ARRIVAL_S)
        return sent

    def answered(self, sent: Pending) -> bool:
        assert sent.failed is None, f"{sent.api.name} v{sent.version}: {sent.failed!r}"
        return sent.done.is_set()

    def until(self, condition: Callable[[], bool], what: str, pause_s: float = 0.005) -> None:
        wait_for(condition, f"Kafka: {what}", PATIENCE_S, pause_s)


class OurSide(Side):
    """Our coordinator, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
        self.desk = Desk(config(**settings), topics=TOPICS)

    def send(self, api: Api, version: int, fields: dict[str, Any]) -> Any:
        return self.desk.call(api, version, fields, CLIENT)

    def answered(self, sent: Any) -> bool:
        return not sent.waits

    def until(self, condition: Callable[[], bool], what: str, pause_s: float = 0) -> None:
        for _ in range(2000):
            if condition():
                return
            self.desk.wait(10)
        raise AssertionError(f"ours, not within 20 s: {what}")
