"""A leader and its followers: what they may fetch, what becomes visible, which of them lag."""

from __future__ import annotations

from typing import Any

import pytest

import kafkalog
from kafkalog.errors import (
    ArgumentError,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotFound,
    NotLeaderOrFollower,
)
from kafkalog.log.log import handle_of
from kafkalog.replication.followers import CaughtUp, Follower
from kafkalog.server.network.reactor import RoleChange
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.plane.peer import ALL, LEADER, NONE, Peer, Served, one
from tests.unit.plane.test_fetch import fill

VERSIONS = (5, 11, 12, 13, 17, 18)


def who(version: int, node: int, broker_epoch: int = 7) -> dict[str, Any]:
    """How a follower names itself."""
    if version >= 15:
        return {"replica_state": {"replica_id": node, "replica_epoch": broker_epoch}}
    return {"replica_id": node}


def follow(peer: Peer, offset: int, node: int = 2, *, version: int = 17, **more: Any) -> Any:
    return peer.fetch_one(offset, version=version, **{**who(version, node), **more})


def lead(served: Served, *followers: Follower, epoch: int = 0, **role: Any) -> None:
    """Lead partition 0 of `t`, with these followers."""
    log = handle_of(served.logs["t", 0])
    served.reactor.put_partition(log, leader_epoch=epoch, durable=False, **role)
    served.reactor.set_followers("t", 0, followers)


def in_sync(node: int) -> Follower:
    return Follower(node, True, True, 7)


def outside(node: int) -> Follower:
    return Follower(node, False, False, 7)


def behind_ms(served: Served) -> list[int]:
    return [state.behind_ms for state in served.reactor.followers("t", 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_in_all_in_sync_replicas_are_visible(
    served: Served, peer: Peer, version: int
) -> None:
    log = served.put()
    fill(log, 5)
    lead(served, in_sync(2), in_sync(3), outside(4))
    fill(log, 5)
    assert (log.high_watermark, log.end_offset) == (5, 10)
    seen = peer.fetch_one(5, version=version)
    assert (seen.error_code, seen.records, seen.high_watermark) == (0, b"", 5)
    found = follow(peer, 5, version=version)
    assert (found.error_code, found.high_watermark) == (0, 5)
    assert len(found.records) > 0, "a follower reads up to the end"
    assert log.high_watermark == 5
    follow(peer, 10, version=version)
    assert log.high_watermark == 5, "node 3 has less"
    follow(peer, 8, 3, version=version)
    assert log.high_watermark == 8
    assert peer.fetch_one(5, version=version).records != b""
    follow(peer, 10, 3, version=version)
    assert log.high_watermark == 10


def test_a_follower_that_went_back_takes_nothing_back(served: Served, peer: Peer) -> None:
    log = served.put()
    lead(served, in_sync(2))
    fill(log, 6)
    follow(peer, 6)
    follow(peer, 2)
    assert log.high_watermark == 6


def test_alone_all_is_shown(served: Served, peer: Peer) -> None:
    log = served.put()
    lead(served, in_sync(2))
    fill(log, 3)
    assert log.high_watermark == 0
    served.reactor.set_followers("t", 0, [outside(2)])
    assert log.high_watermark == 3
    fill(log, 2)
    assert log.high_watermark == 5


def test_one_that_is_joining_counts(served: Served, peer: Peer) -> None:
    """The maximal ISR: whether the controller accepted it is not known yet."""
    log = served.put()
    lead(served, in_sync(2), outside(3))
    fill(log, 4)
    follow(peer, 4, 3)
    served.reactor.set_followers("t", 0, [in_sync(2), Follower(3, False, True, 7)])
    fill(log, 4)
    follow(peer, 8)
    assert log.high_watermark == 4
    follow(peer, 8, 3)
    assert log.high_watermark == 8


def test_acks_all_waits_for_the_copies(served: Served, peer: Peer, wait_until: Any) -> None:
    log = served.put()
    lead(served, in_sync(2), min_isr=2)
    peer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 1 and served.parked() == 1, "the produce waits")
    assert served.connect().produce_one(one(), acks=LEADER).error_code == 0
    follow(served.connect(), 1)
    assert peer.receive().responses[0].partition_responses[0].error_code == 0


def test_too_few_copies(served: Served, peer: Peer, wait_until: Any) -> None:
    log = served.put()
    lead(served, outside(2), min_isr=2)
    assert peer.produce_one(one(), acks=ALL).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(NotEnoughReplicas, match=r"1 copies .* wants 2"):
        served.reactor.append("t", 0, one())
    assert log.end_offset == 0, "nothing was written"
    assert peer.produce_one(one(), acks=LEADER).error_code == 0
    lead(served, in_sync(2), min_isr=2)
    peer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 2 and served.parked() == 1, "the produce waits")
    served.reactor.set_followers("t", 0, [outside(2)])
    (answer,) = peer.receive().responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_leader_that_hands_over(served: Served, peer: Peer, wait_until: Any) -> None:
    """It refuses acks=1, which a later leader may lack, and takes the rest."""
    log = served.put()
    lead(served, in_sync(2), hands_over=True)
    refused = peer.produce_one(one(), acks=LEADER)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "about to be led by another node" in refused.error_message
    with pytest.raises(NotLeaderOrFollower, match="about to be led by another node"):
        served.reactor.append("t", 0, one(), acks=LEADER)
    assert log.end_offset == 0
    peer.send_produce({("t", 0): one()}, acks=NONE)
    peer.expects_nothing()
    peer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 2 and served.parked() == 1, "the produce waits")
    follow(served.connect(), 2)
    assert peer.receive().responses[0].partition_responses[0].error_code == 0


def test_a_leader_that_hands_over_alone(served: Served, peer: Peer) -> None:
    """No other node can lead: it takes acks=1 until one may be in sync."""
    log = served.put()
    lead(served, outside(2), hands_over=True)
    assert peer.produce_one(one(), acks=LEADER).error_code == 0
    assert log.high_watermark == 1
    served.reactor.set_followers("t", 0, [Follower(2, False, True, 7)])
    assert peer.produce_one(one(), acks=LEADER).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    served.reactor.set_followers("t", 0, [outside(2)])
    assert peer.produce_one(one(), acks=LEADER).error_code == 0
    lead(served, in_sync(2))
    assert peer.produce_one(one(), acks=LEADER).error_code == 0, "another reign"


def test_a_copy_that_follows_takes_no_records(served: Served, peer: Peer, wait_until: Any) -> None:
    log = served.put()
    lead(served, in_sync(2))
    peer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 1 and served.parked() == 1, "the produce waits")
    lead(served, epoch=1, led_by=2)
    (answer,) = peer.receive().responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for acks in (ALL, LEADER):
        assert peer.produce_one(one(), acks=acks).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(NotLeaderOrFollower, match="led by node 2"):
        served.reactor.append("t", 0, one())
    assert log.end_offset == 1
    assert follow(peer, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert peer.fetch_one(0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    told = peer.fetch_one(0, version=11)
    assert (told.error_code, told.records) == (0, b""), "rack-aware clients read any replica"
    hint = follow(peer, 0).current_leader
    assert (hint.leader_id, hint.leader_epoch) == (2, 1)
    lead(served, epoch=2)
    assert log.high_watermark == 1
    assert peer.produce_one(one(), acks=ALL).error_code == 0


def test_foreign_followers_are_refused(served: Served, peer: Peer) -> None:
    fill(served.put(), 3)
    lead(served, in_sync(2))
    assert follow(peer, 0, 5).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    earlier = peer.fetch_one(0, version=17, **who(17, 2, broker_epoch=6))
    assert earlier.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follow(peer, 0).error_code == 0
    assert follow(peer, 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    fenced = follow(peer, 0, current_leader_epoch=1)
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_how_far_followers_are(served: Served, peer: Peer) -> None:
    log = served.put()
    lead(served, in_sync(2))
    assert behind_ms(served) == [0], "it counts as caught up when it became one"
    served.advance(100)
    assert behind_ms(served) == [100]
    follow(peer, 0)
    served.advance(100)
    assert behind_ms(served) == [0], "it has all there is, whatever the time"
    fill(log, 4)
    assert behind_ms(served) == [100]
    served.advance(50)
    follow(peer, 2)
    assert behind_ms(served) == [150], "what was there when it fetched before: until then"
    served.advance(50)
    follow(peer, 4)
    (state,) = served.reactor.followers("t", 0)
    assert (state.follower, state.log_end, state.behind_ms) == (in_sync(2), 4, 0)


def test_a_quiet_partition_of_a_session_is_heard_of(served: Served, peer: Peer) -> None:
    """A session skips unchanged partitions; their followers still count as caught up."""
    log = served.put()
    lead(served, in_sync(2))
    more: dict[str, Any] = {**who(17, 2), "version": 17}
    session = peer.fetch({("t", 0): 0}, session_epoch=0, **more).session_id
    for epoch in range(1, 30):
        served.advance(500)
        peer.fetch({}, session_id=session, session_epoch=epoch, **more)
    fill(log, 1)
    assert 0 <= behind_ms(served)[0] <= 1_000
    peer.fetch({("t", 0): 1}, session_id=session, session_epoch=30, **more)
    assert log.high_watermark == 1


def test_a_caught_up_follower_is_reported_once(served: Served, peer: Peer) -> None:
    log = served.put()
    fill(log, 5)
    lead(served, outside(2), epoch=3, tag=77)
    fill(log, 5)
    follow(peer, 4, current_leader_epoch=3)
    assert served.reactor.caught_up(0) is None
    follow(peer, 10, current_leader_epoch=3)
    follow(peer, 10, current_leader_epoch=3)
    assert served.reactor.caught_up(1_000) == CaughtUp(77, 2, 7, 3)
    assert served.reactor.caught_up(0) is None
    served.reactor.set_followers("t", 0, [outside(2)])
    follow(peer, 10, current_leader_epoch=3)
    assert served.reactor.caught_up(1_000) == CaughtUp(77, 2, 7, 3)
    served.reactor.set_followers("t", 0, [in_sync(2)])
    follow(peer, 10)
    assert served.reactor.caught_up(0) is None


def test_a_new_epoch_begins_with_nothing_fetched(served: Served, peer: Peer) -> None:
    log = served.put()
    lead(served, in_sync(2))
    fill(log, 4)
    follow(peer, 4)
    lead(served, in_sync(2), epoch=1)
    fill(log, 1)
    (state,) = served.reactor.followers("t", 0)
    assert state.log_end == -1
    assert log.high_watermark == 4
    follow(peer, 5)
    assert log.high_watermark == 5


def test_invalid_followers(served: Served) -> None:
    served.put()
    for wrong in ([in_sync(-1)], [in_sync(2), in_sync(2)], [Follower(2, True, False)]):
        with pytest.raises(ArgumentError):
            served.reactor.set_followers("t", 0, wrong)
    with pytest.raises(ArgumentError, match="1001 followers"):
        served.reactor.set_followers("t", 0, [in_sync(n) for n in range(1001)])
    with pytest.raises(NotFound):
        served.reactor.set_followers("t", 9, [])
    assert served.reactor.followers("t", 0) == []
    served.reactor.set_followers("t", 0, [in_sync(n) for n in range(2, 60)])
    assert len(served.reactor.followers("t", 0)) == 58


def test_a_transaction_is_stable_when_its_marker_is_copied(served: Served) -> None:
    """The last stable offset stays below the high watermark."""
    log: kafkalog.Log = served.put()
    fill(log, 2)
    lead(served, in_sync(2))
    fill(log, 2)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)


def test_a_waiting_follower_is_woken_by_uncommitted_records(
    served: Served, peer: Peer, wait_until: Any
) -> None:
    log = served.put()
    lead(served, in_sync(2))
    peer.send_fetch({("t", 0): 0}, version=17, max_wait_ms=60_000, **who(17, 2))
    consumer = served.connect()
    consumer.send_fetch({("t", 0): 0}, version=17, max_wait_ms=60_000)
    wait_until(lambda: served.parked() == 2, "both wait")
    fill(log, 1)
    (topic,) = peer.receive().responses
    assert topic.partitions[0].records != b""
    assert served.parked() == 1
    follow(peer, 1)
    (topic,) = consumer.receive().responses
    assert topic.partitions[0].records != b""


# ---- what followers share state with -------------------------------------------------------------


def test_an_append_that_is_held_for_the_disk_is_shown_when_both_have_it(
    served: Served, peer: Peer, faults: Any, wait_until: Any
) -> None:
    """durability=fsync: the leader's disk and the followers, whichever is last."""
    log = served.put(durable=True)
    served.reactor.set_followers("t", 0, [in_sync(2)])
    fill(log, 1)
    log.flush()
    for offset, disk_first in ((1, True), (2, False)):
        faults.kl_io_hold(b"fdatasync", faults.KL_HOLD_ALL)
        produces = served.connect()
        produces.send_produce({("t", 0): one()}, acks=ALL)
        wait_until(lambda end=offset + 1: log.end_offset == end, "it is written")
        if not disk_first:
            follow(peer, offset + 1)
            assert log.high_watermark == offset
        faults.kl_io_hold(b"fdatasync", faults.KL_HOLD_NONE)
        if disk_first:
            wait_until(lambda end=offset + 1: log.flushed_offset == end, "it is on disk")
            assert log.high_watermark <= offset
            follow(peer, offset + 1)
        (answer,) = produces.receive().responses[0].partition_responses
        assert (answer.error_code, log.high_watermark) == (0, offset + 1)


def test_a_reader_in_another_process_sees_committed_records(served: Served, peer: Peer) -> None:
    log = served.put()
    lead(served, in_sync(2))
    fill(log, 5)
    with kafkalog.Log(served.folder / "t-0", mode="r") as reader:
        assert (reader.high_watermark, len(list(reader.read()))) == (0, 0)
        follow(peer, 3)
        assert (reader.high_watermark, len(list(reader.read()))) == (3, 3)


def test_records_that_are_not_copied_are_not_deleted(served: Served, peer: Peer) -> None:
    log = served.put()
    lead(served, in_sync(2))
    fill(log, 5)
    follow(peer, 3)
    with pytest.raises(kafkalog.OffsetOutOfRange):
        log.delete_before(4)
    log.delete_before(3)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (3, 3, 5)


def test_a_truncation_takes_the_high_watermark_with_it(served: Served, peer: Peer) -> None:
    log = served.put()
    lead(served, in_sync(2))
    fill(log, 5)
    follow(peer, 5)
    log.truncate(2)
    assert log.high_watermark == 2
    fill(log, 2)
    assert log.high_watermark == 2, "what the follower had is not what is there now"
    follow(peer, 2)
    assert log.high_watermark == 2
    follow(peer, 4)
    assert log.high_watermark == 4


def test_one_without_a_log_has_followers(served: Served, peer: Peer) -> None:
    """It gets its log with its first record."""
    served.put()
    served.reactor.put_empty("t", 1, leader_epoch=0, durable=False)
    served.reactor.set_followers("t", 1, [in_sync(2)])
    assert follow(peer, 0, place=("t", 1)).error_code == 0
    with kafkalog.Log(served.folder / "t-1") as log:
        served.reactor.put_partition(handle_of(log), leader_epoch=0, durable=False)
        fill(log, 3)
        assert log.high_watermark == 0
        follow(peer, 3, place=("t", 1))
        assert log.high_watermark == 3
        served.reactor.remove_partition("t", 1)


def test_a_copy_that_leads_alone_shows_all(served: Served, peer: Peer) -> None:
    """Its last leader's high watermark does not matter, also when it leads alone again."""
    log = served.put()
    handle = handle_of(log)
    for epoch in (0, 1):
        lead(served, epoch=2 * epoch, led_by=2)
        handle.show_until(log.end_offset)
        handle.lead(2 * epoch + 1)
        lead(served, outside(2), epoch=2 * epoch + 1)
        assert peer.produce_one(one(), acks=ALL).error_code == 0
        assert log.high_watermark == log.end_offset == epoch + 1


def test_followers_of_an_earlier_epoch_show_nothing(served: Served, peer: Peer) -> None:
    """Between the change that makes it leader again and the one that names its followers."""
    log = served.put()
    lead(served, in_sync(2))
    fill(log, 3)
    follow(peer, 3)
    lead(served, epoch=1, led_by=2)
    handle_of(log).show_until(3)
    served.reactor.put_partition(handle_of(log), leader_epoch=2, durable=False)
    fill(log, 2)
    follow(peer, 5)
    assert log.high_watermark == 3
    served.reactor.set_followers("t", 0, [in_sync(2), in_sync(3)])
    assert log.high_watermark == 3
    follow(peer, 5)
    follow(peer, 5, 3)
    assert log.high_watermark == 5


def test_many_roles_change_at_once(served: Served, peer: Peer) -> None:
    """Each as if it were alone: a partition that cannot take its new role keeps the old one, and
    does not hold up the others."""
    served.put(partitions=3)
    logs = [served.logs["t", number] for number in range(3)]
    for log in logs:
        fill(log, 3)
    handle_of(logs[1]).lead(5)  # it knows a later leader epoch than the one given here
    roles = [{"leader_epoch": 4, "durable": False, "led_by": led_by} for led_by in (None, None, 9)]
    changes = [
        RoleChange(handle_of(log), role, [in_sync(2)] if role["led_by"] is None else ())
        for log, role in zip(logs, roles, strict=True)
    ]
    assert served.reactor.change_roles(changes) == [True, False, True]
    assert handle_of(logs[0]).state().leader_epoch == 4
    assert [one.follower for one in served.reactor.followers("t", 0)] == [in_sync(2)]
    assert served.reactor.followers("t", 1) == []
    fill(logs[0], 2)
    assert logs[0].high_watermark == 3
    follow(peer, 5, current_leader_epoch=4)
    assert logs[0].high_watermark == 5
    refused = peer.produce_one(one(), ("t", 2))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert served.reactor.change_roles([]) == []


# ---- the replica nearest to a consumer -----------------------------------------------------


def near(peer: Peer, offset: int, rack: str, **more: Any) -> tuple[int, int, bytes]:
    """The answer to a consumer in a rack: error, preferred read replica, records."""
    found = peer.fetch_one(offset, rack_id=rack, **more)
    return found.error_code, found.preferred_read_replica, found.records


@pytest.mark.parametrize("version", [11, 12, 13, 18])
def test_a_consumer_is_sent_to_the_copy_in_its_rack(
    served: Served, peer: Peer, version: int
) -> None:
    """The replica must have the offset; of several, the one with the most is named."""
    log = served.put()
    fill(log, 5)
    lead(served, in_sync(2), in_sync(3), in_sync(4))
    served.reactor.set_racks({2: "here", 3: "here", 4: "there"})
    assert near(peer, 0, "here", version=version)[1] == -1, "they have nothing yet"
    follow(peer, 3, 2)
    follow(peer, 4, 3)
    found = peer.fetch_one(2, rack_id="here", version=version)
    assert (found.error_code, found.preferred_read_replica, found.records) == (0, 3, b"")
    assert (found.high_watermark, found.last_stable_offset) == (log.high_watermark,) * 2
    follow(peer, 5, 2)
    assert near(peer, 4, "here", version=version) == (0, 2, b"")
    assert near(peer, 5, "here", version=version) == (0, 2, b""), "at once, though nothing is there"
    for rack in ("", "there", "elsewhere", "her", "heres"):
        assert near(peer, 0, rack, version=version)[1] == -1
    follow(peer, 5, 4)
    assert near(peer, 0, "there", version=version)[1] == 4


def test_no_consumer_is_sent_to_a_copy_outside_the_isr(served: Served, peer: Peer) -> None:
    """Not even if it has the offset: it may never catch up, and a consumer there would see
    nothing new."""
    log = served.put()
    fill(log, 5)
    lead(served, in_sync(2), outside(3))
    served.reactor.set_racks({2: "here", 3: "here"})
    follow(peer, 4, 2)
    follow(peer, 5, 3)
    assert near(peer, 0, "here")[1] == 2, "although 3 is further"
    lead(served, outside(2), outside(3))
    follow(peer, 5, 2)
    error, preferred, records = near(peer, 0, "here")
    assert (error, preferred) == (0, -1) and records, "the leader serves it"
    lead(served, in_sync(2), outside(3))
    follow(peer, 5, 2)
    assert near(peer, 5, "here")[1] == 2


def test_fetches_that_stay_at_the_leader(served: Served, peer: Peer) -> None:
    """A follower, a consumer near the leader, a wrong offset, or no replica with a rack."""
    log = served.put()
    fill(log, 5)
    lead(served, in_sync(2))
    follow(peer, 5)
    assert near(peer, 0, "here")[1] == -1
    served.reactor.set_racks({2: "here"})
    assert near(peer, 0, "here")[1] == 2
    assert follow(peer, 5, rack_id="here").preferred_read_replica == -1
    error, preferred, _ = near(peer, 9, "here")
    assert (error, preferred) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    served.reactor.set_racks({2: "here", 1: "here"})
    assert near(peer, 0, "here")[1] == -1
    served.reactor.set_racks({})
    assert near(peer, 0, "here")[1] == -1
    with pytest.raises(ArgumentError, match="300 bytes"):
        served.reactor.set_racks({2: "x" * 300})


def test_a_session_sends_its_consumer_elsewhere(served: Served, peer: Peer) -> None:
    """Also once it has read everything: the answer names the replica without any record."""
    log = served.put()
    fill(log, 5)
    lead(served, in_sync(2))
    served.reactor.set_racks({2: "here"})
    first = peer.fetch({("t", 0): 0}, version=12, rack_id="here", session_epoch=0)
    session = {"session_id": first.session_id, "version": 12, "rack_id": "here"}
    assert first.responses[0].partitions[0].preferred_read_replica == -1
    follow(peer, 5)
    again = peer.fetch({("t", 0): 5}, session_epoch=1, **session)
    assert again.responses[0].partitions[0].preferred_read_replica == 2


# ---- the epoch in which an append was accepted -----------------------------------------------


def test_an_append_of_another_epoch_is_refused(served: Served, peer: Peer) -> None:
    """Accepted in epoch 5, refused in 7, whether or not the replica followed in between; an epoch
    ahead of the role's is refused, too."""
    log = served.put()
    lead(served, epoch=5)
    assert served.reactor.append("t", 0, one(), leader_epoch=5).base_offset == 0
    lead(served, epoch=6, led_by=2)
    with pytest.raises(NotLeaderOrFollower, match="led by node 2"):
        served.reactor.append("t", 0, one(), leader_epoch=5)
    lead(served, epoch=7)
    for acks in (ALL, LEADER):
        with pytest.raises(NotLeaderOrFollower, match="leader epoch 7, expected 5"):
            served.reactor.append("t", 0, one(), leader_epoch=5, acks=acks)
    with pytest.raises(NotLeaderOrFollower, match="leader epoch 7, expected 8"):
        served.reactor.append("t", 0, one(), leader_epoch=8)
    assert (log.end_offset, log.high_watermark) == (1, 1)
    assert served.reactor.append("t", 0, one(), leader_epoch=7).base_offset == 1
    assert peer.produce_one(one()).base_offset == 2


def test_a_partition_that_gets_its_log_gets_its_epoch(served: Served, peer: Peer) -> None:
    served.put()
    served.reactor.put_empty("t", 1, leader_epoch=5, durable=False)
    log = served.logs["t", 1] = kafkalog.Log(served.folder / "t-1")
    served.reactor.put_partition(handle_of(log), leader_epoch=5, durable=False)
    assert handle_of(log).state().leader_epoch == 5
    assert peer.produce_one(one(), ("t", 1)).base_offset == 0


def test_a_role_of_an_epoch_that_is_over(served: Served, peer: Peer) -> None:
    """The partition keeps its role."""
    log = served.put()
    lead(served, epoch=7)
    assert peer.produce_one(one()).error_code == 0
    with pytest.raises(FencedLeaderEpoch, match="leader epoch 6, known is 7"):
        lead(served, epoch=6)
    assert served.reactor.append("t", 0, one(), leader_epoch=7).base_offset == 1
    assert log.end_offset == 2
