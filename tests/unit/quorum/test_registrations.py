"""Brokers register, send heartbeats, and are fenced."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import pytest

from kafkalog.quorum.sessions import Heartbeat, Sessions, State, next_state
from kafkalog.quorum.store import SessionsDue
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.cluster import UNREGISTER_BROKER
from tests.unit.quorum.driven import SESSION_MS, Driven, directory


@pytest.fixture
def cluster() -> Driven:
    return Driven()


def create(cluster: Driven, *replicas: int) -> None:
    topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "configs": [],
             "assignments": [{"partition_index": 0, "broker_ids": list(replicas)}]}  # fmt: skip
    answer = cluster.ask(apis.CREATE_TOPICS, topics=[topic], timeout_ms=1, validate_only=False)
    assert answer.topics[0].error_code == 0


def test_a_brokers_epoch_is_the_offset_of_its_registration(cluster: Driven) -> None:
    answer = cluster.register(4)
    assert cluster.log[answer.broker_epoch][0] == "RegisterBrokerRecord"
    assert cluster.image.brokers[4].epoch == answer.broker_epoch
    assert cluster.image.brokers[4].fenced


def test_a_broker_is_unfenced_once_it_has_read_its_registration(cluster: Driven) -> None:
    epoch = cluster.register(4).broker_epoch
    early = cluster.beat(4, current_metadata_offset=epoch - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    waits = cluster.beat(4, want_fence=True)
    assert (waits.is_caught_up, waits.is_fenced) == (True, True)
    assert not cluster.beat(4, current_metadata_offset=epoch).is_fenced
    before = len(cluster.log)
    assert not cluster.beat(4).is_fenced
    assert len(cluster.log) == before, "a heartbeat that changes nothing writes nothing"


@pytest.mark.parametrize(
    ("other", "error"),
    [({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
     ({"listeners": []}, ErrorCode.INVALID_REGISTRATION),
     ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
     ({"log_dirs": [directory(4)] * 2}, ErrorCode.INVALID_REGISTRATION),
     ({"log_dirs": [directory(1)]}, ErrorCode.INVALID_REGISTRATION),
     ({"features": []}, ErrorCode.UNSUPPORTED_VERSION)],
)  # fmt: skip
def test_a_broker_that_does_not_fit_is_refused(
    cluster: Driven, other: dict[str, Any], error: ErrorCode
) -> None:
    before = len(cluster.log)
    answer = cluster.register(4, **other)
    assert (answer.error_code, answer.broker_epoch) == (error, -1)
    assert len(cluster.log) == before


def test_two_brokers_with_one_id_do_not_take_turns(cluster: Driven) -> None:
    cluster.beat(3)
    assert cluster.register(3).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.fence(3)
    assert cluster.register(3).error_code == ErrorCode.NONE


@pytest.mark.parametrize("leads", [False, True])
def test_a_broker_that_stopped_in_order_begins_its_next_life_at_once(
    cluster: Driven, leads: bool
) -> None:
    """The answer to its last heartbeat may be lost: it sends that again, or ends without it."""
    create(cluster, *((3, 1) if leads else (1, 3)))
    for last in (1, 2):
        for _ in range(last):
            while not cluster.beat(3, want_shut_down=True).should_shut_down:
                cluster.beat(1)
                cluster.beat(2)
        assert cluster.image.brokers[3].fenced
        previous = cluster.image.brokers[3].epoch
        assert cluster.register(3, previous_broker_epoch=previous).error_code == ErrorCode.NONE
        assert cluster.register(3).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert not cluster.beat(3).is_fenced
        assert cluster.register(3).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_another_controller_lets_it_begin_its_next_life_at_once(cluster: Driven) -> None:
    """A broker that is not fenced has a session with each new controller; so has one that is, from
    its next heartbeat on."""
    assert cluster.beat(3, want_shut_down=True).should_shut_down
    cluster.beat(2, want_fence=True)
    cluster.elect()
    assert cluster.register(1).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.beat(2, want_fence=True)
    assert cluster.register(2).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.register(3).error_code == ErrorCode.NONE


def test_a_broker_that_may_not_stop_yet_has_a_session(cluster: Driven) -> None:
    cluster.beat(3, want_fence=True)
    assert cluster.register(3).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_the_same_life_registers_twice_and_keeps_its_epoch(cluster: Driven) -> None:
    life = uuid.uuid4()
    first = cluster.register(4, incarnation_id=life)
    cluster.beat(4)
    again = cluster.register(4, incarnation_id=life, rack="r")
    assert again.broker_epoch == first.broker_epoch
    assert (cluster.image.brokers[4].rack, cluster.image.brokers[4].fenced) == ("r", False)


def test_a_heartbeat_of_an_earlier_life_is_refused(cluster: Driven) -> None:
    epoch = cluster.image.brokers[3].epoch
    cluster.fence(3)
    cluster.register(3)
    assert cluster.beat(3, broker_epoch=epoch).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.beat(3).error_code == ErrorCode.NONE


def test_a_new_controller_waits_a_whole_session(cluster: Driven) -> None:
    create(cluster, 1, 2)
    cluster.now_ms += SESSION_MS - 1
    cluster.elect()
    cluster.now_ms += SESSION_MS - 1
    cluster.give(SessionsDue())
    assert cluster.partition("t").leader == 1
    assert cluster.sessions.next_ms(cluster.image.brokers) == cluster.now_ms + 1
    cluster.now_ms += 1
    cluster.give(SessionsDue())
    assert all(one.fenced for one in cluster.image.brokers.values())
    assert cluster.partition("t").isr == (1, 2), "nobody is removed when all are gone"


def test_brokers_that_die_together_are_fenced_in_one_append(cluster: Driven) -> None:
    create(cluster, 1, 2, 3)
    before = len(cluster.log)
    cluster.fence(1, 2)
    names = [name for name, _ in cluster.log[before:]]
    assert names == ["PartitionChangeRecord"] + ["BrokerRegistrationChangeRecord"] * 2
    assert cluster.partition("t").leader == 3


def test_fenced_brokers_have_no_session_that_could_end(cluster: Driven) -> None:
    cluster.fence(1, 2, 3)
    cluster.register(4)
    assert cluster.sessions.next_ms(cluster.image.brokers) is None


def test_cordoned_directories_are_kept(cluster: Driven) -> None:
    cluster.beat(3, cordoned_log_dirs=[directory(3)])
    assert cluster.image.brokers[3].cordoned == (directory(3),)
    before = len(cluster.log)
    cluster.beat(3, cordoned_log_dirs=[directory(3)])
    cluster.beat(3)
    assert len(cluster.log) == before
    life = cluster.image.brokers[3].incarnation_id
    cluster.register(3, incarnation_id=life)
    assert cluster.image.brokers[3].cordoned == (directory(3),)
    cluster.beat(3, cordoned_log_dirs=[])
    assert cluster.image.brokers[3].cordoned == ()


def test_an_unregistered_broker_is_gone(cluster: Driven) -> None:
    create(cluster, 3, 1)
    assert cluster.ask(UNREGISTER_BROKER, broker_id=3).error_code == ErrorCode.NONE
    assert 3 not in cluster.image.brokers
    assert cluster.partition("t").leader == 1
    again = cluster.ask(UNREGISTER_BROKER, broker_id=3)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_replicas_of_a_directory_that_fails_are_offline(cluster: Driven) -> None:
    create(cluster, 1, 2)
    lost = [directory(1)]
    for left in ([], [uuid.uuid4()]):
        cluster.fence(1)
        cluster.register(1, log_dirs=[*lost, *left])
        cluster.beat(1)
        cluster.beat(1, offline_log_dirs=lost)
        one = cluster.partition("t")
        assert (one.leader, one.isr) == (2, (2,))
        assert cluster.image.brokers[1].directories == tuple(left or lost)
        before = len(cluster.log)
        cluster.beat(1, offline_log_dirs=lost)
        assert len(cluster.log) == before, "each heartbeat repeats it"


def test_a_broker_without_leaderships_stops_at_once(cluster: Driven) -> None:
    create(cluster, 1, 3)
    answer = cluster.beat(3, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert cluster.partition("t").isr == (1,)


def test_every_state_and_heartbeat() -> None:
    """Kafka's table: state, caught up, wants to be fenced, wants to stop, leads, handed over."""
    fenced, unfenced = State.FENCED, State.UNFENCED
    leaving, now = State.CONTROLLED_SHUTDOWN, State.SHUTDOWN_NOW
    for bits in range(32):
        caught_up, fence, stop, leads, handed_over = (bool(bits >> at & 1) for at in range(5))
        heard = Heartbeat(caught_up, fence, stop, partial(bool, leads), partial(bool, handed_over))
        assert next_state(fenced, heard) is (
            now if stop else unfenced if caught_up and not fence else fenced
        )
        assert next_state(unfenced, heard) is (
            (now if stop else fenced) if fence
            else unfenced if not stop else leaving if leads else now
        )  # fmt: skip
        assert next_state(leaving, heard) is (now if handed_over and not leads else leaving)


def test_sessions_of_brokers_that_are_gone_are_forgotten(cluster: Driven) -> None:
    found = Sessions(SESSION_MS, cluster.image, 0)
    for number in (1, 2, 3):
        found.ended(number)
    assert found.next_ms(cluster.image.brokers) is None
    assert found.expired({}, 0) == []
