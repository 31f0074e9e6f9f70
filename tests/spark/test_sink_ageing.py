"""Rows with the timestamp of an old event, which retention deletes soon after they are written."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import kafkalog
from tests.spark.conftest import START_MS
from tests.spark.writing import Job, batch

OLD = [batch(value=[b"new", b"old"], timestamp=[None, START_MS * 1000])]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


def test_a_backfill_into_a_topic_of_seven_days_is_warned_of_once(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with kafkalog.Store(tmp_path / "data") as store:
        for topic in ("t", "u"):
            store.create_topic(topic, config={"retention.ms": 7 * 86_400_000})
    for topic in ("t", "t", "u"):
        job(OLD, schema="all", topic=topic)
    first, second = warnings(caplog)
    assert "topic t: the column timestamp has times" in first and "topic u:" in second
    assert "retention.ms (604800000, 7.0 days) applies to them" in first
    with kafkalog.Store(tmp_path / "data") as store:
        assert [one.timestamp_ms for one in store["t"][0].read()][1] == START_MS


def test_rows_that_are_not_too_old_do_not_hide_older_ones(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", config={"retention.ms": 7 * 86_400_000})
    hours_ago = time.time_ns() // 1000 - 2 * 3_600_000_000
    job([batch(value=[b"late"], timestamp=[hours_ago])], schema="all")
    assert not warnings(caplog)
    job(OLD, schema="all")
    (warning,) = warnings(caplog)
    assert "topic t" in warning


@pytest.mark.parametrize(
    "config",
    [
        {},  # for a directory without a broker: retention.ms is -1
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
    ],
    ids=str,
)
def test_topics_that_keep_the_rows_are_not_warned_of(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture, config: dict[str, object]
) -> None:
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", config=config)
    job([batch(key=[b"k"], value=[b"v"], timestamp=[START_MS * 1000])], schema="all")
    assert not warnings(caplog)


def test_rows_of_today_are_not_warned_of(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job([batch(value=[b"x"])])
    assert not warnings(caplog)
