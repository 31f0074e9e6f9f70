"""Admin clients and share consumers that send their metrics to a broker."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog import Admin, ShareConsumer, aio, errors
from kafkalog.client.telemetry import reporter
from kafkalog.testing.broker import TestBroker
from tests.support.forked import REFUSED, WORKS, outcomes
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.telemetry.test_clients import OFF, PREFIX, client, subscribe, values

ADMIN = {
    "connection.creation.rate", "connection.creation.total", "node.request.latency.avg",
    "node.request.latency.max",
}  # fmt: skip
"""Those of an Admin, which KIP-714 wants of every client."""
SHARE = {
    "consumer.connection.creation.rate", "consumer.connection.creation.total",
    "consumer.node.request.latency.avg", "consumer.node.request.latency.max",
    "consumer.share.poll.idle.ratio.avg",
    "consumer.share.coordinator.heartbeat.response.time.max",
    "consumer.share.coordinator.heartbeat.total",
    *(f"consumer.share.fetch.manager.{name}" for name in (
        "fetch.total", "fetch.size.avg", "fetch.size.max", "bytes.consumed.total",
        "fetch.latency.avg", "fetch.latency.max", "records.fetched.total",
        "records.per.request.avg", "records.per.request.max", "acknowledgements.send.total",
        "acknowledgements.error.total",
    )),
}  # fmt: skip
"""Those of a share consumer, as Apache Kafka's client names them."""
FETCHED = f"{PREFIX}consumer.share.fetch.manager.records.fetched.total"
SENT = f"{PREFIX}consumer.share.fetch.manager.acknowledgements.send.total"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    config = {"group.share.min.heartbeat.interval.ms": 5, "group.share.heartbeat.interval.ms": 5,
              "group.share.assignment.interval.ms": 0}  # fmt: skip
    with TestBroker(tmp_path / "data", config=config) as made:
        with Admin(made.bootstrap_servers, config=OFF) as admin:
            admin.create_topic("t", 1)
            admin.update_features({"share.version": 1}).check()
            admin.alter_configs({("group", "g"): {"share.auto.offset.reset": "earliest"}}).check()
        yield made


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "kafkalog-metrics"]


# ---- an Admin ------------------------------------------------------------------------------


def asking(admin: Admin, broker: TestBroker) -> None:
    """Calls until it has sent metrics."""
    wait_for(lambda: admin.list_topics() and client(broker, "a"), "it has sent metrics")


def test_an_admin_sends_its_metrics(broker: TestBroker) -> None:
    subscribe(broker)
    with Admin(broker.bootstrap_servers, client_id="a") as admin:
        asking(admin, broker)
        number = admin.client_instance_id()
    found = client(broker, "a")
    assert found is not None
    assert (found.client_instance_id, found.software_name) == (number, "kafkalog")
    names = {f"{PREFIX}admin.client.{name}" for name in ADMIN}
    assert {one.name for one in found.metrics} == names
    labels = {one.name: one.labels for one in found.metrics}
    assert labels[f"{PREFIX}admin.client.node.request.latency.avg"] == {"node_id": "1"}
    assert threads() == []


def test_the_last_push_of_an_admin_comes_when_it_is_closed(broker: TestBroker) -> None:
    subscribe(broker, interval_ms=60_000)
    with Admin(broker.bootstrap_servers, client_id="a") as admin:
        admin.client_instance_id()
        admin.list_topics()
        assert client(broker, "a") is None
    sent = values(broker, "a")
    assert sent[f"{PREFIX}admin.client.connection.creation.total"] >= 1


def test_an_admin_whose_metrics_nobody_wants_starts_nothing_for_them(broker: TestBroker) -> None:
    """One request more, over a connection that it has."""

    def opened() -> float:
        name = "kafkalog_connections_accepted_total"
        return sum(n for key, n in broker.broker.metrics().items() if key.startswith(name))

    counts = []
    for config in (OFF, {}):
        before = opened()
        with Admin(broker.bootstrap_servers, client_id="a", config=config) as admin:
            for _ in range(5):
                admin.list_topics()
            if not config:
                wait_for(lambda: admin.list_topics() and known(broker, "a"), "it has asked")
                admin.list_topics()
            counts.append(opened() - before)
            assert threads() == []
    assert counts[0] == counts[1]


def known(broker: TestBroker, client_id: str) -> bool:
    return any(one.client_id == client_id for one in broker.broker.client_metrics())


def test_a_broker_that_is_silent_about_metrics_holds_up_no_call(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers come in their order, so that the next call would wait: it gets another connection.
    The broker is asked again an interval later, not with each call."""
    monkeypatch.setattr(reporter, "SETTLE_S", 0.05)
    subscribe(broker)
    asked = broker.delay("GetTelemetrySubscriptions", 3_600_000, times=None)
    config = {"request.timeout.ms": 3_600_000, "default.api.timeout.ms": 3_600_000}
    with Admin(broker.bootstrap_servers, client_id="a", config=config) as admin:
        for _ in range(5):
            assert admin.list_topics() == ["t"]
        assert (asked.hits, admin._cluster.openings.count) == (1, 2)
        assert admin._pushing.reporter.due_s > admin._cluster.clock.monotonic_s() + 60
    assert values(broker, "a") == {}


def test_a_question_about_metrics_takes_a_small_part_of_a_short_call(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose connection waits for that answer succeeds, over another one."""
    monkeypatch.setattr(reporter, "SETTLE_S", 3600.0)
    subscribe(broker)
    asked = broker.delay("GetTelemetrySubscriptions", 3_600_000, times=None)
    config = {"request.timeout.ms": 3_000}
    with Admin(broker.bootstrap_servers, client_id="a", config=config) as admin:
        admin.list_topics()
        broker.delay("Metadata", 200)  # it needs some of its time
        assert admin.list_topics(timeout_ms=2_000) == ["t"]
        assert (asked.hits, admin._cluster.openings.count) == (1, 2)


def test_an_id_that_is_known_waits_for_no_push(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "REQUEST_S", 3600.0)
    monkeypatch.setattr(reporter, "LAST_S", 0.05)
    subscribe(broker)
    pushed = broker.delay("PushTelemetry", 3_600_000, times=None)
    config = {"request.timeout.ms": 5_000}
    with Admin(broker.bootstrap_servers, client_id="a", config=config) as admin:
        wait_for(lambda: admin.list_topics() and pushed.hits, "it has pushed")
        admin.client_instance_id()
        assert admin._pushing.reporter._sending is not None  # the push still waits


def test_the_wait_for_an_id_has_a_limit(broker: TestBroker) -> None:
    broker.delay("GetTelemetrySubscriptions", 3_600_000, times=None)
    with (
        Admin(broker.bootstrap_servers) as admin,
        ShareConsumer(broker.bootstrap_servers, "t", group="g") as consumer,
    ):
        for one in (admin, consumer):
            with pytest.raises(errors.Timeout):
                one.client_instance_id(timeout_ms=100)


def test_a_late_answer_is_taken_before_the_next_call(broker: TestBroker) -> None:
    subscribe(broker)
    asked = broker.delay("GetTelemetrySubscriptions", 20)
    with Admin(broker.bootstrap_servers, client_id="a") as admin:
        admin.list_topics()
        admin.list_topics()
        assert admin._pushing.reporter.ends and admin._cluster.openings.count == 1
        wait_for(lambda: client(broker, "a"), "it has sent metrics")
    assert asked.hits == 1


def test_a_push_without_an_answer_holds_up_no_call(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it hold up the end for longer than the time for the last one."""
    monkeypatch.setattr(reporter, "LAST_S", 0.1)
    subscribe(broker)
    pushed = broker.delay("PushTelemetry", 3_600_000, times=None)
    with Admin(broker.bootstrap_servers, client_id="a") as admin:
        wait_for(lambda: admin.list_topics() and pushed.hits, "it has pushed")
        assert admin.list_topics() == ["t"]
    assert values(broker, "a") == {}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_says_nothing_for_its_parent(broker: TestBroker) -> None:
    subscribe(broker)
    with Admin(broker.bootstrap_servers, client_id="a") as admin:
        asking(admin, broker)
        ends = {"id": admin.client_instance_id, "close": admin.close}
        assert outcomes(admin, ends) == {"id": REFUSED, "close": WORKS}
        before = broker.broker.metrics()["kafka_server_client_metrics_plugin_export_total"]
        name = "kafka_server_client_metrics_plugin_export_total"
        wait_for(lambda: broker.broker.metrics()[name] > before, "it goes on")


def test_a_dropped_admin_is_not_kept_by_its_metrics(broker: TestBroker) -> None:
    subscribe(broker)
    held = [Admin(broker.bootstrap_servers, client_id="a")]
    asking(held[0], broker)
    gone = weakref.ref(held.pop())
    gc.collect()
    wait_for(lambda: gone() is None and threads() == [], "it is gone, and its thread")


def test_an_admin_that_may_not_send_any(broker: TestBroker) -> None:
    subscribe(broker)
    with Admin(broker.bootstrap_servers, client_id="a", config=OFF) as admin:
        admin.list_topics()
        with pytest.raises(errors.ArgumentError, match=r"enable\.metrics\.push"):
            admin.client_instance_id()
    assert not known(broker, "a")


# ---- a share consumer ----------------------------------------------------------------------


def test_a_share_consumer_sends_its_metrics(broker: TestBroker) -> None:
    """While it works, and when it is closed."""
    subscribe(broker)
    broker.fill("t", ["x"] * 3)
    with ShareConsumer(broker.bootstrap_servers, "t", group="g", client_id="s") as consumer:
        taken: list[Any] = []

        def said() -> bool:
            taken.extend(consumer.poll(10))
            return values(broker, "s").get(FETCHED) == 3

        wait_for(said, "it has said it")
        number = consumer.client_instance_id()
    found = client(broker, "s")
    assert found is not None and found.client_instance_id == number
    assert {one.name.removeprefix(PREFIX) for one in found.metrics} == SHARE
    sent = values(broker, "s")
    assert (len(taken), sent[FETCHED], sent[SENT]) == (3, 3, 3)
    assert found.metrics[0].labels["group_id"] == "g"
    assert found.metrics[0].labels["group_member_id"]
    assert threads() == []


def test_a_share_consumer_whose_metrics_nobody_wants_starts_no_thread(broker: TestBroker) -> None:
    with ShareConsumer(broker.bootstrap_servers, "t", group="g", client_id="s") as consumer:
        wait_for(lambda: consumer.poll(10) or known(broker, "s"), "it has asked")
        consumer.poll(10)
        assert threads() == []
    with ShareConsumer(broker.bootstrap_servers, "t", group="g", config=OFF) as silent:
        silent.poll(10)
        with pytest.raises(errors.ArgumentError, match=r"enable\.metrics\.push"):
            silent.client_instance_id()


def test_failed_acknowledgements_are_counted(broker: TestBroker) -> None:
    subscribe(broker, interval_ms=60_000)
    broker.fill("t", ["x"])
    with ShareConsumer(broker.bootstrap_servers, "t", group="g", client_id="s") as consumer:
        consumer.client_instance_id()
        wait_for(lambda: consumer.poll(10), "the record")
        broker.fail("ShareAcknowledge", "INVALID_RECORD_STATE")
        outcome = consumer.commit()
        assert outcome.errors
    sent = values(broker, "s")
    name = f"{PREFIX}consumer.share.fetch.manager.acknowledgements.error.total"
    assert sent[name] == 1


# ---- both ----------------------------------------------------------------------------------


def test_asyncio_has_the_ids_too(broker: TestBroker) -> None:
    async def both() -> tuple[UUID, UUID]:
        async with (
            aio.Admin(broker.bootstrap_servers) as admin,
            aio.ShareConsumer(broker.bootstrap_servers, "t", group="g") as consumer,
        ):
            return await admin.client_instance_id(), await consumer.client_instance_id()

    one, other = asyncio.run(both())
    assert one != other
    found = {found.client_instance_id for found in broker.broker.client_metrics()}
    assert {one, other} <= found


def test_an_admin_of_a_store_sends_its_own(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "d") as store:
        every = {"metrics": "*", "interval.ms": "60000"}
        store.admin.alter_configs({("client_metrics", "all"): every}).check()
        number = store.admin.client_instance_id(timeout_ms=int(LIMIT_S * 1000))
        assert number in {one.client_instance_id for one in store.client_metrics()}
