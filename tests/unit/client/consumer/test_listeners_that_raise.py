"""A user's listener that raises does not stop the rebalance; poll raises afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.client.consumer.consumer import Consumer
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.consumer.members import ONE, OPTIONS, ZERO, Coordinator, again


class AwayError(Exception):
    """A failure of the user's database."""


def share(*partitions: int) -> dict[str, bytes]:
    assigned = {"assigned_partitions": [{"topic": "t", "partitions": partitions}]}
    return {"assignment": CONSUMER_PROTOCOL.encode_assignment(0, assigned)}


@pytest.mark.parametrize("raises", ["revoked", "assigned", "both"])
def test_a_share_is_taken_all_the_same(coordinator: Coordinator, peer: Peer, raises: str) -> None:
    """It reads what it was assigned, has given up the rest, and the group knows."""
    coordinator.protocol = "cooperative-sticky"
    told: list[tuple[str, list[TopicPartition]]] = []

    def tell(what: str, partitions: list[TopicPartition]) -> None:
        told.append((what, partitions))
        if len(told) > 1 and len(told) < 4 and raises in (what, "both"):
            raise AwayError(what)

    with Consumer(peer.servers, assignor="cooperative-sticky", **OPTIONS) as member:
        member.subscribe(
            "t",
            on_revoked=lambda tps: tell("revoked", tps),
            on_assigned=lambda tps: tell("assigned", tps),
        )
        peer.on(apis.SYNC_GROUP, share(0))
        again(member, 1)
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
        peer.on(apis.SYNC_GROUP, share(1))
        with pytest.raises(AwayError, match="assigned" if raises == "assigned" else "revoked"):
            again(member, 99)
        assert told == [("assigned", [ZERO]), ("revoked", [ZERO]), ("assigned", [ONE])]
        assert member.assignment == [ONE]
        again(member, 3)
        assert member.assignment == [ONE]
        _, last = CONSUMER_PROTOCOL.decode_subscription(
            peer.sent(apis.JOIN_GROUP)[-1].protocols[0].metadata
        )
        assert [list(row.partitions) for row in last.owned_partitions] == [[1]]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_no_partition_is_left_without_a_reader(tmp_path: Any, assignor: str) -> None:
    with TestBroker(tmp_path / "b") as broker:
        broker.create_topic("t", 4)
        options: dict[str, Any] = {"group": "g", "assignor": assignor, "heartbeat_ms": 20}
        raised: list[AwayError] = []

        def revoked(_: object) -> None:
            if not raised:
                raise AwayError

        with (
            Consumer(broker.bootstrap_servers, **options) as one,
            Consumer(broker.bootstrap_servers, "t", **options) as two,
        ):
            one.subscribe("t", on_revoked=revoked)
            wait_for(lambda: one.poll(10) or len(one.assignment) == 4, "it has all")

            def shared() -> bool:
                for member in (one, two):
                    try:
                        member.poll(10)
                    except AwayError as problem:
                        raised.append(problem)
                return len(one.assignment) == len(two.assignment) == 2

            wait_for(shared, "each has two")
            assert len(raised) == 1


def test_a_member_leaves_whatever_its_listener_says(coordinator: Coordinator, peer: Peer) -> None:
    def revoked(_: object) -> None:
        raise AwayError

    for end in (Consumer.close, Consumer.unsubscribe):
        with Consumer(peer.servers, **OPTIONS) as member:
            member.subscribe("t", on_revoked=revoked)
            again(member, 1)
            left = peer.count(apis.LEAVE_GROUP)
            with pytest.raises(AwayError):
                end(member)
            assert peer.count(apis.LEAVE_GROUP) == left + 1
            assert (member.assignment, peer.sent(apis.LEAVE_GROUP)[-1].members[0].member_id) == (
                [],
                "m",
            )


@pytest.mark.parametrize("end", [Consumer.close, Consumer.unsubscribe])
def test_a_commits_callback_that_raises_takes_away_no_listener(
    coordinator: Coordinator, peer: Peer, end: Callable[[Consumer], None],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Nor another commit's callback, although a single call runs all of them."""
    told: list[str] = []

    def callback(name: str) -> None:
        told.append(name)
        raise AwayError(name)

    with Consumer(peer.servers, **OPTIONS, auto_commit=False) as member:
        member.subscribe("t", on_revoked=lambda _: told.append("revoked"))
        again(member, 1)
        for name in ("one", "two"):
            member.commit({ZERO: 1}, wait=False, callback=lambda *_, name=name: callback(name))
        clock = member._cluster.clock
        assert member._committer.drain(clock.monotonic_s() + LIMIT_S)
        with pytest.raises(AwayError, match="one"):
            end(member)
        assert told == ["one", "two", "revoked"]
        assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info] == ["two"]
        assert member.assignment == []
        told.clear()
    assert told == []
