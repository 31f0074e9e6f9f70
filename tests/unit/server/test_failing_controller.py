"""A controller that cannot handle a request fails that request only."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog.controller.active import Active
from kafkalog.errors import KafkalogError
from kafkalog.testing.standin import StandIn
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.driver import Driver
from kafkalog.zookeeper.session import Create, open_session
from tests.support.waiting import wait_for


def test_a_request_that_the_controller_cannot_handle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client gets the error.  The next request is answered, and the node is still the
    controller that it was; an unreadable topic next to it changes nothing."""
    with StandIn() as zookeeper, open_session(zookeeper.hosts, lambda _: None) as session:
        session.ensure(tree.PERSISTENT)
        assert session.commit(
            [Create(f"{tree.TOPICS}/bad", b'{"version":3,"partitions":{"0":[]}}')]
        )
        config = {"node.id": 1, "zookeeper.connect": zookeeper.hosts}
        with (
            kafkalog.Broker(str(tmp_path), config=config) as broker,
            kafkalog.Admin(broker.bootstrap_servers) as admin,
        ):
            driver = broker._controller
            assert isinstance(driver, Driver)
            wait_for(lambda: driver.is_active and 1 in active(driver).context.brokers, "it reigns")
            image = active(driver).store.image
            active(driver).store.image = None  # type: ignore[misc, assignment]
            for _ in range(2):
                with pytest.raises(KafkalogError, match="failed to handle the request") as caught:
                    admin.create_topics([("t", 1, 1)]).check()
                assert getattr(caught.value, "code", None) == ErrorCode.UNKNOWN_SERVER_ERROR
            active(driver).store.image = image  # type: ignore[misc]
            admin.create_topics([("t", 1, 1)]).check()
            assert active(driver).context.claim.epoch == 1
    said = [one.message for one in caplog.records if one.exc_info]
    assert said == ["the controller could not handle: CreateTopics"]
    assert caplog.text.count("/brokers/topics/bad: ") == 2, "by the node and by the controller"


def active(driver: Driver) -> Active:
    found = driver._controller.active
    assert found is not None
    return found
