"""The clients that send metrics: when each may send, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
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

    def _connected(self, connection: int) -> bool:
        return connection not in self.closed

    def find(self, number: int = 1, connection: int = 7) -> Instance:
        return self.all.find(self.now_ms, client(number), connection)

    def ask(self, number: int = 1, connection: int = 7) -> ErrorCode:
        return self.all.ask(self.now_ms, self.find(number, connection))

    def push(
        self, number: int = 1, connection: int = 7, subscription: int | None = None,
        terminating: bool = False, codec: int = 0, size: int = 10,
    ) -> ErrorCode:  # fmt: skip
        one = self.find(number, connection)
        wanted = one.wanted.subscription_id if subscription is None else subscription
        return self.all.push(self.now_ms, one, Push(wanted, terminating, codec, size))

    def keep(self, *points: Point, number: int = 1) -> dict[str, float]:
        one = self.find(number)
        self.all.keep(one, points, 0)
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
    assert len(broker.all.all(broker.now_ms)) == 1
    broker.now_ms += 1
    assert broker.all.all(broker.now_ms) == []
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
    assert [one.client.instance_id.int for one in broker.all.all(broker.now_ms)] == [1, 3, 4]


def test_increases_add_up_and_others_replace(broker: Broker) -> None:
    both = Point("more", (), Kind.DELTA, 2.0), Point("level", (), Kind.GAUGE, 5.0)
    broker.keep(*both, Point("total", (), Kind.TOTAL, 10.0))
    found = broker.keep(*both, Point("total", (), Kind.TOTAL, 12.0))
    assert found == {"more": 4.0, "level": 5.0, "total": 12.0}
    grows = {name: one.grows for (name, _), one in broker.find().series.items()}
    assert grows == {"more": True, "level": False, "total": True}
    broker.all.subscribe([])
    assert broker.keep() == found, "another subscription, and what came stays"


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
    broker.all.keep(one, [Point("a", (), Kind.GAUGE, 1.0)], 0)
    assert one.series == {}
