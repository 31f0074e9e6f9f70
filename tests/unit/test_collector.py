"""MetricsCollector: brokers, logs and clients next to a program's own metrics."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

import kafkalog
from kafkalog import Log, MetricsCollector, Producer, Store, aio
from kafkalog.errors import ArgumentError
from tests.support.forked import REFUSED, WORKS, outcomes
from tests.support.waiting import LIMIT_S

SENT = "kafka_producer_producer_metrics_record_send_total"
END = "kafka_log_log_logendoffset"
TOPIC = {"topic": "t", "partition": "0"}


def registry_of(collector: MetricsCollector) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(collector)
    return found


def test_broker_clients_and_the_programs_own(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    Counter("program_things", "Things of the program.", registry=registry).inc()
    with Store(tmp_path / "s") as store, store.producer() as producer:
        collector = MetricsCollector(store, producer)
        registry.register(collector)
        producer.send("t", b"x").result(LIMIT_S)
        with store.consumer("t", group="g", auto_offset_reset="earliest") as consumer:
            collector.add(consumer)
            collector.add(consumer)
            next(iter(consumer))
            named = Producer(store, client_id="mine")
            collector.add(named)
            collector.add(same := Producer(store, client_id="mine"))
            assert registry.get_sample_value("program_things_total") == 1
            assert registry.get_sample_value(SENT, {"client_id": "producer-1"}) == 1
            assert registry.get_sample_value(SENT, {"client_id": "mine"}) == 0
            assert registry.get_sample_value(SENT, {"client_id": "mine-1"}) == 0
            fetched = "kafka_consumer_consumer_fetch_manager_metrics_records_consumed_total"
            assert registry.get_sample_value(fetched, {"client_id": "consumer-1"}) == 1
            joined = "kafka_consumer_consumer_coordinator_metrics_rebalance_total"
            assert registry.get_sample_value(joined, {"client_id": "consumer-1"}) == 1
            assert registry.get_sample_value(END, TOPIC) == 1
            assert b"kafkalog_ready 1.0" in generate_latest(registry)
            named.close()
            same.close()
    assert registry.get_sample_value("kafkalog_ready") is None  # the store is closed
    assert registry.get_sample_value(SENT, {"client_id": "producer-1"}) == 1
    del producer
    gc.collect()
    assert registry.get_sample_value(SENT, {"client_id": "producer-1"}) is None


def test_a_log_is_shown_once(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store, Log(tmp_path / "t-0") as alone:
        store.create_topic("t")
        store["t"][0].append(b"x")
        logs = MetricsCollector(store["t"][0], alone)
        assert registry_of(logs).get_sample_value(END, TOPIC) == 1
        both = MetricsCollector(alone, store)
        registry = registry_of(both)
        assert registry.get_sample_value(END, TOPIC) == 1
        assert (
            generate_latest(registry).count(b"kafka_log_log_logendoffset{") == 2
        )  # the metadata's
    with Log(tmp_path / "u-3") as alone:
        registry = registry_of(MetricsCollector(alone))
        assert registry.get_sample_value(END, {"topic": "u", "partition": "3"}) == 0
    assert registry.get_sample_value(END, {"topic": "u", "partition": "3"}) is None


def test_clients_of_asyncio(tmp_path: Path) -> None:
    async def run(store: Store) -> float | None:
        async with aio.Producer(store) as producer:
            await producer.send("t", b"x")
            registry = registry_of(MetricsCollector(producer))
            return registry.get_sample_value(SENT, {"client_id": "producer-1"})

    with Store(tmp_path / "s") as store:
        assert asyncio.run(run(store)) == 1


def test_other_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="found str, wanted a Broker, Store, Log, Producer"):
        MetricsCollector("x")
    with Store(tmp_path / "a") as one, Store(tmp_path / "b") as two:
        with pytest.raises(ArgumentError, match="found a second broker or store"):
            MetricsCollector(one, two)
        with Store(tmp_path / "a", mode="r") as reader:
            assert [*MetricsCollector(reader).collect()] == []


def test_the_figures_of_a_log(tmp_path: Path) -> None:
    with Log(tmp_path / "t-0") as log:
        log.append_many([b"x"] * 3)
        found = log.metrics()
        assert (found["log-start-offset"], found["log-end-offset"]) == (0, 3)
        assert found["size-bytes"] == log.size_bytes
        assert found["unflushed-records"] == 3
        log.flush()
        assert log.metrics()["unflushed-records"] == 0
        assert {type(value) for value in found.values()} == {float}
    with pytest.raises(kafkalog.errors.Closed):
        log.metrics()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_shows_nothing_of_its_parents(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store, store.producer() as producer:
        collector = MetricsCollector(store, producer, store.create_topic("t")[0])

        def empty() -> None:
            if [*collector.collect()]:
                raise AssertionError

        add = partial(collector.add, producer)
        found = outcomes(collector, {"collect": empty, "metrics": store.metrics, "add": add})
        assert found == {"collect": WORKS, "metrics": REFUSED, "add": REFUSED}
        assert [*collector.collect()]
