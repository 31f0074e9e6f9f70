"""cordoned.log.dirs in a broker's properties: nothing new is placed in its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import InvalidSetting, KafkalogError
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker

BROKER = 4


def cordoned(raw: Raw) -> bool:
    (one,) = raw.call(apis.DESCRIBE_LOG_DIRS, 5, topics=[]).results
    return bool(one.is_cordoned)


@pytest.mark.parametrize("named", ["*", "the directory"])
def test_a_broker_that_starts_cordoned_takes_no_topic(
    make_broker: MakeBroker, tmp_path: Path, named: str
) -> None:
    """Until the setting is cleared at run time; later, until the properties no longer have it."""
    named = named if named == "*" else str(tmp_path / "data")
    with Raw(make_broker(cordoned_log_dirs=named).bootstrap_servers) as raw:
        assert cordoned(raw)
        refused = raw.create("t")
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "cordoned" in refused.error_message
        assert raw.alter(BROKER, "1", cordoned_log_dirs="").error_code == 0
        assert not cordoned(raw)
        assert raw.create("t").error_code == 0
        assert raw.alter(BROKER, "1", cordoned_log_dirs=None).error_code == 0
        assert cordoned(raw)
        assert raw.create("u").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_topics_that_are_made_at_their_first_use_come_when_it_is_no_longer_cordoned(
    make_broker: MakeBroker,
) -> None:
    """Those of groups and of transactions, and those that a producer names."""

    def coordinators(raw: Raw) -> set[int]:
        asked = [raw.call(apis.FIND_COORDINATOR, 3, key="k", key_type=kind) for kind in (0, 1)]
        return {int(one.error_code) for one in asked}

    def named(raw: Raw) -> int:
        asked = [{"name": "t"}]
        (topic,) = raw.call(
            apis.METADATA, 9, topics=asked, allow_auto_topic_creation=True
        ).topics  # fmt: skip
        return int(topic.error_code)

    with Raw(make_broker(cordoned_log_dirs="*").bootstrap_servers) as raw:
        assert coordinators(raw) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert named(raw) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert raw.call(apis.METADATA, topics=None).topics == []
        assert raw.alter(BROKER, "1", cordoned_log_dirs="").error_code == 0
        assert coordinators(raw) == {0}
        wait_for(lambda: named(raw) == 0, "the topic is there")


def test_a_writer_without_the_broker_creates_no_topic(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    """Existing topics can be written."""
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("there").error_code == 0
        assert raw.alter(BROKER, "1", cordoned_log_dirs="*").error_code == 0
    broker.close()
    with kafkalog.Store(tmp_path / "data") as store:
        with pytest.raises(KafkalogError, match="cordoned"):
            store.create_topic("new")
        assert store["there"][0].append(b"more") == 0
    with pytest.raises(KafkalogError, match="names no partition new-0"):
        kafkalog.Log(tmp_path / "data" / "new-0")


def test_another_directory_is_refused_at_the_start(make_broker: MakeBroker) -> None:
    """As Kafka refuses directories that are not in log.dirs."""
    with pytest.raises(InvalidSetting, match=r"cordoned\.log\.dirs: found '/data', wanted \* or"):
        make_broker(cordoned_log_dirs="/data")


def test_a_broker_is_not_cordoned_by_itself(raw: Raw) -> None:
    """Its own dynamic setting overrides the default for all brokers."""
    assert not cordoned(raw)
    assert raw.create("t").error_code == 0
    assert raw.alter(BROKER, "", cordoned_log_dirs="*").error_code == 0
    assert cordoned(raw)
    assert raw.alter(BROKER, "1", cordoned_log_dirs="").error_code == 0
    assert not cordoned(raw)
