"""A share partition whose log was closed is led elsewhere."""

from __future__ import annotations

from uuid import UUID

from kafkalog.server.broker import Broker, node_of
from kafkalog.shares.partition import Refused
from kafkalog.shares.requests import Led
from kafkalog.shares.sessions import Where
from kafkalog.shares.turns import looked_up
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for


def test_a_log_that_was_closed_is_not_led(broker: Broker) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        assert not raw.produce("t", b"value").error_code
        led = Led("t", 0, node_of(broker).partitions.existing_log("t", 0))
        raw.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=10_000)

    def is_refused() -> bool:
        found = looked_up(lambda _: led, Where(UUID(int=1), 0))
        return isinstance(found, Refused) and found.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    wait_for(is_refused, "the end of the log")
