"""When a client asks for its subscription, and when it pushes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalog.client.telemetry.core import NO_ID, USUAL_S, Ask, Push, Schedule
from kafkalog.telemetry.subscriptions import wants
from kafkalog.wire.error_codes import ErrorCode

ID = UUID(int=7)


def answer(**fields: Any) -> Any:
    usual = {
        "error_code": 0, "client_instance_id": ID, "subscription_id": 3,
        "accepted_compression_types": [4, 3], "push_interval_ms": 10_000,
        "telemetry_max_bytes": 1000, "delta_temporality": True, "requested_metrics": ["a."],
    }  # fmt: skip
    return SimpleNamespace(**{**usual, **fields})


@pytest.fixture
def one() -> Schedule:
    """Its jitter is half of the interval."""
    return Schedule(lambda low, high: low)


def test_a_client_asks_at_once_and_pushes_after_a_part_of_the_interval(one: Schedule) -> None:
    assert (one.due_s, one.next()) == (-math.inf, Ask(NO_ID))
    one.asked(answer(), 100.0)
    assert one.due_s == 105.0
    first = one.next()
    assert isinstance(first, Push)
    assert (first.instance_id, first.terminating) == (ID, False)
    assert first.asked == (3, 4, 10.0, ("a.",), 1000, True)
    one.pushed(0, 105.0)
    assert (one.due_s, one.next()) == (115.0, first)


def test_a_client_that_is_asked_for_nothing_asks_again(one: Schedule) -> None:
    one.asked(answer(requested_metrics=[]), 100.0)
    assert (one.due_s, one.next(), one.last()) == (110.0, Ask(ID), None)
    assert not one.subscribed


@pytest.mark.parametrize(
    ("code", "wait_s"),
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 0.0),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0.0),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 10.0),
        (ErrorCode.TELEMETRY_TOO_LARGE, 10.0),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 10.0),
        (ErrorCode.INVALID_REQUEST, math.inf),
        (ErrorCode.INVALID_RECORD, math.inf),
    ],
)
def test_refused_pushes(one: Schedule, code: ErrorCode, wait_s: float) -> None:
    """It asks for a subscription before it pushes again."""
    one.asked(answer(), 100.0)
    one.pushed(code, 105.0)
    assert (one.due_s, one.next(), one.last()) == (105.0 + wait_s, Ask(ID), None)


def test_a_refused_question_is_asked_again_later(one: Schedule) -> None:
    one.asked(answer(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED), 100.0)
    assert (one.due_s, one.instance_id) == (100.0 + USUAL_S, NO_ID)


def test_without_an_answer_another_broker_is_asked_later(one: Schedule) -> None:
    """With the id that it has."""
    one.failed(50.0)
    assert one.due_s == 50.0 + USUAL_S
    one.asked(answer(), 400.0)
    one.failed(405.0)
    assert (one.due_s, one.next()) == (415.0, Ask(ID))
    one.failed(415.0)
    assert one.due_s == 425.0, "the broker is still being restarted"
    assert one.subscribed


def test_the_last_push_is_for_those_that_were_asked_for_one(one: Schedule) -> None:
    assert one.last() is None
    again = Schedule(lambda low, high: low)
    again.asked(answer(), 100.0)
    last = again.last()
    assert last is not None and last.terminating
    assert (again.due_s, again.last()) == (math.inf, None)


def test_absurd_answers_do_no_harm(one: Schedule) -> None:
    """No codec that is not known, no interval without length, and an id in any case."""
    absurd = {"client_instance_id": NO_ID, "push_interval_ms": -1, "requested_metrics": ["a", "*"]}
    one.asked(answer(**absurd, accepted_compression_types=[-1, 0, 9]), 0.0)
    pushes = one.next()
    assert isinstance(pushes, Push)
    assert one.instance_id != NO_ID
    assert (pushes.asked.codec, pushes.asked.interval_s) == (0, USUAL_S)
    assert wants(pushes.asked.metrics, "anything")
