"""The clients that send metrics: when each may send, and what is kept."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest

from kafkalog.telemetry import instances
from kafkalog.telemetry.instances import Instance, Instances, Limits, Push
from kafkalog.telemetry.otlp import Kind, Point
from kafkalog.telemetry.subscriptions import Client, Subscription
from kafkalog.wire.error_codes import ErrorCode

NONE, THROTTLED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
ASKED = Subscription({"metrics": "*", "interval.ms": "1000"})


def client(number: int = 1) -> Client:
    return Client(UUID(int=number), "c", "test", "1", "127.0.0.1", 1)


class Broker:
    """Instances, the time, and the connections that are closed."""

    def __init__(self, series: int = 100, bytes_: int = 100_000) -> None:
        self.now_ms = 50.0
        self.closed: set[int] = set()
        self.all = Instances(Limits(1000, series, bytes_), self._connected)
        self.all.subscribe([ASKED])

    def _connected(self, connections: Sequence[int]) -> list[tuple[bool, bool]]:
        return [(one not in self.closed,) * 2 for one in connections]

    def find(self, number: int = 1, connection: int = 7) -> Instance:
        matched = self.all.subscriptions.matched(client(number))
        found = self.all.find(self.now_ms, client(number), connection, matched)
        assert found is not None
        return found

    @property
    def alive(self) -> list[int]:
        """The clients that are not forgotten."""
        return [
            one.client.instance_id.int
            for one in self.all.all()
            if self.all.kept(self.now_ms, one.client.instance_id) is not None
        ]

    def ask(self, number: int = 1, connection: int = 7) -> ErrorCode:
        return self.all.ask(self.now_ms, self.find(number, connection))

    def push(
        self, number: int = 1, connection: int = 7, subscription: int | None = None,
        terminating: bool = False, codec: int = 0, size: int = 10,
    ) -> ErrorCode:  # fmt: skip
        one = self.find(number, connection)
        wanted = one.wanted.subscription_id if subscription is None else subscription
        return self.all.push(self.now_ms, one, Push(wanted, terminating, codec, size))

    def keep(self, *points: Point, number: int = 1, connection: int = 7) -> dict[str, float]:
        one = self.find(number, connection)
        self.all.keep(self.now_ms, one, points, 0)
        return {name: series.value for (name, _), series in one.series.items()}


@pytest.fixture
def broker() -> Iterator[Broker]:
    yield Broker()


def test_a_client_asks_and_pushes_at_its_interval(broker: Broker) -> None:
    assert broker.ask() is NONE
    broker.now_ms += 1
    assert broker.ask() is THROTTLED
    assert broker.push() is NONE, "the first push may come at any time"
    assert broker.push() is THROTTLED
    broker.now_ms += 999
    assert (broker.push(), broker.ask()) == (THROTTLED, THROTTLED)
    broker.now_ms += 1
    assert broker.push() is NONE
    assert broker.all.counts["throttle"] == 4


def test_a_push_without_a_question_is_one_a_client_that_moved(broker: Broker) -> None:
    """It has the id and the subscription from another broker."""
    assert broker.push() is NONE
    assert broker.push() is THROTTLED


def test_the_terminating_push_may_come_at_any_time_and_is_the_last(broker: Broker) -> None:
    assert (broker.push(), broker.push(terminating=True)) == (NONE, NONE)
    broker.now_ms += 5_000
    assert broker.push() is ErrorCode.INVALID_REQUEST
    assert broker.push() is NONE, "as in Kafka: the refused one was not terminating"


def test_a_changed_subscription_is_asked_for_at_once(broker: Broker) -> None:
    assert (broker.ask(), broker.push()) == (NONE, NONE)
    before = broker.find().wanted
    broker.all.subscribe([ASKED, Subscription({"metrics": "a", "interval.ms": "500"})])
    assert broker.push(subscription=before.subscription_id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert broker.all.counts["unknown-subscription-request"] == 1
    assert broker.ask() is NONE
    assert broker.find().wanted.interval_ms == 500


def test_after_some_errors_a_client_may_ask_at_once(broker: Broker) -> None:
    assert broker.ask() is NONE
    assert broker.push(codec=9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert broker.ask() is NONE
    assert broker.ask() is THROTTLED
    broker.now_ms += 1000
    assert broker.push(size=1001) is ErrorCode.TELEMETRY_TOO_LARGE
    assert broker.ask() is THROTTLED


def test_a_new_connection_begins_again_once_the_old_one_is_closed(broker: Broker) -> None:
    """Kafka forgets a client with its connection; two connections share one interval."""
    assert (broker.ask(), broker.ask(connection=8)) == (NONE, THROTTLED)
    broker.closed = {7}
    assert (broker.ask(connection=8), broker.ask(connection=8)) == (NONE, THROTTLED)


def test_silent_clients_are_forgotten(broker: Broker) -> None:
    broker.keep(Point("a", (), Kind.GAUGE, 1.0))
    broker.now_ms += instances.EXPIRY_MS - 1
    assert broker.alive == [1]
    broker.now_ms += 1
    assert broker.alive == []
    broker.find(2)
    assert len(broker.all) == 1
    broker.all.subscribe([])  # every five minutes
    broker.find(2)
    broker.now_ms += 3 * 300_000 - 1
    broker.find(3)
    assert len(broker.all) == 2


def test_the_number_of_clients_has_a_bound(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The one that was silent for longest is forgotten."""
    monkeypatch.setattr(instances, "INSTANCES_MAX", 3)
    for number in (1, 2, 3, 1, 4):
        broker.find(number)
    assert sorted(broker.alive) == [1, 3, 4]


ONE = Point("a", (), Kind.GAUGE, 1.0)


def test_questions_with_fresh_ids_displace_no_metrics(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though those that have pushed are silent for longer."""
    monkeypatch.setattr(instances, "INSTANCES_MAX", 10)
    for number in range(8):
        broker.keep(ONE, number=number, connection=number)
    for number in range(100, 200):
        broker.now_ms += 1
        broker.find(number, connection=number)
    assert set(range(8)) < set(broker.alive) and len(broker.all) == 10


def test_clients_of_closed_connections_are_displaced_first(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "INSTANCES_MAX", 3)
    broker.keep(ONE, number=1, connection=1)
    broker.find(2, connection=2)
    broker.keep(ONE, number=3, connection=3)
    broker.closed = {3}
    broker.find(4, connection=4)
    assert broker.alive == [1, 2, 4]


def test_a_connection_has_so_many_clients(broker: Broker) -> None:
    """Further ones displace only clients of the same connection; one that moves counts, too."""
    most = instances.CONNECTION_MAX
    broker.keep(ONE, number=1, connection=1)
    broker.keep(ONE, number=2, connection=2)
    for number in range(100, 100 + 3 * most):
        broker.now_ms += 1
        broker.find(number, connection=2)
    assert broker.alive == [1, 2, *range(101 + 2 * most, 100 + 3 * most)]
    broker.closed = {1}
    broker.find(1, connection=2)
    assert broker.alive == [2, *range(102 + 2 * most, 100 + 3 * most), 1]
    broker.closed = {1, 2}
    broker.now_ms += 1
    for number in broker.alive:
        broker.find(number, connection=3)
    assert len(broker.all) == most


def test_clients_that_only_asked_are_forgotten_soon_after_their_connections(
    broker: Broker,
) -> None:
    """Say, an Admin for one call each; without a subscription the others stay for long."""
    broker.all.subscribe([])
    for number in range(5):
        broker.find(number, connection=number)
    broker.closed = {1, 2, 3, 4}
    broker.now_ms += instances.EXPIRY_MS
    broker.find(5, connection=5)
    assert broker.alive == [0, 5]


def test_increases_add_up_and_others_replace(broker: Broker) -> None:
    both = Point("more", (), Kind.DELTA, 2.0), Point("level", (), Kind.GAUGE, 5.0)
    broker.keep(*both, Point("total", (), Kind.TOTAL, 10.0))
    found = broker.keep(*both, Point("total", (), Kind.TOTAL, 12.0))
    assert found == {"more": 4.0, "level": 5.0, "total": 12.0}
    grows = {name: one.grows for (name, _), one in broker.find().series.items()}
    assert grows == {"more": True, "level": False, "total": True}
    broker.all.subscribe([Subscription({"metrics": "level,more"})])
    assert broker.keep() == {"more": 4.0, "level": 5.0}, "as far as it is still asked for"


def test_only_requested_metrics_are_kept(broker: Broker) -> None:
    """Whatever a client sends."""
    points = [Point(name, (), Kind.GAUGE, 1.0) for name in ("a.b", "c.d")]
    broker.all.subscribe([Subscription({"metrics": "a."})])
    assert broker.keep(*points) == {"a.b": 1.0}
    broker.all.subscribe([])
    assert broker.keep(*points, number=2) == {}
    assert broker.all.counts["series-left-out"] == 3


def test_series_of_a_client_have_a_bound() -> None:
    broker = Broker(series=2)
    points = [Point(str(number), (("l", "x"),), Kind.DELTA, 1.0) for number in range(4)]
    broker.keep(*points)
    assert broker.keep(*points) == {"0": 2.0, "1": 2.0}
    assert broker.all.counts["series-left-out"] == 4


def test_memory_of_all_clients_has_a_bound_and_is_given_back() -> None:
    broker = Broker(bytes_=1000)
    points = [Point(str(number), (), Kind.GAUGE, 1.0) for number in range(3)]
    assert len(broker.keep(*points, number=1)) == 3
    assert len(broker.keep(*points, number=2)) == 0
    broker.now_ms += instances.EXPIRY_MS
    assert len(broker.keep(*points, number=2)) == 3


def test_a_forgotten_client_keeps_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Its push was being read in the meantime."""
    monkeypatch.setattr(instances, "INSTANCES_MAX", 1)
    one = broker.find(1)
    broker.find(2)
    broker.all.keep(broker.now_ms, one, [Point("a", (), Kind.GAUGE, 1.0)], 0)
    assert one.series == {}


def test_a_forgotten_client_gives_nothing_back_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its push was being read in the meantime, and lacks a series that is due to be forgotten."""
    monkeypatch.setattr(instances, "INSTANCES_MAX", 1)
    broker = Broker(bytes_=700)
    old, new, third = (Point(name, (), Kind.GAUGE, 1.0) for name in "abc")
    broker.keep(old, new)
    broker.now_ms += instances.EXPIRY_MS - 1
    broker.find()
    broker.now_ms += 1
    broker.keep(new)
    one = broker.find()
    broker.find(2)
    broker.now_ms += instances.EXPIRY_MS
    broker.all.keep(broker.now_ms, one, [new], 0)
    assert len(broker.keep(old, new, third, number=3)) == 2


def test_a_client_is_compared_with_subscriptions_only_if_one_of_both_is_new(
    broker: Broker,
) -> None:
    """The comparison is the caller's work, without the lock."""

    def found(connection: int = 7) -> Instance | None:
        return broker.all.find(broker.now_ms, client(), connection)

    assert found() is None
    one = broker.find()
    assert found() is one and found(8) is one
    broker.closed = {7}
    assert found(8) is None, "a client that connected again begins again"
    assert broker.find(connection=8) is one and found(8) is one
    old = broker.all.subscriptions
    broker.all.subscribe([])
    assert found(8) is None
    assert broker.all.find(broker.now_ms, client(), 8, old.matched(client())) is one
    assert found(8) is None, "the subscriptions had changed again"


def test_series_that_a_client_sends_no_more_are_given_back() -> None:
    """Say, those of a partition that it reads no more; the client itself goes on."""
    broker = Broker(bytes_=700)
    kept, gone, new = (Point(name, (), Kind.DELTA, 1.0) for name in ("kept", "gone", "new"))
    broker.keep(kept, gone)
    begun_ms = broker.now_ms
    while broker.now_ms < begun_ms + 3 * instances.EXPIRY_MS:
        found = broker.keep(kept)
        assert "gone" in found or broker.now_ms > begun_ms + instances.EXPIRY_MS
        broker.now_ms += 20_000
    assert broker.keep(kept, new) == {"kept": 11.0, "new": 1.0}


def test_a_client_that_was_silent_continues_its_counts(broker: Broker) -> None:
    """Only pushes without a series say that it has ended."""
    one = Point("a", (), Kind.DELTA, 1.0)
    broker.keep(one)
    broker.now_ms += instances.EXPIRY_MS - 1
    broker.find()
    broker.now_ms += instances.EXPIRY_MS - 1
    assert broker.keep(one) == {"a": 2.0}


def test_series_that_are_not_asked_for_any_more_are_given_back() -> None:
    broker = Broker(bytes_=350)
    old, new = (Point(name, (), Kind.GAUGE, 1.0) for name in ("old", "new"))
    assert broker.keep(old, new) == {"old": 1.0}
    broker.all.subscribe([Subscription({"metrics": "new"})])
    assert broker.keep(new) == {"new": 1.0}


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [Kind.DELTA, Kind.TOTAL])
def test_values_that_would_spoil_a_count_are_left_out(
    broker: Broker, kind: Kind, value: float
) -> None:
    """A sum with it would be no number for as long as the client lives."""
    broker.keep(Point("a", (), kind, 1.0))
    assert broker.keep(Point("a", (), kind, value), Point("b", (), kind, value)) == {"a": 1.0}
    assert broker.all.counts["series-left-out"] == 2


def test_a_sum_stays_a_number(broker: Broker) -> None:
    most = Point("a", (), Kind.DELTA, sys.float_info.max)
    broker.keep(most)
    assert broker.keep(most) == {"a": sys.float_info.max}


def test_a_level_may_be_any_number(broker: Broker) -> None:
    """An average of nothing is none, and Prometheus takes it."""
    assert broker.keep(Point("a", (), Kind.GAUGE, -math.inf)) == {"a": -math.inf}


def test_a_series_of_another_kind_begins_again(broker: Broker) -> None:
    broker.keep(Point("a", (), Kind.GAUGE, -5.0))
    assert broker.keep(Point("a", (), Kind.DELTA, 2.0)) == {"a": 2.0}
    assert broker.find().series["a", ()].grows


@pytest.mark.parametrize(
    ("letter", "fit"), [("x", 3), ("\u00ef", 3), ("\u3042", 2), ("\U0001f600", 1)]
)
def test_memory_is_counted_in_bytes(letter: str, fit: int) -> None:
    """Characters take up to four."""
    broker = Broker(bytes_=1300)
    points = [Point(letter * 100 + str(number), (), Kind.GAUGE, 1.0) for number in range(3)]
    assert len(broker.keep(*points)) == fit
