"""A year of days as a calendar for each airport: the redder a day, the later its flights left."""

from __future__ import annotations

from datetime import date, timedelta
from xml.sax.saxutils import escape

from days import AIRPORTS, Days

CELL, GAP, LEFT, TOP = 15, 3, 64, 96
STRIP = 7 * (CELL + GAP) + 44
INK, SOFT, PAPER, EMPTY = "#1f2933", "#6b7785", "#fdfcf9", "#eceef0"
STEPS = (
    (0, "#d9e8f5"), (5, "#f7ecd0"), (10, "#f6d6a0"), (20, "#efae6b"), (35, "#df7a45"),
    (60, "#bf4229"), (10_000, "#7f1d1d"),
)  # fmt: skip
"""The largest mean delay in minutes of each colour."""
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def draw(days: Days) -> str:
    """The SVG."""
    first = date(min(day for _, day in days).year, 1, 1)
    last = date(first.year, 12, 31)
    width = LEFT + (_week(last, first) + 1) * (CELL + GAP) + 24
    height = TOP + STRIP * len(AIRPORTS) + 8
    parts = [
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        _text(24, 36, "Mean departure delay by day, New York " + str(first.year), 20, INK, 700),
        *_legend(24, 52),
    ]
    for number, airport in enumerate(AIRPORTS):
        parts += _strip(days, airport, first, last, TOP + STRIP * number)
    font = "font-family=\"'Inter','Helvetica Neue',Arial,'DejaVu Sans',sans-serif\""
    frame = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame} {font}>\n{body}\n</svg>\n'


def _strip(days: Days, airport: str, first: date, last: date, top: int) -> list[str]:
    """An airport: a column for each week, Monday on top."""
    parts = [_text(24, top + 36, airport, 14, INK, 700)]
    day = first
    while day <= last:
        x = LEFT + _week(day, first) * (CELL + GAP)
        y = top + 22 + day.weekday() * (CELL + GAP)
        found = days.get((airport, day))
        mean = None if found is None else found.mean
        told = "no result yet" if mean is None else f"{mean:.1f} min"
        title = f"<title>{airport} {day}: {told}</title>"
        parts.append(f"{_cell(x, y, _colour(mean))}{title}</rect>")
        if day.day == 1:
            parts.append(_text(x, top + 14, MONTHS[day.month - 1], 11, SOFT))
        day += timedelta(days=1)
    return parts


def _week(day: date, first: date) -> int:
    return ((day - first).days + first.weekday()) // 7


def _colour(mean: float | None) -> str:
    if mean is None:
        return EMPTY
    return next(colour for limit, colour in STEPS if mean <= limit)


def _legend(x: int, y: int) -> list[str]:
    told = ["early", *(f"to {limit}" for limit, _ in STEPS[1:-1]), "more", "open"]
    parts = []
    for text, colour in zip(told, [*(colour for _, colour in STEPS), EMPTY], strict=True):
        parts.append(_cell(x, y, colour) + "</rect>")
        parts.append(_text(x + CELL + 5, y + 12, text, 11, SOFT))
        x += 70
    return parts


def _cell(x: int, y: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="3" fill="{colour}">'


def _text(x: int, y: int, text: str, size: int, colour: str, weight: int = 400) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}">'
        f"{escape(text)}</text>"
    )
