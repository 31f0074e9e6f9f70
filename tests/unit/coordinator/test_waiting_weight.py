"""A request that waits for its turn in a group counts with the memory that it really keeps."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kafkalog.coordinator.consumer_groups.turns import ALLOWANCE_BYTES
from kafkalog.coordinator.weight import kept_bytes, text_bytes
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from tests.unit.coordinator.consumer_calls import ConsumerDesk
from tests.unit.coordinator.group_calls import Desk
from tests.unit.coordinator.migration_calls import mixed, of_policy
from tests.unit.coordinator.share_group_calls import ShareDesk
from tests.unit.coordinator.streams_group_calls import StreamsDesk, internal, subtopology, topology
from tests.unit.coordinator.virtual_core import Reply

WIDE = "\U0001f600"
"""A character of four bytes."""
COUNT = 4
"""Requests that wait."""
ITEMS = 1_000
NAMES = [f"{number}" for number in range(ITEMS)]
LARGE = [100_000 + number for number in range(ITEMS)]
IDS = [UUID(int=(1 << 120) + number) for number in range(ITEMS)]
PER_REQUEST_BYTES = 2_000
"""Memory of each besides its words: the answer that is to be sent, and its place in line."""

Fields = dict[str, Any]


def _owned(partitions: list[int], ids: list[UUID]) -> Fields:
    return {"topic_partitions": [{"topic_id": one, "partitions": partitions} for one in ids]}


def _tasks(partitions: list[int], names: list[str]) -> Fields:
    rows = [{"subtopology_id": name, "partitions": partitions} for name in names]
    return {"active_tasks": rows, "standby_tasks": rows, "warmup_tasks": rows}


CONSUMER: dict[str, Fields] = {
    "a small one": {},
    "wide characters": {"rack_id": WIDE * 8_000, "subscribed_topic_regex": WIDE * 8_000},
    "mostly narrow characters": {"rack_id": WIDE + "r" * 32_000},
    "small topics": {"subscribed_topic_names": NAMES},
    "small topics of wide characters": {"subscribed_topic_names": [WIDE] * ITEMS},
    "topics without partitions": _owned([], IDS),
    "partitions": _owned(LARGE, IDS[:1]),
    "topics with one partition": _owned([70_000], IDS),
    "the same topic many times": _owned([1, 2], IDS[:1] * ITEMS),
}
SHARE: dict[str, Fields] = {
    "a small one": {},
    "wide characters": {"rack_id": WIDE * 8_000},
    "small topics": {"subscribed_topic_names": NAMES},
    "small topics of wide characters": {"subscribed_topic_names": [WIDE] * ITEMS},
}
STREAMS: dict[str, Fields] = {
    "a small one": {},
    "wide characters": {"rack_id": WIDE * 8_000, "process_id": WIDE * 8_000},
    "an endpoint": {"user_endpoint": {"host": WIDE * 8_000, "port": 1}},
    "tasks": _tasks(LARGE, ["0"]),
    "subtopologies": _tasks([], NAMES[:500]),
    "the same subtopology many times": _tasks([1, 2], ["0"] * ITEMS),
    "tags": {"client_tags": [{"key": name, "value": WIDE} for name in NAMES]},
    "offsets": {"task_offsets": [{"subtopology_id": WIDE, "partition": number, "offset": 1 << 40}
                                 for number in LARGE]},
}  # fmt: skip
TOPOLOGIES: dict[str, list[Fields]] = {
    "subtopologies": [subtopology(name) for name in NAMES[:500]],
    "topics": [subtopology("0", *(f"topic-{name}" for name in NAMES))],
    "settings": [subtopology("0", "t", state_changelog_topics=[
        internal("kept", **{f"k{name}": WIDE for name in NAMES})])],
    "internal topics": [subtopology("0", "t", state_changelog_topics=[
        internal(f"kept-{name}") for name in NAMES])],
    "copartition groups": [subtopology("0", "t", copartition_groups=[
        {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": []}
        for _ in NAMES])],
}  # fmt: skip


def check(desk: Desk, send: Callable[[], Reply]) -> None:
    """Let a request wait many times behind a write: the sum grows by what is kept, or more."""
    assert desk.held, "a write is in progress"
    send()  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        kept, counted = tracemalloc.get_traced_memory()[0], desk.core.weight.bytes
        replies = [send() for _ in range(COUNT)]
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - kept
    finally:
        tracemalloc.stop()
    assert all(reply.waits for reply in replies)
    counted = desk.core.weight.bytes - counted
    uncounted = COUNT * (ALLOWANCE_BYTES + PER_REQUEST_BYTES)
    assert kept <= counted + uncounted, "what is kept is counted"
    assert counted <= 2 * kept, "and not much more"


def check_all_is_given_back(desk: Desk, before: int) -> None:
    desk.release()
    assert desk.core.weight.bytes <= before + ALLOWANCE_BYTES


def sender(desk: Desk, api: Api, version: int, fields: Fields) -> Callable[[], Reply]:
    return lambda: desk.call(api, version, fields)


@pytest.mark.parametrize("case", CONSUMER)
def test_a_heartbeat_of_a_consumer_group(case: str) -> None:
    desk = ConsumerDesk()
    epoch = desk.enter("a").member_epoch
    desk.held = []
    desk.enter("b")
    fields = {"group_id": "g", "member_id": "a", "member_epoch": epoch + 7, **CONSUMER[case]}
    before = desk.core.weight.bytes
    check(desk, sender(desk, apis.CONSUMER_GROUP_HEARTBEAT, 1, fields))
    check_all_is_given_back(desk, before)


@pytest.mark.parametrize("case", SHARE)
def test_a_heartbeat_of_a_share_group(case: str) -> None:
    desk = ShareDesk()
    fields = {"group_id": "s", "member_id": "a", "subscribed_topic_names": ["t"]}
    desk.held = []
    desk.call(apis.SHARE_GROUP_HEARTBEAT, 1, {**fields, "member_epoch": 0})
    before = desk.core.weight.bytes
    fields = {"group_id": "s", "member_id": "b", "member_epoch": 7, **SHARE[case]}
    check(desk, sender(desk, apis.SHARE_GROUP_HEARTBEAT, 1, fields))
    check_all_is_given_back(desk, before)


@pytest.mark.parametrize("case", STREAMS)
def test_a_heartbeat_of_a_streams_group(case: str) -> None:
    desk = StreamsDesk()
    desk.held = []
    desk.come("a")
    before = desk.core.weight.bytes
    fields = {"group_id": "s", "member_id": "b", "member_epoch": 7, **STREAMS[case]}
    check(desk, sender(desk, apis.STREAMS_GROUP_HEARTBEAT, 1, fields))
    check_all_is_given_back(desk, before)


@pytest.mark.parametrize("case", TOPOLOGIES)
def test_the_topology_of_a_streams_group(case: str) -> None:
    desk = StreamsDesk()
    desk.held = []
    desk.come("a")
    sent = topology(*TOPOLOGIES[case])
    check(desk, lambda: desk.come("b", topology=sent))


def _mixed() -> ConsumerDesk:
    """A group with members of both protocols, about which something is being written."""
    desk = of_policy("bidirectional")
    mixed(desk)
    desk.held = []
    desk.enter("b")
    return desk


def test_a_sync_group_of_a_classic_member() -> None:
    """Its words to a classic group are kept, as the group may be one by then."""
    desk = _mixed()
    rows = [{"member_id": name, "assignment": b"x"} for name in NAMES]
    fields = {"group_id": "g", "generation_id": 1, "member_id": "c", "assignments": rows}
    before = desk.core.weight.bytes
    check(desk, sender(desk, apis.SYNC_GROUP, 4, fields))
    check_all_is_given_back(desk, before)


def test_a_join_group_of_a_classic_member() -> None:
    desk = _mixed()
    rows = [{"name": name, "metadata": b"x"} for name in NAMES]
    fields = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
              "member_id": "c", "protocol_type": "other", "protocols": rows}  # fmt: skip
    before = desk.core.weight.bytes
    check(desk, sender(desk, apis.JOIN_GROUP, 4, fields))
    check_all_is_given_back(desk, before)


def test_a_leave_group() -> None:
    desk = _mixed()
    rows = [{"member_id": WIDE + name, "group_instance_id": WIDE + name} for name in NAMES]
    fields = {"group_id": "g", "members": rows}
    before = desk.core.weight.bytes
    check(desk, sender(desk, apis.LEAVE_GROUP, 4, fields))
    check_all_is_given_back(desk, before)


@pytest.mark.parametrize("altered", [True, False])
def test_altered_and_deleted_offsets_of_a_share_group(altered: bool) -> None:
    desk = ShareDesk()
    desk.held = []
    start = {"group_id": "s", "member_id": "a", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    desk.call(apis.SHARE_GROUP_HEARTBEAT, 1, start)
    before = desk.core.weight.bytes
    if altered:
        parts = [{"partition_index": number, "start_offset": 1 << 40} for number in LARGE]
        rows: list[Fields] = [{"topic_name": "t", "partitions": parts}]
        send = sender(desk, apis.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": "s", "topics": rows})
    else:
        rows = [{"topic_name": name} for name in NAMES]
        send = sender(desk, apis.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": "s", "topics": rows})
    check(desk, send)
    check_all_is_given_back(desk, before)


def test_work_that_is_written_counts_until_it_is_answered() -> None:
    """A write has the work of many: they wait for it."""
    desk = ConsumerDesk()
    epoch = desk.enter("a").member_epoch
    desk.held = []
    desk.enter("b")
    before = desk.core.weight.bytes
    fields = {"rack_id": "r" * 9_000}
    replies = [desk.beat("a", epoch, {"t": [0, 1, 2, 3]}, **fields) for _ in range(9)]
    waiting = desk.core.weight.bytes - before
    assert waiting > 9 * 7_000
    (first,), desk.held = desk.held, []
    desk.step(lambda step: desk.core.settled(first.number, 0, step))  # type: ignore[arg-type]
    assert desk.held, "the next write"
    assert all(reply.waits for reply in replies)
    assert desk.core.weight.bytes - before >= waiting
    desk.release()
    assert not any(reply.waits for reply in replies)
    assert desk.core.weight.bytes - before < 12_000


def test_the_memory_of_a_text() -> None:
    """As many bytes as it has characters, if they are all in ASCII."""
    assert text_bytes("abc") == 3
    assert text_bytes(None) == text_bytes("") == 0
    assert text_bytes(WIDE * 100) >= 400


def test_all_within_is_counted() -> None:
    one, two, three, four = (str(number) * 1_000 for number in range(4))
    assert kept_bytes(one, (two, [three], {1: {four}})) > 4_000
    assert kept_bytes((one, one)) < 2_000, "what is there only once"
