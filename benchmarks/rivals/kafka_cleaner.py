"""Kafka's own log cleaner in a Java process that stays: its compiler warms up as a broker's."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support import apache

__all__ = ["Cleaner", "unavailable"]

SOURCE = Path(__file__).with_name("CleanFolder.java")


def unavailable() -> str | None:
    """Why it cannot run here; None if it can."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        return str(reason)
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True).stdout
    return None if "jdk.compiler" in modules else "a Java runtime without its compiler"


class Cleaner:
    """Cleans one folder after another; a context manager."""

    def __init__(self, segment_bytes: int) -> None:
        command = [
            "java", "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
            "-cp", f"{apache.jars()}/*", str(SOURCE), str(segment_bytes),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self._answer()

    def __enter__(self) -> Cleaner:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def clean(self, folder: Path) -> float:
        """Seconds that the cleaning of the log in `folder` took."""
        assert self._process.stdin
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        return int(self._answer()) / 1e9

    def _answer(self) -> str:
        assert self._process.stdout and self._process.stderr
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()[-2000:]
        return line
