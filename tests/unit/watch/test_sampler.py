"""The sampler, against Apache Kafka and our brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Admin, Consumer, Producer, errors
from kafkalog.clock import ManualClock
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.cluster import TestCluster
from kafkalog.testing.security import Security
from kafkalog.types import TopicPartition
from kafkalog.watch import sample as parts
from kafkalog.watch.pace import Budget
from kafkalog.watch.sampler import Sampler
from kafkalog.watch.view import State, View, advance
from kafkalog.wire import apis
from tests.support.scripted import Peer


def view_of(sampler: Sampler, state: State = State(), **wanted: list[str]) -> View:  # noqa: B008
    return advance(state, sampler.sample(**wanted))[1]


def test_a_cluster_at_work(servers: str, unique: str, wait_until: Callable[..., None]) -> None:
    """Topics, ends, sizes, a group with its member and lag, an open transaction."""
    with Admin(servers) as admin, Producer(servers, transactional_id=unique) as producer:
        admin.create_topic(unique, 2, 1)
        producer.begin_transaction()
        for _ in range(5):
            producer.send(unique, b"v", partition=1)
        producer.flush()
        admin.alter_group_offsets(unique, {(unique, 1): 2}).check()
        sampler = Sampler(admin, clock=ManualClock(), budget=Budget(partitions=2))

        def seen() -> bool:
            found = sampler.sample([unique], [unique])
            return found.ends.get(TopicPartition(unique, 1)) is not None and bool(found.open)

        wait_until(seen, "offsets and the transaction are known")
        found = sampler.sample([unique], [unique])
        assert not found.problems
        assert found.starts == {TopicPartition(unique, 0): 0, TopicPartition(unique, 1): 0}
        assert [seen.value for tp, seen in sorted(found.ends.items())] == [0, 5]
        _, view = advance(State(), found)
        topic = next(one for one in view.topics if one.name == unique)
        assert (topic.partitions, topic.replication, topic.offline) == (2, 1, 0)
        assert topic.size_bytes is not None and topic.size_bytes > 60
        group = next(one for one in view.groups if one.name == unique)
        assert (group.state, group.kind, group.members, group.lag) == ("Empty", "classic", 0, 3)
        assert (unique, 1) in [(one.name, one.partitions) for one in view.open]
        assert view.transactions["Ongoing"] >= 1
        (node,) = view.nodes
        assert (node.state, node.controller, view.controller) == ("up", True, node.node)
        producer.abort_transaction()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group(servers: str, unique: str, protocol: str) -> None:
    with (
        Admin(servers) as admin,
        Producer(servers) as producer,
        Consumer(
            servers, group=unique, auto_offset_reset="earliest", config={"group.protocol": protocol}
        ) as consumer,
    ):
        admin.create_topic(unique, 1, 1)
        producer.send(unique, b"v")
        producer.flush()
        consumer.subscribe([unique])
        assert consumer.poll(20_000)
        consumer.commit()
        found = Sampler(admin).sample(groups=[unique]).groups[unique]
        assert found.info is not None and found.positions is not None
        assert found.listing.kind == protocol
        assert [one.assignment for one in found.info.members] == [((unique, 0),)]
        assert found.positions.offsets == {(unique, 0): 1}


def test_a_share_group(servers: str, unique: str) -> None:
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic(unique, 1, 1)
        for _ in range(3):
            producer.send(unique, b"v")
        producer.flush()
        admin.alter_share_group_offsets(unique, {(unique, 0): 1}).check()
        view = view_of(Sampler(admin), groups=[unique])
        found = next(one for one in view.groups if one.name == unique)
        assert (found.kind, found.lag, found.members) == ("share", 2, 0)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[TestBroker]:
    """A broker whose user may describe one topic."""
    security = Security(
        "sasl_plaintext", {"alice": "a", "bob": "b"},
        acls=[("alice", "ALL", "topic", "*"), ("alice", "ALL", "group", "*"),
              ("alice", "ALL", "cluster", "kafka-cluster"), ("bob", "DESCRIBE", "topic", "seen")],
    )  # fmt: skip
    with TestBroker(tmp_path / "b", security=security) as broker:
        yield broker


def admin_of(broker: TestBroker, user: str) -> Admin:
    config = broker.client_config("kafkalog", user)
    return Admin(config.pop("bootstrap.servers"), config=config)


def test_a_part_without_the_right_says_so_and_the_others_go_on(secured: TestBroker) -> None:
    with admin_of(secured, "alice") as alice, admin_of(secured, "bob") as bob:
        alice.create_topics([("seen", 1), ("hidden", 1)]).check()
        alice.alter_group_offsets("g", {("seen", 0): 0}).check()
        everything = Sampler(alice).sample()
        assert (set(everything.topics), set(everything.problems)) == (
            {"seen", "hidden", "__consumer_offsets"}, set()
        )  # fmt: skip
        assert set(everything.groups) == {"g"}
        found = Sampler(bob).sample(["seen", "hidden"], ["g"])
        assert set(found.topics) == {"seen"}
        assert set(found.ends) == {("seen", 0)}
        assert (found.groups, found.transactions) == ({}, ())
        # Kafka answers these with an error; lists are empty without one.
        assert set(found.problems) == {parts.QUORUM, parts.SIZES}
        assert "CLUSTER_AUTHORIZATION_FAILED" in found.problems[parts.QUORUM]


def test_a_group_that_may_not_be_read(secured: TestBroker) -> None:
    """It may be listed, with the right for the cluster; the failure is its own."""
    with admin_of(secured, "alice") as alice, admin_of(secured, "bob") as bob:
        alice.create_topic("seen", 1)
        for name in ("g", "h"):
            alice.alter_group_offsets(name, {("seen", 0): 0}).check()
        alice.create_acls([("cluster", "kafka-cluster", "User:bob", "DESCRIBE"),
                           ("group", "h", "User:bob", "DESCRIBE")]).check()  # fmt: skip
        found = Sampler(bob).sample()
        assert "GROUP_AUTHORIZATION_FAILED" in found.groups["g"].problem
        assert found.groups["h"].positions is not None
        assert set(found.problems) == {parts.MEMBERS}


def test_a_dead_node_delays_nothing_else(tmp_path: Path) -> None:
    with TestCluster(tmp_path / "c") as cluster:
        cluster.create_topic("orders", 3)
        with Admin(cluster.bootstrap_servers) as admin:
            sampler = Sampler(admin, clock=ManualClock())
            assert [one.state for one in view_of(sampler).nodes] == ["up"] * 3
            cluster.kill(3)
            cluster.clock.advance(20_000)
            cluster.wait_until(
                lambda: [one.state for one in view_of(sampler).nodes] != ["up"] * 3
                and view_of(sampler).totals.offline == 0, "the others lead all partitions",
            )  # fmt: skip
            found = sampler.sample()
            view = advance(State(), found)[1]
            assert [one.state for one in view.nodes] == ["up", "up", "gone"]
            assert (view.totals.under_replicated, set(found.ends)) == (
                3, {("orders", n) for n in range(3)}
            )  # fmt: skip
            assert not found.problems
        with Admin(cluster.bootstrap_servers) as admin:
            sampler = Sampler(admin, patience_ms=300)
            sampler.sample()
            for n in (1, 2):
                cluster.kill(n)
            found = sampler.sample()
            assert set(found.problems) == {parts.CLUSTER}
            assert set(found.topics) == {"orders"}  # as it was last


def test_a_silent_coordinator_delays_a_round_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TestBroker(tmp_path / "b") as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        for number in range(4):
            admin.alter_group_offsets(f"g{number}", {("t", 0): 0}).check()
        asked: list[str] = []

        def silent(group: str, **_: object) -> None:
            asked.append(group)
            raise errors.Timeout("no answer")

        monkeypatch.setattr(admin, "list_group_offsets", silent)
        sampler = Sampler(admin)
        for rounds in (1, 2):
            found = sampler.sample()
            assert len(asked) == rounds
            assert {one.problem for one in found.groups.values()} == {"no answer"}
            assert found.problems[parts.POSITIONS] == "no answer"


def test_a_round_asks_for_as_much_as_its_budget_allows() -> None:
    """A large cluster is asked in turn, and for the visible topics in each round."""
    with Peer() as peer:
        topics = {f"t{n:03}": 10 for n in range(100)}
        peer.on(apis.METADATA, lambda request, version: peer.metadata(topics))
        peer.on(apis.DESCRIBE_CLUSTER, {"cluster_id": "c", "controller_id": 1, "brokers": [
            {"broker_id": 1, "host": "127.0.0.1", "port": peer.port}]})  # fmt: skip
        peer.on(apis.DESCRIBE_QUORUM, {"error_code": 31})
        peer.on(apis.DESCRIBE_LOG_DIRS, {"error_code": 31})
        peer.on(apis.LIST_GROUPS, {"error_code": 30})
        peer.on(apis.LIST_TRANSACTIONS, {"error_code": 53})
        peer.on(apis.LIST_OFFSETS, lambda request, version: {"topics": [
            {"name": one.name, "partitions": [
                {"partition_index": row.partition_index, "offset": 7} for row in one.partitions
            ]} for one in request.topics]})  # fmt: skip
        with Admin(peer.servers) as admin:
            clock = ManualClock()
            sampler = Sampler(admin, budget=Budget(partitions=210), clock=clock)
            asked: set[TopicPartition] = set()
            for _ in range(5):
                found = sampler.sample(topics=["t050"])
                assert len(found.ends) == 210
                assert {TopicPartition("t050", n) for n in range(10)} <= set(found.ends)
                asked |= set(found.ends)
            assert len(asked) == 1000
            assert set(found.problems) == {
                parts.QUORUM, parts.SIZES, parts.GROUPS, parts.TRANSACTIONS,
            }  # fmt: skip
            # A whole part rests for nine times as long as it took.

            def slow(request: Any, version: int) -> Any:
                if request.topics is None:
                    clock.advance(1_000)
                return peer.metadata(topics)

            def whole() -> int:
                return sum(one.topics is None for one in peer.sent(apis.METADATA))

            peer.on(apis.METADATA, slow)
            sampler.sample()
            before = whole()
            clock.advance(8_999)
            sampler.sample()
            assert whole() == before
            clock.advance(1)
            sampler.sample()
            assert whole() == before + 1


def test_a_closed_admin_is_no_problem_of_a_part(tmp_path: Path) -> None:
    with TestBroker(tmp_path / "b") as broker:
        admin = Admin(broker.bootstrap_servers)
        sampler = Sampler(admin)
        sampler.sample()
        admin.close()
        with pytest.raises(errors.Closed):
            sampler.sample()
