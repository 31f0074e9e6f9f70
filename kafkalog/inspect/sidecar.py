"""`<base>.chk`: checksums of a sealed segment's files, read back and compared.

The engine writes one when it seals a segment (docs/format.md, "Side-car").  The sums are computed
here a second time, from the batches in the file.  That shows a header bit that rotted, and a file
that is not the one that was sealed.
"""

from __future__ import annotations

import itertools
import struct
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import ffi, lib
from kafkalog.batch.walk import BatchWalk
from kafkalog.inspect.rawfiles import SegmentFiles

if TYPE_CHECKING:
    import numpy as np

    Table = np.ndarray[Any, Any]

__all__ = [
    "INDEX_SUFFIXES",
    "MISSING",
    "SIDECAR",
    "FileSum",
    "Region",
    "RegionSums",
    "Sidecar",
    "Summed",
    "file_sum",
    "find_bit",
    "read_sidecar",
    "remake",
    "render_sidecar",
]

SIDECAR = ".chk"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
HEADER_BYTES = 17
"""The header bytes that a batch's crc does not cover."""
SUMMED_BYTES = 21
"""With the crc itself, which binds them to the rest."""
REGION_BYTES = 64 << 10
_MAGIC = b"KLCK"
_START = struct.Struct(">4sHII")
_FIXED = struct.Struct(">qqqIqIqIIIBB")
_REGION = struct.Struct(">qI")
_NAMES = _START.size + _FIXED.size


class FileSum(NamedTuple):
    """Checksum of a whole file; `size` -1: it does not exist."""

    size: int
    crc: int


MISSING = FileSum(-1, 0)


class Region(NamedTuple):
    """The batches that begin in one piece of the `.log`."""

    position: int
    """The position of the first one."""
    crc: int


class Sidecar(NamedTuple):
    """The contents of the file."""

    base_offset: int
    log_bytes: int
    indexes: tuple[FileSum, ...]
    """In the order of INDEX_SUFFIXES."""
    topic_id: str
    """As partition.metadata spells it; empty: it was not known."""
    folder: str
    regions: tuple[Region, ...]
    region_bytes: int = REGION_BYTES


def _crc(data: bytes) -> int:
    return int(lib.kl_crc32c(ffi.from_buffer(data), len(data)))


def read_sidecar(data: bytes) -> Sidecar:
    """Decode a side-car.  Raises: ValueError with a sentence."""
    if len(data) < _NAMES or data[:4] != _MAGIC:
        raise ValueError(f"{len(data)} bytes that begin with {data[:4]!r}, wanted {_MAGIC!r}")
    _, version, size, crc = _START.unpack_from(data)
    if version != 1:
        raise ValueError(f"version {version}, wanted 1")
    if size != len(data):
        raise ValueError(f"{len(data)} bytes, wanted {size}")
    if crc != _crc(data[_START.size :]):
        raise ValueError(f"checksum {crc:#010x} is not that of its bytes")
    base, log_bytes, *sums, region_bytes, count, id_bytes, folder_bytes = _FIXED.unpack_from(
        data, _START.size
    )
    names_end = _NAMES + id_bytes + folder_bytes
    if region_bytes < 1 or len(data) - names_end != count * _REGION.size:
        raise ValueError(f"{count} regions of {region_bytes} bytes do not fill {len(data)} bytes")
    return Sidecar(
        base,
        log_bytes,
        tuple(FileSum(sums[i], sums[i + 1]) for i in range(0, 6, 2)),
        data[_NAMES : _NAMES + id_bytes].decode("ascii", "replace"),
        data[_NAMES + id_bytes : names_end].decode("utf-8", "surrogateescape"),
        tuple(Region(*entry) for entry in _REGION.iter_unpack(data[names_end:])),
        region_bytes,
    )


def render_sidecar(sidecar: Sidecar) -> bytes:
    """The file's bytes."""
    topic_id = sidecar.topic_id.encode("ascii")
    folder = sidecar.folder.encode("utf-8", "surrogateescape")
    body = _FIXED.pack(
        sidecar.base_offset,
        sidecar.log_bytes,
        *(number for entry in sidecar.indexes for number in entry),
        sidecar.region_bytes,
        len(sidecar.regions),
        len(topic_id),
        len(folder),
    )
    body += topic_id + folder + b"".join(_REGION.pack(*region) for region in sidecar.regions)
    return _START.pack(_MAGIC, 1, _START.size + len(body), _crc(body)) + body


def file_sum(path: Path) -> FileSum:
    """The sum of an index file; an empty list of aborted transactions counts as missing.

    Raises: OSError, but not for a missing file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return MISSING
    if not data and path.suffix == ".txnindex":
        return MISSING
    return FileSum(len(data), _crc(data))


# ---- the batches of a `.log` ---------------------------------------------------------------


class Summed(NamedTuple):
    """One region as its batches were found."""

    position: int
    end: int
    """The position after its last batch."""
    whole: bool
    """There are no bytes between its batches."""
    positions: Table
    headers: bytes
    """SUMMED_BYTES of each batch."""

    @property
    def crc(self) -> int:
        """The sum that the side-car should have."""
        return _crc(self.headers)


class RegionSums:
    """Sums batches by region, block by block and in order; each is done when the next begins."""

    def __init__(self, region_bytes: int = REGION_BYTES) -> None:
        self.region_bytes = region_bytes
        self.done: list[Summed] = []
        """Finished regions; take them out at any time."""
        self._number = -1
        self._positions: list[Table] = []
        self._headers: list[bytes] = []
        self._end = 0
        self._whole = True

    def feed(self, table: Table) -> None:
        """Add the batches of one block, rows of `batch_dtype()`."""
        import numpy as np

        if not len(table):
            return
        headers = np.empty(
            len(table), [("o", ">i8"), ("n", ">i4"), ("e", ">i4"), ("m", "i1"), ("c", ">u4")]
        )
        headers["o"] = table["base_offset"]
        headers["n"] = table["batch_bytes"] - 12
        headers["e"] = table["leader_epoch"]
        headers["m"] = table["magic"]
        headers["c"] = table["crc"]
        numbers = table["pos"] // self.region_bytes
        cuts = [0, *((numbers[1:] != numbers[:-1]).nonzero()[0] + 1).tolist(), len(table)]
        ends = table["pos"] + table["batch_bytes"]
        for start, stop in itertools.pairwise(cuts):
            positions = table["pos"][start:stop]
            if int(numbers[start]) != self._number:
                self.close()
                self._number = int(numbers[start])
                self._whole = True
            elif int(positions[0]) != self._end:
                self._whole = False
            self._whole = self._whole and bool((positions[1:] == ends[start : stop - 1]).all())
            self._end = int(ends[stop - 1])
            self._positions.append(positions)
            self._headers.append(headers[start:stop].tobytes())

    def close(self) -> None:
        """Finish the current region: it has no more batches."""
        import numpy as np

        if not self._positions:
            return
        positions = np.concatenate(self._positions)
        self.done.append(
            Summed(int(positions[0]), self._end, self._whole, positions, b"".join(self._headers))
        )
        self._positions, self._headers = [], []


def find_bit(summed: Summed, crc: int) -> tuple[int, int] | None:
    """The one bit that, flipped, makes the sum of a region `crc`: (position in the `.log`, bit).

    None if no single bit outside of the batches' own checksums does.  In bytes as few as these,
    at most one single bit explains a difference of two CRCs.
    """
    count = len(summed.headers)
    effects = _effects(1 << (count - 1).bit_length())[:count]
    for row, bit in zip(*(effects == summed.crc ^ crc).nonzero(), strict=True):
        batch, byte = divmod(count - 1 - int(row), SUMMED_BYTES)
        if byte < HEADER_BYTES:
            return int(summed.positions[batch]) + byte, int(bit)
    return None


@lru_cache(maxsize=2)
def _effects(count: int) -> Table:
    """How a bit changes the CRC: row i has the eight bits of the byte i places from the end."""
    import numpy as np

    table = np.arange(256, dtype="u4")
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    effects = np.empty((count, 8), "u4")
    effects[0] = table[1 << np.arange(8)]
    for i in range(1, count):  # the byte before is followed by one more byte of zeros
        effects[i] = table[effects[i - 1] & 0xFF] ^ (effects[i - 1] >> 8)
    return effects


# ---- rebuilt -------------------------------------------------------------------------------


def remake(files: SegmentFiles, old: Sidecar | None, topic_id: str, folder: str) -> Sidecar:
    """A new side-car for a segment's current files; with `old` only its indexes' sums are new.

    Raises: OSError; ValueError if the `.log` has bytes that are not a batch.
    """
    indexes = tuple(file_sum(files.path(suffix)) for suffix in INDEX_SUFFIXES)
    if old is not None:
        return old._replace(indexes=indexes)
    walk = BatchWalk(files.path(".log"))
    sums = RegionSums()
    for table in walk.tables():
        sums.feed(table)
    if walk.stop is not None:
        raise ValueError(
            f"{files.path('.log')}, position {walk.stop.position}: {walk.stop.message}"
        )
    sums.close()
    regions = tuple(Region(s.position, s.crc) for s in sums.done)
    return Sidecar(files.base_offset, walk.file_bytes, indexes, topic_id, folder, regions)
