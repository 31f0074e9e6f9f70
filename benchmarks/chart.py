"""Bar charts as SVG text, from plain numbers: one bar for each side of each row."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.measure import Row, amount

__all__ = ["draw"]

WIDTH, LEFT, RIGHT = 960, 330, 820
BAR, GAP, HEAD, PAD = 18, 7, 34, 22
INK, SOFT, GRID, PAPER = "#1f2933", "#6b7785", "#e3e6ea", "#fdfcf9"
OURS, OTHERS = "#2563a8", "#b9c0c8"
FONT = "font-family=\"'Inter','Helvetica Neue',Arial,'DejaVu Sans',sans-serif\""


def draw(title: str, rows: Sequence[Row]) -> str:
    """The picture: a group of bars for each row, each group with its own scale.

    A bar is the median of a side's rounds, the line across its end the slowest and the fastest.
    """
    parts: list[str] = []
    y = 74.0
    for row in rows:
        y = _group(parts, row, y) + PAD
    height = int(y)
    head = _text(PAD, 42, title, size=22, weight=700, colour=INK)
    frame = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    paper = f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>'
    body = "\n".join([head, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame} {FONT}>\n{paper}\n{body}\n</svg>\n'


def _group(parts: list[str], row: Row, y: float) -> float:
    """Draw the bars of one row from `y` down; returns where they end."""
    better = "longer is better" if row.more_is_better else "shorter is better"
    parts.append(_text(PAD, y + 14, row.work, size=14, weight=700, colour=INK))
    parts.append(_text(RIGHT, y + 14, better, size=11, anchor="end"))
    y += HEAD
    longest = max(max(values) for values in row.sides.values())
    scale = (RIGHT - LEFT) / longest if longest else 0.0
    for name, values in row.sides.items():
        ours = name.startswith("kafkalog")
        median = row.median(name)
        middle = y + BAR / 2
        width = max(median * scale, 1.0)
        parts.append(
            f'<rect x="{LEFT}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" rx="3" '
            f'fill="{OURS if ours else OTHERS}"/>'
        )
        low, high = (LEFT + edge * scale for edge in (min(values), max(values)))
        parts.append(
            f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8'
            f'M{high:.1f} {middle - 4:.1f}v8" stroke="{INK}" stroke-opacity="0.55" fill="none"/>'
        )
        colour = INK if ours else SOFT
        weight = 600 if ours else 400
        label = _text(LEFT - 10, middle + 4, name, anchor="end", colour=colour, weight=weight)
        figure = amount(median, row.unit)
        parts.append(label)
        parts.append(_text(max(high, LEFT + width) + 8, middle + 4, figure, colour=colour))
        y += BAR + GAP
    parts.append(f'<path d="M{PAD} {y + 8:.1f}H{WIDTH - PAD}" stroke="{GRID}"/>')
    return y


def _text(
    x: float,
    y: float,
    text: str,
    size: int = 12,
    weight: int = 400,
    colour: str = SOFT,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
    )
