"""The command line, run in this process: status, output, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog.cli import main
from tests.support import lines


class Ran(NamedTuple):
    """The result of a command: exit status, stdout, stderr."""

    status: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        """The output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Ran]


@pytest.fixture
def kafkalog(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `kafkalog` with the given words."""

    def run(*words: object) -> Ran:
        capsys.readouterr()
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return run


@pytest.fixture(scope="session")
def log_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of log files like those that programs write."""
    return lines.write(tmp_path_factory.mktemp("lines"))
