"""The notation of the tables: what it means, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.wire.notation import parse, parse_versions, snake_case
from kafkalog.wire.values import ZERO_UUID

ALL = range(10)


def test_a_field_with_everything() -> None:
    (field,) = parse("RackId:str(3+ null5+ tag2 =null)", ALL)
    assert (field.name, field.kafka_name, field.kind) == ("rack_id", "RackId", "str")
    assert (field.versions, field.tag, field.default_null) == (range(3, 10), 2, True)
    assert [v for v in ALL if v in field.nullable] == [5, 6, 7, 8, 9]


def test_structs_and_arrays_stand_in_each_other() -> None:
    text = "A:i32, Topics[](2+){ Name:str, Inner(4-6){ Ids:[]i32 } }, Last:bool"
    a, topics, last = parse(text, ALL)
    assert [a.name, topics.name, last.name] == ["a", "topics", "last"]
    assert (topics.array, topics.kind, topics.versions) == (True, "struct", range(2, 10))
    name, inner = topics.fields
    assert name.versions == range(2, 10), "what stands inside has the versions of what is outside"
    assert (inner.array, inner.kind, inner.versions) == (False, "struct", range(4, 7))
    assert (inner.fields[0].array, inner.fields[0].kind) == (True, "i32")


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("A:i32", 0), ("A:i64(=-1)", -1), ("A:bool(=true)", True), ("A:bool", False),
        ("A:f64(=1.5)", 1.5), ("A:str", ""), ('A:str(="x")', "x"), ("A:bytes", b""),
        ("A:uuid", ZERO_UUID), ("A:records", None), ("A:str(null =null)", None), ("A:[]i32", None),
    ],
)  # fmt: skip
def test_defaults(text: str, default: Any) -> None:
    assert parse(text, ALL)[0].default == default


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A", "no type"),
        ("A:integer", "no type"),
        ("A:i32{B:i8}", "no type"),
        ("A:i32(12+)", "not within"),
        ("A:i32(5-12)", "not within"),
        ("A[](5+){B:i32(3+)}", "not within"),
        ("A:i32(seven)", "versions are written"),
        ("A:[]i32(=3)", "only a plain type has a default"),
        ("A:i32}", "a } too many"),
        ("A{B:i32", "a } is missing"),
        ("A:i32 ; B:i32", "not a field"),
    ],
)
def test_invalid_notation_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text, ALL)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("timeoutMs", "timeout_ms"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("Enable2Pc", "enable2_pc"),
        ("KRaftVersion", "kraft_version"),
        ("Isr", "isr"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_versions() -> None:
    assert parse_versions("3") == range(3, 4)
    assert parse_versions("0-12") == range(13)
    assert 30_000 in parse_versions("7+")
    for wrong in ("", "+", "3-", "-3", "x"):
        with pytest.raises(ValueError):
            parse_versions(wrong)
