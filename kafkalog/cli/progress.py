"""A progress bar on stderr, if stderr is a terminal."""

import os
import sys
import time

from kafkalog.cli.common import plural, show_bytes

__all__ = ["BytesProgress", "Progress", "on_terminal"]

INTERVAL_S = 0.1
WIDTH = 24


def on_terminal() -> bool:
    """True if stderr is a terminal on which a line can be written again."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class Progress:
    """Records and bytes so far, their rate, and a bar if the total is known."""

    def __init__(self, total_bytes: int, noun: str = "record") -> None:
        """`total_bytes` 0: unknown, no bar.  `noun`: what is counted; empty: only bytes."""
        self.total_bytes = total_bytes
        self.noun = noun
        self.started = time.monotonic()
        self.shown = 0.0
        self.enabled = on_terminal()
        self.dirty = False

    def seconds(self) -> float:
        """Seconds since the start; never zero, so that a rate can be computed."""
        return max(time.monotonic() - self.started, 1e-6)

    def update(self, records: int, done_bytes: int, force: bool = False) -> None:
        """Draw, at most every tenth of a second."""
        now = time.monotonic()
        if not self.enabled or (now - self.shown < INTERVAL_S and not force):
            return
        self.shown, self.dirty = now, True
        seconds = self.seconds()
        line = show_bytes(done_bytes)
        if self.noun:
            line = f"{plural(records, self.noun)}  {records / seconds:,.0f}/s"
        if self.total_bytes:
            part = min(done_bytes / self.total_bytes, 1.0)
            filled = int(part * WIDTH)
            line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {part:4.0%}  {line}"
        line += f"  {show_bytes(done_bytes / seconds)}/s"
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line for what is printed next."""
        if self.dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.dirty = False


class BytesProgress(Progress):
    """The bytes of files that a command has worked through; `done` adds some."""

    def __init__(self, total_bytes: int) -> None:
        """`total_bytes` 0: unknown, no bar."""
        super().__init__(total_bytes, noun="")
        self.done_bytes = 0

    def done(self, count: int) -> None:
        """Count more bytes, and draw."""
        self.done_bytes += count
        self.update(0, self.done_bytes)
