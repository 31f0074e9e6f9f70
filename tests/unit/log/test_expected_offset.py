"""append(..., expected_offset=n): one batch, complete or absent, and only at that offset."""

import os
import shutil
import threading

import pytest

import kafkalog


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_it_is_appended_only_where_it_is_expected(tmp_path, codec):
    with kafkalog.Log(tmp_path / "orders-0", config={"compression.type": codec}) as log:
        assert log.append(b"a", key=b"k", expected_offset=0) == 0
        span = log.append_many([b"b", None], headers=[[("h", b"1")], None], expected_offset=1)
        assert span == (1, 2, 2)
        for wrong in (0, 2, 4):
            with pytest.raises(kafkalog.UnexpectedAppendOffset, match="next offset is 3, expected"):
                log.append(b"c", expected_offset=wrong)
        assert [(r.key, r.value) for r in log] == [(b"k", b"a"), (None, b"b"), (None, None)]
        assert log[1].headers == (("h", b"1"),)


def test_rows_that_do_not_fit_one_batch_are_refused(tmp_path):
    with kafkalog.Log(tmp_path / "orders-0", config={"max.message.bytes": 2000}) as log:
        with pytest.raises(kafkalog.errors.MessageTooLarge, match="100 rows do not fit one batch"):
            log.append_many([b"x" * 100] * 100, expected_offset=0)
        with pytest.raises(kafkalog.errors.ArgumentError, match="append at least one row"):
            log.append_many([], expected_offset=0)
        assert log.end_offset == 0
        log.append_many([b"x" * 100] * 15, expected_offset=0)
        assert len(log.read_batches(0)) <= 2000


def test_threads_that_retry_lose_nothing_and_agree(tmp_path):
    """Each reads the last count, adds one, and appends if no other thread was quicker."""
    with kafkalog.Log(tmp_path / "counter-0") as log:
        log.append(b"0", expected_offset=0)

        def add(times):
            for _ in range(times):
                while True:
                    last = log[-1]
                    try:
                        log.append(b"%d" % (int(last.value) + 1), expected_offset=last.offset + 1)
                        break
                    except kafkalog.UnexpectedAppendOffset:
                        pass

        threads = [threading.Thread(target=add, args=[50]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [int(record.value) for record in log] == list(range(201))


def test_one_batch_is_whole_or_absent_wherever_it_is_torn(tmp_path):
    """A crash during the write leaves any part of the batch: all of its rows count, or none."""
    with kafkalog.Log(tmp_path / "orders-0") as log:
        log.append(b"before")
        before = os.path.getsize(tmp_path / "orders-0" / f"{0:020d}.log")
        log.append_many([b"row %d" % i for i in range(4)], expected_offset=1)
        after = log.size_bytes
        shutil.copytree(tmp_path / "orders-0", tmp_path / "crashed")
    found = set()
    for size in range(before, after + 1):
        torn = tmp_path / f"torn-{size}" / "orders-0"
        shutil.copytree(tmp_path / "crashed", torn)
        os.truncate(torn / f"{0:020d}.log", size)
        for name in (".lock", ".kafkalog_cleanshutdown"):
            (torn / name).unlink(missing_ok=True)
        with kafkalog.Log(torn) as log:
            found.add((log.end_offset, size == after))
        shutil.rmtree(torn.parent)
    assert found == {(1, False), (5, True)}
