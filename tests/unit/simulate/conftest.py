"""Simulated clusters for these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.simulate.scene import Scene


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Makes a scene from a setup and, optionally, `rules`."""
    made: list[Scene] = []

    def another(**setup: object) -> Scene:
        made.append(Scene(tmp_path / str(len(made)), **setup))  # type: ignore[arg-type]
        return made[-1]

    yield another
    for one in made:
        one.close()


@pytest.fixture
def scene(make: Callable[..., Scene]) -> Scene:
    """Three nodes whose disks may lose unsynced writes."""
    return make()
