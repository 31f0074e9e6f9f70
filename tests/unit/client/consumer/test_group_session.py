"""A member's conversation with a group of KIP-848, without a socket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalog.client.consumer.group_session import GroupBeat, GroupOptions, GroupSession
from kafkalog.client.link.failures import failure
from kafkalog.wire.error_codes import ErrorCode

TOPIC = UUID(int=1)
CHANGES = ("subscribed_topic_names", "subscribed_topic_regex", "topic_partitions")


def begun(**options: Any) -> GroupSession:
    """A session that is about to join for topic t."""
    made = GroupSession(GroupOptions("g", "m", **options), 0.0)
    made.subscribe(["t"], None)
    return made


def beat(session: GroupSession, now_s: float = 0.0) -> GroupBeat:
    """The heartbeat that is due."""
    found = session.due(now_s)
    assert isinstance(found, GroupBeat)
    return found


def answer(session: GroupSession, epoch: int, given: list[int] | None, now_s: float = 0.0) -> Any:
    """The heartbeat that is due is answered."""
    rows = [SimpleNamespace(topic_id=TOPIC, partitions=given)] if given else []
    assignment = None if given is None else SimpleNamespace(topic_partitions=rows)
    said = SimpleNamespace(member_epoch=epoch, heartbeat_interval_ms=1_000, assignment=assignment)
    return session.answered(beat(session, now_s), said, now_s)


def test_the_first_heartbeat_says_everything_and_later_ones_changes() -> None:
    session = begun(assignor="range", rack="r")
    first = beat(session).body
    assert (first["member_epoch"], first["topic_partitions"]) == (0, [])
    assert (first["server_assignor"], first["rack_id"]) == ("range", "r")
    assert answer(session, 1, [0]).news
    assert session.due(0.5) == 1.0
    assert [beat(session, 1.0).body[name] for name in CHANGES] == [None] * 3
    session.acknowledge(session.joins, {TOPIC: frozenset([0])})
    owned = beat(session, 0.5).body["topic_partitions"]
    assert owned == [{"topic_id": TOPIC, "partitions": [0]}]


def test_a_topic_without_partitions_is_no_part_of_the_assignment() -> None:
    """The member acknowledges what it has, and could never have that."""
    session = begun()
    rows = [
        SimpleNamespace(topic_id=UUID(int=n), partitions=some) for n, some in ((1, [0]), (2, []))
    ]
    given = SimpleNamespace(topic_partitions=rows)
    said = SimpleNamespace(member_epoch=1, heartbeat_interval_ms=1_000, assignment=given)
    session.answered(beat(session), said, 0.0)
    assert session.target == {TOPIC: frozenset([0])}


def test_only_news_for_the_coordinator_make_a_heartbeat_due() -> None:
    session = begun()
    assert not session.subscribe(["t"], None) and session.subscribe(["u"], None)
    answer(session, 1, [0])
    owned = {TOPIC: frozenset([0])}
    assert session.acknowledge(session.joins, owned)
    assert not session.acknowledge(session.joins, owned) and not session.gave_up()
    assert session.leave()


def test_after_a_failure_everything_is_said_again() -> None:
    session = begun()
    answer(session, 1, [0])
    heard = session.failed(beat(session, 1.0), failure(ErrorCode.NOT_COORDINATOR, "g"), 1.0)
    assert heard.moved
    again = beat(session, 2.0).body
    assert (again["member_epoch"], again["subscribed_topic_names"]) == (1, ["t"])
    assert session.lost is None


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID]
)  # fmt: skip
def test_a_fenced_member_joins_once_its_partitions_are_given_up(code: ErrorCode) -> None:
    session = begun()
    answer(session, 5, [0])
    before = session.identity(session.epoch)
    session.failed(beat(session, 1.0), failure(code, "g"), 1.0)
    session.subscribe(["t"], None)
    assert session.due(1.0) is None
    session.gave_up()
    session.subscribe(["t"], None)
    assert beat(session, 1.0).body["member_epoch"] == 0
    answer(session, 7, [0], 1.0)
    assert session.current(before) is None  # others may have committed since


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED]
)
def test_a_member_that_the_group_refuses_while_it_leaves_has_left(code: ErrorCode) -> None:
    """The heartbeat was under way when its owner left; it can join again."""
    session = begun()
    answer(session, 5, [0])
    last = beat(session, 1.0)
    session.leave()
    assert session.failed(last, failure(code, "g"), 1.0).news
    assert not session.leaving and session.due(1.0) is None
    session.subscribe(["t"], None)
    assert beat(session, 1.0).body["member_epoch"] == 0


def test_a_commit_follows_a_rising_epoch() -> None:
    session = begun()
    answer(session, 5, [0])
    before = session.identity(session.epoch)
    answer(session, 6, None, 1.0)
    found = session.current(before)
    assert found is not None and found.generation == 6


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_that_does_not_poll_leaves(instance: str | None, epoch: int) -> None:
    """A static member says that it will be back."""
    session = begun(instance_id=instance, poll_interval_ms=10_000)
    answer(session, 1, [0])
    assert beat(session, 10.0).body["member_epoch"] == epoch
    assert session.lost is not None


def test_an_answer_from_before_it_joined_again_is_ignored() -> None:
    session = begun()
    old = beat(session)
    session.failed(old, failure(ErrorCode.UNKNOWN_MEMBER_ID, "g"), 0.0)
    session.gave_up()
    session.subscribe(["t"], None)
    session.failed(old, failure(ErrorCode.FENCED_MEMBER_EPOCH, "g"), 0.0)
    assert session.lost is None
