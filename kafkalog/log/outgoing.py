"""Batches as they are on disk: read into memory, or sent into a socket by sendfile."""

import time
from typing import TYPE_CHECKING, Any

from kafkalog._native import check, ffi, lib
from kafkalog.errors import PeerGone, Timeout
from kafkalog.log.handle import WAIT_SLICE_MS, Handle
from kafkalog.types import SentBatches

if TYPE_CHECKING:
    import socket

READ_BYTES = 1 << 20

__all__ = ["READ_BYTES", "read_batches", "send_batches"]

ROOM_BYTES = 4 << 20
"""A larger buffer is allocated only once it is known that there is more."""


def read_batches(log: Handle, offset: int, max_bytes: int, bound: int, check_crcs: bool) -> bytes:
    """See Log.read_batches."""
    if max_bytes > ROOM_BYTES:
        max_bytes = _bytes_there(log, offset, max_bytes, bound)
    buffer = bytearray(max(max_bytes, lib.KL_BATCH_HEADER_BYTES))
    out = ffi.new("kl_read *")
    while True:
        data = ffi.from_buffer(buffer)
        status = lib.kl_log_read(log.c, offset, -1, bound, check_crcs, data, len(buffer), out)
        if status != lib.KL_E_BUFFER_TOO_SMALL:
            break
        buffer = bytearray(out.wanted)
    check(status)
    return bytes(memoryview(buffer)[: out.bytes])


def _bytes_there(log: Handle, offset: int, max_bytes: int, bound: int) -> int:
    """How many of `max_bytes` a read from `offset` on can find."""
    out, where = ffi.new("kl_slice *"), ffi.new("kl_read *")
    check(lib.kl_log_slice(log.c, offset, bound, max_bytes, 1, out, where))
    lib.kl_slice_drop(out)
    return int(where.bytes)


def send_batches(
    log: Handle, socket: "socket.socket", start: int, max_bytes: int, bound: int
) -> SentBatches:
    """See Log.send_to."""
    out, where = ffi.new("kl_slice *"), ffi.new("kl_read *")
    check(lib.kl_log_slice(log.c, start, bound, max_bytes, 1, out, where))
    part = ffi.gc(out, lib.kl_slice_drop)
    if where.bytes == 0:
        return SentBatches(0, where.next_offset)
    done = ffi.new("size_t *")
    patience_s = socket.gettimeout()
    moved_s, progress = time.monotonic(), 0
    while (status := lib.kl_slice_send(part, socket.fileno(), done, WAIT_SLICE_MS)) != 0:
        if status == lib.KL_E_PEER:
            raise PeerGone(f"the peer left after {done[0]} of {where.bytes} bytes")
        if status != lib.KL_E_TIMEOUT:
            check(status)
        if done[0] > progress:
            moved_s, progress = time.monotonic(), done[0]
        _give_up(patience_s, moved_s, done, where)
    return SentBatches(done[0], where.next_offset)


def _give_up(patience_s: float | None, moved_s: float, done: Any, where: Any) -> None:
    if patience_s is not None and time.monotonic() - moved_s > patience_s:
        raise Timeout(f"the socket took {done[0]} of {where.bytes} bytes in {patience_s} s")
