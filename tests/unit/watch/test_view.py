"""Rates and lag between samples."""

from __future__ import annotations

from kafkalog.client.calls.groups import GroupInfo, MemberInfo
from kafkalog.client.calls.nodes import ClusterInfo
from kafkalog.client.calls.quorum import QuorumInfo
from kafkalog.client.calls.transactions import TransactionInfo, TransactionListing
from kafkalog.types import TopicPartition
from kafkalog.watch.sample import Positions, Sample
from kafkalog.watch.view import State, View, advance, lags_of, partitions_of
from tests.unit.watch.made import NODES, dirs, group, sample, topic


def after(*samples: Sample) -> tuple[State, View]:
    """The state and the view after these samples."""
    state, view = State(), None
    for one in samples:
        state, view = advance(state, one)
    assert view is not None
    return state, view


def test_a_rate_needs_two_answers() -> None:
    orders = topic("orders", 2)
    first = sample(10, (orders,), {("orders", 0): 100, ("orders", 1): 50})
    assert after(first)[1].topics[0].records_per_s is None
    second = sample(12, (orders,), {("orders", 0): 160, ("orders", 1): 70})
    state, view = after(first, second)
    assert view.topics[0].records_per_s == view.totals.records_per_s == 40
    assert [row.records_per_s for row in partitions_of(state, second, "orders")] == [30, 10]


def test_partitions_that_are_asked_in_turn_have_rates_over_their_own_time() -> None:
    orders = topic("orders", 2)
    _, view = after(
        sample(10, (orders,), {("orders", 0): 0}),
        sample(11, (orders,), {("orders", 1): 0}),
        sample(14, (orders,), {("orders", 0): 40}),
        sample(16, (orders,), {("orders", 1): 100}),
    )
    assert view.topics[0].records_per_s == 10 + 20


def test_an_answer_that_is_shown_again_leaves_the_rate_as_it_was() -> None:
    orders = topic("orders")
    one = sample(10, (orders,), dirs={1: dirs({("orders", 0): 1000})})
    two = sample(12, (orders,), dirs={1: dirs({("orders", 0): 5000})})
    _, view = after(one, two, two._replace(at_s=13.0))
    assert (view.topics[0].bytes_per_s, view.topics[0].size_bytes) == (2000, 5000)


def test_a_log_that_shrinks_has_no_rate() -> None:
    """Retention deleted more than was written; or the log was truncated."""
    orders = topic("orders")
    _, view = after(
        sample(10, (orders,), {("orders", 0): 9}, dirs={1: dirs({("orders", 0): 5000})}),
        sample(12, (orders,), {("orders", 0): 3}, dirs={1: dirs({("orders", 0): 400})}),
    )
    assert (view.topics[0].records_per_s, view.topics[0].bytes_per_s) == (None, None)
    assert view.totals.size_bytes == 400


def test_a_recreated_topic_begins_again() -> None:
    old, new = topic("orders", topic_id=1), topic("orders", topic_id=2)
    first = sample(10, (old,), {("orders", 0): 5})
    state, view = after(first, sample(12, (new,), {("orders", 0): 900}))
    assert view.topics[0].records_per_s is None
    state, view = advance(state, sample(13, (), {}))
    assert (view.topics, state.ends, state.ids) == ((), {}, {})


def test_the_leader_says_how_large_a_partition_is() -> None:
    moved = topic("orders", leader=2)
    both = {1: dirs({("orders", 0): 7}), 2: dirs({("orders", 0): 70})}
    _, view = after(sample(10, (moved,), dirs=both))
    assert view.topics[0].size_bytes == 70
    assert [(one.size_bytes, one.usable_bytes) for one in view.nodes] == [(7, 400), (70, 400)]


def test_partitions_without_leader_and_with_few_replicas_in_sync() -> None:
    topics = (
        topic("gone", 2, leader=-1, isr=(1,)), topic("late", isr=(1,)), topic("dead", leader=9),
        topic("well"),
    )  # fmt: skip
    _, view = after(sample(10, topics))
    assert [(one.name, one.under_replicated, one.offline) for one in view.topics] == [
        ("dead", 0, 1), ("gone", 2, 2), ("late", 1, 0), ("well", 0, 0),
    ]  # fmt: skip
    totals = view.totals
    assert (totals.partitions, totals.under_replicated, totals.offline) == (5, 3, 3)


def test_nodes_that_are_fenced_or_gone() -> None:
    nodes = (NODES[0], NODES[1]._replace(fenced=True))
    found = sample(10, (topic("orders", 3, replicas=(1, 2, 3), isr=(1,)),))
    _, view = after(found._replace(cluster=ClusterInfo("c", 1, nodes)))
    assert [(one.node, one.state, one.leads, one.not_in_sync) for one in view.nodes] == [
        (1, "up", 3, 0), (2, "fenced", 0, 3), (3, "gone", 0, 3),
    ]  # fmt: skip
    assert view.nodes[0].controller
    led = sample(10)._replace(quorum=QuorumInfo(100, 1, 1, (), ()))
    assert after(led)[1].controller == 100


def test_lag_and_progress_of_a_group() -> None:
    orders = topic("orders", 2)
    one = group("billing", 10, {("orders", 0): 10, ("orders", 1): 0})
    two = group("billing", 14, {("orders", 0): 50, ("orders", 1): 40})
    ends = {("orders", 0): 60, ("orders", 1): 45}
    first = sample(10, (orders,), ends, (one,))
    second = sample(14, (orders,), ends, (two,))
    assert after(first)[1].groups[0].lag == 50 + 45
    state, view = after(first, second)
    found = view.groups[0]
    assert (found.lag, found.per_s, found.topics, found.state) == (15, 20, 1, "Stable")
    assert view.totals.lag == 15
    assert [(row.partition, row.offset, row.end, row.lag) for row in lags_of(
        state, second, "billing"
    )] == [(0, 50, 60, 10), (1, 40, 45, 5)]  # fmt: skip
    assert lags_of(state, second, "other") == []


def test_a_group_that_goes_back_or_reads_more_partitions_has_no_rate_at_first() -> None:
    orders, ends = topic("orders", 2), {("orders", 0): 60, ("orders", 1): 45}
    at_20 = group("billing", 10, {("orders", 0): 20})
    back = group("billing", 12, {("orders", 0): 5})
    more = group("billing", 12, {("orders", 0): 22, ("orders", 1): 30})
    for later in (back, more):
        samples = sample(10, (orders,), ends, (at_20,)), sample(12, (orders,), ends, (later,))
        assert after(*samples)[1].groups[0].per_s is None


def test_a_group_whose_turn_it_is_not_keeps_its_last_answer() -> None:
    member = MemberInfo("m", None, "c", "h", (TopicPartition("orders", 0),))
    info = GroupInfo("billing", "Stable", "consumer", "range", (member,), 1)
    asked = group("billing", 10, {("orders", 0): 10}, info=info)
    first = sample(10, (topic("orders"),), {("orders", 0): 60}, (asked, group("quiet")))
    state, view = after(first, sample(12, (topic("orders"),), {}, (group("billing"),)))
    assert (view.groups[0].lag, view.groups[0].members) == (50, 1)
    assert lags_of(state, first, "billing")[0].member == member
    quiet = after(first)[1].groups[1]
    assert (quiet.members, quiet.lag, quiet.problem) == (None, None, "")
    _, view = after(first, sample(12, groups=(group("billing", problem="no right"),)))
    assert (view.groups[0].lag, view.groups[0].problem) == (50, "no right")


def test_brokers_tell_the_lag_of_share_groups() -> None:
    positions = Positions(10, {TopicPartition("orders", 0): 5}, {TopicPartition("orders", 0): 2})
    shared = group("workers", positions=positions)
    _, view = after(sample(10, (topic("orders"),), {("orders", 0): 60}, (shared,)))
    assert view.groups[0].lag == 2


def test_an_end_that_was_asked_before_a_commit_is_no_negative_lag() -> None:
    _, view = after(sample(10, (topic("o"),), {("o", 0): 5}, (group("g", 10, {("o", 0): 6}),)))
    assert view.groups[0].lag == 0
    _, view = after(sample(10, groups=(group("g", 10, {("deleted", 0): 6}),)))
    assert view.groups[0].lag is None


def test_transactions_by_state_and_the_oldest_first() -> None:
    listed = tuple(
        TransactionListing(name, 1, 7, state)
        for name, state in (("a", "Ongoing"), ("b", "Ongoing"), ("c", "Empty"))
    )
    open_ = tuple(
        TransactionInfo(name, 1, 7, 0, "Ongoing", 60_000, start_ms, (TopicPartition("o", 0),))
        for name, start_ms in (("a", 9_000), ("b", 4_000))
    )
    _, view = after(sample(10, transactions=listed, open=open_))
    assert view.transactions == {"Empty": 1, "Ongoing": 2}
    assert [(one.name, one.age_ms) for one in view.open] == [("b", 6_000), ("a", 1_000)]


def test_nothing_is_known_of_a_cluster_that_never_answered() -> None:
    _, view = after(sample(10)._replace(cluster=None, problems={"cluster": "no answer"}))
    assert (view.cluster_id, view.controller, view.nodes) == ("", -1, ())
    assert view.problems == {"cluster": "no answer"}
