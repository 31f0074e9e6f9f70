"""One broker for all attacks of a file: each attack meets the leftovers of the one before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.victim import Victim


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A broker as a separate process, with Kafka's settings."""
    made = Victim(tmp_path_factory.mktemp("victim"))
    yield made
    made.close()
