"""How often a stream looks at its logs: pauses after the work of a look, by no wall clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark_kafkalog.stream.watch import LIST_S, REST, REST_MAX_S

import kafkalog
from kafkalog.client.link.cluster import Backoff
from kafkalog.clock import ManualClock
from kafkalog.disk.holds import HOLD_MS_MAX, read_holds
from kafkalog.testing.broker import TestBroker
from tests.spark.engine import Checkpoint, Query
from tests.spark.test_stream_reader import EARLIEST, values

HOUR_MS = 3_600_000


class Stream:
    """A query that has read everything, and what its looks cost."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self.clock, self.checkpoint = ManualClock(), Checkpoint()
        self.looks: list[float] = []
        self.work_s = self.wait_s = self.worked_s = 0.0
        """The cost of each look from now on, and the cost so far."""
        self.query = Query(
            path, self.checkpoint, self.clock, worked_s=lambda: self.worked_s, subscribe="t",
            **EARLIEST, **options,
        )  # fmt: skip
        self.query.drain()
        place = self.query.reader._driver._watch.place
        real = place.ends

        def ends(keys: object) -> object:
            self.looks.append(self.clock.monotonic_s())
            self.worked_s += self.work_s
            self.clock.advance(round(1000 * (self.work_s + self.wait_s)))
            return real(keys)

        monkeypatch.setattr(place, "ends", ends)

    def poll(self, times: int) -> None:
        """Trigger each 10 ms."""
        for _ in range(times):
            self.query.trigger()
            self.clock.advance(10)


@pytest.fixture
def log(tmp_path: Path) -> kafkalog.Log:
    with kafkalog.Log(tmp_path / "t-0") as made:
        yield made


@pytest.fixture
def stream(
    log: kafkalog.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Stream]:
    def made(**options: str) -> Stream:
        return Stream(tmp_path, monkeypatch, **options)

    return made


def test_looks_take_a_tenth_of_the_time(log: kafkalog.Log, stream: Callable[..., Stream]) -> None:
    """The next one sees what has come since."""
    one = stream()
    one.work_s = 0.05
    log.append(b"a")
    one.poll(100)
    pauses = [after - before for before, after in zip(one.looks, one.looks[1:], strict=False)]
    assert pauses and all(pause >= (1 + REST) * one.work_s for pause in pauses)
    assert values(one.checkpoint.rows) == ["a"]


@pytest.mark.parametrize(("work_s", "wait_s"), [(0.0, 3600.0), (60.0, 0.0), (0.02, 8.0)])
def test_the_pause_after_a_look_has_a_bound(
    log: kafkalog.Log, stream: Callable[..., Stream], work_s: float, wait_s: float
) -> None:
    """Waits for a broker are no work: nothing rests for them."""
    one = stream()
    one.work_s, one.wait_s = work_s, wait_s
    one.query.trigger()
    one.clock.advance(round(1000 * min(REST * work_s, REST_MAX_S)))
    log.append(b"a")
    assert one.query.trigger()


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_a_wall_clock_that_is_set(
    log: kafkalog.Log, stream: Callable[..., Stream], step_ms: int
) -> None:
    """Records, new partitions, a minimum's time, and the pause after a look."""
    one = stream(minOffsetsPerTrigger="2", maxTriggerDelay="1m")
    one.work_s = 0.01
    log.append(b"a")
    assert not one.query.trigger()
    one.clock.set_now_ms(one.clock.now_ms() + step_ms)
    one.clock.advance(59_000)
    assert not one.query.trigger()
    one.clock.advance(1_000)
    assert one.query.trigger()
    with kafkalog.Log(Path(log.path).parent / "t-1") as new:
        new.append_many([b"b", b"c"])
    one.clock.set_now_ms(one.clock.now_ms() - step_ms)
    one.clock.advance(round(1000 * max(LIST_S, REST_MAX_S)))
    assert one.query.trigger()
    assert sorted(values(one.checkpoint.rows)) == ["a", "b", "c"]


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_a_hold_is_obeyed_when_the_wall_clock_is_set(
    tmp_path: Path, stream: Callable[..., Stream], step_ms: int
) -> None:
    """A hold may reach a week ahead; one of a clock that was set back would reach further."""
    one = stream(retentionHold="q", retentionHoldMaxAge="7d")
    one.clock.set_now_ms(one.clock.now_ms() + step_ms)
    one.query.reader.latestOffset(json.loads(one.checkpoint.offsets[-1]), None)
    (hold,) = read_holds(str(tmp_path), one.clock.now_ms())
    assert 0 < hold.until_ms - one.clock.now_ms() <= HOLD_MS_MAX


def test_a_broker_that_was_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the wait for it the stream sees within REST_MAX_S what has come."""
    clock, checkpoint = ManualClock(), Checkpoint()
    with TestBroker(tmp_path / "broker") as broker:
        broker.create_topic("t")
        broker.fill("t", [b"a"])
        where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        given = {"subscribe": "t", **EARLIEST}
        query = Query(where, checkpoint, clock, worked_s=time.thread_time, **given)
        query.drain()
        real = Backoff.wait

        def wait(backoff: Backoff) -> None:
            broker.start()
            clock.advance(HOUR_MS)
            real(backoff)

        broker.stop()
        monkeypatch.setattr(Backoff, "wait", wait)
        clock.advance(round(1000 * max(LIST_S, REST_MAX_S)))
        assert not query.trigger()
        assert clock.monotonic_s() >= HOUR_MS / 1000, "it waited"
        broker.fill("t", [b"b"])
        clock.advance(round(1000 * REST_MAX_S))
        assert query.trigger()
    assert values(checkpoint.rows) == ["a", "b"]
