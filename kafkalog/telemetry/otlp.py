"""OpenTelemetry's MetricsData, the payload of a push: protobuf's wire format, read with a bound.

Only numbers are read: gauges and sums.  Histograms, which no known client sends, are counted as
left out.  Source: opentelemetry-proto 1, metrics.proto; the encoding of Protocol Buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from kafkalog.errors import InvalidRecord
from kafkalog.wire.runtime import Malformed, uvarint, uvarint_bytes

__all__ = ["FIELDS_MAX", "Decoded", "Kind", "Point", "decode", "encode"]

FIELDS_MAX = 100_000
"""Fields of a payload, at all depths: about 0.1 s of work.  A Java client sends some 6,000."""
LABELS_MAX = 32
TEXT_MAX = 256
"""Bytes of a name, a label's name or its value, in UTF-8."""
LABELS_BYTES = 4_096
"""Bytes of all labels of a point, in UTF-8."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
SIZES = {FIXED64: 8, FIXED32: 4}
VARINT_BYTES_MAX = 10
DELTA, CUMULATIVE = 1, 2
GAUGE_FIELD, SUM_FIELD = 5, 7
HISTOGRAM_FIELDS = (9, 10, 11)


class Kind(Enum):
    """The meaning of a point's value."""

    GAUGE = "gauge"
    DELTA = "delta"
    """An increase since the last push."""
    TOTAL = "total"
    """A count since the client's start."""


class Point(NamedTuple):
    """One number."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """Sorted by name; those of its resource, too."""
    kind: Kind
    value: float


class Decoded(NamedTuple):
    """The points of a payload."""

    points: list[Point]
    left_out: int
    """Points that are no number, have no name or are too large; metrics that are histograms."""


Field = tuple[int, int, slice, int]
"""Number, wire type, the bytes of the value, and the value itself if it is a VARINT."""
Labels = dict[str, str]


class _Reader:
    """The bytes of one payload, and how many more fields it may have."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = FIELDS_MAX

    def fields(self, at: slice) -> Iterator[Field]:
        """The fields of a message.  Raises: InvalidRecord."""
        pos, end = at.start, at.stop
        while pos < end:
            self.left -= 1
            if self.left < 0:
                raise InvalidRecord(f"metrics with more than {FIELDS_MAX} fields")
            tag, pos = self._small(pos)
            number, kind = tag >> 3, tag & 7
            size = integer = 0
            if kind == BYTES:
                size, pos = self._small(pos)
            elif kind == VARINT:
                integer, pos = self._varint(pos)
            elif kind in SIZES:
                size = SIZES[kind]
            else:
                raise InvalidRecord(f"metrics: wire type {kind} at byte {pos}, wanted 0, 1, 2 or 5")
            if pos + size > end or number == 0:
                raise InvalidRecord(f"metrics: field {number} at byte {pos} ends at {pos + size}")
            yield number, kind, slice(pos, pos + size), integer
            pos += size

    def _small(self, pos: int) -> tuple[int, int]:
        try:
            return uvarint(self.data, pos)
        except (Malformed, IndexError):
            raise InvalidRecord(f"metrics: no number of 32 bits at byte {pos}") from None

    def _varint(self, pos: int) -> tuple[int, int]:
        value = 0
        for at, byte in enumerate(self.data[pos : pos + VARINT_BYTES_MAX]):
            value |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                return value & (1 << 64) - 1, pos + at + 1
        raise InvalidRecord(f"metrics: no number at byte {pos}")

    def inside(self, at: slice, number: int) -> Iterator[slice]:
        """The messages in the field `number` of a message."""
        for found, kind, inner, _ in self.fields(at):
            if found == number and kind == BYTES:
                yield inner

    def text(self, at: slice) -> str | None:
        """A text; None: it is too long."""
        if at.stop - at.start > TEXT_MAX:
            return None
        try:
            return self.data[at].decode()
        except UnicodeDecodeError:
            raise InvalidRecord(f"metrics: bytes {at.start} to {at.stop} are not UTF-8") from None


def decode(data: bytes, points_max: int) -> Decoded:
    """The first `points_max` numbers of a MetricsData; all later ones are left out.

    Raises: InvalidRecord: it is none, or has more than FIELDS_MAX fields.
    """
    reader = _Reader(bytes(data))
    found = Decoded([], 0)
    for resource in reader.inside(slice(0, len(data)), 1):
        labels: Labels | None = {}
        scopes: list[slice] = []
        for number, kind, inner, _ in reader.fields(resource):
            if number == 1 and kind == BYTES:
                labels = _labels(reader, reader.inside(inner, 1))
            elif number == 2 and kind == BYTES:
                scopes.append(inner)
        for scope in scopes:
            for metric in reader.inside(scope, 2):
                found = _metric(reader, metric, labels, found, points_max)
    return found


def _labels(reader: _Reader, pairs: Iterable[slice], first: Labels | None = None) -> Labels | None:
    """Labels by name; None: there are too many, or they are too long."""
    found: Labels | None = dict(first or {})
    for pair in pairs:
        name: str | None = ""
        value: str | None = ""
        for number, kind, at, _ in reader.fields(pair):
            if number == 1 and kind == BYTES:
                name = reader.text(at)
            elif number == 2 and kind == BYTES:
                value = _any(reader, at)
        if found is None or name is None or value is None or len(found) >= LABELS_MAX:
            found = None
        else:
            found[name] = value
    size = sum(len(name.encode()) + len(value.encode()) for name, value in (found or {}).items())
    return found if size <= LABELS_BYTES else None


def _any(reader: _Reader, at: slice) -> str | None:
    """An AnyValue as text; bytes, lists and maps have none."""
    for number, kind, inner, integer in reader.fields(at):
        if number == 1 and kind == BYTES:
            return reader.text(inner)
        if number == 2 and kind == VARINT:
            return "true" if integer else "false"
        if number == 3 and kind == VARINT:
            return str(integer - (integer >> 63 << 64))
        if number == 4 and kind == FIXED64:
            return repr(struct.unpack("<d", reader.data[inner])[0])
    return None


def _metric(
    reader: _Reader, at: slice, labels: Labels | None, found: Decoded, points_max: int
) -> Decoded:
    """Earlier points, and those of one more metric."""
    name: str | None = None
    kind, places, left_out = Kind.GAUGE, list[slice](), found.left_out
    for number, wire, inner, _ in reader.fields(at):
        if wire != BYTES:
            continue
        if number == 1:
            name = reader.text(inner)
        elif number == GAUGE_FIELD:
            places += reader.inside(inner, 1)
        elif number == SUM_FIELD:
            kind = _sum(reader, inner, places)
        elif number in HISTOGRAM_FIELDS:
            left_out += 1
    for place in places:
        point = _point(reader, place, labels) if len(found.points) < points_max else None
        if point is None or not name:
            left_out += 1
        else:
            found.points.append(Point(name, point[0], kind, point[1]))
    return found._replace(left_out=left_out)


def _sum(reader: _Reader, at: slice, places: list[slice]) -> Kind:
    """The kind of a sum, whose points are added to `places`."""
    temporality = monotonic = 0
    for number, kind, inner, integer in reader.fields(at):
        if number == 1 and kind == BYTES:
            places.append(inner)
        elif number == 2 and kind == VARINT:
            temporality = integer
        elif number == 3 and kind == VARINT:
            monotonic = integer
    if temporality == DELTA:
        return Kind.DELTA
    return Kind.TOTAL if monotonic else Kind.GAUGE


def _point(
    reader: _Reader, at: slice, labels: Labels | None
) -> tuple[tuple[tuple[str, str], ...], float] | None:
    """The labels and the number of a point; None: it has no number, or too many labels."""
    own: list[slice] = []
    number: float | None = None
    for field, kind, inner, _ in reader.fields(at):
        if field == 7 and kind == BYTES:
            own.append(inner)
        elif field == 4 and kind == FIXED64:
            (number,) = struct.unpack("<d", reader.data[inner])
        elif field == 6 and kind == FIXED64:
            number = float(struct.unpack("<q", reader.data[inner])[0])
    if labels is None or (named := _labels(reader, own, labels)) is None or number is None:
        return None
    return tuple(sorted(named.items())), number


# ---- writing -----------------------------------------------------------------------------


def encode(
    points: Iterable[Point], resource: Mapping[str, str], start_ms: int, now_ms: int
) -> bytes:
    """A MetricsData of one resource; `start_ms`: where deltas and totals begin."""
    times = _fixed(2, start_ms * 1_000_000) + _fixed(3, now_ms * 1_000_000)
    metrics = b"".join(_message(2, _encoded(one, times)) for one in points)
    scope = _message(2, metrics)
    return _message(1, _message(1, _pairs(1, resource.items())) + scope)


def _encoded(point: Point, times: bytes) -> bytes:
    value = struct.pack("<Bd", 4 << 3 | FIXED64, point.value)
    place = _message(1, times + value + _pairs(7, point.labels))
    if point.kind is Kind.GAUGE:
        data = _message(GAUGE_FIELD, place)
    else:
        temporality = DELTA if point.kind is Kind.DELTA else CUMULATIVE
        data = _message(SUM_FIELD, place + bytes((2 << 3, temporality, 3 << 3, 1)))
    return _message(1, point.name.encode()) + data


def _pairs(number: int, labels: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        _message(number, _message(1, name.encode()) + _message(2, _message(1, value.encode())))
        for name, value in labels
    )


def _message(number: int, data: bytes) -> bytes:
    return uvarint_bytes(number << 3 | BYTES) + uvarint_bytes(len(data)) + data


def _fixed(number: int, value: int) -> bytes:
    return struct.pack("<BQ", number << 3 | FIXED64, value)
