"""Produce and Fetch ask whether their principal may write or read, and report what they did."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkalog._native import lib
from kafkalog.errors import ArgumentError, Closed, NotFound
from kafkalog.security.permissions import Kind, Operation
from kafkalog.server.network.reactor import ANONYMOUS, RIGHTS
from kafkalog.server.network.rights import Denied
from kafkalog.server.rules import NOTHING
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import LIMIT_S
from tests.unit.plane.peer import ALL, FETCH_VERSIONS, NONE, PRODUCE_VERSIONS, one, topic_id
from tests.unit.plane.test_sessions import again, begin

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
WRITE, READ, REPLICATE = lib.KL_MAY_WRITE, lib.KL_MAY_READ, lib.KL_MAY_REPLICATE


def permit(served: Any, rights: int, throttle_ms: int = 0) -> None:
    served.reactor.set_permit(ANONYMOUS, rights, throttle_ms)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [1, ALL])
def test_produce_needs_the_right_to_write(served, peer, version, acks):
    log = served.put()
    permit(served, RIGHTS & ~WRITE)
    assert peer.produce_one(one(), version=version, acks=acks).error_code == DENIED
    assert log.end_offset == 0
    permit(served, WRITE)
    assert peer.produce_one(one(), version=version, acks=acks).error_code == 0


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_needs_the_right_to_read(served, peer, version):
    served.put().append(b"v")
    permit(served, RIGHTS & ~READ)
    found = peer.fetch_one(0, version=version)
    assert (found.error_code, found.records or b"") == (DENIED, b"")
    assert (found.high_watermark, found.log_start_offset if version >= 5 else -1) == (-1, -1)
    permit(served, READ)
    assert peer.fetch_one(0, version=version).error_code == 0


def test_followers_need_the_right_to_replicate(served, peer):
    served.put()
    permit(served, RIGHTS & ~REPLICATE)
    assert peer.fetch_one(0, replica_id=2).error_code == DENIED
    permit(served, REPLICATE)
    # It may fetch, but is no replica of this partition.
    assert peer.fetch_one(0, replica_id=2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert peer.fetch_one(0).error_code == DENIED


def test_a_denied_principal_cannot_see_existing_names(served, peer):
    served.put()
    permit(served, 0)
    for place in (("t", 0), ("t", 9), ("missing", 0)):
        assert peer.produce_one(one(), place).error_code == DENIED
        assert peer.fetch_one(0, place).error_code == DENIED


def test_an_unknown_topic_id_is_unknown_to_everybody(served, peer):
    served.put()
    permit(served, 0)
    peer.topic_ids["t"] = uuid.uuid4()
    peer.send_fetch({("t", 0): 0}, version=13)
    taken = served.reactor.take(10_000)  # Python may know the topic
    served.reactor.again(taken.id)
    (topic,) = peer.receive().responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    peer.topic_ids["t"] = topic_id("t")
    assert peer.fetch_one(0, version=13).error_code == DENIED


def test_a_denied_produce_without_acks_closes_the_connection(served, peer):
    """As any other error of it: there is no answer that could report it."""
    served.put()
    permit(served, 0)
    peer.send_produce({("t", 0): one()}, acks=NONE)
    assert peer.is_closed()


def test_a_fetch_session_notices_changed_rights_in_its_next_request(served, peer):
    log = served.put(partitions=2)
    log.append(b"v")
    session = begin(peer, {("t", 0): 1, ("t", 1): 0}).session_id
    assert again(peer, session, 1).responses == []
    permit(served, 0)
    denied = again(peer, session, 2).responses
    assert [p.error_code for t in denied for p in t.partitions] == [DENIED, DENIED]
    permit(served, READ)
    (topic,) = again(peer, session, 3).responses
    assert sorted(p.partition_index for p in topic.partitions) == [0, 1]
    assert {p.error_code for p in topic.partitions} == {0}
    assert again(peer, session, 4).responses == []


def test_the_throttle_time_is_reported_in_answers(served, peer):
    served.put()
    permit(served, RIGHTS, throttle_ms=123)
    for version in PRODUCE_VERSIONS:
        assert peer.produce({("t", 0): one()}, version=version).throttle_time_ms == 123
    for version in FETCH_VERSIONS:
        assert peer.fetch({("t", 0): 0}, version=version).throttle_time_ms == 123
    permit(served, RIGHTS)
    assert peer.fetch({("t", 0): 0}).throttle_time_ms == 0


def test_usage_counts_requests_bytes_and_denied_partitions(served, peer):
    served.put(partitions=2)
    data = one()
    peer.produce({("t", 0): data, ("t", 1): data})
    peer.fetch({("t", 0): 0, ("t", 1): 0})
    usage = served.reactor.usage(ANONYMOUS)
    assert (usage.produce_requests, usage.fetch_requests, usage.denied) == (1, 1, 0)
    assert usage.fetch_bytes == 2 * len(data) < usage.produce_bytes < 2 * len(data) + 200
    permit(served, 0)
    peer.produce({("t", 0): data, ("t", 1): data})
    peer.fetch({("t", 0): 0})
    after = served.reactor.usage(ANONYMOUS)
    assert (after.produce_requests, after.fetch_requests, after.denied) == (2, 2, 3)
    assert after.fetch_bytes == usage.fetch_bytes


def test_a_fetch_of_an_unknown_session_counts_no_partition(served, peer):
    """The fetch that ends in a session error was never looked up."""
    served.put()
    permit(served, 0)
    peer.fetch({("t", 0): 0})
    assert served.reactor.usage(ANONYMOUS).denied == 1
    peer.fetch({("t", 0): 0}, session_id=77, session_epoch=5)
    assert served.reactor.usage(ANONYMOUS).denied == 1


@pytest.mark.parametrize(
    ("principal", "rights", "throttle_ms"),
    [(-1, 0, 0), (lib.KL_PRINCIPALS_MAX, 0, 0), (2, 8, 0), (2, -1, 0), (2, 0, -1)],
)
def test_invalid_permits_are_refused(served, principal, rights, throttle_ms):
    with pytest.raises(ArgumentError):
        served.reactor.set_permit(principal, rights, throttle_ms)
    with pytest.raises(NotFound):
        served.reactor.usage(principal)


def test_the_last_principal_has_a_place(served):
    last = lib.KL_PRINCIPALS_MAX - 1
    with pytest.raises(NotFound):
        served.reactor.usage(last)
    served.reactor.set_permit(last, READ)
    assert set(served.reactor.usage(last)) == {0}


def test_taken_requests_carry_their_principal(served, peer):
    peer.send_fetch({("missing", 0): 0})
    taken = served.reactor.take(10_000)
    assert taken.principal == ANONYMOUS
    served.reactor.again(taken.id)
    peer.receive()


# ---- denials for the log -----------------------------------------------------------------------


def denials(served: Any) -> list[Denied]:
    """All that wait."""
    return list(iter(lambda: served.reactor.denial(0), None))


def test_denials_are_kept_until_they_are_taken(served, peer):
    """One that is repeated is kept once; what is allowed is not."""
    served.put()
    assert peer.produce_one(one()).error_code == 0
    permit(served, 0)
    for _ in range(3):
        assert peer.produce_one(one()).error_code == DENIED
        assert peer.fetch_one(0).error_code == DENIED
    assert peer.fetch_one(0, ("missing", 0)).error_code == DENIED
    assert peer.fetch_one(0, replica_id=2).error_code == DENIED
    assert denials(served) == [
        Denied(ANONYMOUS, 0, Operation.WRITE, Kind.TOPIC, "t", 0),
        Denied(ANONYMOUS, 0, Operation.READ, Kind.TOPIC, "t", 0),
        Denied(ANONYMOUS, 0, Operation.READ, Kind.TOPIC, "missing", 0),
        Denied(ANONYMOUS, 0, Operation.CLUSTER_ACTION, Kind.CLUSTER, "kafka-cluster", 0),
    ]
    assert peer.fetch_one(0).error_code == DENIED
    assert [found.name for found in denials(served)] == ["t"]


def test_kept_denials_are_bounded(served, peer):
    """The first ones are kept; of the rest their number, and of a long name its beginning."""
    permit(served, 0)
    names = [f"{number:03d}" + "x" * 300 for number in range(100)]
    peer.fetch({(name, 0): 0 for name in names})
    found = denials(served)
    assert [one.name for one in found] == [name[:256] for name in names[:16]]
    assert [one.lost for one in found] == [84] + [0] * 15


def test_a_request_that_python_has_checked_is_not_kept(served, peer):
    """Python logs what it denies itself."""
    served.put(topic="u")
    served.reactor.set_rules(ANONYMOUS, 0, [NOTHING, NOTHING], unnamed=False)
    served.reactor.outdate_rules([NOTHING, NOTHING])
    for send in (lambda: peer.send_produce({("t", 0): one()}),
                 lambda: peer.send_fetch({("t", 0): 0})):  # fmt: skip
        served.reactor.outdate_rules([NOTHING, NOTHING])
        send()
        taken = served.reactor.take(10_000)
        served.reactor.set_rules(ANONYMOUS, 0, [NOTHING, NOTHING], unnamed=False)
        served.reactor.again(taken.id)
        peer.receive()
    assert denials(served) == []
    assert peer.fetch_one(0).error_code == DENIED
    assert [found.name for found in denials(served)] == ["t"]


def test_the_end_of_the_server_ends_the_wait_for_a_denial(served, peer):
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(served.reactor.denial, 60_000)
        served.reactor.stop(0)
        with pytest.raises(Closed):
            waits.result(LIMIT_S)
