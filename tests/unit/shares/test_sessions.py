"""Share sessions: epochs, partitions, bounds, and connections that close."""

from uuid import UUID

import pytest

from kafkalog.shares.partition import Refused
from kafkalog.shares.sessions import EPOCH_MAX, FINAL, INITIAL, Key, Sessions, Where
from kafkalog.wire.error_codes import ErrorCode

A, B, C = (Where(UUID(int=1), number) for number in range(3))
KEY = Key("group", "member")


def sessions(most=10, bytes_max=1 << 20):
    return Sessions(most, bytes_max)


def fetch(known, epoch, wanted=(), forgotten=(), key=KEY, connection=7, acknowledges=False):
    return known.fetch(key, epoch, wanted, forgotten, connection, acknowledges=acknowledges)


def refused(code, call, *args, **rest):
    with pytest.raises(Refused) as found:
        call(*args, **rest)
    assert found.value.code is code


def test_a_session_grows_and_shrinks():
    known = sessions()
    session = fetch(known, INITIAL, [A, B])
    assert session.partitions == {A: False, B: False} and session.epoch == 1
    assert fetch(known, 1, [A, C], [B]) is session
    assert session.partitions == {A: False, C: True} and session.epoch == 2
    assert known.bytes == session.bytes
    assert known.acknowledge(KEY, 2).epoch == 3
    assert known.remove(KEY) is session and known.bytes == 0 and not known.connections()


def test_epochs_are_checked():
    known = sessions()
    for epoch in (1, FINAL):
        refused(ErrorCode.SHARE_SESSION_NOT_FOUND, fetch, known, epoch)
        refused(ErrorCode.SHARE_SESSION_NOT_FOUND, known.acknowledge, KEY, epoch)
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, known.acknowledge, KEY, INITIAL)
    refused(ErrorCode.INVALID_REQUEST, fetch, known, INITIAL, [A], acknowledges=True)
    session = fetch(known, INITIAL, [A])
    for epoch in (2, 7):
        refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, fetch, known, epoch)
        refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, known.acknowledge, KEY, epoch)
    assert known.acknowledge(KEY, FINAL) is session and fetch(known, FINAL) is None
    session.epoch = EPOCH_MAX
    assert fetch(known, EPOCH_MAX).epoch == 1


def test_a_new_session_replaces_the_old_one():
    known = sessions()
    fetch(known, INITIAL, [A], connection=7)
    assert fetch(known, INITIAL, [B], connection=8).partitions == {B: False}
    assert len(known) == 1 and known.connections() == [8]


def test_sessions_are_bounded():
    known = sessions(most=2)
    fetch(known, INITIAL)
    fetch(known, INITIAL, key=Key("group", "second"))
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, fetch, known, INITIAL, key=Key("g", "third"))
    assert fetch(known, INITIAL).epoch == 1  # it replaces its own
    known = sessions(bytes_max=3_000)
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, fetch, known, INITIAL,
            [Where(UUID(int=1), number) for number in range(20)])  # fmt: skip
    fetch(known, INITIAL)
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, fetch, known, 1,
            [Where(UUID(int=1), number) for number in range(20)])  # fmt: skip
    assert known.bytes == known.get(KEY).bytes


def test_a_closed_connection_ends_its_sessions():
    known = sessions()
    first, other = fetch(known, INITIAL), fetch(known, INITIAL, key=Key("other", "member"))
    kept = fetch(known, INITIAL, key=Key("group", "kept"), connection=9)
    assert sorted(one.key for one in known.closed(7)) == sorted([first.key, other.key])
    assert known.get(kept.key) is kept and known.closed(7) == [] and known.bytes == kept.bytes


def test_partitions_take_turns():
    known = sessions()
    session = fetch(known, INITIAL, [A, B, C])
    firsts = []
    for epoch in range(1, 4):
        firsts.append(session.in_turn()[0])
        fetch(known, epoch)
    assert sorted(firsts) == [A, B, C]


def test_the_partitions_of_all_sessions_are_counted():
    known, other = sessions(), Key("other", "member")
    assert known.partitions == 0
    fetch(known, INITIAL, [A, B])
    fetch(known, INITIAL, [A], key=other, connection=8)
    assert known.partitions == 3
    fetch(known, 1, [A, C], [B])
    fetch(known, 2, [B], [B, C])
    assert known.partitions == 2
    fetch(known, INITIAL, [A, B, C])
    assert known.partitions == 4
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, fetch, sessions(most=0), INITIAL, [A])
    known.closed(8)
    assert known.partitions == 3
    known.remove(KEY)
    assert known.partitions == 0
