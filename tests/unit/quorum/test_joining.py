"""Raft and the active controller, joined: events in, effects out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog.controller import events as controller
from kafkalog.controller.active import NotActive
from kafkalog.errors import ArgumentError, MessageTooLarge
from kafkalog.kraft.batches import RECORD_BYTES_MAX
from kafkalog.metadata.image import empty_image
from kafkalog.quorum.replica import joining
from kafkalog.quorum.replica.joining import Applied, Joint, VersionChanged
from kafkalog.quorum.writing import OWN_OFFSET, Append, ChangeKraftVersion
from kafkalog.raft import messages as raft
from kafkalog.wire.error_codes import ErrorCode

IMAGE = empty_image("cluster", 1)
IMAGE_ID = UUID(int=7)
TOPIC = ("NoOpRecord", {})


def after(now: Joint, *events: object) -> tuple[Joint, list[Any]]:
    """The state after events, and the effects of the last one."""
    effects: list[Any] = []
    for event in events:
        now, effects = joining.step(now, event)
    return now, effects


def joint() -> Joint:
    return Joint(1, False, Applied(5, IMAGE))


def active() -> Joint:
    """A controller that leads epoch 3."""
    return after(joint(), raft.BecameLeader(3, 6), Applied(6, IMAGE))[0]


def test_a_leader_becomes_active_once_it_applied_the_first_record_of_its_epoch() -> None:
    led, effects = after(joint(), raft.BecameLeader(3, 8), Applied(7, IMAGE))
    assert effects == []
    led, (elected,) = after(led, Applied(8, IMAGE))
    assert isinstance(elected, controller.Elected)
    assert (elected.claim.broker, elected.claim.epoch) == (1, 3)
    assert after(led, Applied(9, IMAGE))[1] == [], "only once"


def test_a_leader_that_has_applied_everything_is_active_at_once() -> None:
    _, (elected,) = after(joint(), Applied(6, IMAGE), raft.BecameLeader(3, 6))
    assert isinstance(elected, controller.Elected)


def test_a_new_leader_learns_of_a_transaction_that_has_not_ended() -> None:
    _, (elected,) = after(joint(), raft.BecameLeader(3, 6), Applied(6, IMAGE, in_transaction=True))
    assert elected.loaded.in_transaction


def test_an_append_ends_when_its_last_record_is_applied() -> None:
    now, (wanted,) = after(active(), Append(1, [TOPIC, TOPIC]))
    assert (wanted.record_count, wanted.epoch) == (2, 3)
    now, effects = after(now, raft.Appended(wanted.token, 7, 3), Applied(7, IMAGE))
    assert effects == []
    known = IMAGE._replace(offset=7)
    _, effects = after(now, Applied(8, known))
    assert effects == [controller.StoreResult(1, [known])]


def test_a_record_that_has_no_bytes_is_the_mistake_of_its_request_alone() -> None:
    _, (outcome,) = after(active(), Append(1, [("NoOpRecord", {"nonsense": 1})]))
    assert outcome.number == 1 and isinstance(outcome.results[0], TypeError)


def test_records_may_be_applied_before_their_offset_is_known() -> None:
    now, (wanted,) = after(active(), Append(1, [TOPIC]))
    now, effects = after(now, Applied(7, IMAGE))
    assert effects == []
    assert len(after(now, raft.Appended(wanted.token, 6, 3))[1]) == 1


def test_a_leader_that_is_deposed_forgets_its_append() -> None:
    """The next leader's log decides the outcome."""
    now, (wanted,) = after(active(), Append(1, [TOPIC]))
    now, effects = after(now, raft.LostLeadership(3))
    assert effects == [controller.Deposed()]
    assert after(now, raft.Appended(wanted.token, 7, 3), Applied(8, IMAGE))[1] == []


def test_a_leader_deposed_before_it_was_active_never_is() -> None:
    now, effects = after(joint(), raft.BecameLeader(3, 8), raft.LostLeadership(3))
    assert effects == []
    assert after(now, Applied(9, IMAGE))[1] == []


def test_an_append_in_an_epoch_that_is_over_is_refused() -> None:
    now, (wanted,) = after(active(), Append(4, [TOPIC]))
    _, (result,) = after(now, raft.Appended(wanted.token, None, 3))
    assert result.number == 4
    assert isinstance(result.results[0], NotActive)
    _, (result,) = after(active(), raft.LostLeadership(3), Append(5, [TOPIC]))
    assert isinstance(result.results[0], NotActive)


def test_results_of_an_earlier_epoch_change_nothing_in_the_next() -> None:
    now, (wanted,) = after(active(), Append(1, [TOPIC]))
    now, _ = after(now, raft.LostLeadership(3), raft.BecameLeader(5, 9), Applied(9, IMAGE))
    now, _ = after(now, Append(1, [TOPIC]))
    assert after(now, raft.Appended(wanted.token, 7, 3), Applied(10, IMAGE))[1] == []


def test_a_controller_that_resigns_makes_its_replica_resign() -> None:
    now, effects = after(active(), controller.Resign())
    assert effects == [raft.Resign(3)]
    assert after(now, raft.LostLeadership(3))[1] == []


def test_a_change_that_is_larger_than_a_batch_is_refused() -> None:
    topic = "TopicRecord", {"name": "t" * 30_000, "topic_id": IMAGE_ID}
    many = [topic] * (RECORD_BYTES_MAX // 30_000 + 1)
    now, (result,) = after(active(), Append(1, many))
    assert isinstance(result.results[0], MessageTooLarge)
    now, (result,) = after(now, Append(2, [("TopicRecord", {"name": "t" * 40_000})]))
    assert isinstance(result.results[0], ArgumentError), "it cannot be encoded"
    assert len(after(now, Append(3, [TOPIC]))[1]) == 1, "the next one can be"


def test_a_record_with_its_own_offset_gets_it_when_it_is_appended() -> None:
    record = "UnregisterBrokerRecord", {"broker_id": 1, "broker_epoch": OWN_OFFSET}
    _, (wanted,) = after(active(), Append(1, [TOPIC, record]))
    at_7, at_8 = joining.values_at(wanted.data, 7), joining.values_at(wanted.data, 8)
    assert at_7[0] == at_8[0]
    assert at_7[1] != at_8[1]


def test_a_change_of_kraft_version_is_rafts() -> None:
    now, (wanted,) = after(active(), ChangeKraftVersion(1, 1))
    assert (wanted.version, wanted.token) == (1, (3, 1))
    answer = raft.VoterResponse(ErrorCode.INVALID_UPDATE_VERSION, 3, 1, "why")
    _, (result,) = after(now, VersionChanged(wanted.token, answer))
    assert result == controller.StoreResult(1, [(95, "why")])
    assert after(now, raft.LostLeadership(3), VersionChanged(wanted.token, answer))[1] == []
