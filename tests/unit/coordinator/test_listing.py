"""ListTransactions in slices: other requests are answered in between, and each listing once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from kafkalog.coordinator.step import Call, Step
from kafkalog.coordinator.transactions import admin
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.transaction_calls import Office
from tests.unit.coordinator.virtual_core import Reply

NAMES = [f"id-{number:02}" for number in range(20)]


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """With twenty transactional ids, each of which is a slice."""
    monkeypatch.setattr(admin, "SLICE", 1)
    found = Office()
    for name in NAMES:
        found.new(name)
    yield found


def ask(office: Office, pattern: str = "id-.*") -> Reply:
    return office.ask(apis.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern)


def names(reply: Reply) -> list[str]:
    assert reply.error is ErrorCode.NONE
    return sorted(one.transactional_id for one in reply.transaction_states)


def test_others_are_served_between_slices(office: Office) -> None:
    listed, next_one = ask(office), ask(office, "id-1.")
    assert office.init("new").error is ErrorCode.NONE
    assert listed.waits and next_one.waits
    office.wait(0)
    assert names(listed) == NAMES
    assert names(next_one) == NAMES[10:]
    assert office.core.timers.next_ms() != office.now_ms


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


def test_many_listings_at_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "LISTINGS_MAX", 3)
    replies = [ask(office) for _ in range(5)]
    assert [one.waits for one in replies] == [True] * 4 + [False]
    assert replies[4].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.wait(0)
    assert [names(one) for one in replies[:4]] == [NAMES] * 4


def test_listings_of_many_bytes(office: Office) -> None:
    """A filter may have a hundred thousand items."""
    listings, answers = admin.Listings(), list[object]()
    body = apis.LIST_TRANSACTIONS.decode_request(2, apis.LIST_TRANSACTIONS.encode_request(2, {}))
    call = Call(body, 2, "client", "/h", answers.append, size=admin.LISTINGS_BYTES_MAX // 2)
    assert [listings.add(call) for _ in range(3)] == [True, True, False]
    step = Step(0, 0)
    listings.go_on(office.core.shards.values(), ErrorCode.NONE, step)  # the first has begun
    assert [listings.add(call) for _ in range(2)] == [True, False]
    while listings.busy:
        listings.go_on(office.core.shards.values(), ErrorCode.NONE, step)
    assert listings.add(call) and len(step.answers) == 3


def test_partitions_given_up_while_they_are_listed(office: Office) -> None:
    listed, next_one = ask(office), ask(office)
    gone, *others = office.core.shards
    kept = {name for other in others for name in office.core.shards[other].ids}
    office.step(partial(office.core.resign, gone))
    office.wait(0)
    assert kept < {*NAMES} and kept <= {*names(listed)} <= {*NAMES}
    assert {*names(next_one)} == kept


def test_all_partitions_given_up_while_they_are_listed(office: Office) -> None:
    replies = [ask(office), ask(office), ask(office, "(")]
    office.core.stopped = True
    for partition in list(office.core.shards):
        office.step(partial(office.core.resign, partition))
    errors = [one.error for one in replies]
    assert errors[:2] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert errors[2] is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_partitions_read_again_while_they_are_listed(office: Office) -> None:
    """The list is not complete, and says so."""
    listed = ask(office)
    office.core.loading[99] = 0
    office.wait(0)
    assert listed.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
