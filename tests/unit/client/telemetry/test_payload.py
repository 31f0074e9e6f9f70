"""A client's metrics as the payload of a push."""

from __future__ import annotations

import pytest

from kafkalog.batch import codecs
from kafkalog.client.metrics import Tally, group_of
from kafkalog.client.telemetry.core import Asked
from kafkalog.client.telemetry.payload import Figures, Payloads, Reading
from kafkalog.telemetry.otlp import Kind, decode

ASKED = Asked(1, codecs.NONE, 60.0, ("*",), 10_000, True)


def made(payloads: Payloads, asked: Asked, now_ms: int) -> dict[str, tuple[Kind, float]]:
    """Kind and value by name."""
    data = payloads.make(asked, now_ms)
    assert data is not None
    found = decode(bytes(codecs.decompress(asked.codec, data)), 100)
    return {one.name.removeprefix("org.apache.kafka."): (one.kind, one.value)
            for one in found.points}  # fmt: skip


@pytest.fixture
def values() -> dict[str, float]:
    return {"record-send-total": 5.0, "batch-size-avg": 2.5, "connection-creation-total": 2.0}


@pytest.fixture
def payloads(values: dict[str, float]) -> Payloads:
    times = Tally()
    times.add(3.0)
    return Payloads("producer", Reading(lambda: Figures(values, {7: times})), 1_000)


def test_counts_are_sent_as_increases(payloads: Payloads, values: dict[str, float]) -> None:
    assert made(payloads, ASKED, 3_000) == {
        "producer.record.send.total": (Kind.DELTA, 5.0),
        "producer.batch.size.avg": (Kind.GAUGE, 2.5),
        "producer.connection.creation.total": (Kind.DELTA, 2.0),
        "producer.connection.creation.rate": (Kind.GAUGE, 1.0),
        "producer.node.request.latency.avg": (Kind.GAUGE, 3.0),
        "producer.node.request.latency.max": (Kind.GAUGE, 3.0),
    }
    values["record-send-total"] = 9.0
    again = made(payloads, ASKED, 4_000)
    assert again["producer.record.send.total"] == (Kind.DELTA, 4.0)
    assert again["producer.connection.creation.rate"] == (Kind.GAUGE, 0.0)


def test_counts_are_sent_whole_if_the_broker_says_so(
    payloads: Payloads, values: dict[str, float]
) -> None:
    whole = ASKED._replace(delta=False, codec=codecs.ZSTD)
    for _ in range(2):
        assert made(payloads, whole, 2_000)["producer.record.send.total"] == (Kind.TOTAL, 5.0)


def test_increases_that_were_refused_come_again(
    payloads: Payloads, values: dict[str, float]
) -> None:
    made(payloads, ASKED, 2_000)
    for total, now_ms in ((6.0, 3_000), (8.0, 4_000)):
        values["record-send-total"] = total
        made(payloads, ASKED, now_ms)
        payloads.refused()
    values["connection-creation-total"] = 5.0
    again = made(payloads, ASKED, 5_000)
    assert again["producer.record.send.total"] == (Kind.DELTA, 3.0)
    assert again["producer.connection.creation.rate"] == (Kind.GAUGE, 1.0), "3 in 3 s"
    assert made(payloads, ASKED, 6_000)["producer.record.send.total"] == (Kind.DELTA, 0.0)


def test_a_payload_that_is_too_large_is_not_sent(payloads: Payloads) -> None:
    assert payloads.make(ASKED._replace(max_bytes=10), 2_000) is None


def test_metrics_belong_to_kafkas_groups() -> None:
    names = {"commit-total": "consumer-coordinator-metrics",
             "fetch-total": "consumer-fetch-manager-metrics",
             "poll-idle-ratio-avg": "consumer-metrics"}  # fmt: skip
    assert {name: group_of("consumer", name) for name in names} == names
    assert group_of("producer", "commit-total") == "producer-metrics"
