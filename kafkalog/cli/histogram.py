"""Latencies for a terminal: percentiles, and a histogram over a logarithmic scale."""

import math
from collections.abc import Sequence

__all__ = ["percentiles", "render_histogram", "show_ms"]

WIDTH = 48
EIGHTHS = " ▏▎▍▌▋▊▉█"
RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
STEPS = 5
"""Bars per factor of ten."""

Weighted = Sequence[tuple[float, int]]
"""Latencies in seconds, each with the number of records that it stands for."""


def percentiles(latencies: Weighted) -> dict[str, float]:
    """The latency in seconds at each percentile of RANKS."""
    ordered = sorted(latencies)
    total = sum(count for _, count in ordered)
    found: dict[str, float] = {}
    seen, at = 0, -1
    for name, rank in RANKS.items():
        while seen < math.ceil(rank * total) and at < len(ordered) - 1:
            at += 1
            seen += ordered[at][1]
        found[name] = ordered[at][0]
    return found


def show_ms(seconds: float) -> str:
    """`0.123 ms`, `12.3 ms`, `1234 ms`: three significant digits."""
    ms = seconds * 1000
    digits = 3 if ms < 1 else 2 if ms < 10 else 1 if ms < 100 else 0
    return f"{ms:.{digits}f} ms"


def render_histogram(latencies: Weighted) -> str:
    """A bar for each step of the scale between the smallest and the largest latency."""
    counts: dict[int, int] = {}
    for seconds, count in latencies:
        step = math.floor(STEPS * math.log10(max(seconds, 1e-7)))
        counts[step] = counts.get(step, 0) + count
    most, total = max(counts.values()), sum(counts.values())
    lines = []
    for step in range(min(counts), max(counts) + 1):
        count = counts.get(step, 0)
        upper = 10 ** ((step + 1) / STEPS)
        part = f"{100 * count / total:.1f}%"
        lines.append(f"  < {show_ms(upper):>9}  {part:>6}  {_bar(count / most)}".rstrip())
    return "\n".join(lines)


def _bar(part: float) -> str:
    eighths = round(part * WIDTH * 8)
    if part > 0:
        eighths = max(eighths, 1)  # every count is visible
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
