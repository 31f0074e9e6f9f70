"""A log as a sequence: iteration, `log[offset]`, slices, `for` and `async for` on follow."""

import asyncio
import contextlib
import threading

import pytest

import kafkalog
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.support import batches

SMALL = {"segment.bytes": 4096, "file.delete.delay.ms": 0}


def fill(log, count, of=20):
    for first in range(0, count, of):
        log.append_many([b"value %d" % i for i in range(first, first + of)])


@pytest.fixture
def log(tmp_path):
    """Batches of 20 records in several segments; about the first 100 records are deleted."""
    with kafkalog.Log(tmp_path / "orders-0", config=SMALL) as opened:
        fill(opened, 400)
        opened.delete_before(105)
        assert len(opened.segments) > 1
        yield opened


def offsets(records):
    return [record.offset for record in records]


def test_iteration_gives_every_record_and_ends(log):
    assert offsets(log) == list(range(105, 400))
    assert [record.value for record in log][-1] == b"value 399"


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (slice(0, 110), range(105, 110)),
        (slice(390, 1000), range(390, 400)),
        (slice(0, 50), ()),
        (slice(1000, 2000), ()),
        (slice(120, 110), ()),
        (slice(-3, None), range(397, 400)),
        (slice(None, -290), range(105, 110)),
        (slice(-1000, 107), range(105, 107)),
        (slice(None, None), range(105, 400)),
    ],
)
def test_a_slice_returns_existing_records(log, part, wanted):
    assert offsets(log[part]) == list(wanted)


def test_one_record_by_offset_and_from_the_end(log):
    assert log[105].value == b"value 105"
    assert log[-1].value == b"value 399"
    assert log[-295].offset == 105
    for wrong in (0, 104, 400, -296):
        with pytest.raises(kafkalog.OffsetOutOfRange):
            log[wrong]


def test_an_empty_log_has_no_last_record(tmp_path):
    with kafkalog.Log(tmp_path / "orders-0") as empty:
        assert list(empty) == list(empty[:]) == list(empty[-5:]) == []
        with pytest.raises(kafkalog.OffsetOutOfRange):
            empty[-1]


def test_the_last_record_lies_before_markers(tmp_path):
    with kafkalog.Log(tmp_path / "orders-0") as log:
        log.append_batches(
            batches.batch(
                [batches.Row(value=b"x")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
        log.append_marker(7, 0, commit=True)
        assert log.end_offset == 2
        assert log[-1].value == b"x"


@pytest.mark.parametrize("wrong", [1.5, "a", None, (1,)])
def test_an_index_that_is_no_number_is_named(log, wrong):
    with pytest.raises(kafkalog.errors.ArgumentError, match=r"offset: found .*, wanted an int"):
        log[wrong]


def test_retention_in_the_middle_of_an_iteration_is_passed_over(log):
    """Deleted records are missing; the others come once each, in order."""
    seen = []
    for record in log:
        seen.append(record.offset)
        if record.offset == 110:
            log.delete_before(300)
    assert seen == sorted(set(seen))
    assert seen[:6] == [105, 106, 107, 108, 109, 110]
    assert seen[-100:] == list(range(300, 400))


def decoded(log, monkeypatch):
    """A list with an entry for each batch that lookups have decoded."""
    from kafkalog.log.scan import scan

    calls = []
    begin = scan._Pass.__init__

    def counted(self, *args, **more):
        calls.append(args)
        begin(self, *args, **more)

    monkeypatch.setattr(scan._Pass, "__init__", counted)
    return calls


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_lookups_in_one_batch_decode_it_once(tmp_path, monkeypatch, codec):
    """The first lookup does not keep the batch, since the next may be anywhere."""
    with kafkalog.Log(tmp_path / "orders-0") as log:
        headers = [[("h", b"%d" % i)] if i % 3 else [] for i in range(3000)]
        keys = [None if i % 2 else b"k%d" % i for i in range(3000)]
        values = [None if i % 7 == 0 else b"v%d" % i for i in range(3000)]
        log.append_many(values, keys, headers=headers, compression=codec)
        wanted = list(log)
        calls = decoded(log, monkeypatch)
        assert [log[i] for i in range(3000)] == wanted
        assert len(calls) == 2
        log.truncate(0)
        with pytest.raises(kafkalog.OffsetOutOfRange):
            log[5]


def test_a_kept_batch_is_let_go_when_the_log_is_cut(tmp_path):
    with kafkalog.Log(tmp_path / "orders-0") as log:
        log.append_many([b"old"] * 10)
        assert [log[i].value for i in (3, 4, 5)] == [b"old"] * 3
        truncate_fully(handle_of(log), 0)
        log.append_many([b"new"] * 10)
        assert [log[i].value for i in (3, 4, 5)] == [b"new"] * 3
        log.delete_before(5)
        with pytest.raises(kafkalog.OffsetOutOfRange):
            log[4]


def test_follow_goes_on_where_a_for_loop_was_left(tmp_path):
    with kafkalog.Log(tmp_path / "orders-0") as log:
        log.append_many([b"%d" % i for i in range(10)])
        following = log.follow(0)
        for record in following:
            if record.offset == 4:
                break
        assert next(following).offset == 5
        log.append(b"10")
        assert [next(following).offset for _ in range(5)] == [6, 7, 8, 9, 10]


def test_async_for_returns_new_records(tmp_path):
    async def read(log, count):
        seen = []
        async with contextlib.aclosing(log.follow(0)) as following:
            async for record in following:
                seen.append(record.value)
                if len(seen) == count:
                    return seen

    async def both(log):
        reading = asyncio.create_task(read(log, 30))
        for i in range(30):
            log.append(b"%d" % i)
            await asyncio.sleep(0)
        return await reading

    with kafkalog.Log(tmp_path / "orders-0") as log:
        assert asyncio.run(both(log)) == [b"%d" % i for i in range(30)]


def test_a_cancelled_task_leaves_no_thread(tmp_path, wait_until):
    async def cancelled(log):
        following = log.follow()
        waiting = asyncio.create_task(anext(following))
        while not any("kafkalog follow" in t.name for t in threading.enumerate()):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with kafkalog.Log(tmp_path / "orders-0") as log:
        asyncio.run(cancelled(log))
        wait_until(
            lambda: not any("kafkalog follow" in t.name for t in threading.enumerate()),
            "the thread ends",
        )


def test_async_for_ends_with_closed(tmp_path):
    async def wait(log):
        async for _ in log.follow():
            raise AssertionError("nothing was appended")

    async def both(log):
        waiting = asyncio.create_task(wait(log))
        await asyncio.sleep(0)
        await asyncio.to_thread(log.close)
        with pytest.raises(kafkalog.Closed):
            await waiting

    asyncio.run(both(kafkalog.Log(tmp_path / "orders-0")))
