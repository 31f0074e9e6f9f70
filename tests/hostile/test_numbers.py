"""Requests with absurdly many items: topics, partitions, sessions, groups, settings."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkalog.wire import apis
from tests.hostile.attack import (
    CLOSED,
    answer_of,
    commit_fields,
    join_fields,
    metadata_of,
)
from tests.hostile.victim import MIB, WITNESS_TOPIC, Victim
from tests.support.effort import LONG
from tests.support.waiting import wait_for
from tests.unit.plane.peer import Peer, one

UNKNOWN_TOPIC, POLICY_VIOLATION, INVALID_PARTITIONS, INVALID_ASSIGNMENT = 3, 44, 37, 39
INVALID_REQUEST, INVALID_CONFIG, INVALID_TOPIC, TOO_LARGE_METADATA = 42, 40, 17, 12
INVALID_RECORD, UNKNOWN_MEMBER_ID = 87, 25
GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED = 69, 79, 81
REQUEST_MIB = 128 + 300
"""A request is decoded to at most 128 MiB; add its bytes (100 MiB), their copy and the answer."""
MANY = 100_000 if LONG else 12_000


def test_a_million_topics_in_one_metadata_request(victim: Victim) -> None:
    """More than 100,000: the count alone is refused, before anything is allocated."""
    count = 1_000_000
    million = victim.attacked("a million topics", 64 * MIB)
    with million, contextlib.closing(victim.peer()) as peer:
        peer.send_body(apis.METADATA, 9, metadata_of((b"a" for _ in range(count)), count))
        assert answer_of(peer.receive) == CLOSED


@pytest.mark.parametrize("create", [False, True])
def test_many_topics_in_one_metadata_request(victim: Victim, create: bool) -> None:
    """Each is answered as missing, none is created: more than 10,000 partitions in one request."""
    names = (b"%08d" % i for i in range(MANY))
    many = victim.attacked(f"{MANY} topics", REQUEST_MIB * MIB)
    with many, contextlib.closing(victim.peer()) as peer:
        peer.send_body(apis.METADATA, 9, metadata_of(names, MANY, create))
        codes = Counter(topic.error_code for topic in peer.receive().topics)
        assert codes == {UNKNOWN_TOPIC: MANY}
        some = peer.ask(apis.METADATA, 9, {"topics": [{"name": "00000000"}, {"name": "00000001"}],
                                           "allow_auto_topic_creation": False})  # fmt: skip
        assert [topic.error_code for topic in some.topics] == [UNKNOWN_TOPIC] * 2


def test_the_same_topic_again_and_again_is_answered_once(victim: Victim) -> None:
    """Otherwise a request with a few bytes a name would get an answer of any size."""
    name = WITNESS_TOPIC.encode()
    often = victim.attacked("the same, often", REQUEST_MIB * MIB)
    with often, contextlib.closing(victim.peer()) as peer:
        peer.send_body(apis.METADATA, 9, metadata_of((name for _ in range(20_000)), 20_000))
        assert [topic.name for topic in peer.receive().topics] == [WITNESS_TOPIC]
        topic = {"resource_type": 2, "resource_name": WITNESS_TOPIC, "configuration_keys": None}
        found = peer.ask(apis.DESCRIBE_CONFIGS, 4, {"resources": [topic] * 20_000})
        assert [one.resource_name for one in found.results] == [WITNESS_TOPIC]
        found = peer.ask(apis.DESCRIBE_GROUPS, 5, {"groups": ["g"] * 20_000})
        assert [one.group_id for one in found.groups] == ["g"]
        asked = {"groups": [{"group_id": "g", "topics": None}] * 20_000}
        assert [one.group_id for one in peer.ask(apis.OFFSET_FETCH, 8, asked).groups] == ["g"]


@pytest.mark.parametrize(("count", "answered"), [(100_000, True), (100_001, False)])
def test_a_fetch_of_100_000_partitions(victim: Victim, count: int, answered: bool) -> None:
    """At the limit they are answered; one more closes the connection."""
    with victim.attacked(f"fetch {count}", 80 * MIB), contextlib.closing(victim.peer()) as peer:
        wanted = {(WITNESS_TOPIC, i): 0 for i in range(count)}
        found = answer_of(lambda: peer.fetch(wanted))
        if answered:
            codes = [one.error_code for one in found.responses[0].partitions]
            assert codes == [0] + [UNKNOWN_TOPIC] * (count - 1)
        else:
            assert found == CLOSED


@pytest.mark.parametrize(("count", "answered"), [(100_000, True), (100_001, False)])
def test_a_produce_with_100_000_partitions(victim: Victim, count: int, answered: bool) -> None:
    """At the limit they are answered; one more closes the connection and appends nothing."""
    with victim.attacked(f"produce {count}", 80 * MIB), contextlib.closing(victim.peer()) as peer:
        sent = {(WITNESS_TOPIC, i + 1): one() for i in range(count)}
        found = answer_of(lambda: peer.produce(sent))
        if answered:
            codes = Counter(one.error_code for one in found.responses[0].partition_responses)
            assert codes == {UNKNOWN_TOPIC: count}
        else:
            assert found == CLOSED


def test_a_produce_that_names_one_partition_100_000_times(victim: Victim) -> None:
    """Each is refused; only the first hundred refusals carry an explanation, and none reserves room
    for more."""
    count = 100_000
    each = struct.pack(">i", 0) + b"\0\0"  # partition 0, null records, no tagged fields
    topic = bytes([len(WITNESS_TOPIC) + 1]) + WITNESS_TOPIC.encode()
    length = bytes([(count + 1) & 127 | 128, (count + 1) >> 7 & 127 | 128, (count + 1) >> 14])
    body = b"\0" + struct.pack(">hi", 1, 1000) + b"\2" + topic + length + each * count
    named = victim.attacked("one partition, often", 80 * MIB)
    with named, contextlib.closing(victim.peer()) as peer:
        peer.send_body(apis.PRODUCE, 9, body + b"\0\0")
        found = peer.receive().responses[0].partition_responses
        assert Counter(one.error_code for one in found) == {INVALID_RECORD: count}
        assert sum(one.error_message is not None for one in found) == 100


def test_100_000_fetch_sessions_of_one_client(victim: Victim) -> None:
    """There are max.incremental.fetch.session.cache.slots of them; later fetches get none."""
    count = 100_000 if LONG else 3_000
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    fields: dict[str, Any] = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1, "session_id": 0,
        "session_epoch": 0, "topics": [{"topic": "none", "partitions": [partition]}],
    }  # fmt: skip
    got = 0
    with victim.attacked("sessions", 20 * MIB), contextlib.closing(victim.peer()) as peer:
        for _ in range(count // 100):
            for _ in range(100):
                peer.send(apis.FETCH, 11, fields)
            got += sum(peer.receive().session_id != 0 for _ in range(100))
    assert got == 1_000


ABSURD: dict[str, tuple[dict[str, Any], int]] = {
    "2**31 - 1 partitions": ({"num_partitions": 2**31 - 1}, POLICY_VIOLATION),
    "10,001 partitions": ({"num_partitions": 10_001}, POLICY_VIOLATION),
    "-2 partitions": ({"num_partitions": -2}, INVALID_PARTITIONS),
    "assignments of 20,000 partitions": (
        {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": i, "broker_ids": [1]} for i in range(20_000)],
        },
        POLICY_VIOLATION,
    ),
    "100,000 replicas": (
        {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": list(range(100_000))}],
        },
        INVALID_ASSIGNMENT,
    ),
    "a value of 30,000 digits": (
        {"configs": [{"name": "retention.ms", "value": "9" * 30_000}]},
        INVALID_CONFIG,
    ),
    "a setting's name of 30,000 letters": (
        {"configs": [{"name": "n" * 30_000, "value": "1"}]},
        INVALID_CONFIG,
    ),
    "20,000 settings": (
        {"configs": [{"name": f"n{i}", "value": "1"} for i in range(20_000)]},
        INVALID_CONFIG,
    ),
    "a name of 30,000 letters": ({"name": "x" * 30_000}, INVALID_TOPIC),
}


@pytest.mark.parametrize(("fields", "code"), ABSURD.values(), ids=ABSURD)
def test_topics_that_nobody_wants(victim: Victim, fields: dict[str, Any], code: int) -> None:
    topic = {"name": "absurd", "num_partitions": 1, "replication_factor": 1, **fields}
    with victim.attacked("topic", REQUEST_MIB * MIB), contextlib.closing(victim.peer()) as peer:
        found = peer.ask(apis.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 1_000})
    assert [one.error_code for one in found.topics] == [code]


# ---- groups ------------------------------------------------------------------------------------


def test_a_group_with_a_thousand_members(victim: Victim) -> None:
    """Static members, which need no second request; each keeps a connection (long: 10,000)."""
    count = 10_000 if LONG else 500
    clients = []
    with victim.attacked(f"{count} members", 100 * MIB):
        for i in range(count):
            clients.append(victim.peer())
            fields = join_fields("crowd", group_instance_id=f"i{i}")
            clients[-1].send(apis.JOIN_GROUP, 5, fields)
        victim.witness.serves()
        # With a reset: a client that only stops sending still gets its answer.
        for client in clients:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()


def test_ids_of_members_that_never_come(victim: Victim) -> None:
    """JoinGroup without an id assigns one; a client that asks for thousands harms no other."""
    with victim.attacked("pending members", 30 * MIB), contextlib.closing(victim.peer()) as peer:
        codes: Counter[int] = Counter()
        for _ in range(20):
            for _ in range(100):
                peer.send(apis.JOIN_GROUP, 5, join_fields("never"))
            codes.update(peer.receive().error_code for _ in range(100))
    assert codes == {MEMBER_ID_REQUIRED: 2_000}


def test_groups_and_members_without_end(tmp_path: Path) -> None:
    """The memory of all groups is limited, and existing groups go on: the witness is in one."""
    victim = Victim(tmp_path, kafkalog_groups_max_bytes=8 * MIB)
    with contextlib.closing(victim), contextlib.closing(victim.peer()) as peer:
        with victim.attacked("groups without end", 60 * MIB):
            codes: Counter[int] = Counter()
            for start in range(0, 6_000, 100):
                for number in range(start, start + 100):
                    peer.send(apis.JOIN_GROUP, 5, join_fields(f"g{number}"))
                codes.update(peer.receive().error_code for _ in range(100))
        assert codes.keys() == {MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED}
        assert codes[MEMBER_ID_REQUIRED] < 8 * MIB // 3_000
        offsets = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        fields = {"group_id": "late", "topics": [{"name": WITNESS_TOPIC, "partitions": offsets}]}
        (topic,) = peer.ask(apis.OFFSET_COMMIT, 8, fields).topics
        assert topic.partitions[0].error_code == GROUP_MAX_SIZE_REACHED
        victim.witness.serves()


@pytest.mark.parametrize("size", [1 << 20, 8 << 20])
def test_a_member_with_much_to_say(victim: Victim, size: int) -> None:
    """An assignment that does not fit a record of __consumer_offsets is refused, as in Kafka."""
    with (
        victim.attacked(f"metadata of {size} bytes", (20 + 20 * size // MIB) * MIB),
        contextlib.closing(victim.peer()) as peer,
    ):
        member = peer.ask(apis.JOIN_GROUP, 5, join_fields("loud")).member_id
        fields = join_fields("loud", member, b"m" * size)
        joined = peer.ask(apis.JOIN_GROUP, 5, fields)
        assert (joined.error_code, joined.leader, len(joined.members)) == (0, member, 1)
        given = [{"member_id": member, "assignment": b"a" * size}]
        fields = {"group_id": "loud", "generation_id": joined.generation_id,
                  "member_id": member, "assignments": given}  # fmt: skip
        assert peer.ask(apis.SYNC_GROUP, 3, fields).error_code == -1
        leave = {"group_id": "loud", "members": [{"member_id": member}]}
        assert peer.ask(apis.LEAVE_GROUP, 3, leave).error_code == 0


def padded(body: bytes, junk: int) -> bytes:
    """A request's body with an unknown tagged field of `junk` bytes."""
    assert body[-1] == 0
    size = bytes([junk & 127 | 128, junk >> 7 & 127 | 128, junk >> 14 & 127 | 128, junk >> 21])
    return body[:-1] + b"\1\x64" + size + bytes(junk)


def test_members_that_wait_hold_no_frames(victim: Victim) -> None:
    """A JoinGroup waits for other members for minutes: a frame of 24 MiB was kept for as long, and
    not counted."""
    with contextlib.ExitStack() as ends:
        peers = [ends.enter_context(contextlib.closing(victim.peer())) for _ in range(13)]
        longest = {"session_timeout_ms": 300_000, "rebalance_timeout_ms": 600_000}
        fields = join_fields("slow", **longest)
        members = [peer.ask(apis.JOIN_GROUP, 9, fields).member_id for peer in peers]
        fields["member_id"] = members[0]
        assert peers[0].ask(apis.JOIN_GROUP, 9, fields).error_code == 0
        before = victim.resident_bytes()
        # From now on the others wait for the first, which sends nothing more.
        with victim.attacked("12 frames of 24 MiB", 160 * MIB):
            for peer, member in zip(peers[1:], members[1:], strict=True):
                fields["member_id"] = member
                body = apis.JOIN_GROUP.encode_request(9, fields)
                peer.send_body(apis.JOIN_GROUP, 9, padded(body, 24 * MIB))
            asked = {"groups": ["slow"]}
            with contextlib.closing(victim.peer()) as other:
                wait_for(
                    lambda: len(other.ask(apis.DESCRIBE_GROUPS, 5, asked).groups[0].members) == 13,
                    "all of them wait",
                )
            wait_for(lambda: victim.resident_bytes() < before + 100 * MIB, "their frames are gone")


def test_members_that_wait_keep_little_of_their_requests(victim: Victim) -> None:
    """JoinGroup and SyncGroup kept what was decoded of them, 9 MiB each, for as long."""
    count, fields = 50_000, join_fields("patient", rebalance_timeout_ms=600_000)
    with contextlib.ExitStack() as ends:
        peers = [ends.enter_context(contextlib.closing(victim.peer())) for _ in range(14)]
        asking, leader, *others = peers
        ids = [peer.ask(apis.JOIN_GROUP, 9, fields).member_id for peer in peers[1:]]
        first = {**fields, "member_id": ids[0]}
        assert leader.ask(apis.JOIN_GROUP, 9, first).error_code == 0
        fields["protocols"] *= count
        with victim.attacked("12 members with 50,000 protocols", 60 * MIB):
            for peer, member in zip(others, ids[1:], strict=True):
                peer.send(apis.JOIN_GROUP, 9, {**fields, "member_id": member})
            after_large_ones(asking)
        leader.send(apis.JOIN_GROUP, 9, first)
        generation = {peer.receive().generation_id for peer in peers[1:]}
        asked = {"group_id": "patient", "generation_id": generation.pop(),
                 "protocol_type": "consumer", "protocol_name": "range",
                 "assignments": [{"member_id": "m", "assignment": b""}] * count}  # fmt: skip
        with victim.attacked("12 SyncGroups with 50,000 assignments", 60 * MIB):
            for peer, member in zip(others, ids[1:], strict=True):
                peer.send(apis.SYNC_GROUP, 5, {**asked, "member_id": member})
            after_large_ones(asking)
        leave = {"group_id": "patient", "members": [{"member_id": member} for member in ids]}
        assert leader.ask(apis.LEAVE_GROUP, 5, leave).error_code == 0
        assert {peer.receive().error_code for peer in others} == {UNKNOWN_MEMBER_ID}


def after_large_ones(peer: Peer) -> None:
    """Wait until large requests that were sent before have been handled: one after the other."""
    body = apis.METADATA.encode_request(9, {"topics": []})
    peer.send_body(apis.METADATA, 9, padded(body, 1 << 20))
    assert peer.receive().topics == []


def test_a_subscription_to_10_000_topics(victim: Victim) -> None:
    names = b"".join(b"\0\5%05d" % i for i in range(10_000))
    subscription = b"\0\0" + (10_000).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"
    with (
        victim.attacked("10,000 topics of a member", 30 * MIB),
        contextlib.closing(victim.peer()) as peer,
    ):
        member = peer.ask(apis.JOIN_GROUP, 5, join_fields("reader")).member_id
        joined = peer.ask(apis.JOIN_GROUP, 5, join_fields("reader", member, subscription))
        assert (joined.error_code, joined.members[0].metadata) == (0, subscription)


def test_a_commit_with_large_metadata(victim: Victim) -> None:
    """offset.metadata.max.bytes is 4096, and no version takes a string above 32,767 bytes."""
    with victim.attacked("metadata of 1 MiB", 30 * MIB), contextlib.closing(victim.peer()) as peer:
        codes = []
        for size in (4_096, 4_097, 32_767):
            found = peer.ask(apis.OFFSET_COMMIT, 8, commit_fields("g", 1, "m" * size))
            codes.append(found.topics[0].partitions[0].error_code)
    assert codes == [0, TOO_LARGE_METADATA, TOO_LARGE_METADATA]


@pytest.mark.parametrize(("count", "answered"), [(20_000, True), (100_001, False)])
def test_groups_and_partitions_in_one_request(victim: Victim, count: int, answered: bool) -> None:
    """More than 100,000 close the connection: the coordinator is one thread for all groups."""
    names = [f"group-{i}" for i in range(count)]
    requests: list[tuple[Any, int, dict[str, Any]]] = [
        (apis.DESCRIBE_GROUPS, 5, {"groups": names}),
        (apis.DELETE_GROUPS, 1, {"groups_names": names}),
        (apis.OFFSET_COMMIT, 8, commit_fields("g", count)),
    ]
    for api, version, fields in requests:
        one = victim.attacked(f"{api.name} of {count}", REQUEST_MIB * MIB)
        with one, contextlib.closing(victim.peer()) as peer:
            peer.send(api, version, fields)
            found = answer_of(peer.receive)
        assert (found != CLOSED) == answered
        if api is apis.DELETE_GROUPS and answered:
            assert {result.error_code for result in found.results} == {GROUP_ID_NOT_FOUND}
