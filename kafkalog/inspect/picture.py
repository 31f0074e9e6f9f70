"""A topic as a picture: its segments over offsets and time, their sizes, their index entries.

The drawing is SVG text made from plain numbers, so that nothing but this file is needed:
`describe` reads the numbers from a log, `draw` makes the picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["PartitionShape", "SegmentShape", "describe", "draw"]

WIDTH = 1280
LEFT, RIGHT = 92, 1136
TOP, TIME_PANEL = 150, 400
LANE, LANE_GAP = 44, 24
MAX_DOTS = 1500
COLOURS = ("#2563a8", "#c2571a", "#2e8b57", "#8a4fa3", "#b8860b", "#b03060", "#3a8f9e", "#6b6f2a")
INK, SOFT, GRID, PAPER = "#1f2933", "#6b7785", "#e3e6ea", "#fdfcf9"

_Scale = Callable[[int], float]


class SegmentShape(NamedTuple):
    """The picture of one segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_ms: int
    """Time of its first batch; -1: it has no records."""
    last_ms: int
    """Its largest time; -1: it has no records."""
    offset_entries: Sequence[tuple[int, int]]
    """From the offset index: offset, position in bytes."""
    time_entries: Sequence[tuple[int, int]]
    """From the time index: ms since 1970 UTC, offset."""


class PartitionShape(NamedTuple):
    """The picture of one partition."""

    name: str
    start_offset: int
    end_offset: int
    segments: Sequence[SegmentShape]


def describe(log: Log) -> PartitionShape:
    """The current shape of `log`, from its segments and their indexes; reads no record."""
    segments = []
    for segment in log.segments:
        base, by_offset, by_time = segment.base_offset, segment.offset_index, segment.time_index
        segments.append(
            SegmentShape(
                base,
                segment.next_offset,
                segment.size_bytes,
                segment.first_timestamp_ms,
                segment.largest_timestamp_ms,
                [(base + offset, pos) for offset, pos in by_offset.tolist()],
                [(ms, base + offset) for ms, offset in by_time.tolist()],
            )
        )
    name = f"{log.topic}-{log.partition}"
    return PartitionShape(name, log.start_offset, log.end_offset, segments)


def draw(title: str, partitions: Sequence[PartitionShape]) -> str:
    """The picture as SVG text: above offsets over time, below bytes on disk, lane by lane."""
    lanes_top = TOP + TIME_PANEL + 96
    height = lanes_top + len(partitions) * (LANE + LANE_GAP) + 56
    canvas = _Canvas(height)
    _head(canvas, title, partitions)
    _time_panel(canvas, partitions)
    _lanes(canvas, partitions, lanes_top)
    return canvas.text()


class _Canvas:
    """Elements of an SVG in the order they are painted."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.parts: list[str] = []

    def add(self, tag: str, content: str | None = None, /, **attributes: object) -> None:
        pairs = "".join(
            f" {name.replace('_', '-')}={quoteattr(_written(value))}"
            for name, value in attributes.items()
        )
        self.parts.append(
            f"<{tag}{pairs}/>" if content is None else f"<{tag}{pairs}>{content}</{tag}>"
        )

    def label(self, x: float, y: float, text: str, **attributes: object) -> None:
        attributes = {"fill": SOFT, "font_size": 12, **attributes}
        self.add("text", escape(text), x=float(x), y=float(y), **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, **more: object) -> None:
        x1, y1, x2, y2 = float(x1), float(y1), float(x2), float(y2)
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, **more)

    def text(self) -> str:
        font = "font-family=\"'Inter','Helvetica Neue',Arial,'DejaVu Sans',sans-serif\""
        size = f'width="{WIDTH}" height="{self.height}" viewBox="0 0 {WIDTH} {self.height}"'
        paper = f'<rect width="{WIDTH}" height="{self.height}" fill="{PAPER}"/>'
        body = "\n".join(self.parts)
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>\n{paper}\n{body}\n</svg>\n'


# ---- words and numbers -----------------------------------------------------------------


def _written(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes every size")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _moment(ms: int) -> datetime:
    # By addition: fromtimestamp refuses times that C's clock functions do not cover.
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)


def _nice_step(span: float, steps: int) -> int:
    """The smallest of 1, 2, 5 times a power of ten that covers `span` in at most `steps` steps."""
    rough = max(span / steps, 1)
    power = 10 ** math.floor(math.log10(rough))
    return int(next(m * power for m in (1, 2, 5, 10) if m * power >= rough))


def _time_ticks(first_ms: int, last_ms: int) -> Iterable[tuple[int, str]]:
    """Round moments (UTC) between both, with their labels."""
    span_days = (last_ms - first_ms) / 86_400_000
    if span_days > 90:
        year, month = _moment(first_ms).year, 1
        stride = next(s for s in (1, 2, 3, 6, 12, 10**6) if span_days / 30 / s <= 14 or s > 12)
        if stride > 12:
            return
        while (when := datetime(year, month, 1, tzinfo=timezone.utc)) <= _moment(last_ms):
            ms = int(when.timestamp() * 1000)
            if ms >= first_ms:
                yield ms, when.strftime("%b" if month > 1 else "%b %Y")
            month += stride
            year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
        return
    for step_ms, form in (
        (1_000, "%H:%M:%S"),
        (10_000, "%H:%M:%S"),
        (60_000, "%H:%M"),
        (600_000, "%H:%M"),
        (3_600_000, "%H:%M"),
        (21_600_000, "%d %b %H:%M"),
        (86_400_000, "%d %b"),
        (604_800_000, "%d %b"),
    ):
        if (last_ms - first_ms) / step_ms <= 14:
            for ms in range(-(-first_ms // step_ms) * step_ms, last_ms + 1, step_ms):
                yield ms, _moment(ms).strftime(form)
            return


# ---- the parts -------------------------------------------------------------------------


def _head(canvas: _Canvas, title: str, partitions: Sequence[PartitionShape]) -> None:
    segments = [segment for partition in partitions for segment in partition.segments]
    facts = [
        _count(len(partitions), "partition"),
        _count(sum(p.end_offset - p.start_offset for p in partitions), "offset"),
        _count(len(segments), "segment"),
        _bytes(sum(segment.size_bytes for segment in segments)) + " on disk",
        _count(
            sum(len(s.offset_entries) + len(s.time_entries) for s in segments), "index entry"
        ).replace("entrys", "entries"),
    ]
    canvas.label(LEFT, 56, title, font_size=30, font_weight=700, fill=INK)
    canvas.label(LEFT, 84, "  ·  ".join(facts), font_size=15)


def _heading(canvas: _Canvas, y: float, heading: str, explained: str) -> None:
    canvas.label(LEFT, y, heading, font_size=15, font_weight=700, fill=INK)
    canvas.label(LEFT + 9.2 * len(heading), y, explained, font_size=13)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _time_panel(canvas: _Canvas, partitions: Sequence[PartitionShape]) -> None:
    bottom = TOP + TIME_PANEL
    _heading(
        canvas,
        TOP - 20,
        "Offsets over time",
        "a box is a segment, a dot an entry of its time index, a dashed line the log start",
    )
    dated = [s for p in partitions for s in p.segments if s.first_ms >= 0 and s.last_ms >= 0]
    if not dated:
        canvas.label(LEFT, TOP + 40, "no records with a time")
        return
    first_ms = min(s.first_ms for s in dated)
    last_ms = max(max(s.last_ms for s in dated), first_ms + 1)
    top_offset = max(p.end_offset for p in partitions)
    low_offset = min(p.start_offset for p in partitions)
    low_offset = 0 if low_offset < 2 * (top_offset - low_offset) else low_offset

    def x(ms: int) -> float:
        return LEFT + (RIGHT - LEFT) * (min(max(ms, first_ms), last_ms) - first_ms) / (
            last_ms - first_ms
        )

    def y(offset: int) -> float:
        return bottom - TIME_PANEL * (offset - low_offset) / max(top_offset - low_offset, 1)

    step = _nice_step(top_offset - low_offset, 9)
    for offset in range(-(-low_offset // step) * step, top_offset + 1, step):
        canvas.line(LEFT, y(offset), RIGHT, y(offset), GRID)
        canvas.label(LEFT - 10, y(offset) + 4, f"{offset:,}", text_anchor="end")
    for ms, name in _time_ticks(first_ms, last_ms):
        canvas.line(x(ms), TOP, x(ms), bottom, GRID)
        canvas.label(x(ms), bottom + 20, name, text_anchor="middle")
    canvas.line(LEFT, bottom, RIGHT, bottom, SOFT)
    for index, partition in enumerate(partitions):
        for segment in partition.segments:
            if segment.first_ms >= 0:
                _time_box(canvas, segment, _colour(index), x, y)
            if segment.base_offset < partition.start_offset < segment.next_offset:
                start, ends = y(partition.start_offset), (segment.first_ms, segment.last_ms)
                style = {"stroke_width": 1.6, "stroke_dasharray": "5 3"}
                canvas.line(x(ends[0]), start, x(ends[1]), start, _colour(index), **style)
    _end_labels(canvas, partitions, [y(p.end_offset) for p in partitions])


def _time_box(canvas: _Canvas, segment: SegmentShape, colour: str, x: _Scale, y: _Scale) -> None:
    left, right = x(segment.first_ms), x(segment.last_ms)
    high, low = y(segment.next_offset), y(segment.base_offset)
    name = f"{segment.base_offset:,} to {segment.next_offset - 1:,}, {_bytes(segment.size_bytes)}"
    canvas.add(
        "rect",
        f"<title>{name}</title>",
        x=left,
        y=high,
        width=max(right - left, 1.0),
        height=max(low - high, 1.0),
        rx=2,
        fill=colour,
        fill_opacity=0.13,
        stroke=colour,
        stroke_opacity=0.75,
    )
    dots = segment.time_entries[:: max(1, len(segment.time_entries) // MAX_DOTS)]
    path = "".join(f"M{x(ms):.1f} {y(offset):.1f}h0" for ms, offset in dots)
    if path:
        canvas.add("path", d=path, stroke=colour, stroke_width=2.6, stroke_linecap="round")


def _end_labels(
    canvas: _Canvas, partitions: Sequence[PartitionShape], wanted: Sequence[float]
) -> None:
    """Names at the right, each as close to the end of its line as the others allow."""
    gap, lowest = 17.0, TOP + TIME_PANEL + 4.0
    placed = math.inf
    for index in sorted(range(len(partitions)), key=lambda i: -wanted[i]):
        at = min(wanted[index] + 4, placed - gap, lowest)
        placed = at
        if at < TOP - 8:
            return
        canvas.label(RIGHT + 12, at, partitions[index].name, fill=_colour(index), font_weight=600)


def _lanes(canvas: _Canvas, partitions: Sequence[PartitionShape], top: float) -> None:
    _heading(
        canvas,
        top - 26,
        "Bytes on disk",
        "a box is a segment's log file, a tick an entry of its offset index; "
        "the framed one takes appends",
    )
    widest = max((sum(s.size_bytes for s in p.segments) for p in partitions), default=0)
    scale = (RIGHT - LEFT) / max(widest, 1)
    for index, partition in enumerate(partitions):
        at, y = float(LEFT), top + index * (LANE + LANE_GAP)
        number_style = {"fill": _colour(index), "font_weight": 700, "font_size": 15}
        number = partition.name.rpartition("-")[2]
        canvas.label(LEFT - 10, y + LANE / 2 + 5, number, text_anchor="end", **number_style)
        for segment in partition.segments:
            active = segment is partition.segments[-1]
            _lane_box(canvas, segment, at, y, scale, _colour(index), active)
            at += segment.size_bytes * scale
        total = sum(segment.size_bytes for segment in partition.segments)
        canvas.label(at + 12, y + LANE / 2 - 2, _bytes(total), fill=INK, font_weight=600)
        held = f"{partition.start_offset:,} to {partition.end_offset:,}"
        canvas.label(at + 12, y + LANE / 2 + 14, held, font_size=11)


def _lane_box(
    canvas: _Canvas,
    segment: SegmentShape,
    at: float,
    y: float,
    scale: float,
    colour: str,
    active: bool,
) -> None:
    width = segment.size_bytes * scale
    canvas.add(
        "rect",
        x=at + 0.75,
        y=float(y),
        width=max(width - 1.5, 0.75),
        height=LANE,
        rx=3,
        fill=colour,
        fill_opacity=0.1 if active else 0.24,
        stroke=colour,
        stroke_width=1.6 if active else 0.0,
    )
    ticks = "".join(
        f"M{at + pos * scale:.1f} {y + LANE:.1f}v-9"
        for _, pos in segment.offset_entries[:: max(1, len(segment.offset_entries) // MAX_DOTS)]
    )
    if ticks:
        canvas.add("path", d=ticks, stroke=colour, stroke_opacity=0.55, stroke_width=0.8)
    name = f"{segment.base_offset:,}"
    if width > 7 * len(name) + 10:
        canvas.label(at + 7, y + 18, name, fill=INK, font_size=11)
    if width > 70:
        canvas.label(at + 7, y + 31, _bytes(segment.size_bytes), font_size=10)
