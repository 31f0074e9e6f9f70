"""The output of the demo: numbered steps, each with what it does and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_COLOUR = sys.stdout.isatty()


class Failed(Exception):
    """A promise of a step does not hold."""


def _styled(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if _COLOUR else text


def say(text: str = "") -> None:
    """A line of the present step."""
    print(f"   {text}" if text else "", flush=True)


def code(text: str) -> None:
    """Print the code that a user would write to get the same."""
    for line in text.splitlines():
        say(_styled("36", line))


def check(holds: bool, promise: str) -> None:
    """Show a promise that was checked, or end the demo.

    Raises: Failed.
    """
    if not holds:
        raise Failed(f"does not hold: {promise}")
    say(_styled("32", "✓ ") + promise)


class Tour:
    """Counts steps and their time."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A step: its title before, its time after."""
        print(f"\n{_styled('1', f'{len(self.steps) + 1}. {title}')}", flush=True)
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.steps.append((title, seconds))
        print(_styled("2", f"   took {seconds:.2f} s"), flush=True)

    def finish(self) -> None:
        """Print the last line, with the totals."""
        seconds = time.perf_counter() - self.started
        print(f"\n{_styled('1', f'{len(self.steps)} steps in {seconds:.1f} s')}", flush=True)


def table(head: list[str], rows: list[list[str]], left: int = 1) -> None:
    """Rows under a head; the first `left` columns to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: list[str]) -> str:
        cells = zip(row, widths, strict=True)
        return "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(cells)
        ).rstrip()

    say(_styled("2", line(head)))
    for row in rows:
        say(line(row))


def bar(value: float, largest: float, width: int = 44) -> str:
    """A bar of eighths of a character."""
    eighths = round(value / largest * width * 8) if largest else 0
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
