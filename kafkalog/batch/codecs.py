"""The codecs of record batches: compress and decompress, one body or many at a time.

Framings are those of Kafka's Java client (gzip members, xerial snappy, LZ4 frames of
independent 64 KiB blocks, zstd frames); readers also accept what other clients write.
The size that a compressed body claims is not trusted.  Before anything is allocated, it is
bounded by what the blocks can hold, by the claim itself, and by the caller's limit.

The libraries release the GIL and are imported at first use.
"""

from __future__ import annotations

import importlib
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kafkalog import errors
from kafkalog._native import lib
from kafkalog.system import processors

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = [
    "CODECS",
    "GZIP",
    "LIMIT_BYTES",
    "LZ4",
    "NONE",
    "SNAPPY",
    "ZSTD",
    "codec_id",
    "codec_name",
    "compress",
    "compress_many",
    "decompress",
    "decompress_many",
    "zstd_stream",
]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by their number in a batch's attributes."""
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(len(CODECS))

LIMIT_BYTES: Final = 256 << 20
"""The default limit of a decompressed body."""

Buffer = Any  # anything with the buffer protocol
_In = TypeVar("_In")
_Out = TypeVar("_Out")

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version, and the oldest version that can read it."""
XERIAL_BLOCK_BYTES = 32 << 10
SNAPPY_RATIO_MAX = 22
"""A copy of 64 bytes takes three."""

LZ4_MAGIC = 0x184D2204
LZ4_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
LZ4_RATIO_MAX = 255
LZ4_DEFAULT_LEVEL = 9
"""Only at this level does the Java client use the fast compressor."""

ZSTD_MAGIC = 0xFD2FB528
ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
"""The last four bits are the user's."""
ZSTD_BLOCK_BYTES = 128 << 10
ZSTD_WINDOW_BYTES = 128 << 20
"""The window of level 22, the highest."""

PIECES_FREE: int = lib.KL_PIECES_FREE
PIECE_BYTES: int = lib.KL_PIECE_BYTES
"""A body has at most PIECES_FREE members, frames and blocks, and one more for each PIECE_BYTES of
its compressed bytes; see kafkalog.h."""

PARALLEL_BYTES = 64 << 10
"""With fewer compressed bytes, a second thread costs more than it saves."""


def codec_id(name: str) -> int:
    """The number of a codec; `uncompressed` is Kafka's other word for `none`.

    Raises: UnsupportedCompressionType.
    """
    try:
        return CODECS.index("none" if name == "uncompressed" else name)
    except ValueError:
        raise errors.UnsupportedCompressionType(
            f"codec {name!r}: wanted one of {', '.join(CODECS)}"
        ) from None


def codec_name(codec: int) -> str:
    """The name of a codec's number.

    Raises: UnsupportedCompressionType.
    """
    if 0 <= codec < len(CODECS):
        return CODECS[codec]
    raise errors.UnsupportedCompressionType(f"codec {codec}: wanted 0 to {len(CODECS) - 1}")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The body of a batch, compressed.  `level` None: the codec's default in Kafka.

    Raises: UnsupportedCompressionType; ArgumentError for a level that the codec lacks.
    """
    codec_name(codec)
    try:
        return _COMPRESS[codec](memoryview(data), level)
    except (ValueError, zlib.error) as problem:
        raise errors.ArgumentError(f"{CODECS[codec]} level {level}: {problem}") from problem


def decompress(codec: int, data: Buffer, limit: int = LIMIT_BYTES) -> Buffer:
    """The body of a batch, decompressed: bytes-like, at most `limit` bytes.

    Raises: CorruptMessage; MessageTooLarge above the limit, before that much is allocated;
    UnsupportedCompressionType.
    """
    name = codec_name(codec)
    view = memoryview(data).cast("B")
    try:
        return _DECOMPRESS[codec](view, limit)
    except (errors.KafkalogError, MemoryError, ImportError):
        raise
    except Exception as problem:  # each library raises its own types
        what = f"{len(view)} bytes do not decompress: {problem}"
        raise _corrupt(name, what) from problem


def compress_many(codec: int, bodies: Sequence[Buffer], level: int | None = None) -> list[bytes]:
    """Each body compressed, in order; by several threads when that pays.

    Once it returns or raises, no thread reads the bodies any more.

    Raises: as `compress`.
    """
    sizes = [len(body) if codec else 0 for body in bodies]
    return _spread(lambda body: compress(codec, body, level), bodies, sizes)


def decompress_many(items: Sequence[tuple[int, Buffer]], limit: int = LIMIT_BYTES) -> list[Buffer]:
    """Each (codec, data) decompressed, in order; by several threads when that pays.

    Once it returns or raises, no thread reads the data any more.

    Raises: as `decompress`, for one of the items that fail.
    """
    sizes = [len(data) if codec else 0 for codec, data in items]
    return _spread(lambda item: decompress(*item, limit), items, sizes)


# ---- threads -----------------------------------------------------------------------------

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()
_local = threading.local()


def _threads() -> int:
    return min(processors(), 8)


def _shared_pool() -> ThreadPoolExecutor:
    """Threads in addition to the caller's own, which works too."""
    global _pool
    with _pool_lock:
        if _pool is None:
            # Its import costs 20 ms, paid only when many batches are decompressed.
            from concurrent.futures import ThreadPoolExecutor

            _pool = ThreadPoolExecutor(max(1, _threads() - 1), "kafkalog-codec")
        return _pool


def _forget_pool() -> None:
    """In a forked child the pool's threads do not exist, and its lock may be held."""
    global _pool, _pool_lock
    _pool = None
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_pool)


def _spread(work: Callable[[_In], _Out], items: Sequence[_In], sizes: Sequence[int]) -> list[_Out]:
    """`work` of each item, in order, spread over as many threads as `sizes` (bytes) justify."""
    parts = _shares(items, sizes)
    if len(parts) < 2:
        return [work(item) for item in items]

    def some(part: Sequence[_In]) -> list[_Out]:
        return [work(item) for item in part]

    pool = _shared_pool()
    futures: list[Future[list[_Out]]] = []
    try:
        futures.extend(pool.submit(some, part) for part in parts[1:])
        done = some(parts[0])
        for future in futures:
            done += future.result()
        return done
    finally:
        _settle(futures)


def _shares(items: Sequence[_In], sizes: Sequence[int]) -> list[Sequence[_In]]:
    """The items cut into runs of about equal bytes, one per thread."""
    total = sum(sizes)
    count = min(_threads(), len(items), total // PARALLEL_BYTES + 1)
    if count < 2:
        return [items]
    parts: list[Sequence[_In]] = []
    begin = seen = 0
    for index, size in enumerate(sizes, 1):
        seen += size
        if seen * count >= total * (len(parts) + 1):
            parts.append(items[begin:index])
            begin = index
    if begin < len(items):  # the remaining items have no bytes
        parts.append(items[begin:])
    return parts


def _settle(futures: Sequence[Future[Any]]) -> None:
    """Wait until none of them runs: until then they use the caller's memory.

    A Ctrl-C during the call is raised afterwards.
    """
    interrupt: BaseException | None = None
    for future in futures:
        future.cancel()
    for future in futures:
        while not future.done():
            try:
                future.exception()
            except BaseException as problem:  # Ctrl-C
                interrupt = problem
    if interrupt is not None:
        raise interrupt


# ---- libraries ---------------------------------------------------------------------------


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        package = name.partition(".")[0]
        raise errors.MissingPackage(
            f"the package {package} is not installed: pip install {package}"
        ) from problem


def _mine(key: str, make: Callable[[], Any]) -> Any:
    """This thread's own object for `key`: a codec's context costs more than a small batch."""
    kept = _local.__dict__
    try:
        return kept[key]
    except KeyError:
        return kept.setdefault(key, make())


def _too_large(name: str, limit: int, found: int | None = None) -> errors.MessageTooLarge:
    size = f"{found} bytes" if found is not None else "more bytes"
    return errors.MessageTooLarge(
        f"{name}: the body decompresses to {size}, above the limit of {limit}"
    )


def _corrupt(name: str, what: str) -> errors.CorruptMessage:
    return errors.CorruptMessage(f"{name}: {what}")


def _too_many(name: str, view: memoryview, count: int) -> errors.CorruptMessage:
    return _corrupt(
        name,
        f"{len(view)} bytes are in more than {count} pieces, wanted at most {PIECES_FREE} "
        f"and one for each {PIECE_BYTES} bytes",
    )


def _pieces_max(view: memoryview) -> int:
    return PIECES_FREE + len(view) // PIECE_BYTES


def _number(name: str, view: memoryview, pos: int, form: str) -> int:
    """The number at `pos`.  Raises: CorruptMessage if the body ends before it does."""
    size = struct.calcsize(form)
    if len(view) - pos < size:
        raise _corrupt(name, f"cut off at byte {len(view)}, wanted {size} bytes at {pos}")
    return int(struct.unpack_from(form, view, pos)[0])


# ---- none --------------------------------------------------------------------------------


def _compress_none(view: memoryview, _level: int | None) -> bytes:
    return bytes(view)


def _decompress_none(view: memoryview, limit: int) -> Buffer:
    if len(view) > limit:
        raise _too_large("none", limit, len(view))
    return view


# ---- gzip --------------------------------------------------------------------------------

_GZIP_WBITS = 16 + zlib.MAX_WBITS
GZIP_STEP_BYTES = 1024
"""zlib's first input of every member after the first."""


def _compress_gzip(view: memoryview, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
    return stream.compress(view) + stream.flush()


def _decompress_gzip(view: memoryview, limit: int) -> Buffer:
    first, rest = b"", bytearray()
    left, pos, size, members, most = limit, 0, len(view), 0, _pieces_max(view)
    while pos < len(view):  # a file of several members is one stream
        members += 1
        if members > most:
            raise _too_many("gzip", view, most)
        member = zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            # One byte above the limit shows that there is more.  zlib grows its output as
            # it goes, so the limit itself costs nothing.
            given = view[pos : pos + size]
            piece = member.decompress(given, left + 1)
            left -= len(piece)
            if left < 0:
                raise _too_large("gzip", limit)
            pos += len(given) - len(member.unconsumed_tail) - len(member.unused_data)
            if not first:
                first = piece
            else:
                rest += piece
            if not piece and not given and not member.eof:
                raise _corrupt("gzip", f"cut off at byte {len(view)}")
            size = max(2 * size, GZIP_STEP_BYTES)
        # zlib copies the input that it leaves: with a million small members, give it little.
        size = GZIP_STEP_BYTES
    if not pos:
        raise _corrupt("gzip", "no bytes, wanted at least a header")
    return first + rest if rest else first


# ---- snappy ------------------------------------------------------------------------------


def _compress_snappy(view: memoryview, level: int | None) -> bytes:
    if level is not None:
        raise ValueError("snappy has no levels")
    raw = _library("cramjam").snappy.compress_raw
    parts: list[Buffer] = [XERIAL_HEADER]
    for pos in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = raw(view[pos : pos + XERIAL_BLOCK_BYTES])
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _snappy_size(view: memoryview) -> int:
    """The decompressed size that a raw block claims; refused if it cannot hold that much."""
    size = shift = 0
    for byte in view[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise _corrupt("snappy", f"{len(view)} bytes have no length in front")
    if size > SNAPPY_RATIO_MAX * len(view):
        raise _corrupt("snappy", f"a block of {len(view)} bytes claims to hold {size}")
    return size


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    pos = blocks = 0
    most = _pieces_max(view)
    while pos < len(view):
        blocks += 1
        if blocks > most:
            raise _too_many("snappy", view, most)
        if view[pos : pos + len(XERIAL_MAGIC)] == XERIAL_MAGIC:  # chunks may follow each other
            pos += len(XERIAL_HEADER)
            if pos > len(view):
                raise _corrupt("snappy", f"cut off at byte {len(view)}, in a header")
            continue
        size = _number("snappy", view, pos, ">i")
        pos += 4
        if not 0 <= size <= len(view) - pos:
            raise _corrupt(
                "snappy", f"a block of {size} bytes at {pos}, where {len(view) - pos} are left"
            )
        yield view[pos : pos + size]
        pos += size


def _decompress_snappy(view: memoryview, limit: int) -> Buffer:
    snappy = _library("cramjam").snappy
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:  # raw, as librdkafka writes it
        size = _snappy_size(view)
        if size > limit:
            raise _too_large("snappy", limit, size)
        return snappy.decompress_raw(view)
    total = sum(map(_snappy_size, _xerial_blocks(view)))
    if total > limit:
        raise _too_large("snappy", limit, total)
    out = memoryview(bytearray(total))
    pos = 0
    for block in _xerial_blocks(view):  # once more: a list would take a hundred bytes of each
        size = _snappy_size(block)
        if size and snappy.decompress_raw_into(block, out[pos : pos + size]) != size:
            raise _corrupt("snappy", f"a block does not hold the {size} bytes that it claims")
        pos += size
    return out


# ---- lz4 ---------------------------------------------------------------------------------


def _compress_lz4(view: memoryview, level: int | None) -> bytes:
    frame = _library("lz4.frame")
    if level is not None and not 1 <= level <= 17:
        raise ValueError("wanted 1 to 17")
    fast = level is None or level == LZ4_DEFAULT_LEVEL
    data: bytes = frame.compress(
        view,
        compression_level=0 if fast else max(3, level or 0),  # below 3 lz4 is fast again
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return data


def _lz4_bound(view: memoryview) -> int:
    """An upper bound of the decompressed bytes of `view`, which must be exactly one frame."""
    if _number("lz4", view, 0, "<I") != LZ4_MAGIC:
        raise _corrupt("lz4", f"begins with {bytes(view[:4]).hex()}, wanted 04224d18")
    flags, descriptor = _number("lz4", view, 4, "B"), _number("lz4", view, 5, "B")
    block_max = LZ4_BLOCK_BYTES.get(descriptor >> 4 & 7)
    if flags >> 6 != 1 or block_max is None:
        raise _corrupt("lz4", f"flags {flags:#04x} {descriptor:#04x} are not of version 1")
    # Magic, two flags, [content size], [dictionary], header checksum.
    pos = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    checksum = 4 if flags & 0x10 else 0
    bound = blocks = 0
    most = _pieces_max(view)
    while size := _number("lz4", view, pos, "<I"):
        blocks += 1
        if blocks > most:
            raise _too_many("lz4", view, most)
        stored, size = size >> 31, size & 0x7FFFFFFF
        if size > len(view) - pos - 4 - checksum:
            raise _corrupt("lz4", f"cut off at byte {len(view)}, in a block of {size} at {pos}")
        bound += min(block_max, size if stored else size * LZ4_RATIO_MAX)
        pos += 4 + size + checksum
    end = pos + 4 + (4 if flags & 0x04 else 0)
    if end != len(view):
        raise _corrupt("lz4", f"{len(view)} bytes, but its frame has {end}")
    return bound


def _decompress_lz4(view: memoryview, limit: int) -> Buffer:
    frame = _library("lz4.frame")
    bound = min(_lz4_bound(view), limit)
    stream = frame.LZ4FrameDecompressor()
    body = stream.decompress(view, max_length=bound + 1)  # never 0: that means no limit
    if len(body) > limit:
        raise _too_large("lz4", limit)
    if not stream.eof:
        raise _corrupt("lz4", f"its frame does not end after {len(body)} bytes")
    return body


# ---- zstd --------------------------------------------------------------------------------


def _compress_zstd(view: memoryview, level: int | None) -> bytes:
    zstandard = _library("zstandard")
    level = 3 if level is None else level
    make = zstandard.ZstdCompressor
    # With the content size, which Java's writer leaves out, readers can allocate once.
    data: bytes = _mine(f"zstd {level}", lambda: make(level=level)).compress(view)
    return data


class _ZstdFrame(NamedTuple):
    end: int
    bound: int
    """At most this many decompressed bytes."""
    exact: bool
    """True if it has exactly that many."""
    blocks: int


def _zstd_frame(zstandard: Any, view: memoryview, start: int, most: int) -> _ZstdFrame:
    """The frame at `start`, of at most `most` blocks.

    Source: RFC 8878, 3.1.
    """
    magic = _number("zstd", view, start, "<I")
    if magic & ~0xF == ZSTD_SKIPPABLE_MAGIC:
        end = start + 8 + _number("zstd", view, start + 4, "<I")
        if end > len(view):
            raise _corrupt("zstd", f"cut off at byte {len(view)}, in a frame up to {end}")
        return _ZstdFrame(end, 0, True, 0)
    if magic != ZSTD_MAGIC:
        raise _corrupt("zstd", f"{magic:08x} at byte {start}, wanted {ZSTD_MAGIC:08x}")
    header = zstandard.get_frame_parameters(view[start : start + 18])
    claimed = header.content_size
    pos = start + zstandard.frame_header_size(view[start : start + 18])
    block_max = min(ZSTD_BLOCK_BYTES, max(header.window_size, 1))
    bound = last = blocks = 0
    while not last:
        blocks += 1
        if blocks > most:
            raise _too_many("zstd", view, _pieces_max(view))
        head = _number("zstd", view, pos, "<H") | _number("zstd", view, pos + 2, "B") << 16
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        bound += block_max if kind == 2 else size
        pos += 3 + (1 if kind == 1 else size)
        if pos > len(view):
            raise _corrupt("zstd", f"cut off at byte {len(view)}, in a block up to {pos}")
    pos += 4 if header.has_checksum else 0
    if pos > len(view):
        raise _corrupt("zstd", f"cut off at byte {len(view)}, in a frame up to {pos}")
    if claimed == zstandard.CONTENTSIZE_UNKNOWN:
        return _ZstdFrame(pos, bound, False, blocks)
    if claimed > bound:
        raise _corrupt("zstd", f"claims to hold {claimed} bytes, its blocks {bound} at most")
    return _ZstdFrame(pos, claimed, True, blocks)


def zstd_stream() -> Any:
    """This thread's `zstandard.ZstdDecompressor`."""
    zstandard = _library("zstandard")
    return _mine("zstd", lambda: zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES))


def _decompress_zstd(view: memoryview, limit: int) -> Buffer:
    zstandard = _library("zstandard")
    stream = zstd_stream()
    first, rest = b"", bytearray()
    pos, left, most = 0, limit, _pieces_max(view)
    while pos < len(view) or not pos:
        end, bound, exact, blocks = _zstd_frame(zstandard, view, pos, most)
        most -= 1 + blocks
        if most < 0:
            raise _too_many("zstd", view, _pieces_max(view))
        if exact and bound > left:
            raise _too_large("zstd", limit, limit - left + bound)
        piece = b""
        if bound:
            try:
                # One more, since 0 means no limit.
                room = min(bound, left) + 1
                piece = stream.decompress(view[pos:end], max_output_size=room)
            except zstandard.ZstdError:
                if bound > left:
                    raise _too_large("zstd", limit) from None
                raise
        if len(piece) > left:
            raise _too_large("zstd", limit)
        left -= len(piece)
        if not first:
            first = piece
        else:
            rest += piece
        pos = end
    return first + rest if rest else first


_COMPRESS: Final[tuple[Callable[[memoryview, int | None], bytes], ...]] = (
    _compress_none,
    _compress_gzip,
    _compress_snappy,
    _compress_lz4,
    _compress_zstd,
)
_DECOMPRESS: Final[tuple[Callable[[memoryview, int], Buffer], ...]] = (
    _decompress_none,
    _decompress_gzip,
    _decompress_snappy,
    _decompress_lz4,
    _decompress_zstd,
)
