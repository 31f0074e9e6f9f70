"""Settings that are valid alone and conflict together: they are refused before they are written, or
dropped at a start, and never make a directory unusable."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.config.server import ServerConfig
from kafkalog.directory.jobs.retention import retain
from kafkalog.directory.manager import Manager
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.metadata.image import Change, MetadataImage
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


def change(kind: int, name: str, *ops: tuple[str, int, str | None]) -> dict[str, Any]:
    """One resource in IncrementalAlterConfigs."""
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in ops]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def altered(raw: Raw, *resources: dict[str, Any]) -> list[Any]:
    found = raw.call(apis.INCREMENTAL_ALTER_CONFIGS, resources=list(resources), validate_only=False)
    return list(found.responses)


@pytest.mark.parametrize("resource", ["", "1"])
def test_a_brokers_default_that_a_topic_contradicts_is_refused_whole(
    make_broker: MakeBroker, resource: str
) -> None:
    """Nothing is written, and the broker starts again."""
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("fine")
        raw.create("t", max_compaction_lag_ms="1000", cleanup_policy="compact")
        assert raw.produce("t", b"v").error_code == 0
        before = raw.alter(BROKER, resource, log_cleaner_max_compaction_lag_ms="90000")
        assert before.error_code == 0
        found = raw.alter(BROKER, resource, log_cleaner_min_compaction_lag_ms="5000")
        assert found.error_code == ErrorCode.INVALID_REQUEST
        assert "topic t" in found.error_message
        assert "min.compaction.lag.ms: found 5000, wanted at most" in found.error_message
        assert raw.describe(TOPIC, "t")["min.compaction.lag.ms"].value == "0"
        assert raw.describe(TOPIC, "fine")["min.compaction.lag.ms"].value == "0"
        assert raw.produce("t", b"v").error_code == 0
    broker.close()
    again = make_broker()
    with Raw(again.bootstrap_servers) as raw:
        assert raw.produce("t", b"v").error_code == 0


def test_a_topic_is_checked_against_dynamic_broker_settings(make_broker: MakeBroker) -> None:
    """When it is created, when its setting changes, and when its setting is removed."""
    with Raw(make_broker().bootstrap_servers) as raw:
        assert raw.alter(BROKER, "", log_cleaner_min_compaction_lag_ms="5000").error_code == 0
        assert raw.create("t", max_compaction_lag_ms="1000").error_code == ErrorCode.INVALID_CONFIG
        assert raw.create("t", max_compaction_lag_ms="6000").error_code == 0
        assert raw.alter(TOPIC, "t", max_compaction_lag_ms="1000").error_code == (
            ErrorCode.INVALID_CONFIG
        )
        own = raw.alter(TOPIC, "t", min_compaction_lag_ms="10", max_compaction_lag_ms="1000")
        assert own.error_code == 0
        gone = raw.alter(TOPIC, "t", min_compaction_lag_ms=None)
        assert gone.error_code == ErrorCode.INVALID_CONFIG
        assert raw.describe(TOPIC, "t")["min.compaction.lag.ms"].value == "10"


def test_two_changes_of_one_request_are_seen_together(make_broker: MakeBroker) -> None:
    with Raw(make_broker().bootstrap_servers) as raw:
        raw.create("t")
        first, second = altered(
            raw,
            change(TOPIC, "t", ("max.compaction.lag.ms", SET, "1000")),
            change(BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "5000")),
        )
        assert (first.error_code, second.error_code) == (0, ErrorCode.INVALID_REQUEST)


def test_an_alteration_that_changes_nothing_of_an_old_conflict_is_taken(
    tmp_path: Path, make_broker: MakeBroker
) -> None:
    """An existing conflict is no reason to refuse another change."""
    conflicting(tmp_path / "data")
    with Raw(make_broker().bootstrap_servers) as raw:
        assert raw.alter(TOPIC, "t", retention_ms="77").error_code == 0
        assert raw.alter(TOPIC, "t", max_compaction_lag_ms="2000").error_code != 0
        assert raw.alter(TOPIC, "t", max_compaction_lag_ms=None).error_code == 0


def conflicting(path: Path) -> None:
    """Make a directory whose topic `t` conflicts with the default for all brokers."""
    with Broker(path) as broker, Raw(broker.bootstrap_servers) as raw:
        raw.create("t", max_compaction_lag_ms="1000", retention_ms="1")
        raw.create("u", retention_ms="1")
        raw.produce("t", b"v", timestamp_ms=1)
        raw.produce("u", b"v", timestamp_ms=1)
    with Manager(path) as manager, MetadataLog.open(manager) as metadata:
        fields = {"resource_type": BROKER, "resource_name": "",
                  "name": "log.cleaner.min.compaction.lag.ms", "value": "5000"}  # fmt: skip
        metadata.write([("ConfigRecord", fields)])


def test_a_start_drops_and_names_conflicting_settings(
    tmp_path: Path, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic's own setting applies; retention continues for every topic."""
    conflicting(tmp_path / "data")
    clock = ManualClock(1_700_000_000_000)
    with caplog.at_level(logging.WARNING, "kafkalog"):
        broker = make_broker(clock, log_retention_check_interval_ms=1000)
    manager = broker._manager
    assert manager.topic_config("t").max_compaction_lag_ms == 1000
    assert manager.topic_config("t").min_compaction_lag_ms == 0
    assert manager.topic_config("u").min_compaction_lag_ms == 5000
    told = [record.getMessage() for record in caplog.records]
    assert any("topic t" in line and "log.cleaner.min.compaction.lag.ms" in line for line in told)
    retain(manager)
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.offsets("t", -2).offset == raw.offsets("u", -2).offset == 1


def test_a_file_that_contradicts_a_topic_is_dropped_for_that_topic(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", max_compaction_lag_ms="1000")
        raw.create("u")
    broker.close()
    again = make_broker(log_cleaner_min_compaction_lag_ms=5000)
    assert again._manager.topic_config("t").min_compaction_lag_ms == 0
    assert again._manager.topic_config("u").min_compaction_lag_ms == 5000
    assert "log.cleaner.min.compaction.lag.ms" in caplog.text


def test_a_change_at_run_time_leaves_the_files_defaults_of_topics(make_broker: MakeBroker) -> None:
    broker = make_broker(log_retention_ms=5000, num_io_threads=4)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        assert raw.alter(BROKER, "", num_io_threads="5").error_code == 0
        assert broker._manager.topic_config("t").retention_ms == 5000
        assert raw.describe(TOPIC, "t")["retention.ms"].value == "5000"
    first = ServerConfig.of({"log.retention.ms": 7})
    assert ServerConfig.of(first, ServerConfig.of({})).topic.retention_ms == 7


def test_a_listener_that_fails_does_not_decide_an_answer(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is durable: the client gets success, and other listeners see the change."""
    broker = make_broker()
    seen: list[MetadataImage] = []

    def fails(_change: Change) -> None:
        raise RuntimeError("a listener's own fault")

    broker._metadata.listen(fails)
    broker._metadata.listen(lambda change: seen.append(change.new))
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("t").error_code == 0
        assert raw.alter(TOPIC, "t", retention_ms="5").error_code == 0
        assert raw.produce("t", b"v").error_code == 0
    assert "t" in seen[-1].topics
    assert "a listener's own fault" in caplog.text
