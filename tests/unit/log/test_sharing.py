"""One partition in one process: a second open shares it, and its topic's settings apply."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import Broker, Log
from kafkalog.directory.manager import Manager
from kafkalog.errors import (
    ArgumentError,
    Closed,
    InvalidRecord,
    Locked,
    MessageTooLarge,
    UnknownTopicOrPartition,
)
from kafkalog.log.log import handle_of
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S


def test_a_log_and_a_broker_share_a_partition(tmp_path: Path) -> None:
    """Whichever opens first, all use one log, and no close affects the others."""
    with Broker(tmp_path) as broker, Raw(broker.bootstrap_servers) as client:
        client.create("t")
        with Log(tmp_path / "t-0") as first:
            assert first.append(b"log") == 0
            assert client.produce("t", b"broker").base_offset == 1
            with Log(tmp_path / "t-0") as second:
                assert second.append(b"again") == 2
        with pytest.raises(Closed):
            first.append(b"x")
        assert client.produce("t", b"still").base_offset == 3
        with Log(tmp_path / "t-0") as late:
            assert [record.value for record in late] == [b"log", b"broker", b"again", b"still"]


def test_threads_open_and_close_logs_of_one_directory(tmp_path: Path) -> None:
    """The last one closes the directory while another thread opens it: that one waits."""
    Manager(tmp_path).close()
    begin, failures = threading.Barrier(2), []

    def work(partition: int) -> None:
        begin.wait(LIMIT_S)
        for _ in range(60):
            try:
                with Log(tmp_path / f"a-{partition}") as log:
                    log.append(b"x")
            except Exception as problem:
                failures.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert failures == []
    for number in range(2):
        assert len(list(Log(tmp_path / f"a-{number}", "r"))) == 60


def test_a_closed_face_answers_closed_while_the_log_goes_on(tmp_path: Path) -> None:
    """Each of its calls raises; the other face is not affected, and close may be repeated."""
    Manager(tmp_path).close()
    with Log(tmp_path / "a-0") as stays:
        stays.append(b"x")
        gone = Log(tmp_path / "a-0")
        scan = gone.scan()
        gone.close()
        gone.close()
        assert gone.closed
        assert "closed" in repr(gone)
        assert gone.topic == "a"
        calls: list[Callable[[], object]] = [
            lambda: gone.append(b"x"), lambda: gone.append_many([b"x"]), gone.flush,
            lambda: gone.end_offset, lambda: list(gone), lambda: gone.offset_at(0),
            lambda: gone.read_batches(0), gone.roll, lambda: gone.truncate(0),
            gone.apply_retention, scan.count, lambda: gone.segments,
        ]  # fmt: skip
        for number, call in enumerate(calls):
            with pytest.raises(Closed, match="closed"):
                call()
                pytest.fail(f"call {number} was answered")
        assert stays.append(b"y") == 1


def test_a_log_that_is_dropped_without_close_is_given_back(
    tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    """As with a standalone log: its directory can be opened again, and is complete."""
    Manager(tmp_path).close()
    log = Log(tmp_path / "a-0")
    log.append(b"kept")
    with pytest.raises(Locked):
        Manager(tmp_path)
    del log
    gc.collect()
    found: list[int] = []

    def opened() -> bool:
        try:
            with Manager(tmp_path) as manager:
                found.append(manager.get("a").recovery.segments_recovered)
                found.append(manager.get("a").end_offset)
        except Locked:
            return False
        return True

    wait_until(opened, "the end of the dropped log")
    assert found == [0, 1]


def test_the_topics_settings_apply_to_every_writer(tmp_path: Path) -> None:
    """With and without a broker: the largest batch, keys in compacted topics, timestamps."""
    with Broker(tmp_path) as broker, Raw(broker.bootstrap_servers) as client:
        client.create("small", max_message_bytes="200")
        client.create("keyed", cleanup_policy="compact")
        client.create("timed", message_timestamp_type="LogAppendTime")
        _hold(tmp_path)
    _hold(tmp_path)


def _hold(directory: Path) -> None:
    with Log(directory / "small-0") as log, pytest.raises(MessageTooLarge):
        log.append(b"x" * 300)
    with Log(directory / "keyed-0") as log, pytest.raises(InvalidRecord):
        log.append(b"no key")
    with Log(directory / "timed-0") as log:
        assert log[log.append(b"x", timestamp_ms=5)].timestamp_ms > 5


def test_a_setting_that_is_not_the_topics_is_refused(tmp_path: Path) -> None:
    """The error names it, what was found and what was wanted; the same value is accepted."""
    with Broker(tmp_path) as broker, Raw(broker.bootstrap_servers) as client:
        client.create("t", max_message_bytes="200")
        with pytest.raises(ArgumentError, match=r"max\.message\.bytes: found 300, wanted 200"):
            Log(tmp_path / "t-0", config={"max.message.bytes": 300})
        Log(tmp_path / "t-0", config={"max.message.bytes": 200}).close()
    with pytest.raises(ArgumentError, match=r"max\.message\.bytes: found 300, wanted 200"):
        Log(tmp_path / "t-0", config={"max.message.bytes": 300})


def test_a_partition_that_the_metadata_does_not_name_is_not_made(tmp_path: Path) -> None:
    """Otherwise the next broker would find an unknown folder."""
    Broker(tmp_path).close()
    with pytest.raises(UnknownTopicOrPartition, match="names no partition new-0"):
        Log(tmp_path / "new-0")
    assert not (tmp_path / "new-0").exists()
    Manager(tmp_path).close()  # no lock is left


def test_close_returns_when_the_log_is_closed(tmp_path: Path) -> None:
    """Also a second close returns only when the first is done."""
    log = Log(tmp_path / "a-0")
    log.append(b"x")
    handle = handle_of(log)
    held, free = threading.Event(), threading.Event()
    closing = handle.owner.closing

    def slow(*how: object) -> None:
        held.set()
        assert free.wait(LIMIT_S)
        closing(*how)  # type: ignore[arg-type]

    handle.owner.closing = slow  # type: ignore[method-assign]
    ended: list[bool] = []
    first = threading.Thread(target=log.close)
    second = threading.Thread(target=lambda: (log.close(), ended.append(handle.ended)))
    first.start()
    assert held.wait(LIMIT_S)
    second.start()
    second.join(0.05)
    assert ended == []
    free.set()
    second.join(LIMIT_S)
    first.join(LIMIT_S)
    assert ended == [True]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_open_handle_is_not_copied(tmp_path: Path, how: Callable[[object], object]) -> None:
    """The error names it and what to do instead."""
    with Log(tmp_path / "a-0") as log, pytest.raises(ArgumentError, match="open Log"):
        how(log)
    with Manager(tmp_path / "d") as manager, pytest.raises(ArgumentError, match="open data dir"):
        how(manager)


def test_a_bool_is_no_partition(tmp_path: Path) -> None:
    """Otherwise a checkpoint would contain `True`."""
    with pytest.raises(ArgumentError, match="partition: found True, wanted 0 to"):
        Log(tmp_path / "a", partition=True)
