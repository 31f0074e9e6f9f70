"""Child processes that end together with their parent."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence

from kafkalog.cli.common import CommandError
from kafkalog.system import ends_with_parent

__all__ = ["Process"]

START_S = 60.0
END_S = 20.0
LOOK_S = 0.02
TAIL_BYTES = 2000


class Process:
    """A child process; its output is appended to a file."""

    def __init__(self, name: str, command: Sequence[str], log: str) -> None:
        """Start it; see `wait`."""
        self.name = name
        self.log = log
        self.command = list(command)
        with open(log, "ab") as output:
            # A session of its own: Ctrl-C goes to the parent, which stops all in order.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ends_with_parent(),
            )
        self.pid = self._process.pid

    def wait(self, answers: Callable[[], bool]) -> None:
        """Wait until it answers.  Raises: CommandError, with the end of its output."""
        end_s = time.monotonic() + START_S
        while not answers():
            if self.ended is not None or time.monotonic() > end_s:
                how = f"not in {START_S:g} s" if self.ended is None else f"it {self.ended}"
                raise CommandError(
                    f"{self.name} did not start: {how}; {self.log} ends with:\n{self._tail()}"
                )
            time.sleep(LOOK_S)

    @property
    def ended(self) -> str | None:
        """How it ended; None if it runs."""
        status = self._process.poll()
        if status is None:
            return None
        return f"ended with {status}" if status >= 0 else f"died of {signal.Signals(-status).name}"

    def _tail(self) -> str:
        with open(self.log, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").rstrip()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def tell(self) -> None:
        """SIGTERM: it starts to shut down."""
        self._process.terminate()

    def end(self) -> None:
        """SIGTERM, then wait; kill -9 if it does not end."""
        self.tell()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
