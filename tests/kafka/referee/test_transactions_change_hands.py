"""Transactions change hands: Apache Kafka ends the open ones in our directory, and we end its; also
those that it wrote under our producer ids.  When one is killed in the middle of a commit, the other
one finishes it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache
from tests.support.raw import Raw
from tests.unit.server.transactions.test_transactions import Client, aborted, committed, ends, ready

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

Wait = Callable[..., None]
OK = ErrorCode.NONE
LONG_MS = 600_000
OURS = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
START_S = 60.0


def begin(raw: Raw, wait_until: Wait, name: str, partition: int, offset: int) -> Client:
    """An open transaction that wrote a record and committed an offset."""
    ready(raw, wait_until)
    client = Client(raw, name, LONG_MS)
    assert client.add("t", partition) == [OK]
    assert client.write("t", b"by " + name.encode(), partition=partition).error_code == OK
    assert raw.call(apis.ADD_OFFSETS_TO_TXN, 3, group_id="g", **client.who).error_code == OK
    wait_until(lambda: client.commit_offsets(offset) is OK, "the offsets", START_S)
    return client


def commit(raw: Raw, wait_until: Wait, name: str, *partitions: int) -> Client:
    """A completed transaction that wrote to partitions."""
    client = Client(raw, name, LONG_MS)
    assert client.add("t", *partitions) == [OK] * len(partitions)
    for partition in partitions:
        client.sequence = 0
        assert client.write("t", b"by " + name.encode(), partition=partition).error_code == OK
    assert client.end().error_code == OK
    wait_until(lambda: client.state() == "CompleteCommit", "its end", START_S)
    return client


def as_killed(directory: Path, partition: int) -> None:
    """Leave the files as kill -9 in the middle of the last commit does: it is decided, one
    partition lacks its marker, and the journal does not say that all have theirs."""
    for name in ("__transaction_state-0", f"t-{partition}"):
        log = max((directory / name).glob("*.log"))
        data, last, pos = log.read_bytes(), 0, 0
        while pos < len(data):
            last, pos = pos, pos + 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        log.write_bytes(data[:last])
    for folder in (*directory.glob("t-*"), directory / "__transaction_state-0"):
        for file in folder.iterdir():
            if file.suffix in (".index", ".timeindex", ".snapshot"):  # made at a clean close
                file.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink(missing_ok=True)


def is_finished(
    client: Client, raw: Raw, wait_until: Wait, knew: int, did_not: int, again: bool = False
) -> None:
    """The partition that lacked the marker gets it, and the other gets it once more.

    `again`: both may get it more often, as from a Kafka that starts on a busy machine.
    """
    client.raw = raw
    wait_until(lambda: client.state() == "CompleteCommit", "its end", START_S)
    found = ends(raw, knew), ends(raw, did_not)
    if again:
        assert min(found[0]) >= 3 and min(found[1]) >= 2, found
    else:
        assert found == ((3, 3), (2, 2))


def end(client: Client, raw: Raw, wait_until: Wait, commit: bool) -> None:
    """End it on another broker than the one where it began."""
    client.raw = raw
    raw.call(apis.FIND_COORDINATOR, key_type=1, coordinator_keys=[client.name])
    wait_until(lambda: client.state() == "Ongoing", "it is known", START_S)
    assert client.end(commit).error_code == OK
    wait_until(lambda: client.state().startswith("Complete"), "its end", START_S)


def test_transactions_change_hands(tmp_path: Path, wait_until: Wait) -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    directory = tmp_path / "data"
    with Broker(directory, config=OURS) as ours, Raw(ours.bootstrap_servers) as raw:
        raw.create("t", 6)
        first = begin(raw, wait_until, "first", 0, 7)
        assert ends(raw, 0) == (0, 1)
        ours_decided = commit(raw, wait_until, "ours", 2, 3)
        assert (ends(raw, 2), ends(raw, 3)) == ((2, 2), (2, 2)), "each has its marker, once"
    as_killed(directory, 3)

    with (
        apache.Broker(directory) as kafka,
        Raw(f"127.0.0.1:{kafka.port}") as raw,
    ):
        ready(raw, wait_until)
        is_finished(ours_decided, raw, wait_until, 2, 3, again=True)
        end(first, raw, wait_until, commit=True)
        wait_until(lambda: ends(raw, 0) == (2, 2), "the marker", START_S)
        wait_until(lambda: committed(raw).committed_offset == 7, "the offsets", START_S)
        second = begin(raw, wait_until, "second", 1, 9)
        assert second.producer_id != first.producer_id
        theirs_decided = commit(raw, wait_until, "theirs", 4, 5)
        kafka.kill()
    as_killed(directory, 5)

    with Broker(directory, config=OURS) as ours, Raw(ours.bootstrap_servers) as raw:
        ready(raw, wait_until)
        is_finished(theirs_decided, raw, wait_until, 4, 5)
        assert ends(raw, 1) == (0, 1)
        assert committed(raw, stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        end(second, raw, wait_until, commit=False)
        wait_until(lambda: ends(raw, 1) == (2, 2), "the marker")
        assert aborted(raw, 1) == [(second.producer_id, 0)]
        wait_until(lambda: committed(raw, stable=True).committed_offset == 7, "the offsets")
        first.raw = raw
        assert first.state() == "CompleteCommit"
        again = Client(raw, "first")
        assert (again.producer_id, again.epoch) == (first.producer_id, first.epoch + 1)
