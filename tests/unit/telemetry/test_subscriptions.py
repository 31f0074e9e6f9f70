"""The metrics that a client is asked for."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkalog.errors import InvalidSetting
from kafkalog.telemetry.subscriptions import ALL, Client, Subscription, wanted, wants

ID = UUID("9b3e1c62-5d7f-4e11-8e1a-04a5b6c7d8e9")
CLIENT = Client(ID, "orders-1", "apache-kafka-java", "4.4.0", "10.0.0.1", 40_000)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("", True),
        ("client_id=orders-.*", True),
        ("client_id=orders", False),
        ("client_software_name=apache-kafka-java,client_software_version=4\\..*", True),
        ("client_software_name=apache-kafka-java,client_software_version=3\\..*", False),
        ("client_source_address=10\\.0\\.0\\.[0-9]+, client_source_port=4.*", True),
        ("client_instance_id=mz4cYl1_ThGOGgSltsfY6Q", True),
        ("client_instance_id=9b3e.*", False),
        ("client_id=x,client_id=orders-1", True),
    ],
)
def test_a_client_must_fit_each_name(match: str, fits: bool) -> None:
    """The last pattern of a name counts, as in Kafka."""
    assert Subscription({"match": match}).matches(CLIENT) == fits


def test_a_pattern_that_takes_too_much_work_matches_nobody() -> None:
    """The texts are the clients' own, and as long as they like."""
    one = Subscription({"match": "client_id=(a?b?c?d?e?f?g?h?){40}x"})
    assert not one.matches(CLIENT._replace(client_id="".join(map(chr, range(97, 20_000)))))


def test_backtracking_is_not_supported() -> None:
    with pytest.raises(InvalidSetting, match=r"match: found 'client_id=\(\?i\)x'"):
        Subscription({"match": "client_id=(?i)x"})


def test_subscriptions_add_up() -> None:
    """The names of all, at the shortest interval, and at most every five minutes."""
    some = [
        Subscription({"metrics": "b.,a.", "interval.ms": "1000"}),
        Subscription({"metrics": "a.,c.", "interval.ms": "500"}),
        Subscription({"metrics": "d.", "interval.ms": "100", "match": "client_id=other"}),
    ]
    assert wanted(CLIENT, some)[1:] == (("a.", "b.", "c."), 500)
    rare = Subscription({"metrics": "*", "interval.ms": "3600000"})
    assert wanted(CLIENT, [rare])[1:] == ((ALL,), 300_000)
    assert wanted(CLIENT, [rare, *some])[1:] == ((ALL,), 500)
    assert wanted(CLIENT, [])[1:] == ((), 300_000)


def test_the_subscription_id_changes_with_everything() -> None:
    """It is the same each time, and a number of 32 bits with a sign."""
    some = [{}, {"metrics": "a."}, {"metrics": "b."}, {"metrics": "a.", "interval.ms": "1000"}]
    ids = [wanted(CLIENT, [Subscription(one)]).subscription_id for one in some]
    others = [wanted(CLIENT._replace(instance_id=UUID(int=number)), []).subscription_id
              for number in (0, 1, 1 << 40, 1 << 127)]  # fmt: skip
    assert len({*ids, *others}) == len(ids) + len(others)
    assert all(-(1 << 31) <= one < 1 << 31 for one in (*ids, *others))
    assert ids == [wanted(CLIENT, [Subscription(one)]).subscription_id for one in some]


def test_names_are_compared_by_their_beginnings() -> None:
    assert wants(("a.", "b"), "a.b") and wants(("a.", "b"), "bc")
    assert not wants(("a.", "b"), "c.a.") and not wants((), "a.b")
    assert wants((ALL,), "anything") and not wants((), "")


def test_unknown_settings_have_no_effect() -> None:
    """A directory that a newer Kafka wrote may have some."""
    assert Subscription({"metrics": "a.", "newer": "x"}).metrics == ("a.",)
