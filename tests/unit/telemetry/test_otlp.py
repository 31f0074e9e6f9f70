"""MetricsData, compared with OpenTelemetry's own classes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafkalog.errors import InvalidRecord
from kafkalog.telemetry.otlp import (
    FIELDS_MAX,
    LABELS_BYTES,
    LABELS_MAX,
    TEXT_MAX,
    Decoded,
    Kind,
    Point,
    decode,
    encode,
)
from kafkalog.wire.runtime import uvarint_bytes

POINTS = [
    Point("org.apache.kafka.producer.record.send.total", (), Kind.DELTA, 7.0),
    Point("org.apache.kafka.producer.node.request.latency.avg", (("node_id", "1"),), Kind.GAUGE,
          -0.5),
    Point("a.total", (("a", "b"), ("c", "ü" * 100)), Kind.TOTAL, 1e300),
]  # fmt: skip


def made(**metric: Any) -> MetricsData:
    resource: Any = {"scope_metrics": [{"metrics": [metric]}]}
    return MetricsData(resource_metrics=[resource])


def some(*points: dict[str, Any]) -> dict[str, Any]:
    return {"data_points": points}


def test_others_read_our_payloads() -> None:
    data = encode(POINTS, {"group_id": "g"}, 1_000, 2_500)
    theirs = MetricsData.FromString(data)
    assert theirs.SerializeToString() == data, "nothing is unknown, and all in its order"
    (resource,) = theirs.resource_metrics
    assert [(a.key, a.value.string_value) for a in resource.resource.attributes] == [
        ("group_id", "g")
    ]
    (scope,) = resource.scope_metrics
    first, second, third = scope.metrics
    assert (first.name, first.sum.aggregation_temporality, first.sum.is_monotonic) == (
        POINTS[0].name, 1, True,
    )  # fmt: skip
    assert third.sum.aggregation_temporality == 2
    (point,) = second.gauge.data_points
    assert (point.as_double, point.start_time_unix_nano, point.time_unix_nano) == (
        -0.5, 1_000_000_000, 2_500_000_000,
    )  # fmt: skip


def test_it_is_read_as_it_was_written() -> None:
    found = decode(encode(POINTS, {}, 0, 1), 10)
    assert found == Decoded(POINTS, 0)
    labelled = decode(encode(POINTS[:1], {"group_id": "g"}, 0, 1), 10)
    assert labelled.points == [POINTS[0]._replace(labels=(("group_id", "g"),))]


@pytest.mark.parametrize(
    ("metric", "kind", "value"),
    [
        ({"gauge": some({"as_int": -3})}, Kind.GAUGE, -3.0),
        ({"gauge": some({"as_double": 2.5})}, Kind.GAUGE, 2.5),
        ({"sum": some({"as_int": 2**40}) | {"aggregation_temporality": 1}}, Kind.DELTA, 2.0**40),
        ({"sum": some({"as_int": 1}) | {"aggregation_temporality": 2, "is_monotonic": True}},
         Kind.TOTAL, 1.0),
        ({"sum": some({"as_int": 1}) | {"aggregation_temporality": 2}}, Kind.GAUGE, 1.0),
        ({"sum": some({"as_int": 1})}, Kind.GAUGE, 1.0),
    ],
)  # fmt: skip
def test_kinds_of_numbers(metric: dict[str, Any], kind: Kind, value: float) -> None:
    data = made(name="n", description="d", unit="u", **metric).SerializeToString()
    assert decode(data, 9) == Decoded([Point("n", (), kind, value)], 0)


def test_values_of_labels_become_texts() -> None:
    values: list[dict[str, Any]] = [
        {"string_value": "x"}, {"bool_value": True}, {"int_value": -7}, {"double_value": 0.5},
    ]  # fmt: skip
    labels = [{"key": str(at), "value": value} for at, value in enumerate(values)]
    data = made(name="n", gauge=some({"as_int": 1, "attributes": labels})).SerializeToString()
    (point,) = decode(data, 9).points
    assert point.labels == (("0", "x"), ("1", "true"), ("2", "-7"), ("3", "0.5"))


@pytest.mark.parametrize(
    "metric",
    [
        {"name": "n", "histogram": some({"count": 1})},
        {"name": "n", "exponential_histogram": some({"count": 1})},
        {"name": "n", "summary": some({"count": 1})},
        {"name": "n", "gauge": some({})},
        {"name": "", "gauge": some({"as_int": 1})},
        {"name": "n" * (TEXT_MAX + 1), "gauge": some({"as_int": 1})},
        {"name": "\u00ef" * (TEXT_MAX // 2 + 1), "gauge": some({"as_int": 1})},
        {"name": "n", "gauge": some({"as_int": 1, "attributes": [
            {"key": "k", "value": {"string_value": "v" * (TEXT_MAX + 1)}}]})},
        {"name": "n", "gauge": some({"as_int": 1, "attributes": [
            {"key": "k", "value": {"array_value": {}}}]})},
        {"name": "n", "gauge": some({"as_int": 1, "attributes": [
            {"key": str(number), "value": {"string_value": ""}}
            for number in range(LABELS_MAX + 1)]})},
        {"name": "n", "gauge": some({"as_int": 1, "attributes": [
            {"key": str(number), "value": {"string_value": "v" * TEXT_MAX}}
            for number in range(LABELS_BYTES // TEXT_MAX)]})},
    ],
)  # fmt: skip
def test_points_that_are_left_out_are_counted(metric: dict[str, Any]) -> None:
    assert decode(made(**metric).SerializeToString(), 9) == Decoded([], 1)


def test_only_so_many_points_are_read() -> None:
    assert decode(encode(POINTS, {}, 0, 1), 2) == Decoded(POINTS[:2], 1)


def test_an_empty_payload_has_no_points() -> None:
    assert decode(b"", 9) == Decoded([], 0)


def test_unknown_fields_are_skipped() -> None:
    """As protobuf demands of readers: newer clients may send more."""
    more = bytes((0x78, 0xFF, 0x7F, 0x7D, 1, 2, 3, 4, 0x79)) + bytes(8) + bytes((0x7A, 2, 9, 9))
    assert decode(more + encode(POINTS, {}, 0, 1) + more, 9).points == POINTS


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # no length
        b"\x0a\x05abc",  # longer than the payload
        b"\x0a\x02\x12\x09",  # longer than its message
        b"\x0a\xff\xff\xff\xff\xff\x01",  # a length of more than 32 bits
        b"\x0b",  # a group
        b"\x00\x00",  # field 0
        b"\x78" + b"\xff" * 10 + b"\x01",  # a number of more than 64 bits
        made(name="n", gauge=some({"as_int": 1})).SerializeToString().replace(b"n", b"\xff"),
    ],
)
def test_damaged_payloads_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecord, match="metrics"):
        decode(data, 9)


def test_each_cut_is_an_error_or_less() -> None:
    """No cut makes it fail in another way, and none invents a point."""
    data = encode(POINTS, {"group_id": "g"}, 0, 1)
    for end in range(len(data)):
        try:
            found = decode(data[:end], 9)
        except InvalidRecord:
            continue
        assert found == Decoded([], 0)


def test_the_number_of_fields_has_a_bound() -> None:
    tiny = bytes((1 << 3, 0)) * (FIELDS_MAX + 1)
    with pytest.raises(InvalidRecord, match="more than"):
        decode(tiny, 9)
    nested = bytes((2 << 3, 0)) * (FIELDS_MAX - 1)
    inside = b"\x0a" + uvarint_bytes(len(nested)) + nested
    assert decode(inside, 9) == Decoded([], 0)
    with pytest.raises(InvalidRecord, match="more than"):
        decode(inside + tiny[:2], 9)


def test_numbers_that_are_none_are_kept() -> None:
    """Java clients send NaN for an average of nothing."""
    (point,) = decode(encode([POINTS[0]._replace(value=float("nan"))], {}, 0, 1), 9).points
    assert struct.pack("<d", point.value) == struct.pack("<d", float("nan"))
