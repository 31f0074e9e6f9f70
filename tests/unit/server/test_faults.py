"""Faults on demand: what a client sees of each, for every API, and their side effects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalog.clock import SkippingClock
from kafkalog.errors import ArgumentError
from kafkalog.server.broker import Broker
from kafkalog.server.faults import FAULTS_MAX, HELPER
from kafkalog.server.handlers import ROUTES
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.test_failures import codes, filled

Wait = Callable[..., None]
OK = ErrorCode.NONE
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
def broker(make_broker: MakeBroker, clock: SkippingClock) -> Broker:
    return make_broker(clock=clock)


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as connection:
        connection.create("t")
        yield connection


def end(broker: Broker) -> int:
    """The number of records written."""
    return int(broker._node.partitions.log("t", 0).end_offset)


# ---- errors --------------------------------------------------------------------------------------


def test_produce_fails_so_often_and_nothing_is_written(broker: Broker, raw: Raw) -> None:
    raw.produce("t", b"0")
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert repr(fault) == "Fault(Produce fails NOT_LEADER_OR_FOLLOWER: 0 of 2)"
    found = [raw.produce("t", b"1") for _ in range(3)]
    assert [one.error_code for one in found] == [MOVED, MOVED, OK]
    assert [one.base_offset for one in found] == [-1, -1, 1]
    assert (fault.hits, fault.spent, broker.faults.all) == (2, True, ())


def test_the_fast_path_is_as_fast_when_no_fault_is_left(broker: Broker, raw: Raw) -> None:
    """Requests that the data plane answered itself return to it."""
    raw.produce("t", b"0")
    reactor = broker._node.reactor
    before = reactor.stats().fast
    fault = broker.faults.fail("PRODUCE", int(MOVED), times=None)
    assert raw.produce("t", b"1").error_code == MOVED
    raw.fetch("t")
    assert reactor.stats().fast == before + 1  # the Fetch, for which no fault is set
    broker.faults.remove(fault)
    broker.faults.remove(fault)
    raw.produce("t", b"1")
    assert reactor.stats().fast == before + 2
    assert end(broker) == 2


def test_acks_0_hears_of_an_error_by_its_connections_end(broker: Broker, raw: Raw) -> None:
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    raw.produce("t", b"0", acks=0)
    with pytest.raises(ConnectionError):
        raw.receive_frame()
    assert end(broker) == 0


def test_a_fetch_fails_in_its_partitions(broker: Broker, raw: Raw) -> None:
    raw.produce("t", b"0")
    broker.faults.fail("fetch", "offset_out_of_range")
    assert raw.fetch("t").error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert raw.fetch("t").error_code == OK


def test_a_fetch_of_a_session_is_asked_for_all_first(broker: Broker, raw: Raw) -> None:
    """It names no partition that could carry the error; its client begins a new session."""
    raw.produce("t", b"0")
    session = session_fetch(raw, 0, 0)
    fault = broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER")
    told = session_fetch(raw, session.session_id, 1, partitions=False)
    assert (told.error_code, fault.hits) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    told = session_fetch(raw, 0, 0)
    assert (told.error_code, told.session_id, fault.hits) == (OK, 0, 1)
    assert told.responses[0].partitions[0].error_code == MOVED
    assert session_fetch(raw, 0, 0).responses[0].partitions[0].error_code == OK
    broker.faults.fail("Fetch", "INVALID_FETCH_SESSION_EPOCH")
    assert session_fetch(raw, 0, 0).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def session_fetch(raw: Raw, session: int, epoch: int, partitions: bool = True) -> Any:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "t", "partitions": [part]}] if partitions else []
    return raw.call(
        apis.FETCH, 11, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=session,
        session_epoch=epoch, topics=topics,
    )  # fmt: skip


@pytest.mark.parametrize("version", [0, 1, 9, 12, 13])
def test_metadata_fails_for_topics_and_tells_the_nodes(
    broker: Broker, raw: Raw, version: int
) -> None:
    for asked in ([{"name": "t"}], [] if version == 0 else None):
        broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE")
        found = raw.call(apis.METADATA, version, topics=asked)
        assert [(t.name, t.error_code) for t in found.topics if t.name == "t"] == [
            ("t", ErrorCode.LEADER_NOT_AVAILABLE)
        ]
        assert [one.node_id for one in found.brokers] == [broker._node.node_id]
        assert raw.call(apis.METADATA, version, topics=asked).topics[0].error_code == OK


@pytest.mark.parametrize("key", sorted(ROUTES))
def test_every_api_can_fail(broker: Broker, raw: Raw, key: int) -> None:
    """In every served version: with the error code, or by closing the connection, as Kafka does."""
    api = apis.BY_KEY[key]
    for version in sorted({*apis.SERVED[key]} & {*api.versions}):
        fields = filled(api.request.fields, version)
        if key == apis.FETCH.key:
            fields["session_epoch"] = -1
        broker.faults.fail(api.name, "POLICY_VIOLATION")
        raw.send(api, version, fields)
        found = raw.receive(api, version)
        told = set(codes(found, api.response.fields, version)) - {OK}
        assert told == {ErrorCode.POLICY_VIOLATION}, (api, version)
    assert broker.faults.all == ()


# ---- delays, disconnects, lost answers -----------------------------------------------------------


@pytest.mark.parametrize("api", ["Produce", "ListOffsets"])
def test_a_delayed_request_delays_later_ones(
    broker: Broker, raw: Raw, clock: SkippingClock, api: str, wait_until: Wait
) -> None:
    fault = broker.faults.delay(api, 60_000)
    body = {"replica_id": -1, "topics": []}
    if api == "Produce":
        body = {"acks": -1, "timeout_ms": 1, "topic_data": []}
    raw.send(apis.PRODUCE if api == "Produce" else apis.LIST_OFFSETS, 7, body)
    raw.send(apis.API_VERSIONS, 0, {})
    wait_until(lambda: fault.hits, "it is held")
    with Raw(broker.bootstrap_servers) as other:
        assert other.produce("t", b"of another").error_code == OK
    raw.socket.settimeout(0.03)
    with pytest.raises(TimeoutError):
        raw.receive_frame()
    raw.socket.settimeout(LIMIT_S)
    clock.advance(60_000)
    raw.receive(apis.PRODUCE if api == "Produce" else apis.LIST_OFFSETS, 7)
    assert raw.receive(apis.API_VERSIONS, 0).error_code == OK


def test_clearing_faults_releases_delayed_requests(
    broker: Broker, raw: Raw, wait_until: Wait
) -> None:
    faults = [broker.faults.delay("Heartbeat", 3_600_000), broker.faults.delay("Heartbeat", 0)]
    raw.send(apis.HEARTBEAT, 0, {"group_id": "g", "member_id": "m", "generation_id": 1})
    wait_until(lambda: faults[0].hits, "it is held")
    broker.faults.clear()
    assert raw.receive(apis.HEARTBEAT, 0).error_code != OK
    assert broker.faults.all == () and faults[1].hits == 0


def test_a_broker_ends_although_requests_are_delayed(
    broker: Broker, raw: Raw, wait_until: Wait
) -> None:
    fault = broker.faults.delay("Produce", 3_600_000)
    raw.send(apis.PRODUCE, 7, {"acks": -1, "timeout_ms": 1, "topic_data": []})
    wait_until(lambda: fault.hits, "it is held")
    broker.close()
    with pytest.raises(ConnectionError):
        raw.receive_frame()


@pytest.mark.parametrize("api", ["Produce", "CreateTopics"])
def test_a_disconnected_request_does_nothing(broker: Broker, raw: Raw, api: str) -> None:
    broker.faults.disconnect(api)
    with pytest.raises(ConnectionError):
        raw.produce("t", b"0") if api == "Produce" else raw.create("u")
    assert (end(broker), "u" in broker._node.image.topics) == (0, False)


@pytest.mark.parametrize("acks", [1, -1])
def test_unanswered_requests_are_processed(broker: Broker, raw: Raw, acks: int) -> None:
    """Also by the data plane, and when it waits for the disk."""
    raw.produce("t", b"0")
    fast = broker._node.reactor.stats().fast
    broker.faults.drop_response("Produce")
    with pytest.raises(ConnectionError):
        raw.produce("t", b"1", acks=acks)
    assert end(broker) == 2
    assert broker._node.reactor.stats().fast == fast
    with Raw(broker.bootstrap_servers) as again:
        assert again.produce("t", b"2", acks=acks).base_offset == 2


def test_unanswered_requests_of_python(broker: Broker, raw: Raw, wait_until: Wait) -> None:
    """Immediately, or later by the coordinator."""
    broker.faults.drop_response("CreateTopics")
    with pytest.raises(ConnectionError):
        raw.create("u")
    assert "u" in broker._node.image.topics
    with Raw(broker.bootstrap_servers) as again:
        wait_until(
            lambda: again.call(apis.FIND_COORDINATOR, 2, key="g").error_code == OK,
            "there is a coordinator",
        )
        broker.faults.drop_response("OffsetCommit")
        with pytest.raises(ConnectionError):
            again.call(apis.OFFSET_COMMIT, 5, group_id="g", generation_id_or_member_epoch=-1,
                       member_id="", topics=[])  # fmt: skip


@pytest.mark.parametrize(
    "ask",
    [
        lambda raw: raw.produce("t", b"1"),
        lambda raw: raw.fetch("t", 0),
        lambda raw: raw.call(apis.API_VERSIONS, 0),
    ],
    ids=["Produce", "Fetch", "ApiVersions"],
)
def test_a_client_that_is_cut_off_has_no_answer(
    broker: Broker, raw: Raw, ask: Callable[[Raw], Any]
) -> None:
    """Not from the data plane either, until the fault is removed; other clients have theirs."""
    raw.produce("t", b"0")
    fault = broker.faults.cut_off("raw")
    with pytest.raises(ConnectionError):
        ask(raw)
    assert (fault.hits, end(broker)) == (1, 1)
    with Raw(broker.bootstrap_servers, "other") as other:
        ask(other)
    broker.faults.remove(fault)
    with Raw(broker.bootstrap_servers) as again:
        fast = broker._node.reactor.stats().fast
        assert again.produce("t", b"2").error_code == OK
        assert broker._node.reactor.stats().fast == fast + 1


# ---- which requests ------------------------------------------------------------------------------


def test_the_oldest_that_meets_a_request_hits_it(broker: Broker, raw: Raw) -> None:
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", client_id="somebody else")
    broker.faults.fail("Produce", "MESSAGE_TOO_LARGE")
    broker.faults.fail("Produce", "KAFKA_STORAGE_ERROR", client_id="raw")
    found = [raw.produce("t", b"0").error_code for _ in range(3)]
    assert found == [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR, OK]
    with Raw(broker.bootstrap_servers, "somebody else") as other:
        assert other.produce("t", b"0").error_code == MOVED


def test_the_helpers_are_never_hit(broker: Broker, raw: Raw) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    with Raw(broker.bootstrap_servers, HELPER) as helper:
        assert helper.produce("t", b"0").error_code == OK
    assert fault.hits == 0


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda f: f.fail("Produse", "NONE"), "error: NONE is success; name an error"),
        (lambda f: f.fail("Produse", 6), r"api: found 'Produse', wanted Produce\?"),
        (lambda f: f.fail(999, 6), "api: found 999, wanted Kafka's name or number"),
        (lambda f: f.fail("Fetch", "NOT_LEADER"), r"'NOT_LEADER', wanted NOT_LEADER_OR_FOLLOWER\?"),
        (lambda f: f.fail("Fetch", 9999), "error: found 9999"),
        (lambda f: f.fail("Fetch", 6, times=0), "times: found 0, wanted 1 or more, or None"),
        (lambda f: f.delay("Fetch", -1), "ms: found -1, wanted 0 or more"),
        (lambda f: f.delay("Fetch", 1.5), "ms: found 1.5"),
    ],
)
def test_a_mistake_is_named(broker: Broker, call: Callable[[Any], object], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        call(broker.faults)
    assert broker.faults.all == ()


def test_there_are_so_many_at_most(broker: Broker) -> None:
    for _ in range(FAULTS_MAX):
        broker.faults.disconnect("Fetch")
    with pytest.raises(ArgumentError, match=f"{FAULTS_MAX} faults are set"):
        broker.faults.disconnect("Fetch")


def test_a_forked_child_does_not_abandon_its_parents_broker(broker: Broker, raw: Raw) -> None:
    child = os.fork()
    if not child:
        os._exit(0 if broker.abandon() == {} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert raw.produce("t", b"0").error_code == OK
