"""Clusters mirrored into each other: no copy goes back to where its records came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.cli import main
from kafkalog.testing.broker import TestBroker
from tests.support import brokers
from tests.support.mirrors import Running, values
from tests.support.waiting import wait_for

SETTINGS = {**brokers.SETTINGS, "kafkalog.durability": "os", "num.partitions": "1"}


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[list[TestBroker]]:
    with ExitStack() as stack:
        yield [stack.enter_context(TestBroker(tmp_path / name, config=SETTINGS)) for name in "abc"]


def mirror(
    source: TestBroker, target: TestBroker, rename: str, **more: str | int
) -> kafkalog.Mirror:
    """A mirror of all topics."""
    where, to = source.bootstrap_servers, target.bootstrap_servers
    return kafkalog.Mirror(where, to, ".*", rename=rename, **more)  # type: ignore[arg-type]


def topics(broker: TestBroker) -> list[str]:
    """The topics, without those of mirrors."""
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        return [name for name in admin.list_topics() if not name.startswith("kafkalog-mirror.")]


def test_two_clusters_with_prefixes(clusters: list[TestBroker]) -> None:
    """Each has the other's topics, and nobody has copies of copies; the mirror names them."""
    a, b, _ = clusters
    a.fill("orders", ["1"])
    b.fill("orders", ["2"])
    for number in (3, 4):
        there = mirror(a, b, "a.{}").copy()
        back = mirror(b, a, "b.{}").copy()
        a.fill("orders", [str(number)])
    assert topics(a) == ["b.orders", "orders"]
    assert topics(b) == ["a.orders", "orders"]
    assert (values(b, "a.orders"), values(a, "b.orders")) == ([1, 3], [2])
    assert there.returned.keys() == {"b.orders"}
    assert back.returned.keys() == {"a.orders"}
    assert not there.aside and not back.aside


def test_two_clusters_that_begin_at_once(clusters: list[TestBroker]) -> None:
    """Both mirrors look at a topic just while the other creates it."""
    a, b, _ = clusters
    with (
        Running(mirror(a, b, "a.{}", refresh_ms=20)),
        Running(mirror(b, a, "b.{}", refresh_ms=20)) as back,
    ):
        for number in range(8):
            (a, b)[number % 2].fill(f"t{number}", [str(number)])
        wait_for(lambda: len(topics(a)) + len(topics(b)) >= 16, "all are copied")
        wait_for(lambda: len(back.mirror.status.returned) == 4, "the copies are noticed")
    assert topics(a) == ["b.t1", "b.t3", "b.t5", "b.t7", "t0", "t2", "t4", "t6"]
    assert topics(b) == ["a.t0", "a.t2", "a.t4", "a.t6", "t1", "t3", "t5", "t7"]


def test_two_clusters_with_the_same_names(clusters: list[TestBroker]) -> None:
    """A copy does not go back, though nothing in its name says that it is one."""
    a, b, _ = clusters
    a.fill("orders", ["1"])
    b.fill("payments", ["2"])
    for _ in range(2):
        assert not mirror(a, b, "{}").copy().aside
        assert not mirror(b, a, "{}").copy().aside
    assert topics(a) == topics(b) == ["orders", "payments"]
    assert (values(b, "orders"), values(a, "payments")) == ([1], [2])


def test_a_ring_of_three(clusters: list[TestBroker]) -> None:
    """A copy goes on to the third cluster, and not back to the first."""
    a, b, c = clusters
    a.fill("t", ["1"])
    for _ in range(3):
        mirror(a, b, "a.{}").copy()
        mirror(b, c, "b.{}").copy()
        last = mirror(c, a, "c.{}").copy()
    assert [topics(one) for one in clusters] == [["t"], ["a.t"], ["b.a.t"]]
    assert values(c, "b.a.t") == [1]
    assert last.returned.keys() == {"b.a.t"}


def test_a_copy_that_became_a_topic_of_its_own(clusters: list[TestBroker]) -> None:
    """After a failover: without the state of the mirror that wrote it, it is copied back."""
    a, b, _ = clusters
    a.fill("t", ["1"])
    mirror(a, b, "a.{}", name="there").copy()
    b.fill("a.t", ["2"])
    assert mirror(b, a, "back.{}").copy().records == 0
    b.delete_topics("kafkalog-mirror.there")
    assert mirror(b, a, "back.{}").copy().records == 2
    assert values(a, "back.a.t") == [1, 2]


def test_an_unreadable_state(clusters: list[TestBroker]) -> None:
    """A mirror that cannot tell which topics are copies copies nothing, and says why."""
    a, b, _ = clusters
    b.fill("t", ["1"])
    b.fill("kafkalog-mirror.x", [("key", "value")])
    with pytest.raises(errors.BadAnswer, match=r"'kafkalog-mirror\.x', offset 0.*delete the topic"):
        mirror(b, a, "b.{}").copy()
    assert topics(a) == []


def test_names_of_mirror_maker(
    clusters: list[TestBroker], capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics that MirrorMaker copied from the target, and topics left out by a pattern."""
    a, b, _ = clusters
    for name in ("t", "a.t", "c.a.t", "c.t", "heartbeats", "a.checkpoints.internal"):
        b.fill(name, ["1"])
    command = [
        "mirror", "--once", "--from", b.bootstrap_servers, "--to", a.bootstrap_servers,
        "--topics", ".*", "--rename", "b.{}", "--target-alias", "a", "--exclude", "heart.*",
    ]  # fmt: skip
    assert main(command) == 0
    assert topics(a) == ["b.c.t", "b.t"]
    command[3], command[5] = command[5], command[3]
    capsys.readouterr()
    assert main([*command[:8], "--rename", "a.{}"]) == 0
    assert "2 topics not copied, as copies that came from the target: b.c.t, b.t" in (
        capsys.readouterr().out
    )
