"""Record batches and log files built and read in plain Python, by the format's description.

The second opinion of the tests: it shares no line with the engine.  CRC-32C comes from the
package `crc32c`.
"""

import gzip
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import cramjam
import crc32c
import lz4.frame
import zstandard

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TRANSACTIONAL, CONTROL = 0x10, 0x20
HEADER_BYTES = 61
_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")


class Row(NamedTuple):
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


class Header(NamedTuple):
    """A batch header as the file has it, and its position."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    pos: int

    @property
    def batch_bytes(self) -> int:
        return self.batch_length + 12

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def varint(value: int) -> bytes:
    """Zig-zag and LEB128."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while True:
        out.append(rest & 0x7F | (0x80 if rest > 0x7F else 0))
        rest >>= 7
        if not rest:
            return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(row: Row, offset_delta: int, base_timestamp: int) -> bytes:
    body = b"\0" + varint(row.timestamp_ms - base_timestamp) + varint(offset_delta)
    body += _nullable(row.key) + _nullable(row.value) + varint(len(row.headers))
    for name, value in row.headers:
        encoded = name.encode()
        body += varint(len(encoded)) + encoded + _nullable(value)
    return varint(len(body)) + body


def compress(data: bytes, codec: str) -> bytes:
    """One plain frame of the codec; snappy as Java frames it (xerial), in one block."""
    if codec == "gzip":
        return gzip.compress(data, mtime=0)
    if codec == "snappy":
        block = bytes(cramjam.snappy.compress_raw(data))
        return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == "lz4":
        return lz4.frame.compress(data, store_size=False, block_linked=False)
    if codec == "zstd":
        return zstandard.ZstdCompressor(write_content_size=False).compress(data)
    return data


def batch(
    rows: Iterable[Row],
    *,
    codec: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A whole batch as a producer would send it."""
    listed = list(rows)
    base_timestamp = listed[0].timestamp_ms
    records = b"".join(record(row, i, base_timestamp) for i, row in enumerate(listed))
    after_crc = _AFTER_CRC.pack(
        CODECS[codec] | (TRANSACTIONAL if transactional else 0),
        len(listed) - 1,
        base_timestamp,
        max(row.timestamp_ms for row in listed),
        producer_id,
        producer_epoch,
        base_sequence,
        len(listed),
    )
    return seal(after_crc + compress(records, codec), base_offset, leader_epoch)


def seal(after_crc: bytes, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    """Put the first 21 bytes, CRC included, before bytes 21 to the end of a batch."""
    length = len(after_crc) + 9
    start = struct.pack(">qiibI", base_offset, length, leader_epoch, 2, crc32c.crc32c(after_crc))
    return start + after_crc


def headers(data: bytes) -> Iterator[Header]:
    """The batch headers of a .log file's bytes; stops at zeros or a short tail."""
    pos = 0
    while len(data) - pos >= HEADER_BYTES:
        header = Header(*_HEADER.unpack_from(data, pos), pos)
        if header.batch_length <= 0 or header.batch_bytes > len(data) - pos:
            return
        yield header
        pos += header.batch_bytes


def crc_is_right(data: bytes, header: Header) -> bool:
    end = header.pos + header.batch_bytes
    return crc32c.crc32c(data[header.pos + 21 : end]) == header.crc
