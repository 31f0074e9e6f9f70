"""Requests that demand too much, as bytes or as calls."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

from kafkalog.wire.runtime import uvarint_bytes
from tests.support import batches
from tests.support.batches import Row
from tests.support.waiting import wait_for
from tests.unit.net.network import Client

CLOSED = "closed"
RECORD_HEAD = struct.Struct(">hiqqqhii")


def answer_of(ask: Callable[[], Any]) -> Any:
    """The broker's answer, or CLOSED."""
    try:
        return ask()
    except (ConnectionError, EOFError):
        return CLOSED


def metadata_of(names: Iterable[bytes], count: int, create: bool = False) -> bytes:
    """The body of Metadata version 9 for `count` topics."""
    topics = b"".join(bytes([len(name) + 1]) + name + b"\0" for name in names)
    return uvarint_bytes(count + 1) + topics + bytes([create, 0, 0, 0])


def packed(codec: int, records: bytes, count: int = 1) -> bytes:
    """A batch whose body is `records`, whatever they contain."""
    return batches.seal(RECORD_HEAD.pack(codec, count - 1, 0, 0, -1, -1, -1, count) + records)


def one_record(value_bytes: int) -> bytes:
    """An uncompressed body: a record with a key, whose value is zeros."""
    return batches.record(Row(bytes(value_bytes), b"k"), 0, 0)


def join_fields(group: str, member: str = "", metadata: bytes = b"", **more: Any) -> dict[str, Any]:
    """A JoinGroup request."""
    fields = {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
        "member_id": member, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }  # fmt: skip
    return {**fields, **more}


def commit_fields(group: str, partitions: int, metadata: str = "") -> dict[str, Any]:
    """An OffsetCommit request for partitions of the witness' topic, of which only 0 exists."""
    asked = [
        {"partition_index": i, "committed_offset": 1, "committed_metadata": metadata}
        for i in range(partitions)
    ]
    topics = [{"name": "witness", "partitions": asked}]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}


def flood(clients: list[Client], data: bytes, until: Callable[[int], bool]) -> None:
    """Send `data` repeatedly to all that accept it, until `until` holds.  `until` gets the number
    of connections that the other side has closed."""
    left = {client.socket for client in clients}
    for one in left:
        one.setblocking(False)
    closed = 0

    def step() -> bool:
        nonlocal closed
        _, writable, _ = select.select([], list(left), [], 0.01)
        for one in writable:
            try:
                one.send(data)
            except BlockingIOError:
                continue
            except OSError:
                closed += 1
                left.discard(one)
        return until(closed)

    wait_for(step, "the flood had its effect")


def blocked(sock: socket.socket, data: bytes, most_bytes: int) -> bool:
    """Send until the other side stops reading; False: it read `most_bytes`."""
    sock.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < most_bytes:
            sent += sock.send(data)
        return False
    return True
