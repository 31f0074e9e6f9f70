"""Share consumers of a real broker: workers that share records, and what becomes of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import kafkalog
from kafkalog import ShareConsumer, SharedRecord, TopicPartition, errors
from kafkalog.client.shares.core import Acquired
from kafkalog.client.shares.link import ShareLink
from kafkalog.testing.broker import TestBroker as Broker
from tests.support.waiting import LIMIT_S, wait_for

LOCK_MS = 30_000
EXPLICIT = {"share.acknowledgement.mode": "explicit", "fetch.max.wait.ms": 20}
IMPLICIT = {"fetch.max.wait.ms": 20}
TP = TopicPartition("t", 0)
Make = Callable[..., ShareConsumer]


@pytest.fixture
def worker(broker: Broker) -> Iterator[Make]:
    """Makes workers, explicit ones unless they are given another config."""
    made: list[ShareConsumer] = []

    def make(config: Any = EXPLICIT, **more: Any) -> ShareConsumer:
        made.append(ShareConsumer(broker.bootstrap_servers, "t", group="g", config=config, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def fill(broker: Broker, *values: bytes, partition: int = 0) -> None:
    with kafkalog.Producer(broker.bootstrap_servers) as producer:
        producer.send_many("t", list(values), partition=partition).result(LIMIT_S)


def some(one: ShareConsumer) -> list[SharedRecord]:
    """The records of the first poll that has some."""
    found: list[SharedRecord] = wait_for(lambda: one.poll(100), "records")
    return found


def assigned(one: ShareConsumer) -> bool:
    return bool(one.poll(20) or one.assignment)


def all_values(records: list[SharedRecord]) -> list[tuple[bytes | None, int]]:
    return [(one.value, one.delivery_count) for one in records]


def test_each_record_goes_to_one_of_two_workers(broker: Broker, worker: Make) -> None:
    one, other = worker(), worker()
    for each in one, other:
        wait_for(partial(assigned, each), "the assignment")
    found: dict[int, list[bytes | None]] = {0: [], 1: []}

    def step(round: int) -> bool:
        fill(broker, b"%d" % round)
        for number, each in enumerate((one, other)):
            for record in each.poll(20):
                found[number].append(record.value)
                each.acknowledge(record)
        return all(found.values())

    rounds = iter(range(10_000))
    wait_for(lambda: step(next(rounds)), "both have worked")
    last = next(rounds)

    def drained() -> bool:
        for number, each in enumerate((one, other)):
            for record in each.poll(20):
                found[number].append(record.value)
                each.acknowledge(record)
        return len(found[0]) + len(found[1]) >= last

    wait_for(drained, "the rest")
    assert sorted(map(int, found[0] + found[1])) == list(range(last))  # type: ignore[arg-type]


def test_released_records_come_again_and_rejected_ones_do_not(broker: Broker, worker: Make) -> None:
    fill(broker, b"accepted", b"released", b"rejected")
    one = worker()
    records = some(one)
    assert all_values(records) == [(b"accepted", 1), (b"released", 1), (b"rejected", 1)]
    assert records[0].topic == "t" and records[0].offset == 0
    for record, kind in zip(records, ("accept", "release", "reject"), strict=True):
        one.acknowledge(record, kind)
    (again,) = some(one)
    assert all_values([again]) == [(b"released", 2)]
    one.acknowledge(again)
    assert one.commit().check() == {TP: [1]}
    fill(broker, b"new")
    assert all_values(some(one)) == [(b"new", 1)]


def test_the_next_poll_accepts_implicitly(broker: Broker, worker: Make) -> None:
    told: list[Any] = []
    fill(broker, b"1", b"2")
    one = worker(IMPLICIT, on_acknowledged=lambda offsets, problem: told.append((offsets, problem)))
    assert len(some(one)) == 2
    with pytest.raises(errors.ArgumentError, match="explicit"):
        one.acknowledge(kafkalog.SharedRecord(0, 0, None, None, (), "t", 0, 0, 0, 1))
    wait_for(lambda: one.poll(20) or told, "the callback")
    assert told == [({TP: [0, 1]}, None)]
    fill(broker, b"3")
    some(one)
    assert one.commit().check() == {TP: [2]}
    assert one.commit().check() == {}
    assert told[1:] == [({TP: [2]}, None)]


def test_every_record_must_be_acknowledged_explicitly(broker: Broker, worker: Make) -> None:
    fill(broker, b"1", b"2")
    one = worker()
    first, second = some(one)
    one.acknowledge(first, "release")
    one.acknowledge(first)  # the last word counts
    with pytest.raises(errors.ArgumentError, match=r"1 records .* offset 1"):
        one.poll(0)
    with pytest.raises(errors.ArgumentError, match="offset 0"):
        one.acknowledge(first)  # the poll has sent it
    for kind in ("done", 1, None):
        with pytest.raises(errors.ArgumentError, match="kind"):
            one.acknowledge(second, kind)  # type: ignore[arg-type]
    one.acknowledge(second)
    assert one.poll(0) == []


def test_a_lock_ends_and_the_acknowledgement_is_refused(broker: Broker, worker: Make) -> None:
    fill(broker, b"1")
    told: list[Any] = []
    one = worker(on_acknowledged=lambda offsets, problem: told.append((offsets, problem)))
    (record,) = some(one)
    broker.clock.advance(LOCK_MS)
    other = worker()
    assert all_values(some(other)) == [(b"1", 2)]
    one.acknowledge(record)
    found = one.commit()
    problem = found.errors[TP]
    assert isinstance(problem, errors.InvalidRecordState)
    assert told == [({TP: [0]}, problem)]


def test_renewed_records_are_held_and_come_again(broker: Broker, worker: Make) -> None:
    fill(broker, b"1", b"2")
    one = worker()
    first, second = some(one)
    one.acknowledge(first, "renew")
    one.acknowledge(second, "renew")
    broker.clock.advance(LOCK_MS // 2)
    assert one.commit().check() == {TP: [0, 1]}
    broker.clock.advance(LOCK_MS * 3 // 4)  # past the first lock
    one.acknowledge(first)
    assert all_values(some(one)) == [(b"2", 1)]
    one.acknowledge(second)
    assert one.commit().check().keys() <= {TP}
    assert worker().poll(50) == []


def test_close_releases_held_records(broker: Broker, worker: Make) -> None:
    fill(broker, b"1", b"2", b"3")
    one = worker(EXPLICIT | {"max.poll.records": 2})
    first, _ = some(one)
    one.acknowledge(first)
    one.close()
    one.close()
    with pytest.raises(errors.Closed):
        one.poll()
    other = worker(EXPLICIT)
    assert all_values(some(other))[0] == (b"2", 2)


def test_an_iteration_accepts_record_by_record(broker: Broker, worker: Make) -> None:
    """The one whose work fails, and those that were not begun, are released."""
    fill(broker, b"1", b"2", b"3")
    with pytest.raises(RuntimeError, match="2"), worker(IMPLICIT) as one:
        for record in one:
            if record.value == b"2":
                raise RuntimeError("2")
    assert all_values(some(worker())) == [(b"2", 2), (b"3", 2)]


def test_max_records_and_the_limit_of_a_request(broker: Broker, worker: Make) -> None:
    fill(broker, *[b"x"] * 10)
    one = worker(IMPLICIT | {"share.acquire.mode": "record_limit", "max.poll.records": 4})
    assert [len(some(one)), len(some(one)), len(some(one))] == [4, 4, 2]
    fill(broker, *[b"y"] * 10)
    two = worker(IMPLICIT | {"max.poll.records": 4})
    one.close()
    assert [len(two.poll(LIMIT_S * 1000, 3)) for _ in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("error", ["SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH",
                                   "UNKNOWN_SERVER_ERROR"])  # fmt: skip
def test_a_refused_request_is_made_again(broker: Broker, worker: Make, error: str) -> None:
    one = worker(IMPLICIT)
    wait_for(lambda: one.poll(20) or one.assignment, "the assignment")
    fault = broker.fail("ShareFetch", error)
    wait_for(lambda: one.poll(20) or fault.hits, "the fault")
    fill(broker, b"1")
    assert all_values(some(one)) == [(b"1", 1)]


def test_a_permanent_refusal_is_raised(broker: Broker, worker: Make) -> None:
    one = worker(IMPLICIT)
    broker.fail("ShareFetch", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(errors.GroupAuthorizationFailed):
        wait_for(lambda: one.poll(20), "the refusal")
    broker.fail("ShareGroupHeartbeat", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(errors.GroupAuthorizationFailed):
        wait_for(lambda: one.poll(20), "the refusal")
    fill(broker, b"1")
    assert all_values(some(one)) == [(b"1", 1)]


def test_a_member_that_the_group_has_removed_joins_again(broker: Broker, worker: Make) -> None:
    one = worker(IMPLICIT)
    wait_for(lambda: one.poll(20) or one.assignment, "the assignment")
    fault = broker.fail("ShareGroupHeartbeat", "UNKNOWN_MEMBER_ID")
    wait_for(lambda: one.poll(20) or fault.hits, "the fault")
    fill(broker, b"1")
    assert all_values(some(one)) == [(b"1", 1)]


def test_a_member_that_does_not_poll_leaves(broker: Broker, worker: Make) -> None:
    """And joins again with its next poll."""
    one = worker(IMPLICIT | {"max.poll.interval.ms": 100})
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        wait_for(lambda: one.poll(20) or one.assignment, "the assignment")
        wait_for(lambda: one._heartbeats.session.lost, "the end of its time")
        assert [row.state for row in admin.list_groups() if row.group == "g"] != ["Stable"]
    fill(broker, b"1")
    assert all_values(some(one)) == [(b"1", 1)]


def test_the_leader_is_looked_for_when_it_has_moved(broker: Broker, worker: Make) -> None:
    one = worker(IMPLICIT)
    wait_for(lambda: one.poll(20) or one.assignment, "the assignment")
    fault = broker.fail("ShareFetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    wait_for(lambda: one.poll(20) or fault.hits == 2, "the faults")
    asked = broker.delay("Metadata", 0, None)
    fill(broker, b"1")
    assert all_values(some(one)) == [(b"1", 1)]
    assert asked.hits


def test_damaged_records_are_rejected(
    broker: Broker, worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches around them are returned; the damage is raised once."""
    for value in (b"1", b"2", b"3"):
        fill(broker, value)
    one, hold = worker(), ShareLink._hold

    def damaged(self: ShareLink, found: Acquired) -> None:
        data = bytearray(found.data)
        data[data.index(b"2", len(data) // 3)] ^= 1  # its value, in the second of three batches
        hold(self, found._replace(data=data))

    monkeypatch.setattr(ShareLink, "_hold", damaged)
    records = some(one)
    monkeypatch.undo()
    assert [record.value for record in records] == [b"1", b"3"]
    for record in records:
        one.acknowledge(record)
    with pytest.raises(errors.CorruptMessage, match="t-0"):
        one.poll(20)
    fill(broker, b"4")
    assert all_values(some(one)) == [(b"4", 1)]


@pytest.mark.parametrize("fault", ["disconnect", "drop_response"])
def test_an_acknowledgement_without_an_answer_has_failed(
    broker: Broker, worker: Make, fault: str
) -> None:
    """It shows only later whether it was carried out: if the record comes again."""
    fill(broker, b"1")
    one = worker()
    (record,) = some(one)
    getattr(broker, fault)("ShareAcknowledge")
    one.acknowledge(record)
    assert isinstance(one.commit().errors[TP], errors.PeerGone)
    broker.clock.advance(LOCK_MS)
    fill(broker, b"2")
    found: list[tuple[bytes | None, int]] = []

    def works() -> bool:
        for again in one.poll(20):
            found.append((again.value, again.delivery_count))
            one.acknowledge(again)
        return (b"2", 1) in found and (fault == "drop_response" or len(found) == 2)

    wait_for(works, "the records")
    one.commit().check()
    assert set(found) == ({(b"2", 1)} if fault == "drop_response" else {(b"1", 2), (b"2", 1)})


def test_a_broker_restarts(broker: Broker, worker: Make) -> None:
    """Held records come again; their acknowledgements from before have failed."""
    fill(broker, b"1", b"2")
    one = worker()
    first, second = some(one)
    one.acknowledge(first)
    one.commit().check()
    broker.restart()
    one.acknowledge(second)
    assert one.commit().errors.keys() == {TP}
    (found,) = some(one)  # a leader counts deliveries from what was acknowledged
    assert found.value == b"2"
    one.acknowledge(found)
    assert one.commit().check() == {TP: [1]}


def test_a_topic_that_appears_later_is_worked_on(broker: Broker, worker: Make) -> None:
    one = worker(IMPLICIT)
    one.subscribe(["later", "t"])
    assert one.poll(20) == [] and one.subscription == ["later", "t"]
    broker.create_topic("later", 2)
    wait_for(lambda: one.poll(20) or len(one.assignment) == 3, "the new topic")
    with kafkalog.Producer(broker.bootstrap_servers) as producer:
        producer.send("later", b"x", partition=1).result(LIMIT_S)
    assert [(one.topic, one.partition) for one in some(one)] == [("later", 1)]


def test_wakeup_ends_a_poll(worker: Make) -> None:
    one = worker()
    one.wakeup()
    with pytest.raises(errors.WakeUp):
        one.poll(None)


def test_absurd_arguments(broker: Broker) -> None:
    with pytest.raises(errors.ArgumentError, match="group"):
        ShareConsumer(broker.bootstrap_servers, "t")
    with pytest.raises(errors.UnknownSetting):
        ShareConsumer(broker.bootstrap_servers, "t", group="g", config={"auto.offset.reset": "x"})
    with ShareConsumer(broker.bootstrap_servers, group="g") as one:
        with pytest.raises(errors.ArgumentError, match="no topics"):
            one.poll(0)
        for topics in ([], [""], 3, None):
            with pytest.raises(errors.ArgumentError, match="topics"):
                one.subscribe(topics)  # type: ignore[arg-type]
        with pytest.raises(errors.ArgumentError, match="max_records"):
            one.poll(0, 0)
        with pytest.raises(errors.ArgumentError, match="timeout_ms"):
            one.commit(-1)
        with pytest.raises(errors.ArgumentError, match="record"):
            one.acknowledge(b"x")  # type: ignore[arg-type]


def test_a_store_in_this_process(broker: Broker) -> None:
    fill(broker, b"1")
    with ShareConsumer(broker.broker.store, "t", group="g") as one:
        assert all_values(some(one)) == [(b"1", 1)]
        assert one.commit().check() == {TP: [0]}
