"""cordoned.log.dirs, in the properties of a broker: nothing new is placed in its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.errors import InvalidSetting
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker

BROKER = 4


def cordoned(raw: Raw) -> bool:
    (one,) = raw.call(apis.DESCRIBE_LOG_DIRS, 5, topics=[]).results
    return bool(one.is_cordoned)


@pytest.mark.parametrize("named", ["*", "the directory"])
def test_a_broker_that_starts_cordoned_takes_no_topic(
    make_broker: MakeBroker, tmp_path: Path, named: str
) -> None:
    """Until the setting is emptied while it runs; then until it is no longer said there."""
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


def test_another_directory_is_refused_at_the_start(make_broker: MakeBroker) -> None:
    """As Kafka refuses what log.dirs does not have."""
    with pytest.raises(InvalidSetting, match=r"cordoned\.log\.dirs: found '/data', wanted \* or"):
        make_broker(cordoned_log_dirs="/data")


def test_a_broker_is_not_cordoned_by_itself(raw: Raw) -> None:
    """What is set while it runs counts, and wins over what is set for all brokers."""
    assert not cordoned(raw)
    assert raw.create("t").error_code == 0
    assert raw.alter(BROKER, "", cordoned_log_dirs="*").error_code == 0
    assert cordoned(raw)
    assert raw.alter(BROKER, "1", cordoned_log_dirs="").error_code == 0
    assert not cordoned(raw)
