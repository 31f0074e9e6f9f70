"""One broker for all attacks of a file: what one leaves behind, the next one meets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.victim import Victim


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A broker as a process, with Kafka's settings."""
    made = Victim(tmp_path_factory.mktemp("victim"))
    yield made
    made.close()
