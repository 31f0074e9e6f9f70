"""A failover as a picture: the leader, the ISR, each replica's log end, and the high watermark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

__all__ = ["Moment", "draw"]

WIDTH, LEFT, RIGHT = 960, 84, 936
LANES_TOP, LANE, GAP = 54, 22, 8
CURVES_GAP, CURVES = 34, 220
NOTE = 17
COLOURS = ("#2563a8", "#c2571a", "#2e8b57", "#8a4fa3", "#b8860b")
INK, SOFT, GRID, PAPER = "#1f2933", "#6b7785", "#e3e6ea", "#fdfcf9"
OPACITY = {"leads": 1.0, "in sync": 0.4, "not in sync": 0.12}


class Moment(NamedTuple):
    """A partition's state at one time."""

    at_s: float
    leader: int
    """A node; -1: none."""
    isr: tuple[int, ...]
    ends: Mapping[int, int]
    """The log ends of the replicas on live nodes."""
    high_watermark: int
    """-1: unknown."""


def draw(moments: Sequence[Moment], notes: Sequence[tuple[float, str]]) -> str:
    """Renders an SVG.  `notes`: what was done, and when."""
    return "\n".join(_Picture(moments, notes).parts()) + "\n"


class _Picture:
    def __init__(self, moments: Sequence[Moment], notes: Sequence[tuple[float, str]]) -> None:
        self.moments = moments
        self.notes = notes
        self.nodes = sorted({node for one in moments for node in (*one.ends, *one.isr)})
        self.seconds = max(moments[-1].at_s, 0.1)
        self.records = max(1, *(end for one in moments for end in one.ends.values()))
        self.curves_top = LANES_TOP + len(self.nodes) * (LANE + GAP) + CURVES_GAP
        self.bottom = self.curves_top + CURVES
        self.height = self.bottom + 42 + NOTE * len(notes)

    def x(self, at_s: float) -> float:
        return LEFT + (RIGHT - LEFT) * at_s / self.seconds

    def y(self, offset: int) -> float:
        return self.bottom - CURVES * offset / self.records

    def colour(self, node: int) -> str:
        return COLOURS[self.nodes.index(node) % len(COLOURS)]

    def parts(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            f'width="{WIDTH}" height="{self.height}" font-family="sans-serif" font-size="12">'
        )
        yield f'<rect width="{WIDTH}" height="{self.height}" fill="{PAPER}"/>'
        yield self.text(LEFT, 24, "A leader dies: the leader, the ISR, the high watermark", INK, 15)
        yield from self.scale()
        for row, node in enumerate(self.nodes):
            yield from self.lane(node, LANES_TOP + row * (LANE + GAP))
        yield from self.curves()
        yield from self.marks()
        yield "</svg>"

    def text(
        self, x: float, y: float, words: str, colour: str, size: int = 12, anchor: str = "start"
    ) -> str:
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" '
            f'text-anchor="{anchor}">{escape(words)}</text>'
        )

    def scale(self) -> Iterator[str]:
        for second in range(int(self.seconds) + 1):
            x = self.x(second)
            yield f'<path d="M{x:.1f} {LANES_TOP - 6}V{self.bottom}" stroke="{GRID}"/>'
            yield self.text(x, self.bottom + 15, f"{second} s", SOFT, 11, "middle")
        for part in (0, 0.5, 1):
            offset = round(self.records * part)
            yield f'<path d="M{LEFT} {self.y(offset):.1f}H{RIGHT}" stroke="{GRID}"/>'
            yield self.text(LEFT - 8, self.y(offset) + 4, f"{offset:,}", SOFT, 11, "end")

    def lane(self, node: int, top: float) -> Iterator[str]:
        """Bars for each state of the node, as long as it lasted."""
        yield self.text(LEFT - 8, top + 15, f"node {node}", self.colour(node), 12, "end")
        start: tuple[float, str] | None = None
        for one in (*self.moments, None):
            role = None if one is None else _role(one, node)
            if start is not None and (one is None or role != start[1]):
                end_s = self.seconds if one is None else one.at_s
                yield from self.bar(node, top, start, end_s)
                start = None
            if start is None and one is not None and role is not None:
                start = one.at_s, role

    def bar(self, node: int, top: float, start: tuple[float, str], end_s: float) -> Iterator[str]:
        at_s, role = start
        x, width = self.x(at_s), self.x(end_s) - self.x(at_s)
        yield (
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{LANE}" '
            f'fill="{self.colour(node)}" fill-opacity="{OPACITY[role]}"/>'
        )
        if width > 70:
            yield self.text(x + 6, top + 15, role, "#ffffff" if role == "leads" else INK, 11)

    def curves(self) -> Iterator[str]:
        top = self.curves_top - 8
        yield self.text(
            LEFT, top, "where each replica ends, and (black) the high watermark", SOFT, 11
        )
        for node in self.nodes:
            points = [(one.at_s, one.ends[node]) for one in self.moments if node in one.ends]
            yield from self.curve(points, self.colour(node), 5, 0.45)
        shown = [(m.at_s, m.high_watermark) for m in self.moments if m.high_watermark >= 0]
        yield from self.curve(shown, INK, 1.5, 1)

    def curve(
        self, points: Sequence[tuple[float, int]], colour: str, width: float, opacity: float
    ) -> Iterator[str]:
        """Interrupted where nothing was seen for a while."""
        path, before_s = "", -1.0
        for at_s, offset in points:
            far = before_s < 0 or at_s - before_s > self.seconds / 16
            path += f"{'M' if far else 'L'}{self.x(at_s):.1f} {self.y(offset):.1f}"
            before_s = at_s
        yield (
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-opacity="{opacity}" stroke-linejoin="round"/>'
        )

    def marks(self) -> Iterator[str]:
        for number, (at_s, words) in enumerate(self.notes, 1):
            x, y = self.x(min(at_s, self.seconds)), self.bottom + 24 + NOTE * number
            yield (
                f'<path d="M{x:.1f} {LANES_TOP - 6}V{self.bottom}" stroke="{INK}" '
                'stroke-dasharray="2 3"/>'
            )
            yield self.text(x, LANES_TOP - 9, str(number), INK, 11, "middle")
            yield self.text(LEFT, y, f"{number}  {at_s:.1f} s: {words}", INK)


def _role(one: Moment, node: int) -> str | None:
    """None: it is down."""
    if node not in one.ends:
        return None
    if node == one.leader:
        return "leads"
    return "in sync" if node in one.isr else "not in sync"
