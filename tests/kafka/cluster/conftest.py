"""One ZooKeeper for all tests that do not disturb it; each file uses its own tree there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import apache
from tests.support.zookeeper import ZooKeeper


@pytest.fixture(scope="session")
def zookeeper(memory: Path) -> Iterator[ZooKeeper]:
    try:
        with ZooKeeper(memory / "zookeeper") as running:
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"ZooKeeper cannot run here: {reason}")
