"""Leaders ask for another ISR: what is accepted, and the error of each refusal."""

from __future__ import annotations

import pytest

from kafkalog.controller import brokers
from kafkalog.controller.isr import Wanted
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.controller.building import NOTHING, Cluster, Shown

KEY = ("t", 0)
NOW = Shown(1, 5, (1, 2), 7)


def asked(*isr: int, leader_epoch: int = 5, partition_epoch: int = 7, recovering: bool = False,
          epochs: int = 100) -> Wanted:  # fmt: skip
    members = tuple((one, epochs + one if epochs > 0 else epochs) for one in isr)
    return Wanted(1, leader_epoch, members, recovering, partition_epoch)


def cluster(state: Shown = NOW) -> Cluster:
    found = Cluster()
    found.led(KEY, (1, 2, 3), state)
    return found


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("isr", [(1, 2, 3), (1,), (1, 3), (2, 1)])
def test_the_isr_grows_and_shrinks(isr: tuple[int, ...], version: int) -> None:
    """The leader's epoch stays; all brokers get UpdateMetadata, and none gets LeaderAndIsr."""
    of = cluster()
    assert of.alter(1, (KEY, asked(*isr)), version=version) == [
        (ErrorCode.NONE, Shown(1, 5, isr, 8))
    ]
    assert of.requests() == [(one, "UpdateMetadata", [KEY]) for one in (1, 2, 3)]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (asked(1, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (asked(1, partition_epoch=8), ErrorCode.NOT_CONTROLLER),
        (asked(1, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (asked(1, leader_epoch=4, partition_epoch=6), ErrorCode.FENCED_LEADER_EPOCH),
        (asked(), ErrorCode.INVALID_REQUEST),
        (asked(2, 3), ErrorCode.INVALID_REQUEST),  # the leader is not in it
        (asked(1, 2, 2), ErrorCode.INVALID_REQUEST),
        (asked(1, 4), ErrorCode.INVALID_REQUEST),  # 4 is not a replica
        (asked(1, recovering=True), ErrorCode.INVALID_REQUEST),  # it has recovered
        (asked(1, 2, 3, epochs=200), ErrorCode.INELIGIBLE_REPLICA),  # epochs of other registrations
    ],
)
def test_refused_changes(wanted: Wanted, error: ErrorCode) -> None:
    of = cluster()
    assert of.alter(1, (KEY, wanted)) == [(error, NOTHING)]
    assert of.shown(KEY) == NOW and of.sent == []


def test_a_leader_that_is_behind_leads_on_in_another_epoch() -> None:
    """It accepts the state that it missed only in a new epoch, and asks no more until then."""
    of = cluster()
    behind = asked(1, partition_epoch=NOW.partition_epoch - 1)
    assert of.alter(1, (KEY, behind)) == [(ErrorCode.INVALID_UPDATE_VERSION, NOTHING)]
    assert of.shown(KEY) == NOW._replace(
        leader_epoch=NOW.leader_epoch + 1, partition_epoch=NOW.partition_epoch + 1
    )
    told = [broker for broker, kind, _ in of.requests() if kind == "LeaderAndIsr"]
    assert told == list(of.context.partitions[KEY].replicas)


def test_asked_again_it_is_answered_again() -> None:
    """The answer was lost. Nothing is written, although the request has the old partition epoch."""
    of = cluster()
    first = of.alter(1, (KEY, asked(1, 2, 3)))
    assert of.alter(1, (KEY, asked(1, 2, 3))) == first
    assert of.sent == []


def test_absent_brokers_are_not_in_sync() -> None:
    """Dead brokers, and brokers that are shutting down (KIP-841), whatever the leader says."""
    of = cluster()
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2)))
    assert of.alter(1, (KEY, asked(1, 2, 3))) == [(ErrorCode.INELIGIBLE_REPLICA, NOTHING)]
    of.decide(brokers.shut_down(of.context, of.batch, 2, 102))
    now = of.shown(KEY)
    wanted = asked(1, 2, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch)
    assert of.alter(1, (KEY, wanted)) == [(ErrorCode.INELIGIBLE_REPLICA, NOTHING)]


def test_only_the_leader_asks() -> None:
    of = cluster()
    assert of.alter(2, (KEY, asked(1, 2, 3))) == [(ErrorCode.INVALID_REQUEST, NOTHING)]


def test_requests_with_another_broker_epoch_are_refused() -> None:
    of = cluster()
    for sender, epoch in ((1, 100), (1, 102), (7, 107)):
        answer = of.alter(sender, (KEY, asked(1, 2, 3)), epoch=epoch)
        assert answer == [(ErrorCode.STALE_BROKER_EPOCH, NOTHING)]
    assert of.shown(KEY) == NOW


def test_a_partition_recovers() -> None:
    """After an unclean election the leader is alone in the ISR until it has recovered."""
    of = cluster(Shown(1, 5, (1,), 7, recovering=True))
    both = asked(1, 2, recovering=True)
    assert of.alter(1, (KEY, both)) == [(ErrorCode.INVALID_REQUEST, NOTHING)]
    assert of.alter(1, (KEY, asked(1))) == [(ErrorCode.NONE, Shown(1, 5, (1,), 8))]


def test_each_partition_has_its_own_answer() -> None:
    of = cluster()
    answers = of.alter(1, (("other", 0), asked(1)), (("t", 9), asked(1)), (KEY, asked(1, 2, 3)))
    assert [error for error, _ in answers] == [
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE,
    ]  # fmt: skip


def test_a_write_that_is_refused_says_so_until_the_state_is_read_again() -> None:
    of = cluster()
    of.refuse = lambda _: True
    refused = [(ErrorCode.INVALID_UPDATE_VERSION, NOTHING)]
    assert of.alter(1, (KEY, asked(1, 2, 3))) == refused
    assert of.requests() == []
    of.refuse = lambda _: False
    assert of.alter(1, (KEY, asked(1, 2, 3))) == refused
    of.read_again()
    assert of.alter(1, (KEY, asked(1, 2, 3)))[0][0] is ErrorCode.NONE
