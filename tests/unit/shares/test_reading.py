"""How much of a log is read for a member: what it can acquire, and not all that there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kafkalog
from kafkalog.shares.partition import Hold, SharePartition, State
from kafkalog.shares.reading import FIRST_BYTES, Limits, Read, read

RECORDS, BATCHES = 10, 400
RECORD_BYTES = 1_000
BATCH_BYTES = RECORDS * RECORD_BYTES
"""Without headers."""
MOST = 8 << 20


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Log]:
    """Batches of ten records of a kilobyte; one of half a megabyte at their end."""
    with kafkalog.Log(tmp_path_factory.mktemp("read") / "log-0") as log:
        for _ in range(BATCHES):
            log.append_many([bytes(RECORD_BYTES)] * RECORDS)
        log.append(bytes(500_000))
        yield log


def offsets(found: Read) -> tuple[int, int]:
    assert len(found.data) == found.ends[-1]
    assert [one.first for one in found.batches[1:]] == [one.last + 1 for one in found.batches[:-1]]
    return found.batches[0].first, found.batches[-1].last


def test_a_member_that_wants_few_records_costs_a_look_at_few(log: kafkalog.Log) -> None:
    found = read(log, 0, Limits(MOST, 1, 100), committed=False)
    assert offsets(found)[1] >= 99
    assert len(found.data) <= 2 * FIRST_BYTES + 10 * BATCH_BYTES < log.size_bytes / 10


def test_all_that_is_wanted_is_read_in_growing_pieces(log: kafkalog.Log) -> None:
    found = read(log, 25, Limits(MOST, 1, 2_000), committed=False)
    first, last = offsets(found)
    assert first == 20, "the batch that has the offset, whole"
    assert 1_999 <= last < 4_000


def test_more_is_read_for_a_member_that_waits_for_many_bytes(log: kafkalog.Log) -> None:
    found = read(log, 0, Limits(MOST, 1_000_000, 100), committed=False)
    assert 1_000_000 <= len(found.data) < 2_200_000


def test_a_read_ends_where_the_log_does(log: kafkalog.Log) -> None:
    end = RECORDS * BATCHES
    assert offsets(read(log, end, Limits(MOST, MOST, end + 99), committed=False)) == (end, end)
    assert read(log, end + 1, Limits(MOST, 1, end + 99), committed=False).data == b""


def test_a_batch_that_is_too_large_is_read_alone(log: kafkalog.Log) -> None:
    end = RECORDS * BATCHES
    limits = Limits(100_000, 1, end + 1)
    assert offsets(read(log, end - RECORDS, limits, committed=False)) == (end - RECORDS, end - 1)
    assert offsets(read(log, end, limits, committed=False)) == (end, end)


def test_a_large_batch_behind_small_ones_is_read_if_it_is_wanted(log: kafkalog.Log) -> None:
    end = RECORDS * BATCHES
    found = read(log, end - RECORDS, Limits(MOST, 1, end + 1), committed=False)
    assert offsets(found) == (end - RECORDS, end)


def test_a_limit_of_bytes_is_kept(log: kafkalog.Log) -> None:
    found = read(log, 0, Limits(50_000, 1, 2_000), committed=False)
    assert 30_000 < len(found.data) <= 50_000
    assert offsets(read(log, 0, Limits(1, 1, 2_000), committed=False)) == (0, RECORDS - 1)


def test_records_that_others_hold_do_not_count_as_wanted() -> None:
    share = SharePartition(0)
    assert share.end_of_free(0, 100) == 100
    share.put(0, 49, Hold(State.ACQUIRED, 1, "other", 9_000, (0, 49)))
    share.put(50, 59, Hold(State.AVAILABLE, 1, unit=(50, 59)))
    share.put(60, 99, Hold(State.ACQUIRED, 1, "other", 9_000, (60, 99)))
    share.end = 100
    assert share.end_of_free(50, 10) == 60
    assert share.end_of_free(50, 15) == 105
    assert share.end_of_free(55, 5) == 60
    assert share.end_of_free(100, 5) == 105
