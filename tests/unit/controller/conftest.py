"""A controller of three brokers, for these tests."""

from __future__ import annotations

import pytest

from tests.unit.controller.driven import Driven, topic


@pytest.fixture
def of() -> Driven:
    """Brokers 1, 2 and 3; topic t with one partition on all of them, led by 1."""
    found = Driven()
    found.register(1, 2, 3)
    found.elect()
    topic(found, {0: (1, 2, 3)})
    assert found.state("t", 0) == (1, 0, (1, 2, 3))
    found.sent.clear()
    return found
