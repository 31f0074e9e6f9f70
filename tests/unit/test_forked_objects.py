"""Every public method of every public object in a forked child: it refuses at once or works, and
the parent's object is unharmed.  In the child all locks are held by threads that it does not have.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog import NewTopic, SharedRecord, TopicPartition, aio
from kafkalog.clock import ManualClock, SkippingClock
from kafkalog.log.scan.topic import TopicScan
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.cluster import TestCluster
from tests.support.forked import REFUSED, WORKS, arguments_of, outcomes, public_members
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
TP = TopicPartition("t", 0)
for module in ("numpy", "pyarrow"):
    importlib.import_module(module)  # not in each child


CONVERTED = {"to_pandas", "to_polars"}
"""Conversions of what `to_arrow` returns."""


def nothing(*_: object) -> None:
    """A callback."""


ARGUMENTS: dict[str, Any] = {
    "topic": "t", "topics": ["t"], "name": "new", "names": ["t"], "tp": TP, "partitions": [TP],
    "offsets": {TP: 0}, "offset": 0, "times_ms": {TP: 0}, "value": b"v", "values": [b"v"],
    "group": "g", "groups": ["g"], "batches": b"", "config": {}, "producer_id": 1,
    "transactional_ids": ["x"], "transactional_id": "x", "partition": 0, "count": 2,
    "new": [NewTopic("new")], "moves": {TP: [0]}, "node_id": 1, "node": 1, "features": {},
    "callback": nothing, "waiter": None, "prefix": "zz", "api": "Fetch", "error": "NOT_CONTROLLER",
    "ms": 1, "what": ["v"], "epoch": 0, "start": 0, "stop": 1, "time": 0, "times": {TP: 0},
    "before": 0, "buffer": bytearray(9), "changes": {}, "commit": True, "counts": {"t": 2},
    "levels": {}, "places": {TP: [0]}, "producer_epoch": 0, "resources": [], "socket": None,
    "timeout_ms": 0, "acls": [], "filters": [], "alterations": [], "hmac": b"h",
    "directory_id": UUID(int=7), "endpoints": [("CONTROLLER", "h", 9093)],
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("forked") / "data") as made:
        made.create_topic("t")
        made.fill("t", ["1", "2", "3"])
        yield made


def calls_of(one: Any, **special: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """A call for each public name, those that end it last."""
    found: dict[str, Callable[[], Any]] = {"repr": lambda: repr(one)}
    ends = ["kill", "abandon", "stop", "restart", "start", "close"]
    names = public_members(type(one)) - special.keys() - CONVERTED
    for name in sorted(names, key=lambda name: (name in ends, name)):
        member = getattr(type(one), name)
        if not callable(member):
            found[name] = lambda name=name: getattr(one, name)
        else:
            words = arguments_of(getattr(one, name), ARGUMENTS)
            found[name] = lambda name=name, words=words: getattr(one, name)(*words)
    return {**special, **found}


def judged(one: Any, works: str, **special: Callable[[], Any]) -> None:
    """`works`: the names of those that work; all others refuse."""
    calls = calls_of(one, **special)
    found = outcomes(one, calls)
    wanted = {name: WORKS if name in works.split() else REFUSED for name in calls}
    assert found == wanted


def test_producer(served: TestBroker) -> None:
    with kafkalog.Producer(served.bootstrap_servers) as one:
        one.send("t", b"x").result(LIMIT_S)
        judged(one, "repr producer_id in_doubt close",
               transaction=lambda: one.transaction().__enter__())  # fmt: skip
        one.send("t", b"x").result(LIMIT_S)


def test_consumer(served: TestBroker) -> None:
    with kafkalog.Consumer(served.bootstrap_servers, "t", group="g",
                           auto_offset_reset="earliest") as one:  # fmt: skip
        assert next(iter(one)).offset == 0
        works = "repr assignment paused subscription group_metadata end close"
        judged(one, works, iteration=lambda: next(iter(one)),
               end=lambda: (one._heartbeats.stop(), one._committer.stop()))  # fmt: skip
        assert one.committed(TP) is None


SHARED = SharedRecord(0, 0, None, None, (), "t", 0, 0, 0, 1)


def test_share_consumer(served: TestBroker) -> None:
    config = {"share.acknowledgement.mode": "explicit"}
    with kafkalog.ShareConsumer(served.bootstrap_servers, "t", group="s", config=config) as one:
        assert one.poll(0) == []
        judged(one, "repr assignment subscription end close", iteration=lambda: next(iter(one)),
               acknowledge=lambda: one.acknowledge(SHARED),
               end=lambda: one._heartbeats.stop())  # fmt: skip
        assert one.poll(0) == []


def test_admin(served: TestBroker) -> None:
    with kafkalog.Admin(served.bootstrap_servers) as one:
        judged(one, "repr closed close",
               abort_transaction=lambda: one.abort_transaction(TP, 1, 0),
               delete_records=lambda: one.delete_records({TP: 0}),
               move_replicas=lambda: one.move_replicas({("t", 0, 1): "/x"}))  # fmt: skip
        assert one.list_topics()


def test_futures(served: TestBroker) -> None:
    """One whose outcome is known has it in a child, too; of any other a child never hears."""
    with kafkalog.Producer(served.bootstrap_servers, linger_ms=1_000_000) as one:
        known = one.send("t", b"x")
        known.result(LIMIT_S)
        many = one.send_many("t", [b"x"])
        many.result(LIMIT_S)
        every = " ".join(["repr", *public_members(type(known)), *public_members(type(many))])
        judged(known, every)
        judged(many, every)
        unknown, rows = one.send("t", b"x"), one.send_many("t", [b"x"])
        looks = "repr done running cancel cancelled partition remove_waiter"
        judged(unknown, looks)
        judged(rows, looks)


def test_log_and_scan(tmp_path: Path) -> None:
    log = kafkalog.Log(tmp_path / "t-0", config={"cleanup.policy": "compact"})
    log.append(b"x", key=b"k")
    judged(log, "repr closed config verify refresh scan close",
           follow=lambda: next(iter(log.follow(0))), read=lambda: list(log.read()))  # fmt: skip
    judged(log.scan(), "repr columns end_offset close")
    log.append(b"y", key=b"k")
    assert [record.value for record in log.read()] == [b"x", b"y"]
    log.close()


def test_store(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "data") as one:
        one.create_topic("t")
        one["t"][0].append(b"x")
        item = {"item": lambda: one["t"], "names": lambda: list(one), "there": lambda: "t" in one}
        judged(one, "repr path closed close", **item)
        topic = one["t"]
        judged(topic, "repr", log=lambda: topic[0], logs=lambda: list(topic))
        judged(one.scan("t"), "repr columns")
        begun = one.scan("t").view_batches()
        next(begun)
        found = outcomes(begun, {"goes on": lambda: next(begun), "ends": begun.close})
        assert found == {"goes on": REFUSED, "ends": WORKS}
        with kafkalog.Store(tmp_path / "data", mode="r") as reader:
            found = outcomes(reader, {
                "topics": lambda: reader.topics, "log": lambda: list(reader["t"][0].read()),
                "scan": lambda: reader.scan("t").to_numpy(), "close": reader.close,
            })  # fmt: skip
            assert set(found.values()) == {WORKS}
        assert isinstance(one.scan("t"), TopicScan)
        assert [record.value for record in one["t"][0].read()] == [b"x"]


def test_broker(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data") as one:
        judged(one, "repr path config bootstrap_servers abandon close")
        with kafkalog.Admin(one) as admin:
            assert admin.list_topics() == []


def test_test_broker(served: TestBroker) -> None:
    asks = "create_topic delete_topics fill committed assert_committed"
    judged(
        served,
        f"repr bootstrap_servers running close {asks}",
        create_topic=lambda: served.create_topic("new"),
        assert_committed=lambda: served.assert_committed("g", {}),
    )
    assert served.records("new") == []


def test_test_cluster(tmp_path: Path) -> None:
    with TestCluster(tmp_path / "c") as one:
        one.create_topic("t")
        judged(one, "repr bootstrap_servers running fill committed wait_until close",
               wait_until=lambda: one.wait_until(lambda: True, "x"),
               partition=lambda: one.partition(1, 2))  # fmt: skip
        assert len(one.wait_for_records("t", 1)) == 1


@pytest.mark.parametrize("kind", [SkippingClock, ManualClock])
def test_clocks(kind: Any) -> None:
    """A child has a copy, which nobody else waits for."""
    one, condition = kind(), threading.Condition()

    def wait() -> None:
        with condition:
            one.wait_until(condition, one.monotonic_s() - 1)

    found = outcomes(one, {
        "advance": lambda: one.advance(1), "now_ms": one.now_ms, "monotonic_s": one.monotonic_s,
        "wait_until": wait,
    } | ({"set_now_ms": lambda: one.set_now_ms(1)} if kind is ManualClock else {}))  # fmt: skip
    assert set(found.values()) == {WORKS}


def test_mirror(served: TestBroker) -> None:
    one = kafkalog.Mirror(served.bootstrap_servers, served.bootstrap_servers, "x", rename="y{}")
    judged(one, "repr status stop copy run", copy=one.copy, stop=one.stop, run=one.run)
    assert one.copy().records == 0


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "Admin", "ShareConsumer"])
def test_asyncio(served: TestBroker, kind: str) -> None:
    given = ("t",) if kind == "ShareConsumer" else ()
    one = getattr(aio, kind)(served.bootstrap_servers, *given, **({"group": "a"} if given else {}))
    asyncio.run(one.metrics() if hasattr(one, "metrics") else
                one.poll(0) if given else one.list_topics())  # fmt: skip
    looks = "repr close closed producer_id in_doubt assignment paused subscription"
    special: dict[str, Any] = {
        "Producer": {"transaction": lambda: one.transaction().__aenter__()},
        "ShareConsumer": {"acknowledge": lambda: one.acknowledge(SHARED)},
    }
    judged(one, looks, **special.get(kind, {}))
    asyncio.run(one.close())
