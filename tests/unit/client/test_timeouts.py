"""A call ends when its timeout does, whatever brokers do; a poll continues the last one's work.

Nothing here measures time: every wait for a broker is ten minutes, longer than any test may take.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.log.log import Log
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import STALL, Peer, Torn
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.consumer.members import OPTIONS, Coordinator, joined

LONG_MS = 600_000
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENT: dict[str, Any] = {
    "socket.connection.setup.timeout.ms": LONG_MS,
    "request.timeout.ms": LONG_MS,
    "default.api.timeout.ms": LONG_MS,
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
    "fetch.max.wait.ms": 10,
}
SOON_MS = 20

Call = Callable[[Consumer], object]
ASKING: dict[str, Call] = {
    "position": lambda c: c.position(ZERO, SOON_MS),
    "seek_to_beginning": lambda c: c.seek_to_beginning(ZERO, timeout_ms=SOON_MS),
    "seek_to_end": lambda c: c.seek_to_end(ZERO, timeout_ms=SOON_MS),
    "partitions": lambda c: c.partitions("other", SOON_MS),
    "beginning_offsets": lambda c: c.beginning_offsets([ZERO], SOON_MS),
    "end_offsets": lambda c: c.end_offsets([ZERO], SOON_MS),
    "offsets_for_times": lambda c: c.offsets_for_times({ZERO: 0}, SOON_MS),
    "lag": lambda c: c.lag(ZERO, SOON_MS),
    "commit": lambda c: c.commit({ZERO: 1}, timeout_ms=SOON_MS),
    "committed": lambda c: c.committed(ZERO, SOON_MS),
}
"""Calls that need an answer, by name."""
GOING_ON: dict[str, Call] = {
    "poll": lambda c: c.poll(SOON_MS),
    "poll at once": lambda c: c.poll(0),
    "poll_arrow": lambda c: c.poll_arrow(SOON_MS),
    "unsubscribe": lambda c: c.unsubscribe(SOON_MS),
    "close": lambda c: c.close(timeout_ms=SOON_MS),
}
"""Calls that do what they can without one."""
ALL = {**ASKING, **GOING_ON}


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A listener that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as made:
        yield made


def port(where: socket.socket) -> int:
    found: int = where.getsockname()[1]
    return found


def outcome(consumer: Consumer, name: str) -> None:
    """The call returns or raises."""
    if name in ASKING:
        with pytest.raises((errors.Timeout, errors.PeerGone)):
            ASKING[name](consumer)
    else:
        assert not GOING_ON[name](consumer)


# ---- a broker that never answers ---------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_broker_that_answers_nothing(silent: socket.socket, name: str) -> None:
    consumer = Consumer(f"127.0.0.1:{port(silent)}", group="g", config=PATIENT)
    consumer.assign([ZERO])
    outcome(consumer, name)
    consumer.close(timeout_ms=SOON_MS)


def test_a_group_of_a_broker_that_answers_nothing(silent: socket.socket) -> None:
    with Consumer(f"127.0.0.1:{port(silent)}", "t", group="g", config=PATIENT) as consumer:
        assert consumer.poll(SOON_MS) == consumer.poll(0) == []


@pytest.mark.parametrize("api", [apis.METADATA, apis.LIST_OFFSETS, apis.OFFSET_FETCH, apis.FETCH])
@pytest.mark.parametrize("name", ["poll", "close"])
def test_an_answer_that_never_comes(
    coordinator: Coordinator, peer: Peer, api: Any, name: str
) -> None:
    peer.on(api, STALL)
    consumer = Consumer(peer.servers, **{**OPTIONS, "config": PATIENT})
    consumer.assign([ZERO])
    while not peer.count(api):
        assert consumer.poll(SOON_MS) == []
    outcome(consumer, name)
    consumer.close(timeout_ms=SOON_MS)


# ---- a coordinator that never answers, while the rest does -------------------------------------


@pytest.mark.parametrize("api", [apis.OFFSET_COMMIT, apis.LEAVE_GROUP, apis.HEARTBEAT])
@pytest.mark.parametrize("name", ["poll", "commit", "unsubscribe", "close"])
def test_a_members_coordinator_that_falls_silent(
    coordinator: Coordinator, peer: Peer, api: Any, name: str
) -> None:
    consumer = joined(peer, config=PATIENT)
    consumer.position(ZERO)
    peer.on(api, STALL)
    if name == "commit" and api is not apis.OFFSET_COMMIT:
        consumer.commit({ZERO: 1}, timeout_ms=LONG_MS)
    else:
        outcome(consumer, name)
    consumer.close(timeout_ms=SOON_MS)


def test_a_coordinator_that_is_not_reached_holds_up_no_records(
    coordinator: Coordinator, peer: Peer, silent: socket.socket, tmp_path: Path
) -> None:
    """One partition has a position from seek; the other waits for its committed offset."""
    with Log(tmp_path / "t-0") as log:
        log.append(b"here")
        data = log.read_batches(0, 1 << 20)
    where = {"key": "g", "node_id": 2, "host": "127.0.0.1", "port": port(silent)}
    peer.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
    row = {"partition_index": 0, "records": data}
    peer.on(apis.FETCH, {"responses": [{"topic": "t", "partitions": [row]}]}, {"responses": []})
    with Consumer(peer.servers, **{**OPTIONS, "config": PATIENT}) as consumer:
        consumer.assign([ZERO, ONE])
        consumer.seek(ZERO, 0)
        assert [record.value for record in wait_for(lambda: consumer.poll(SOON_MS), "it reads")]
        assert consumer.poll(SOON_MS) == []
        consumer.close(commit=False, timeout_ms=SOON_MS)


def test_a_rebalance_waits_for_its_commit_within_poll(coordinator: Coordinator, peer: Peer) -> None:
    """The commit before the revocation is not answered at first; then the rebalance continues."""
    member = joined(peer, config={**PATIENT, "enable.auto.commit": True})
    member.position(ZERO)
    let = threading.Event()

    def held(request: Any, version: int) -> Any:
        let.wait(LIMIT_S)
        return coordinator.commit(request, version)

    peer.on(apis.OFFSET_COMMIT, held)
    revoked: list[object] = []
    member.subscribe(["t"], on_revoked=revoked.append)
    while not peer.count(apis.OFFSET_COMMIT):
        assert member.poll(SOON_MS) == []
    assert member.poll(SOON_MS) == [] and not revoked
    let.set()
    while member.group_metadata().generation < 2:
        assert member.poll(SOON_MS) == []
    assert revoked == [[ZERO, ONE]]
    member.close()


# ---- a broker that is away ---------------------------------------------------------------------


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_a_broker_that_is_away_is_waited_for(tmp_path: Path, group: str | None) -> None:
    """Longer than default.api.timeout.ms, which is 1 ms here."""
    with TestBroker(tmp_path / "b") as broker:
        broker.create_topic("t")
        broker.fill("t", ["one"])
        with Consumer(
            broker.bootstrap_servers, "t", group=group, auto_offset_reset="earliest",
            config={"retry.backoff.ms": 1, "retry.backoff.max.ms": 5},
        ) as consumer:  # fmt: skip
            wait_for(lambda: consumer.poll(SOON_MS), "it reads")
            options = consumer._cluster.options._replace(api_timeout_ms=1)
            consumer._cluster.options = options
            broker.stop()
            for _ in range(20):
                assert consumer.poll(5) == []
            for name in ("end_offsets", "partitions"):
                outcome(consumer, name)
            broker.start()
            consumer._cluster.options = options._replace(api_timeout_ms=LONG_MS)
            broker.fill("t", ["two"])
            found = wait_for(lambda: consumer.poll(SOON_MS), "it reads on")
            assert [record.value for record in found] == [b"two"]


def test_a_broker_that_was_never_there_is_told(silent: socket.socket) -> None:
    at = port(silent)
    silent.close()
    with Consumer(f"127.0.0.1:{at}", "t") as consumer, pytest.raises(errors.PeerGone):
        consumer.poll(LONG_MS)


# ---- polls that are shorter than an answer -----------------------------------------------------


@pytest.mark.parametrize(
    "api", [apis.METADATA, apis.FIND_COORDINATOR, apis.OFFSET_FETCH, apis.LIST_OFFSETS]
)
def test_an_answer_comes_with_a_later_poll(coordinator: Coordinator, peer: Peer, api: Any) -> None:
    """The request is sent once, however many polls end before the answer arrives."""
    let = threading.Event()
    asked: list[Any] = []
    answer = peer._answers[api.key][0]

    def slow(request: Any, version: int) -> Any:
        asked.append(request)
        let.wait(LIMIT_S)
        return answer(request, version) if callable(answer) else answer

    peer.on(api, slow)
    with Consumer(peer.servers, **OPTIONS) as consumer:
        consumer.assign([ZERO, ONE])
        while not asked:
            consumer.poll(0)
        for _ in range(50):
            assert consumer.poll(0) == []
        assert len(asked) == 1
        let.set()
        while not peer.count(apis.FETCH):
            consumer.poll(0)
        assert len(asked) == 1


def test_a_group_is_joined_by_polls_that_wait_for_nothing(
    coordinator: Coordinator, peer: Peer
) -> None:
    with Consumer(peer.servers, "t", **OPTIONS) as consumer:
        while not peer.count(apis.FETCH):
            consumer.poll(0)
        assert consumer.assignment == [ZERO, ONE]
        assert peer.count(apis.FIND_COORDINATOR) <= 2  # its committer asks, too


def test_a_group_is_joined_once_a_pattern_has_found_its_topics(
    coordinator: Coordinator, peer: Peer
) -> None:
    """Otherwise every member would join twice, and make all others rejoin."""
    let = threading.Event()
    answer = peer.metadata({"t": 2})

    def slow(request: Any, version: int) -> Any:
        let.wait(LIMIT_S)
        return answer

    peer.on(apis.METADATA, slow)
    with Consumer(peer.servers, pattern="t.*", **OPTIONS) as consumer:
        while not peer.count(apis.METADATA):
            consumer.poll(0)
        for _ in range(50):
            consumer.poll(0)
        assert not peer.count(apis.JOIN_GROUP)
        let.set()
        while not consumer.assignment:
            consumer.poll(0)
        assert coordinator.generation == 1


def test_offsets_of_an_open_transaction_are_waited_for(
    coordinator: Coordinator, peer: Peer
) -> None:
    """As in Java's consumer: it does not fail, however long that takes."""
    unstable = {
        "groups": [{"group_id": "g", "topics": [{"name": "t", "partitions": [
            {"partition_index": p, "committed_offset": -1,
             "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT} for p in (0, 1)]}]}]
    }  # fmt: skip
    stable = {"groups": [{"group_id": "g", "topics": []}]}
    peer.on(apis.OFFSET_FETCH, *[unstable] * 20, stable)
    with Consumer(peer.servers, "t", **OPTIONS) as consumer:
        while not peer.count(apis.FETCH):
            assert consumer.poll(SOON_MS) == []
        # One more where a poll ended just before its answer came.
        assert peer.count(apis.OFFSET_FETCH) >= 21


def test_an_answer_in_two_halves_is_put_together(
    coordinator: Coordinator, peer: Peer, tmp_path: Path
) -> None:
    """A poll that ends in the middle of an answer loses neither half."""
    with Log(tmp_path / "t-0") as log:
        log.append(b"whole")
        data = log.read_batches(0, 1 << 20)
    row = {"partition_index": 0, "records": data}
    whole = {"responses": [{"topic": "t", "partitions": [row]}]}
    torn = Torn(whole, threading.Event(), threading.Event())
    peer.on(apis.FETCH, torn, {"responses": []})
    with Consumer(peer.servers, **OPTIONS) as consumer:
        consumer.assign([ZERO])
        consumer.seek(ZERO, 0)
        while not torn.begun.is_set():
            assert consumer.poll(1) == []
        for _ in range(20):
            assert consumer.poll(1) == []
        assert peer.count(apis.FETCH) == 1
        torn.let.set()
        found = wait_for(lambda: consumer.poll(SOON_MS), "the whole is there")
        assert [record.value for record in found] == [b"whole"]


def test_a_wakeup_ends_a_poll_that_waits_for_a_broker(silent: socket.socket) -> None:
    with Consumer(f"127.0.0.1:{port(silent)}", "t", group="g", config=PATIENT) as consumer:
        threading.Timer(0.05, consumer.wakeup).start()
        with pytest.raises(errors.WakeUp):
            consumer.poll(LONG_MS)
