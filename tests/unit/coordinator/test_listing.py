"""Requests with many rows in slices: other requests are answered in between, and each of them
once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from kafkalog.coordinator import listings
from kafkalog.coordinator.groups import admin
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.coordinator.transactions.admin import TransactionListing
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import Desk
from tests.unit.coordinator.test_states import codes
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
        return codes(side.commit({("orders", 0): 1}, group=name)) == [ErrorCode.NONE]
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


def many(side: Side, wanted: list[str]) -> Reply:
    """A request for these by name."""
    if isinstance(side, Desk):
        return side.call(apis.DESCRIBE_GROUPS, 5, {"groups": wanted})
    return side.ask(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=wanted)


def described(reply: Reply) -> list[str]:
    if reply.api is apis.DESCRIBE_GROUPS:
        return [one.group_id for one in reply.groups]
    return [one.transactional_id for one in reply.transaction_states]


def test_others_are_served_between_slices_of_descriptions(side: Side) -> None:
    found, listed, again = many(side, NAMES), ask(side), many(side, [*NAMES, NAMES[0], "none"])
    assert begin(side, "new")
    assert found.waits and listed.waits and again.waits
    side.wait(0)
    assert described(found) == NAMES
    assert described(again) == [*NAMES, "none"]
    assert [name for name in names(listed) if name != "new"] == NAMES


def test_a_few_descriptions_wait_for_no_listing(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [ask(side) for _ in range(3)]
    monkeypatch.setattr(listings, "SLICE", 1_000)
    assert described(many(side, NAMES)) == NAMES
    assert replies[-1].waits
    side.wait(0)
    assert [names(one) for one in replies] == [NAMES] * 3


def test_offsets_of_many_groups(desk: Desk) -> None:
    """Each group's offsets are of one moment; other requests are answered between two groups."""
    topics = [{"name": "orders", "partition_indexes": [0]}]
    wanted = [{"group_id": name, "topics": topics} for name in NAMES]
    found = desk.call(apis.OFFSET_FETCH, 8, {"groups": wanted})
    desk.commit({("orders", 0): 7}, group=NAMES[-1])
    assert found.waits
    desk.wait(0)
    rows = {one.group_id: one.topics[0].partitions[0].committed_offset for one in found.groups}
    assert rows == {**dict.fromkeys(NAMES, 1), NAMES[-1]: 7}


def test_others_are_served_between_deletions(desk: Desk) -> None:
    """Groups that are there, that have members, that are named twice, and that are not there."""
    desk.join(desk.new_id("alive"), "alive")
    asked = [*NAMES, "alive", NAMES[0], *(f"none-{number}" for number in range(3))]
    found = desk.delete(*asked)
    assert codes(desk.commit({("orders", 0): 7}, group="new")) == [ErrorCode.NONE]
    assert found.waits
    desk.wait(0)
    told = {one.group_id: one.error_code for one in found.results}
    assert told == {
        **dict.fromkeys(NAMES, ErrorCode.NONE), "alive": ErrorCode.NON_EMPTY_GROUP,
        **dict.fromkeys(asked[-3:], ErrorCode.GROUP_ID_NOT_FOUND),
    }  # fmt: skip
    assert {name for one in desk.core.shards for name in held(desk, one)} == {"alive", "new"}


def test_a_deletion_is_answered_once_the_last_of_its_writes_is_done(desk: Desk) -> None:
    desk.held = []
    found = desk.delete(*NAMES)
    desk.wait(0)
    assert found.waits
    desk.release()
    assert {one.error_code for one in found.results} == {ErrorCode.NONE}


def test_partitions_given_up_while_their_groups_are_deleted(desk: Desk) -> None:
    found = desk.delete(*NAMES)
    for partition in list(desk.core.shards):
        desk.step(partial(desk.core.resign, partition))
    told = {one.group_id: one.error_code for one in found.results}
    assert told.keys() == {*NAMES} and ErrorCode.NOT_COORDINATOR in told.values()


def test_a_listing_that_fails_ends_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listed, next_one = ask(desk), ask(desk)
    row = admin.GroupListing.row

    def fails(self: admin.GroupListing, one: Group, step: Step) -> Body | None:
        if self.request.answer is listed and len(self.found):
            raise RuntimeError("a fault of ours")
        return row(self, one, step)

    monkeypatch.setattr(admin.GroupListing, "row", fails)
    desk.wait(0)
    assert listed.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a fault of ours" in caplog.text
    assert names(next_one) == NAMES


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
    some, answers = listings.Listings(), list[object]()
    body = apis.LIST_TRANSACTIONS.decode_request(2, apis.LIST_TRANSACTIONS.encode_request(2, {}))
    call = Call(body, 2, "client", "/h", answers.append, size=listings.LISTINGS_BYTES_MAX // 2)

    def add(count: int) -> list[bool]:
        return [some.add(call, begin, lambda _call, _step: None) for _ in range(count)]

    def begin(request: Call) -> TransactionListing:
        return TransactionListing(request, office.core.shards.values())

    assert add(3) == [True, True, False]
    step = Step(0, 0)
    some.go_on(ErrorCode.NONE, step)  # the first has begun
    assert add(2) == [True, False]
    while some.busy:
        some.go_on(ErrorCode.NONE, step)
    assert add(1) == [True] and len(step.answers) == 3


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
