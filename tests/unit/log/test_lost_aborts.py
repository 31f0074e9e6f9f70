"""A `.txnindex` that is gone: what was aborted is found again, whoever asks for it first."""

from pathlib import Path

import pytest

import kafkalog
from tests.support import batches
from tests.support.batches import Row

TIME_MS = 1_700_000_000_000
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
LIST = f"{0:020}.txnindex"
COMMITTED = [(0, b"committed"), (3, b"other"), (4, b"tail")]


def append_aborted(log: kafkalog.Log, sequence: int = 0) -> None:
    row = Row(b"aborted", key=b"k", timestamp_ms=TIME_MS)
    log.append_batches(
        batches.batch([row], producer_id=7, producer_epoch=0, base_sequence=sequence,
                      transactional=True)
    )  # fmt: skip
    log.append_marker(7, 0, commit=False, timestamp_ms=TIME_MS)


def committed(log: kafkalog.Log) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for r in log.read(isolation="read_committed")]


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A key's committed value, then an aborted one, in a sealed segment that has lost its list."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=COMPACTED) as log:
        log.append(b"committed", key=b"k", timestamp_ms=TIME_MS)
        append_aborted(log)
        log.append(b"other", key=b"z", timestamp_ms=TIME_MS)
        log.roll()
        log.append(b"tail", key=b"t", timestamp_ms=TIME_MS)
        assert committed(log) == COMMITTED
    (path / LIST).unlink()
    return path


def expect(path: Path, wanted: list[tuple[int, bytes]]) -> None:
    """Also when it is opened again, and by verify."""
    for mode in ("w", "r"):
        with kafkalog.Log(path, mode=mode, config=COMPACTED) as log:
            assert committed(log) == wanted
            assert log.verify(deep=True).clean, log.verify().findings


def test_a_compaction_keeps_the_committed_value(lost: Path) -> None:
    """It is the first to look at the segment: no reader has asked before."""
    with kafkalog.Log(lost, config=COMPACTED) as log:
        assert log.compact().records_after == 2
        assert committed(log) == COMMITTED
    expect(lost, COMMITTED)


def test_a_compaction_of_what_was_aborted_above_it(tmp_path: Path) -> None:
    """The transaction ends in a later segment, whose list is the one that is gone."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=COMPACTED) as log:
        log.append(b"committed", key=b"k", timestamp_ms=TIME_MS)
        row = Row(b"aborted", key=b"k", timestamp_ms=TIME_MS)
        log.append_batches(
            batches.batch([row], producer_id=7, producer_epoch=0, base_sequence=0,
                          transactional=True)
        )  # fmt: skip
        log.roll()
        log.append_marker(7, 0, commit=False, timestamp_ms=TIME_MS)
        log.roll()
        log.append(b"tail", key=b"t", timestamp_ms=TIME_MS)
    (path / f"{2:020}.txnindex").unlink()
    with kafkalog.Log(path, config=COMPACTED) as log:
        log.compact()
        assert committed(log) == [(0, b"committed"), (3, b"tail")]
    expect(path, [(0, b"committed"), (3, b"tail")])


def test_a_cut_in_the_segment_keeps_its_list(lost: Path) -> None:
    """The sealed segment becomes the active one: from then on nothing vouches for its list."""
    with kafkalog.Log(lost, config=COMPACTED) as log:
        log.truncate(3)
        assert committed(log) == [(0, b"committed")]
    expect(lost, [(0, b"committed")])


@pytest.mark.parametrize("mode", ["r", "w"])
def test_of_the_last_segment_of_a_directory_that_kafka_closed(tmp_path: Path, mode: str) -> None:
    """Kafka's marker holds no sum of it: a producer that had transactions is reason to look."""
    from kafkalog.directory.manager import Manager

    root = tmp_path / "data"
    with Manager(root) as manager:
        manager.create_topic("events")
        log = manager.get("events", 0)
        log.append(b"committed", key=b"k", timestamp_ms=TIME_MS)
        append_aborted(log)
        log.append(b"tail", key=b"t", timestamp_ms=TIME_MS)
    (root / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    (root / "events-0" / LIST).unlink()
    with kafkalog.Log(root / "events-0", mode=mode) as log:
        assert committed(log) == [(0, b"committed"), (3, b"tail")]
        assert [(a.first_offset, a.last_offset) for a in log.aborted(0, 4)] == [(1, 2)]
