"""The command line, run in this process: status, output, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog.cli import main


class Ran(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        """The output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Ran]


@pytest.fixture
def kafkalog(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `kafkalog` with these words."""

    def run(*words: object) -> Ran:
        capsys.readouterr()
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return run


@pytest.fixture
def loghub(shared: Path) -> Path:
    """The folder of real log files."""
    folder = shared / "data" / "loghub"
    if not folder.is_dir():
        pytest.skip(f"no log files at {folder}")
    return folder
