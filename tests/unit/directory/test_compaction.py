"""A data directory compacts its logs by itself, on an injected clock."""

import errno
from pathlib import Path

import pytest

import kafkalog
from kafkalog.clock import ManualClock
from kafkalog.directory.manager import Manager

TOPIC = {"cleanup.policy": "compact", "segment.bytes": 2_000, "file.delete.delay.ms": 0}
PLAIN = {"segment.bytes": 2_000}
BACKOFF_MS = 15_000


def settings(topic):
    return {"plain": PLAIN, "large": {**TOPIC, "segment.bytes": 100_000}}.get(topic, TOPIC)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def directory(tmp_path, clock):
    """Open the data directory; it is closed at the end in any case."""
    opened = []

    def make(**config):
        given = {name.replace("_", "."): value for name, value in config.items()}
        opened.append(Manager(tmp_path / "data", given, settings, clock))
        return opened[-1]

    yield make
    for manager in opened:
        manager.close()


def fill(log, clock, size=30):
    """Records of two keys, in several sealed segments."""
    for _ in range(20):
        stamps = [clock.now_ms()] * 10
        log.append_many([b"v" * size] * 10, keys=[b"a", b"b"] * 5, timestamps_ms=stamps)
    log.roll()


def checkpoint(manager):
    path = Path(manager.path) / "cleaner-offset-checkpoint"
    return path.read_text().splitlines()[2:] if path.exists() else []


def test_only_compacted_topics(directory, clock, wait_until):
    manager = directory()
    logs = {name: manager.create_partition(name) for name in ("one", "two", "plain")}
    for log in logs.values():
        fill(log, clock)
    clock.advance(BACKOFF_MS)
    wait_until(lambda: checkpoint(manager) == ["one 0 200", "two 0 200"], "both checkpoints")
    assert [len(list(log.read())) for log in logs.values()] == [2, 2, 200]
    # Log "one" now has little to clean: the next round leaves it alone.
    size = logs["one"].size_bytes
    fill(logs["two"], clock)
    logs["one"].append_many([b"x"] * 3, keys=[b"a"] * 3)
    clock.advance(BACKOFF_MS)
    wait_until(lambda: checkpoint(manager) == ["one 0 200", "two 0 400"], "the dirty one")
    assert logs["one"].size_bytes > size
    assert manager.problems == ()


def test_a_log_that_is_not_open_is_compacted_too(directory, clock, wait_until):
    manager = directory()
    fill(manager.create_partition("one"), clock)
    manager.close()
    manager = directory()
    assert manager.handles() == ()
    clock.advance(BACKOFF_MS)
    wait_until(lambda: checkpoint(manager) == ["one 0 200"], "its checkpoint")


def test_a_damaged_log_is_left_alone_and_named(directory, clock, wait_until):
    manager = directory()
    good, bad = manager.create_partition("good"), manager.create_partition("bad")
    fill(bad, clock)
    segment = sorted(Path(bad.path).glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    clock.advance(BACKOFF_MS)
    wait_until(lambda: manager.problems, "the failure")
    assert manager.problems[0].startswith("compaction of bad-0: ")
    fill(good, clock)
    clock.advance(BACKOFF_MS)
    wait_until(lambda: checkpoint(manager) == ["good 0 200"], "the other one")


def test_a_log_without_room_is_compacted_later(directory, clock, native_test, caplog):
    """A full disk is not damage: it is logged once, however often, and a later round succeeds."""
    _, lib = native_test
    manager = directory(log_cleaner_enable=False)  # the test runs its rounds
    log = manager.create_partition("one")
    fill(log, clock)
    clock.advance(BACKOFF_MS)
    lib.kl_io_reset()
    lib.kl_io_fail(b"pwrite", 1, errno.ENOSPC, 1, 0)
    try:
        for _ in range(3):
            manager._cleaner.run()
            assert list(manager._cleaner.failures) == ["compaction of one-0"]
    finally:
        lib.kl_io_reset()
    told = [one for one in caplog.records if "compaction of one-0" in one.getMessage()]
    assert len(told) == 1 and not told[0].exc_info
    manager._cleaner.run()
    assert checkpoint(manager) == ["one 0 200"]
    assert manager._cleaner.failures == {}


def test_it_can_be_turned_off(directory, clock):
    manager = directory(log_cleaner_enable=False)
    log = manager.create_partition("one")
    fill(log, clock)
    clock.advance(10 * BACKOFF_MS)
    assert not manager._cleaner._scheduler._thread.is_alive()
    assert len(list(log.read())) == 200
    assert log.compact().records_after == 2


def test_a_close_does_not_wait_for_a_throttled_round(directory, clock, wait_until):
    """At one byte a second it would take forever, and its clock does not advance either."""
    manager = directory(log_cleaner_io_max_bytes_per_second=1)
    log = manager.create_partition("large")
    fill(log, clock, 1_000)  # more than one step, but few segments to sync first
    before = list(log.read())
    clock.advance(BACKOFF_MS)
    wait_until(lambda: manager._cleaner._throttle._wake in clock._waiters, "the throttle's wait")
    with pytest.raises(kafkalog.Locked):
        log.compact()
    manager.close()
    assert not list(Path(log.path).glob("*.cleaned"))
    manager = directory()
    assert {r.key for r in manager.get("large").read()} == {r.key for r in before}


def test_a_log_that_stood_alone_brings_its_checkpoint(tmp_path, clock):
    path = tmp_path / "data" / "one-0"
    with kafkalog.Log(path, config=TOPIC, clock=clock) as log:
        fill(log, clock)
        log.compact()
    assert (path / "cleaner-offset-checkpoint").exists()
    config = {"log.cleaner.enable": False}
    with Manager(tmp_path / "data", config, settings, clock, adopt=True) as manager:
        manager.get("one")
        assert manager.state.cleaner(("one", 0)) == 200
        assert not (path / "cleaner-offset-checkpoint").exists()
    assert checkpoint(manager) == ["one 0 200"]
