"""A server of logs with a stopped clock, and a client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plane.peer import Peer, Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Make a server with the given settings."""
    made: list[Served] = []

    def make(**settings: Any) -> Served:
        folder = tmp_path / f"served-{len(made)}"
        folder.mkdir()
        made.append(Served(folder, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.fixture
def peer(served: Served) -> Peer:
    return served.connect()


@pytest.fixture
def faults(native_test: tuple[Any, Any]) -> Iterator[Any]:
    """The library with I/O faults and failpoints; both are reset after the test."""
    _, lib = native_test
    lib.kl_io_reset()
    lib.kl_failpoint_reset()
    yield lib
    lib.kl_io_reset()
    lib.kl_failpoint_reset()
