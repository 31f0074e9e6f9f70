"""The C surface of a scan, with careless calls, and with failing system calls."""

import errno
import sys

import pytest

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from tests.support import batches

FOREVER = {"start_time_ms": -(2**63), "stop_time_ms": 2**63 - 1}
ALL = {"start_offset": -1, "stop_offset": -1, "topic": ffi.new("char[]", b"orders")} | FOREVER


def opened(log, **options):
    out = ffi.new("kl_scan **")
    check(lib.kl_scan_open(log._c, ffi.new("kl_scan_options *", ALL | options), out))
    return ffi.gc(out[0], lib.kl_scan_free)


class Stepper:
    """A scan in single steps."""

    def __init__(self, log, room=8, **options):
        self.c = opened(log, **options)
        self.room = room
        self.compressed = ffi.new("kl_compressed[]", max(room, 1))
        self.count = ffi.new("int32_t *")
        self.state = ffi.new("int32_t *")

    def step(self):
        check(lib.kl_scan_step(self.c, self.compressed, self.room, self.count, self.state))
        return self.state[0]


def taken(scan):
    """Take the scan's block; None if it has none."""
    out = ffi.new("kl_block **")
    check(lib.kl_scan_take(scan.c, out))
    return ffi.gc(out[0], lib.kl_block_free) if out[0] else None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"start_offset": -2}, "start offset -2"),
        ({"stop_offset": -7}, "stop offset -7"),
        ({"columns": 1 << 12}, "columns 4096"),
        ({"columns": lib.KL_COL_TIMESTAMP | lib.KL_COL_TIMESTAMP_MS}, "columns 544"),
        ({"bound": 3}, "bound 3"),
        ({"max_rows": -1}, "max_rows -1"),
        ({"max_bytes": 2**31}, "max_bytes 2147483648"),
        ({"topic": ffi.NULL}, "topic is NULL"),
    ],
)
def test_options_out_of_range(log, wrong, words):
    with pytest.raises(errors.ArgumentError, match=words):
        opened(log, **wrong)


def test_compressed_batches_are_given_back_in_order(writer):
    for _ in range(3):
        writer.batch([batches.Row(b"v")] * 2, codec="zstd")
    scan = Stepper(writer.log, columns=lib.KL_COL_VALUE)
    assert scan.step() == lib.KL_SCAN_INFLATE
    bodies = [bytes(ffi.buffer(c.data, c.bytes)) for c in scan.compressed[0 : scan.count[0]]]
    plain = batches.batch([batches.Row(b"v")] * 2)[61:]
    assert bodies == [batches.compress(plain, "zstd")] * 3
    assert [c.base_offset for c in scan.compressed[0:3]] == [0, 2, 4]
    with pytest.raises(errors.ArgumentError, match="3 compressed batches were not given"):
        scan.step()
    for index in (1, -1, 3):
        with pytest.raises(errors.ArgumentError, match=f"batch {index}: wanted 0 of 3"):
            check(lib.kl_scan_inflated(scan.c, index, plain, len(plain)))
    for index in range(3):
        check(lib.kl_scan_inflated(scan.c, index, plain, len(plain)))
    with pytest.raises(errors.ArgumentError, match="batch 3: wanted 3 of 3"):
        check(lib.kl_scan_inflated(scan.c, 3, plain, len(plain)))
    assert scan.step() == lib.KL_SCAN_ROWS
    block = taken(scan)
    assert lib.kl_block_rows(block) == 6
    assert taken(scan) is None
    assert scan.step() == lib.KL_SCAN_END
    assert scan.step() == lib.KL_SCAN_END
    assert lib.kl_scan_position(scan.c) == lib.kl_scan_end_offset(scan.c) == 6


def test_no_more_batches_than_there_is_room_for(writer):
    for _ in range(5):
        writer.batch([batches.Row(b"v")], codec="lz4")
    scan = Stepper(writer.log, room=2, columns=lib.KL_COL_VALUE)
    body = batches.batch([batches.Row(b"v")])[61:]
    seen = []
    while scan.step() == lib.KL_SCAN_INFLATE:
        seen.append(scan.count[0])
        for index in range(scan.count[0]):
            check(lib.kl_scan_inflated(scan.c, index, body, len(body)))
    assert seen == [2, 2, 1]
    with pytest.raises(errors.ArgumentError, match="max_compressed 0"):
        Stepper(writer.log, room=0).step()


def test_long_stretches_without_rows_are_interrupted(log):
    """Ctrl-C must be noticed even if no record matches."""
    log.append_many([bytes(1000)] * 40_000)
    scan = Stepper(log, columns=lib.KL_COL_VALUE, stop_time_ms=-5)
    assert scan.step() == lib.KL_SCAN_PAUSE
    assert 30_000 < lib.kl_scan_position(scan.c) < 40_000
    assert taken(scan) is None
    assert scan.step() == lib.KL_SCAN_END
    assert log.scan(stop_time_ms=-5).to_numpy()["offset"].tolist() == []


def test_control_records_when_asked_for(writer):
    log = writer.log
    writer.batch([batches.Row(b"v")], producer_id=7, producer_epoch=0, base_sequence=0,
                 transactional=True)  # fmt: skip
    log.append_marker(7, 0, True)
    scan = Stepper(log, columns=lib.KL_COL_KEY, control=1)
    assert scan.step() == lib.KL_SCAN_ROWS
    block = taken(scan)
    column = ffi.new("kl_block_column *")
    check(lib.kl_block_get(block, lib.KL_COL_KEY, column))
    assert ffi.buffer(column.data, column.data_bytes)[:] == b"\0\0\0\1"  # version, commit
    assert column.null_count == 1


def test_columns_that_a_block_does_not_have(writer):
    writer.batch([batches.Row(b"v")])
    scan = Stepper(writer.log, columns=lib.KL_COL_OFFSET | lib.KL_COL_TIMESTAMP_MS)
    assert scan.step() == lib.KL_SCAN_ROWS
    block = taken(scan)
    for column in (lib.KL_COL_VALUE, lib.KL_COL_TIMESTAMP, 3):
        with pytest.raises(errors.ArgumentError, match=f"column {column} "):
            check(lib.kl_block_get(block, column, ffi.new("kl_block_column *")))
    with pytest.raises(errors.ArgumentError, match="headers are not among"):
        check(lib.kl_block_get_headers(block, ffi.new("kl_block_headers *")))
    for call in (
        lambda: lib.kl_block_export(block, ffi.new("struct ArrowArray *")),
        lambda: lib.kl_columns_schema(lib.KL_COL_TIMESTAMP_MS, ffi.new("struct ArrowSchema *")),
    ):
        with pytest.raises(errors.ArgumentError, match="not all of them are columns of a table"):
            check(call())


@pytest.fixture
def failing(native_test):
    """`failing(call, nth, errno)`: the nth system call or allocation from now fails, once."""
    _, hooks = native_test

    def fail(call, nth, number):
        hooks.kl_io_reset()
        assert hooks.kl_io_fail(call, nth, number, 0, 0) == 0

    yield fail
    hooks.kl_io_reset()


@pytest.mark.parametrize(
    ("call", "number", "error"),
    [(b"alloc", errno.ENOMEM, MemoryError), (b"pread", errno.EIO, errors.IoFailed)],
    ids=["alloc", "pread"],
)
def test_any_call_that_fails(mixed, failing, call, number, error):
    """Earlier rows are correct, the failure is named, and the log is unchanged."""
    scan = mixed.log.scan(batch_rows=64)
    wanted = [tuple(kept[:5]) for kept in mixed.kept]
    columns = scan.to_arrow()
    failures = 0
    for nth in range(1, 1000):
        seen = []
        failing(call, nth, number)
        try:
            seen.extend(tuple(record[:5]) for record in scan.records())
            assert seen == wanted
            table = scan.to_arrow()
        except error:
            failures += 1
            assert seen == wanted[: len(seen)]
            continue
        assert table.equals(columns)
        break
    assert failures > 2
    failing(b"fsync", 10**6, number)  # a call that never happens
    assert scan.to_arrow().equals(columns)


@pytest.mark.parametrize("rows", [0, 3])
def test_to_polars_needs_no_pyarrow(log, rows, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    if rows:
        log.append_many([b"v%d" % i for i in range(rows)], headers=[[("h", b"1")]] * rows)
    frame = log.scan(columns=["offset", "value", "timestamp", "headers"]).to_polars()
    assert frame.columns == ["value", "offset", "timestamp", "headers"]
    assert frame["offset"].to_list() == list(range(rows))
    assert frame["value"].dtype == polars.Binary
    assert frame.height == rows


def test_a_block_that_cannot_be_ended_is_no_end(log, native_test):
    """There is no memory for its constant columns: its rows come once there is memory again."""
    hooks = native_test[1]
    log.append_many([b"v"] * 3_000)
    wanted = log.scan(columns=["topic"]).to_numpy()["topic"].tolist()
    failed = 0
    for nth in range(1, 100):
        hooks.kl_io_fail(b"alloc", nth, 12, 0, 0)
        try:
            found = log.scan(columns=["topic"]).to_numpy()["topic"].tolist()
        except (errors.NoMemory, MemoryError):
            failed += 1
            continue
        finally:
            done = hooks.kl_io_calls(b"alloc") < nth
            hooks.kl_io_reset()
        assert found == wanted
        if done:
            break
    assert failed > 1 and len(wanted) == 3_000
