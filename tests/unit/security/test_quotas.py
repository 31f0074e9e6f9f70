"""Which quota a client has, and with whom it shares it."""

from __future__ import annotations

from itertools import combinations

import pytest

from kafkalog.security.quotas import Entity, Quotas, Shared, TokenBucket


def entity(user: str | None = "-", client: str | None = "-") -> Entity:
    """'-': not part of it; None: the default."""
    pairs = {"client-id": client, "user": user}
    return tuple((kind, name) for kind, name in pairs.items() if name != "-")


PRECEDENCE = [
    entity("u", "c"), entity("u", None), entity("u"), entity(None, "c"), entity(None, None),
    entity(None), entity(client="c"), entity(client=None),
]  # fmt: skip
"""The entities of client c of user u, most specific first, as Kafka documents it."""
BOTH, OF_USER, OF_CLIENT = Shared("u", "c"), Shared("u", ""), Shared("", "c")
SHARED = [BOTH, BOTH, OF_USER, BOTH, BOTH, OF_USER, OF_CLIENT, OF_CLIENT]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_most_specific_entity_decides(count: int) -> None:
    for places in combinations(range(8), count):
        quotas = Quotas({PRECEDENCE[place]: float(place + 1) for place in places})
        shared = quotas.shared("u", "c")
        assert shared == SHARED[places[0]]
        assert quotas.limit(shared) == places[0] + 1


def test_others_have_none_or_the_default() -> None:
    quotas = Quotas({entity("u"): 1.0, entity(client="c"): 2.0})
    assert quotas.limit(quotas.shared("v", "d")) is None
    assert quotas.limit(quotas.shared("v", "c")) == 2.0
    quotas = Quotas({entity(None): 3.0})
    assert quotas.shared("v", "d") == ("v", "")
    assert quotas.limit(quotas.shared("v", "d")) == 3.0
    assert not Quotas({})


def test_a_client_without_an_id() -> None:
    """As in Kafka: no client-id's default applies to it."""
    quotas = Quotas({entity(client=None): 1.0})
    assert quotas.limit(quotas.shared("u", "")) is None
    quotas = Quotas({entity("u"): 2.0, entity("u", None): 1.0})
    assert quotas.limit(quotas.shared("u", "")) == 2.0


def test_tokens_are_refilled_up_to_a_window() -> None:
    tokens = TokenBucket(2.0, 10.0, 100.0)
    tokens.take(20, 100.0)
    assert tokens.wait_ms(100.0) == 0
    tokens.take(3, 100.0)
    assert tokens.wait_ms(100.0) == 1500
    assert tokens.wait_ms(101.0) == 500
    assert tokens.wait_ms(101.5) == 0
    tokens.take(20, 1000.0)
    assert tokens.wait_ms(1000.0) == 0
    tokens.take(0.001, 1000.0)
    assert tokens.wait_ms(1000.0) == 1
