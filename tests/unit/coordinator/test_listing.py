"""ListGroups and ListTransactions in slices: other requests are answered in between, and each
listing once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from kafkalog.coordinator import listings
from kafkalog.coordinator.groups.group import State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Call, Step
from kafkalog.coordinator.transactions.admin import TransactionListing
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import Desk
from tests.unit.coordinator.transaction_calls import Office
from tests.unit.coordinator.virtual_core import Reply

NAMES = [f"id-{number:02}" for number in range(20)]
Side = Desk | Office


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """With twenty transactional ids, each of which is a slice."""
    monkeypatch.setattr(listings, "SLICE", 1)
    found = Office()
    for name in NAMES:
        found.new(name)
    yield found


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """With twenty groups, each of which is a slice."""
    monkeypatch.setattr(listings, "SLICE", 1)
    found = Desk()
    for name in NAMES:
        found.commit({("orders", 0): 1}, group=name)
    yield found


@pytest.fixture(params=["office", "desk"])
def side(request: pytest.FixtureRequest) -> Side:
    """A coordinator of either kind."""
    found: Side = request.getfixturevalue(request.param)
    return found


def ask(side: Side, pattern: str = "id-.*") -> Reply:
    if isinstance(side, Desk):
        return side.call(apis.LIST_GROUPS, 5, {})
    return side.ask(apis.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern)


def begin(side: Side, name: str) -> bool:
    """Another request, which is answered immediately; makes a new row."""
    if isinstance(side, Desk):
        side.commit({("orders", 0): 1}, group=name)
        return side.delete(name).results[0].error_code == 0
    return side.init(name).error is ErrorCode.NONE


def held(side: Side, partition: int) -> set[str]:
    """The names of a partition of the journal."""
    shard = side.core.shards[partition]
    return {*(shard.groups if isinstance(shard, GroupShard) else shard.ids)}


def names(reply: Reply) -> list[str]:
    assert reply.error is ErrorCode.NONE
    if reply.api is apis.LIST_GROUPS:
        return sorted(one.group_id for one in reply.groups)
    return sorted(one.transactional_id for one in reply.transaction_states)


def test_others_are_served_between_slices(side: Side) -> None:
    listed, next_one = ask(side), ask(side)
    assert begin(side, "new")
    assert listed.waits and next_one.waits
    side.wait(0)
    assert [name for name in names(listed) if name != "new"] == NAMES
    assert [name for name in names(next_one) if name != "new"] == NAMES
    assert side.core.timers.next_ms() != side.now_ms


def test_patterns_of_two_listings(office: Office) -> None:
    listed, next_one = ask(office), ask(office, "id-1.")
    office.wait(0)
    assert names(listed) == NAMES
    assert names(next_one) == NAMES[10:]


def test_a_group_that_dies_while_it_is_listed(desk: Desk) -> None:
    listed = ask(desk)
    last = list(desk.core.shards.values())[-1]
    for group in last.groups.values():
        group.state = State.DEAD
    desk.wait(0)
    assert names(listed) == sorted({*NAMES} - {*last.groups}) != NAMES


def test_invalid_patterns_that_wait(office: Office) -> None:
    listed, bad, last = ask(office), ask(office, "("), ask(office)
    office.wait(0)
    assert bad.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert names(listed) == names(last) == NAMES


def test_a_pattern_that_takes_too_much_work(office: Office) -> None:
    """Its set has a thousand characters, and each character may leave 400 places."""
    office.new("x" * 3_000)
    costly = ask(office, "([^" + "".join(map(chr, range(0x4E00, 0x4E00 + 980))) + "]?){400}")
    listed = ask(office)
    office.wait(0)
    assert costly.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert names(listed) == NAMES


def test_many_listings_at_once(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "LISTINGS_MAX", 3)
    replies = [ask(side) for _ in range(5)]
    assert [one.waits for one in replies] == [True] * 4 + [False]
    assert replies[4].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    side.wait(0)
    assert [names(one) for one in replies[:4]] == [NAMES] * 4


def test_listings_of_many_bytes(office: Office) -> None:
    """A filter may have a hundred thousand items."""
    some, answers = listings.Listings(TransactionListing), list[object]()
    body = apis.LIST_TRANSACTIONS.decode_request(2, apis.LIST_TRANSACTIONS.encode_request(2, {}))
    call = Call(body, 2, "client", "/h", answers.append, size=listings.LISTINGS_BYTES_MAX // 2)
    assert [some.add(call) for _ in range(3)] == [True, True, False]
    step = Step(0, 0)
    some.go_on(office.core.shards.values(), ErrorCode.NONE, step)  # the first has begun
    assert [some.add(call) for _ in range(2)] == [True, False]
    while some.busy:
        some.go_on(office.core.shards.values(), ErrorCode.NONE, step)
    assert some.add(call) and len(step.answers) == 3


def test_partitions_given_up_while_they_are_listed(side: Side) -> None:
    listed, next_one = ask(side), ask(side)
    gone, *others = side.core.shards
    kept = {name for other in others for name in held(side, other)}
    side.step(partial(side.core.resign, gone))
    side.wait(0)
    assert kept < {*NAMES} and kept <= {*names(listed)} <= {*NAMES}
    assert {*names(next_one)} == kept


def test_all_partitions_given_up_while_they_are_listed(side: Side) -> None:
    replies = [ask(side), ask(side), ask(side, "(")]
    side.core.stopped = True
    for partition in list(side.core.shards):
        side.step(partial(side.core.resign, partition))
    errors = [one.error for one in replies]
    assert errors[:2] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    if isinstance(side, Office):
        assert errors[2] is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_partitions_read_again_while_they_are_listed(side: Side) -> None:
    """The list is not complete, and says so."""
    listed = ask(side)
    side.core.loading[99] = 0
    side.wait(0)
    assert listed.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
