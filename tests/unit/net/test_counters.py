"""Counters in C: requests by phase, errors by code, bytes and records by topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog._native import lib
from kafkalog.errors import ArgumentError
from kafkalog.log.figures import TIME_BOUNDS_MS, sync_times
from kafkalog.log.log import handle_of
from kafkalog.server.network.counters import PHASES, TRAFFIC
from kafkalog.server.network.raw_request import RawRequest
from tests.support.waiting import wait_for
from tests.unit.net.kafka_requests import BATCH, fetch, fetched, produce, produced
from tests.unit.net.network import FETCH, METADATA, PRODUCE, Server, request

Lead = Callable[..., kafkalog.Log]


def counted(server: Server, key: int) -> int:
    return sum(server.reactor.times(key)[PHASES.index("total")].buckets)


def of_topic(server: Server, topic: str = "orders") -> dict[str, int]:
    return dict(zip(TRAFFIC, server.reactor.traffic()[0][topic], strict=True))


def of_all(server: Server) -> dict[str, int]:
    return dict(zip(TRAFFIC, server.reactor.traffic()[1], strict=True))


def test_each_answered_request_is_in_one_bucket_of_each_phase(served: Lead) -> None:
    def answer(taken: RawRequest) -> None:
        taken.answer(b"", 0)

    with Server(answer, num_network_threads=1) as server, server.client() as client:
        served(server)
        for number in range(3):
            client.send(produce(number, 1))
            produced(client, number)
        client.ask(3)
        wait_for(
            lambda: counted(server, PRODUCE) == 3 and counted(server, METADATA) == 1,
            "it is counted",
        )
        for key, requests in ((PRODUCE, 3), (METADATA, 1), (FETCH, 0)):
            times = server.reactor.times(key)
            assert [sum(one.buckets) for one in times] == [requests] * len(PHASES)
            *phases, total = times
            assert sum(one.sum_ms for one in phases) == pytest.approx(total.sum_ms)
            assert (total.sum_ms > 0) == (requests > 0)
        assert len(times[0].buckets) == len(TIME_BOUNDS_MS) + 1
        assert list(TIME_BOUNDS_MS) == sorted(TIME_BOUNDS_MS)


def test_a_wait_is_remote_time(served: Lead) -> None:
    with Server(num_network_threads=1) as server, server.client() as client:
        log = served(server)
        client.send(fetch(1, offset=0, max_wait_ms=100_000))
        wait_for(lambda: server.reactor.stats().waiting == {FETCH: 1}, "it is counted")
        log.append_batches(BATCH)
        assert fetched(client, 1).error_code == 0
        wait_for(lambda: counted(server, FETCH) == 1, "it is counted")
        remote = server.reactor.times(FETCH)[PHASES.index("remote")]
        assert remote.sum_ms > 0
        assert server.reactor.stats().waiting == {}


def test_a_request_that_its_thread_has_left_waits_for_others() -> None:
    taken: list[RawRequest] = []
    with Server(taken.append, workers=1) as server, server.client() as client:
        client.send(request(1))
        wait_for(lambda: len(taken) == 1, "it is counted")
        wait_for(lambda: server.reactor.stats().taking_idle_ns > 0, "it is counted")
        taken[0].answer(b"", 0)
        client.response()
        wait_for(lambda: counted(server, METADATA) == 1, "it is counted")
        assert server.reactor.times(METADATA)[PHASES.index("remote")].sum_ms > 0


def test_errors_are_counted_by_code(served: Lead) -> None:
    with Server() as server, server.client() as client:
        served(server)
        client.send(produce(1, 1))
        produced(client, 1)
        client.send(produce(2, 1, records=b"x"))
        assert produced(client, 2).error_code == 87
        client.send(fetch(3, offset=9))
        assert fetched(client, 3).error_code == 1
        assert server.reactor.errors(PRODUCE) == {0: 1, 87: 1}
        assert server.reactor.errors(FETCH) == {1: 1}
        for key in (-1, 2):
            with pytest.raises(ArgumentError, match=r"api_key: found -?\d, wanted 0 to 1"):
                server.reactor.errors(key)
        with pytest.raises(ArgumentError, match="api_key: found 100, wanted 0 to 99"):
            server.reactor.times(lib.KL_API_KEYS)


def test_bytes_and_records_are_counted_by_topic(served: Lead) -> None:
    with Server() as server, server.client() as client:
        served(server)
        served(server, "other")
        for number in range(2):
            client.send(produce(number, 1))
            produced(client, number)
        client.send(fetch(2))
        size = len(fetched(client, 2).records)
        client.send(fetch(3, offset=9))
        fetched(client, 3)
        found = of_topic(server)
        assert found == {
            "bytes_in": 2 * len(BATCH), "messages_in": 2, "bytes_out": size, "replicated_out": 0,
            "produced": 2, "produce_failed": 0, "fetched": 2, "fetch_failed": 1,
        }  # fmt: skip
        assert size == 2 * len(BATCH)
        assert not any(of_topic(server, "other").values())
        assert of_all(server) == found


def test_a_partition_that_leaves_takes_no_counts_with_it(served: Lead) -> None:
    with Server() as server, server.client() as client:
        log = served(server)
        client.send(produce(1, 1))
        produced(client, 1)
        before = of_topic(server)
        server.reactor.remove_partition("orders", 0)
        assert of_topic(server) == before
        server.reactor.put_partition(handle_of(log), leader_epoch=0, durable=False)
        client.send(produce(2, 1))
        produced(client, 2)
        assert of_topic(server)["produced"] == 2
        total = of_all(server)
        server.reactor.remove_topic("orders")
        assert server.reactor.traffic() == ({}, tuple(total.values()))


def test_many_topics_are_all_counted() -> None:
    with Server() as server:
        names = {f"t{number}" for number in range(200)}
        for name in names:
            server.reactor.put_topic(name, None)
        assert server.reactor.traffic()[0].keys() == names


def test_connections_are_counted_by_listener() -> None:
    with Server() as server, server.client() as client:
        client.send(b"")
        wait_for(lambda: server.reactor.stats().listening == {0: 1}, "it is counted")
        stats = server.reactor.stats()
        assert stats.network_ran_ns >= stats.network_idle_ns >= 0
    assert server.reactor.traffic() == ({}, (0,) * len(TRAFFIC))


def test_rounds_of_syncs_are_timed(tmp_path: Path) -> None:
    with kafkalog.Log(tmp_path / "t-0") as log:
        before = sync_times()
        log.flush()  # nothing to sync
        log.append(b"x")
        log.flush()
        after = sync_times()
    assert sum(after.buckets) > sum(before.buckets)
    assert after.sum_ms > before.sum_ms
