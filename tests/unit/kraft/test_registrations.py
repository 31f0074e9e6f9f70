"""Unregistering brokers and controllers: what is removed, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.kraft.registrations import unregister_broker
from kafkalog.metadata.image import Broker as Registered
from kafkalog.metadata.image import empty_image
from kafkalog.metadata.levels import LEVEL
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID
from tests.support.raw import Raw

GONE = {"controller_id": 7, "incarnation_id": ZERO_UUID, "end_points": [], "features": []}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as running:
        yield running


def ask(raw: Raw, api: apis.Api, **who: int) -> tuple[int, Any]:
    found = raw.call(api, 0, **who)
    return found.error_code, found.error_message


def test_a_controller_that_is_gone_is_forgotten(broker: Broker) -> None:
    """From the level that has the record on; a directory that Kafka wrote may have such one."""
    metadata = broker._kraft
    metadata.write([("RegisterControllerRecord", GONE)])
    with Raw(broker.bootstrap_servers) as raw:
        old = ErrorCode.UNSUPPORTED_VERSION
        assert ask(raw, apis.UNREGISTER_CONTROLLER, controller_id=7)[0] == old
        assert 7 in broker._node.image.controllers
        change = {"feature": "metadata.version", "max_version_level": LEVEL, "upgrade_type": 1}
        assert not raw.call(apis.UPDATE_FEATURES, 2, feature_updates=[change]).error_code
        assert ask(raw, apis.UNREGISTER_CONTROLLER, controller_id=7) == (ErrorCode.NONE, None)
        assert 7 not in broker._node.image.controllers
        assert ask(raw, apis.UNREGISTER_CONTROLLER, controller_id=7) == (
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            "Controller ID 7 is not currently registered.",
        )


def test_a_node_does_not_unregister_itself(broker: Broker) -> None:
    """It leads every partition, and continues to serve."""
    with Raw(broker.bootstrap_servers) as raw:
        assert ask(raw, apis.UNREGISTER_BROKER, broker_id=1) == (
            ErrorCode.INVALID_REQUEST, "Broker cannot unregister itself while it serves.",
        )  # fmt: skip
        assert ask(raw, apis.UNREGISTER_CONTROLLER, controller_id=1) == (
            ErrorCode.INVALID_REQUEST,
            "Controller cannot unregister itself while it is active.",
        )
        assert [one.node_id for one in raw.call(apis.METADATA, 9, topics=[]).brokers] == [1]


def test_a_broker_is_unregistered_with_its_epoch() -> None:
    other = Registered(7, 55, ZERO_UUID, (), (), None, True, False, ())
    image = empty_image("cluster", 1)._replace(brokers={7: other})
    records, results = unregister_broker(image, 7)
    assert records == [("UnregisterBrokerRecord", {"broker_id": 7, "broker_epoch": 55})]
    assert results == [{"error_code": ErrorCode.NONE, "error_message": None}]
    records, (result,) = unregister_broker(image, 8)
    assert (records, result["error_code"]) == ([], ErrorCode.BROKER_ID_NOT_REGISTERED)
