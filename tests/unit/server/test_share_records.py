"""ShareFetch and ShareAcknowledge at a broker; the states of share partitions are in memory."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog.client.calls.acls import AclBinding
from kafkalog.clock import ManualClock
from kafkalog.server.broker import Broker, node_of
from kafkalog.shares import reading
from kafkalog.shares.leader import WAIT_MAX_MS
from kafkalog.shares.partition import Limits, SharePartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.share_member import ShareMember, acquired, codes
from tests.support.share_persister import MemoryPersister, kept_in_memory
from tests.support.waiting import wait_for

GROUP_KIND = 32
LOCK_MS = 30_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def persister(monkeypatch: pytest.MonkeyPatch) -> MemoryPersister:
    return kept_in_memory(monkeypatch)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(
    make_broker: Callable[..., Broker], persister: MemoryPersister, clock: ManualClock
) -> Broker:
    return make_broker(clock)


@pytest.fixture
def topic(raw: Raw) -> UUID:
    """A topic with one partition, of which groups read from the beginning."""
    raw.alter(GROUP_KIND, "g", share_auto_offset_reset="earliest")
    found: UUID = raw.create("t").topic_id
    return found


def begin(broker: Broker, member: ShareMember) -> ShareMember:
    """Begin the member's session, and wait until its share partitions are loaded."""
    member.fetch()
    wait_for(lambda: all(one.share for one in node_of(broker).shares._entries), "the states")
    return member


@pytest.fixture
def member(broker: Broker, raw: Raw, topic: UUID) -> ShareMember:
    """A member with a session, while the topic is empty."""
    return begin(broker, ShareMember(raw, "g", {topic: [0]}))


@pytest.fixture
def other(broker: Broker, topic: UUID) -> Iterator[ShareMember]:
    with Raw(broker.bootstrap_servers) as connection:
        yield ShareMember(connection, "g", {topic: [0]}, "another-member")


def fill(raw: Raw, *sizes: int) -> None:
    """Produce batches of these sizes."""
    for size in sizes:
        assert not raw.produce("t", *[b"value"] * size).error_code


def test_records_are_acquired_and_accepted(raw: Raw, member: ShareMember, topic: UUID,
                                           persister: MemoryPersister) -> None:  # fmt: skip
    fill(raw, 3, 2)
    found = member.fetch()
    assert acquired(found) == {0: dict.fromkeys(range(5), 1)}
    assert found.acquisition_lock_timeout_ms == LOCK_MS
    (row,) = found.responses[0].partitions
    assert [(one.first_offset, one.last_offset) for one in row.acquired_records] == [(0, 4)]
    assert len(bytes(row.records)) > 100
    assert acquired(member.fetch()) == {}
    done = member.acknowledge({(topic, 0): [(0, 2, [1]), (3, 4, [2, 3])]})
    assert codes(done) == {0: 0} and done.acquisition_lock_timeout_ms == LOCK_MS
    assert acquired(member.fetch()) == {0: {3: 2}}
    write = persister.writes[-1]
    assert [tuple(row) for row in write.state_batches] == [(0, 2, 2, 1), (3, 3, 0, 1), (4, 4, 4, 1)]


def test_acknowledgements_travel_with_a_fetch(raw: Raw, member: ShareMember, topic: UUID) -> None:
    fill(raw, 2)
    member.fetch()
    fill(raw, 3)
    found = member.fetch({(topic, 0): [(0, 1, [1])]})
    assert acquired(found) == {0: dict.fromkeys(range(2, 5), 1)}
    assert codes(found, "acknowledge_error_code") == {0: 0}
    wrong = member.fetch({(topic, 0): [(0, 5, [1])]})
    assert codes(wrong, "acknowledge_error_code") == {0: ErrorCode.INVALID_REQUEST}
    wrong = member.acknowledge({(topic, 0): [(2, 3, [1]), (4, 4, [7])]})
    assert codes(wrong) == {0: ErrorCode.INVALID_REQUEST}
    assert codes(member.acknowledge({(topic, 0): [(2, 4, [1])]})) == {0: 0}


def test_a_fetch_waits_for_records(raw: Raw, member: ShareMember, other: ShareMember) -> None:
    """And is answered when they come, though the clock stands still."""
    member.fetch()
    member.send_fetch(max_wait_ms=600_000)
    fill(other.raw, 2)
    assert acquired(member.fetched()) == {0: {0: 1, 1: 1}}


def test_a_fetch_waits_for_records_that_others_hold(
    raw: Raw, member: ShareMember, other: ShareMember, topic: UUID, clock: ManualClock
) -> None:
    """Released records, and those whose lock has ended."""
    fill(raw, 2)
    assert acquired(member.fetch()) == {0: {0: 1, 1: 1}}
    other.send_fetch(max_wait_ms=600_000)
    member.acknowledge({(topic, 0): [(0, 0, [2])]})
    assert acquired(other.fetched()) == {0: {0: 2}}
    member.acknowledge({(topic, 0): [(1, 1, [4])]}, is_renew_ack=True)
    other.send_fetch(max_wait_ms=600_000)
    clock.advance(LOCK_MS)
    assert acquired(other.fetched())[0].keys() <= {0, 1}
    refused = member.acknowledge({(topic, 0): [(1, 1, [1])]})
    assert codes(refused) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_a_fetch_without_records_ends_in_its_time(
    member: ShareMember, clock: ManualClock, broker: Broker
) -> None:
    member.fetch()
    member.send_fetch(max_wait_ms=500)
    wait_for(lambda: bool(node_of(broker).shares._fetches), "the fetch")
    clock.advance(500)
    assert acquired(member.fetched()) == {}


def test_locks_are_renewed(raw: Raw, member: ShareMember, other: ShareMember, topic: UUID,
                           clock: ManualClock) -> None:  # fmt: skip
    fill(raw, 2)
    member.fetch()
    clock.advance(LOCK_MS - 1)
    renew = {(topic, 0): [(0, 0, [4])]}
    assert codes(member.acknowledge(renew)) == {0: ErrorCode.INVALID_REQUEST}
    assert codes(member.acknowledge(renew, is_renew_ack=True)) == {0: 0}
    clock.advance(LOCK_MS - 1)
    wait_for(lambda: acquired(other.fetch()) == {0: {1: 2}}, "the lock of offset 1")
    refused = member.fetch(renew, is_renew_ack=True)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    alone = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    found = member.fetch(renew, is_renew_ack=True, **alone)
    assert codes(found, "acknowledge_error_code") == {0: 0}
    raw.alter(GROUP_KIND, "g", share_renew_acknowledge_enable="false")
    refused = member.fetch(renew, is_renew_ack=True, **alone)
    assert codes(refused, "acknowledge_error_code") == {0: ErrorCode.INVALID_RECORD_STATE}


def test_the_final_epoch_releases(
    raw: Raw, member: ShareMember, other: ShareMember, topic: UUID
) -> None:
    """The records count as delivered; acknowledgements count before."""
    fill(raw, 3)
    member.fetch()
    member.epoch = -1
    assert codes(member.acknowledge({(topic, 0): [(0, 0, [1])]})) == {0: 0}
    assert acquired(other.fetch(max_wait_ms=600_000)) == {0: {1: 2, 2: 2}}
    assert member.acknowledge({}).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    other.epoch = -1
    other.topics = {}
    assert not other.fetch().error_code
    member.epoch = 0
    assert acquired(member.fetch(max_wait_ms=600_000)) == {0: {1: 3, 2: 3}}


def test_a_closed_connection_releases(
    raw: Raw, member: ShareMember, broker: Broker, topic: UUID, clock: ManualClock
) -> None:
    fill(raw, 2)
    with Raw(broker.bootstrap_servers) as connection:
        gone = ShareMember(connection, "g", {topic: [0]}, "member-that-goes")
        assert acquired(gone.fetch()) == {0: {0: 1, 1: 1}}
    member.send_fetch(max_wait_ms=600_000)

    def released() -> bool:
        clock.advance(500)
        return gone.member not in {key.member for key in node_of(broker).shares._sessions._all}

    wait_for(released, "the end of the session")
    assert acquired(member.fetched()) == {0: {0: 2, 1: 2}}


@pytest.mark.parametrize("waits", [True, False])
def test_a_closed_connection_releases_at_once_to_a_member_that_waits(
    raw: Raw, member: ShareMember, broker: Broker, topic: UUID, waits: bool
) -> None:
    """With its next look for records, whether it waits already: no time passes for timers."""
    fill(raw, 2)
    with Raw(broker.bootstrap_servers) as connection:
        gone = ShareMember(connection, "g", {topic: [0]}, "member-that-goes")
        assert acquired(gone.fetch()) == {0: {0: 1, 1: 1}}
        if waits:
            member.send_fetch(max_wait_ms=600_000)
    if not waits:
        member.send_fetch(max_wait_ms=600_000)
    assert acquired(member.fetched()) == {0: {0: 2, 1: 2}}


def test_a_connection_that_its_client_half_closes_is_answered_in_its_session(
    raw: Raw, member: ShareMember, broker: Broker, topic: UUID, clock: ManualClock
) -> None:
    """A wait ends at once; requests that were sent after it are carried out; then what the member
    holds is released."""
    fill(raw, 2)
    with Raw(broker.bootstrap_servers) as connection:
        gone = ShareMember(connection, "g", {topic: [0]}, "member-that-goes")
        assert acquired(gone.fetch()) == {0: {0: 1, 1: 1}}
        gone.send_fetch(max_wait_ms=600_000)
        wait_for(lambda: bool(node_of(broker).shares._fetches), "the fetch")
        gone.epoch += 1
        said = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        part = {"partition_index": 0, "acknowledgement_batches": [said]}
        body = {
            "group_id": "g", "member_id": gone.member, "share_session_epoch": gone.epoch,
            "is_renew_ack": False, "topics": [{"topic_id": topic, "partitions": [part]}],
        }  # fmt: skip
        connection.send(apis.SHARE_ACKNOWLEDGE, 2, body)
        connection.socket.shutdown(socket.SHUT_WR)

        def ended() -> bool:
            clock.advance(500)
            return not node_of(broker).shares._fetches

        wait_for(ended, "the end of the wait")
        assert acquired(connection.receive(apis.SHARE_FETCH, 2)) == {}
        found = connection.receive(apis.SHARE_ACKNOWLEDGE, 2)
        assert (found.error_code, codes(found)) == (0, {0: 0})
        assert connection.socket.recv(1) == b""

        def released() -> bool:
            clock.advance(500)
            return gone.member not in {key.member for key in node_of(broker).shares._sessions._all}

        wait_for(released, "the end of the session")
    assert acquired(member.fetch()) == {0: {1: 2}}


def test_the_end_of_a_session_concerns_its_own_partitions(
    raw: Raw, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that its member acquired from in the session before."""
    raw.alter(GROUP_KIND, "g", share_auto_offset_reset="earliest")
    topic = raw.create("t", 3).topic_id
    one, other = (ShareMember(raw, "g", {topic: [0, 1, 2]}, name) for name in ("one", "other"))
    begin(broker, one)
    begin(broker, other)
    raw.produce("t", b"value", partition=1)
    assert acquired(one.fetch()) == {1: {0: 1}}
    one.epoch = 0
    one.fetch()
    release, released = SharePartition.release, []

    def counting(share: SharePartition, member: str, limits: Limits) -> int:
        released.append(member)
        return release(share, member, limits)

    monkeypatch.setattr(SharePartition, "release", counting)
    one.epoch = other.epoch = -1
    assert not other.acknowledge({}).error_code and released == []
    other.epoch = 0
    other.fetch()
    assert not one.acknowledge({}).error_code and released == ["one"]
    assert acquired(other.fetch(max_wait_ms=600_000)) == {1: {0: 2}}
    other.epoch = -1
    assert not other.acknowledge({}).error_code and released == ["one", "other"]
    assert node_of(broker).shares._sessions.bytes == 0


def test_a_closed_connection_ends_its_waits(
    member: ShareMember, broker: Broker, clock: ManualClock
) -> None:
    """Also of a session of another connection, and of a member for which there is no room; the
    session of the connection ends."""
    shares, own = node_of(broker).shares, member.raw
    member.fetch()
    with Raw(broker.bootstrap_servers) as first, Raw(broker.bootstrap_servers) as second:
        member.raw = first
        member.send_fetch(max_wait_ms=2**31 - 1)
        shares._sessions.sessions_max = 0
        ShareMember(second, "g", member.topics, "late").send_fetch(max_wait_ms=2**31 - 1)
        wait_for(lambda: len(shares._fetches) == 2, "both requests")
        assert all(one.deadline_ms <= shares.now_ms() + WAIT_MAX_MS
                   for one in shares._fetches.values())  # fmt: skip
    assert len(shares._sessions) == 1

    def ended() -> bool:
        clock.advance(500)
        return not shares._fetches

    wait_for(ended, "the end of what waits")
    assert len(shares._sessions) == 1
    member.raw, member.epoch = own, member.epoch + 1
    member.send_fetch(max_wait_ms=600_000)
    wait_for(lambda: bool(shares._fetches), "the request")
    own.socket.close()
    wait_for(lambda: ended() and not len(shares._sessions), "the end of the session")


def test_a_write_that_fails_is_undone(
    raw: Raw, member: ShareMember, topic: UUID, persister: MemoryPersister
) -> None:
    fill(raw, 2)
    member.fetch()
    persister.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    accept = {(topic, 0): [(0, 1, [1])]}
    assert codes(member.acknowledge(accept)) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    persister.error = ErrorCode.NONE
    assert codes(member.acknowledge(accept)) == {0: 0}


def test_a_write_is_in_progress_while_others_wait(
    raw: Raw, member: ShareMember, other: ShareMember, topic: UUID, persister: MemoryPersister
) -> None:
    """One write at a time; what comes during it is written together."""
    fill(raw, 1, 1)
    assert acquired(member.fetch(max_records=1)) == {0: {0: 1}}
    assert acquired(other.fetch(max_records=1)) == {0: {1: 1}}
    persister.held = []
    body = {"group_id": "g", "is_renew_ack": False}
    for one, offset in ((member, 0), (other, 1)):
        part = {
            "partition_index": 0,
            "acknowledgement_batches": [
                {"first_offset": offset, "last_offset": offset, "acknowledge_types": [1]}
            ],
        }
        one.raw.send(apis.SHARE_ACKNOWLEDGE, 2, {
            **body, "member_id": one.member, "share_session_epoch": one.epoch,
            "topics": [{"topic_id": topic, "partitions": [part]}]})  # fmt: skip
    wait_for(lambda: bool(persister.held), "a write")
    persister.release()
    for one in (member, other):
        assert codes(one.raw.receive(apis.SHARE_ACKNOWLEDGE, 2)) == {0: 0}


def test_a_state_that_cannot_be_read_is_an_error(
    raw: Raw, topic: UUID, persister: MemoryPersister
) -> None:
    persister.error = ErrorCode.FENCED_STATE_EPOCH
    fill(raw, 1)
    member = ShareMember(raw, "g", {topic: [0]})
    found = member.fetch(max_wait_ms=600_000)
    assert codes(found) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert [one.node_id for one in found.node_endpoints] == [1]
    persister.error = ErrorCode.NONE
    assert acquired(member.fetch(max_wait_ms=600_000)) == {0: {0: 1}}


def test_state_survives_a_restart(
    make_broker: Callable[..., Broker], raw: Raw, member: ShareMember, broker: Broker, topic: UUID
) -> None:
    fill(raw, 5)
    member.fetch()
    member.acknowledge({(topic, 0): [(0, 0, [1]), (2, 3, [2])]})
    broker.close()
    again = make_broker()
    with Raw(again.bootstrap_servers) as connection:
        found = ShareMember(connection, "g", {topic: [0]}).fetch(max_wait_ms=600_000)
    assert acquired(found) == {0: {1: 1, 2: 2, 3: 2, 4: 1}}


def test_record_limits(raw: Raw, member: ShareMember, topic: UUID) -> None:
    """A batch is completed unless the limit is exact; version 1 knows no exact one."""
    fill(raw, 5, 5)
    assert acquired(member.fetch(max_records=2, share_acquire_mode=1)) == {0: {0: 1, 1: 1}}
    assert acquired(member.fetch(max_records=2)) == {0: {2: 1, 3: 1, 4: 1}}
    assert acquired(member.fetch(version=1, max_records=2)) == {0: dict.fromkeys(range(5, 10), 1)}
    wrong = member.fetch(share_acquire_mode=2)
    assert wrong.error_code == ErrorCode.INVALID_REQUEST


def test_a_request_has_no_more_in_memory_than_it_may_read(
    raw: Raw, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its bytes or its records are used up, no other partition is read; others get theirs."""
    raw.alter(GROUP_KIND, "g", share_auto_offset_reset="earliest")
    member = ShareMember(raw, "g", {raw.create("t", 3).topic_id: [0, 1, 2]})
    begin(broker, member)
    for partition in range(3):
        raw.produce("t", b"x" * 1_000, b"y", partition=partition)
    read, sizes = reading.read, []

    def counting(*args: Any) -> reading.Read:
        found = read(*args)
        sizes.append(len(found.data))
        return found

    monkeypatch.setattr(reading, "read", counting)
    found = acquired(member.fetch(max_bytes=1))
    assert len(found) == len(sizes) == 1
    found.update(acquired(member.fetch(max_records=1)))
    assert len(found) == len(sizes) == 2
    found.update(acquired(member.fetch()))
    assert found == {one: {0: 1, 1: 1} for one in range(3)} and len(sizes) == 3


def test_more_bytes_than_a_request_reads_are_not_waited_for(raw: Raw, member: ShareMember) -> None:
    fill(raw, 1, 1)
    assert acquired(member.fetch(min_bytes=1 << 30, max_bytes=1, max_wait_ms=600_000))
    member.send_fetch(min_bytes=1 << 30, max_wait_ms=0)  # what is left is all there is
    assert acquired(member.fetched()) == {0: {1: 1}}


def test_batches_of_acquired_records(raw: Raw, member: ShareMember) -> None:
    """New records are acquired in parts of about the batch size."""
    fill(raw, 3, 3, 3)
    (row,) = member.fetch(batch_size=4).responses[0].partitions
    found = [(one.first_offset, one.last_offset) for one in row.acquired_records]
    assert found == [(0, 5), (6, 8)]


def test_a_record_is_delivered_so_many_times(raw: Raw, member: ShareMember, topic: UUID) -> None:
    """The last time alone, so that its neighbours are not lost with it."""
    raw.alter(GROUP_KIND, "g", share_delivery_count_limit="3")
    fill(raw, 2)
    for wanted in ({0: 1, 1: 1}, {0: 2, 1: 2}, {0: 3}):
        assert acquired(member.fetch()) == {0: wanted}
        (first, last) = min(wanted), max(wanted)
        assert codes(member.acknowledge({(topic, 0): [(first, last, [2])]})) == {0: 0}
    assert acquired(member.fetch()) == {0: {1: 3}}


def test_deleted_records_are_passed(raw: Raw, member: ShareMember, topic: UUID) -> None:
    fill(raw, 2, 2)
    assert acquired(member.fetch(max_records=2)) == {0: {0: 1, 1: 1}}
    entry = {"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}
    raw.call(apis.DELETE_RECORDS, topics=[entry], timeout_ms=10_000)
    assert acquired(member.fetch()) == {0: {3: 1}}
    assert codes(member.acknowledge({(topic, 0): [(0, 1, [1])]})) == {0: 0}


@pytest.mark.parametrize(
    ("reset", "wanted"),
    [("latest", {2: 1}), ("earliest", {0: 1, 1: 1, 2: 1}), ("by_duration:PT1H", {1: 1, 2: 1})],
)
def test_a_group_begins(
    broker: Broker,
    raw: Raw,
    topic: UUID,
    clock: ManualClock,
    reset: str,
    wanted: dict[int, int],
) -> None:
    """Where share.auto.offset.reset says."""
    raw.alter(GROUP_KIND, "g", share_auto_offset_reset=reset)
    now_ms = clock.now_ms()
    raw.produce("t", b"old", timestamp_ms=now_ms - 7_200_000)
    raw.produce("t", b"new", timestamp_ms=now_ms)
    member = ShareMember(raw, "g", {topic: [0]})
    found = acquired(member.fetch()).get(0, {})
    wait_for(lambda: all(one.share for one in node_of(broker).shares._entries), "the state")
    raw.produce("t", b"newer", timestamp_ms=now_ms)
    while 2 not in found:
        found.update(acquired(member.fetch(max_wait_ms=600_000)).get(0, {}))
    assert found == wanted


def test_a_group_without_uncommitted_records(raw: Raw, topic: UUID, broker: Broker) -> None:
    """With read_committed, records of aborted transactions are not delivered."""
    raw.alter(GROUP_KIND, "g", share_isolation_level="read_committed")
    with kafkalog.Producer(broker.store, transactional_id="x") as producer:
        for number in range(3):
            producer.begin_transaction()
            producer.send("t", b"value", partition=0, timestamp_ms=0)
            if number == 1:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    member = ShareMember(raw, "g", {topic: [0]})
    found: dict[int, int] = {}
    while 4 not in found:
        found.update(acquired(member.fetch(max_wait_ms=600_000))[0])
    assert 0 in found and 2 not in found


def test_sessions_are_limited(
    make_broker: Callable[..., Broker], persister: MemoryPersister
) -> None:
    """The answer comes only after the wait, so that clients do not ask at once again."""
    clock = ManualClock()
    broker = make_broker(clock)
    node_of(broker).shares._sessions.sessions_max = 1
    with Raw(broker.bootstrap_servers) as first, Raw(broker.bootstrap_servers) as second:
        topic = first.create("t").topic_id
        ShareMember(first, "g", {topic: [0]}).fetch()
        late = ShareMember(second, "g", {topic: [0]}, "second-member")
        late.send_fetch(max_wait_ms=500)
        wait_for(lambda: bool(node_of(broker).shares._fetches), "the fetch")
        clock.advance(500)
        assert late.fetched().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_wrong_requests(raw: Raw, topic: UUID) -> None:
    """Members, groups, epochs, topics and partitions that are not there."""
    member = ShareMember(raw, "g", {topic: [0]})
    invalid = ErrorCode.INVALID_REQUEST
    for fields in ({"member_id": ""}, {"member_id": "x" * 37}, {"group_id": None}):
        assert member.fetch(**fields).error_code == invalid
        assert member.acknowledge({}, **fields).error_code == invalid
    assert member.fetch({(topic, 0): [(0, 0, [1])]}).error_code == invalid
    assert member.fetch(share_session_epoch=4).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.topics = {topic: [0, 7], UUID(int=5): [0]}
    found = member.fetch()
    rows = {(topic.topic_id, row.partition_index): row.error_code
            for topic in found.responses for row in topic.partitions}  # fmt: skip
    assert rows == {(topic, 0): 0, (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    (UUID(int=5), 0): ErrorCode.UNKNOWN_TOPIC_ID}  # fmt: skip
    wrong = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(share_session_epoch=9).error_code == wrong
    assert member.acknowledge({}, share_session_epoch=0).error_code == wrong
    acks: dict[Any, Any] = {(UUID(int=5), 0): [(0, 0, [1])], (topic, 7): [(0, 0, [1])]}
    assert list(codes(member.acknowledge(acks)).values()) == [
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]  # fmt: skip


def test_a_cluster_without_share_groups(raw: Raw, member: ShareMember) -> None:
    update = {"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}
    done = raw.call(apis.UPDATE_FEATURES, 2, timeout_ms=30_000, feature_updates=[update])
    assert not done.error_code
    assert member.fetch().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert member.acknowledge({}).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_rights_and_quotas(make_broker: Callable[..., Broker], persister: MemoryPersister) -> None:
    """READ on the group and on each topic; the bytes of records count as those of Fetch."""
    broker = make_broker(authorizer_class_name=AUTHORIZER)
    name = "User:ANONYMOUS"
    with Raw(broker.bootstrap_servers) as raw, kafkalog.Admin(broker.store) as admin:
        admin.create_topic("t", 1)
        topic = node_of(broker).image.topics["t"].id
        member = ShareMember(raw, "g", {topic: [0]})
        assert member.fetch().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert member.acknowledge({}).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        admin.create_acls([AclBinding("group", "g", name, "read")])
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert codes(member.fetch(max_wait_ms=1_000)) == {0: denied}
        assert codes(member.acknowledge({(topic, 0): [(0, 0, [1])]})) == {0: denied}
        admin.create_acls([AclBinding("topic", "t", name, "read")])
        begin(broker, member)
        with kafkalog.Producer(broker.store) as producer:
            producer.send("t", b"x" * 1_000)
            producer.flush()
        quota = {"key": "consumer_byte_rate", "value": 100.0, "remove": False}
        entity = [{"entity_type": "client-id", "entity_name": "raw"}]
        admin.create_acls([AclBinding("cluster", "kafka-cluster", name, "alter_configs")])
        changed = raw.call(apis.ALTER_CLIENT_QUOTAS, validate_only=False,
                           entries=[{"entity": entity, "ops": [quota]}])  # fmt: skip
        assert not changed.entries[0].error_code
        found = member.fetch(max_wait_ms=1_000)
        assert acquired(found) == {0: {0: 1}} and found.throttle_time_ms > 0


def test_a_deleted_topic_ends_requests_that_wait(
    raw: Raw, member: ShareMember, other: ShareMember
) -> None:
    fill(raw, 1)
    member.fetch()
    member.send_fetch(max_wait_ms=600_000)
    other.raw.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=10_000)
    assert set(codes(member.fetched()).values()) <= {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID}  # fmt: skip


def test_a_broker_that_stops_answers(raw: Raw, member: ShareMember, broker: Broker) -> None:
    member.fetch()
    member.send_fetch(max_wait_ms=600_000)
    wait_for(lambda: bool(node_of(broker).shares._fetches), "the fetch")
    broker.close()
    assert acquired(member.fetched()) == {}
