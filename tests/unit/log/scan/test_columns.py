"""Scans as columns: Arrow's layout, NumPy views, and the packages that read them."""

import datetime
import gc
import subprocess
import sys
import threading
import weakref

import hypothesis
import pytest
from hypothesis import strategies as st

from kafkalog import errors
from kafkalog.log.scan import arrow as capsules
from kafkalog.log.scan.scan import COLUMNS
from tests.support import batches
from tests.unit.log.scan.conftest import Writer, row

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
NAMES = [*COLUMNS, "leaderEpoch"]


@pytest.fixture(scope="module")
def pa():
    return pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def spark_schema(pa):
    """The types of Spark's Kafka source; nested fields have Spark's names."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.field("element", header))),
        ]
    )


def as_row(kept):
    return {
        "key": kept.key,
        "value": kept.value,
        "topic": "orders",
        "partition": 3,
        "offset": kept.offset,
        "timestamp": EPOCH + datetime.timedelta(milliseconds=kept.timestamp_ms),
        "timestampType": 0,
        "headers": [{"key": k, "value": v} for k, v in kept.headers] or None,
    }


# ---- pyarrow -----------------------------------------------------------------------------


def test_the_layout_is_sparks(log, pa, spark_schema):
    scan = log.scan()
    assert pa.schema(scan).equals(spark_schema)
    table = scan.to_arrow()  # also without rows
    assert table.schema.equals(spark_schema)
    assert table.num_rows == 0


def test_arrow_holds_every_row(mixed, pa):
    table = mixed.log.scan(batch_rows=50).to_arrow()
    table.validate(full=True)
    assert table.to_pylist() == [as_row(kept) for kept in mixed.kept]
    assert table["key"].null_count == sum(kept.key is None for kept in mixed.kept)
    assert table["headers"].null_count == sum(not kept.headers for kept in mixed.kept)
    assert table["offset"].null_count == 0


@pytest.mark.parametrize("consume", ["stream", "array"])
def test_both_ways_into_pyarrow(mixed, pa, consume):
    scan = mixed.log.scan(batch_rows=100)
    if consume == "stream":
        parts = list(pa.RecordBatchReader.from_stream(scan))
    else:
        parts = [pa.record_batch(batch) for batch in scan]
    assert len(parts) > 1
    assert pa.Table.from_batches(parts).equals(scan.to_arrow())
    assert [len(part) for part in parts] == [len(batch) for batch in scan]
    assert pa.schema(next(iter(scan))).equals(parts[0].schema)


def test_columns_without_nulls_have_no_bitmap(writer, pa):
    writer.batch([batches.Row(b"v", b"k")] * 20)
    (part,) = writer.log.scan().to_arrow().to_batches()
    for name in ("key", "value", "topic", "offset"):
        assert part[name].buffers()[0] is None
    assert part["headers"].null_count == 20


@hypothesis.given(names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_any_choice_of_columns(mixed, names):
    """They come in the table's order."""
    scan = mixed.log.scan(columns=names)
    assert scan.columns == tuple(name for name in NAMES if name in names)
    table = scan.to_arrow()
    assert tuple(table.schema.names) == scan.columns
    wanted = [{**as_row(kept), "leaderEpoch": 0} for kept in mixed.kept]
    assert table.to_pylist() == [{name: one[name] for name in scan.columns} for one in wanted]
    assert tuple(scan.to_numpy()) == scan.columns


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["key", "valu"], "'valu' is not one of key, value, .*did you mean 'value'"),
        ([], "none given"),
        ("key", "columns: found 'key', wanted a list"),
        ([7], "7 is not one of"),
    ],
)
def test_columns_that_are_none(log, columns, words):
    with pytest.raises(errors.ArgumentError, match=words):
        log.scan(columns=columns)


@pytest.mark.parametrize("name", ["batch_rows", "batch_bytes"])
@pytest.mark.parametrize("value", [0, -1, 2**40, "many"])
def test_batch_sizes_that_are_none(log, name, value):
    with pytest.raises(errors.ArgumentError, match=f"{name}: found {value!r}"):
        log.scan(**{name: value})


def test_a_record_batch_is_never_split(writer):
    sizes = [7, 100, 1, 1, 30, 250]
    at = 0
    for index, size in enumerate(sizes):
        codec = "lz4" if index % 2 else "none"
        writer.batch((row(i) for i in range(at, at + size)), codec=codec)
        at += size
    assert [len(batch) for batch in writer.log.scan(batch_rows=1)] == sizes
    assert [len(batch) for batch in writer.log.scan(batch_bytes=1)] == sizes
    assert [len(batch) for batch in writer.log.scan(batch_rows=100)] == [107, 282]
    assert [len(batch) for batch in writer.log.scan()] == [389]


def test_batches_that_are_kept_are_not_written_over(mixed):
    """Memory is reused only when nobody refers to it any more."""
    kept = []
    for turn, batch in enumerate(mixed.log.scan(batch_rows=20)):
        if turn % 3:
            kept.append((batch.numpy("offset"), batch.strings("value")))
        del batch
    offsets = [int(offset) for array, _ in kept for offset in array]
    by_offset = {record.offset: record.value for record in mixed.kept}
    values = [
        bytes(text.data[text.offsets[i] : text.offsets[i + 1]])
        for array, text in kept
        for i in range(len(array))
    ]
    assert values == [by_offset[offset] or b"" for offset in offsets]
    assert len(offsets) > 100


def test_arrow_outlives_the_log(mixed, pa):
    table = mixed.log.scan(batch_rows=20).to_arrow()
    column = pa.record_batch(next(iter(mixed.log.scan())))["value"]  # the rest is released
    mixed.log.close()
    gc.collect()
    assert table.to_pylist() == [as_row(kept) for kept in mixed.kept]
    assert column.to_pylist() == [kept.value for kept in mixed.kept]


@pytest.mark.parametrize(
    "name", [b"plain", "naïve".encode(), b"\xff", b"a\xc3", b"\xed\xa0\x80!", b"\xf4\x90\x80\x80",
             b"\xe2\x82z", b"\xf0\x9f\x98", b"\xc0\xaf", "😀".encode(), b"\xf8\x88\x80\x80\x80"],
)  # fmt: skip
def test_header_names_that_are_not_utf_8(log, pa, name):
    """Invalid bytes are replaced as in Java and Python: Arrow's strings must be well-formed."""
    stand_in = "N" * len(name)
    made = batches.batch([batches.Row(b"v", headers=[(stand_in, b"x")])] * 2, leader_epoch=0)
    log.append_as_follower(batches.seal(made[21:].replace(stand_in.encode(), name), 0, 0))
    wanted = name.decode("utf-8", "replace")
    assert [record.headers for record in log.scan().records()] == [((wanted, b"x"),)] * 2
    table = log.scan().to_arrow()
    table.validate(full=True)
    assert table["headers"].to_pylist() == [[{"key": wanted, "value": b"x"}]] * 2


# ---- streams -----------------------------------------------------------------------------


def broken(writer):
    for first in (0, 10, 20):
        writer.batch((row(i) for i in range(first, first + 10)), codec="zstd")
    good = batches.batch([row(1)], codec="zstd")
    writer.log.append_as_follower(batches.seal(good[21:61] + b"broken", 30, 0))


def test_a_stream_that_fails_says_why(writer, pa):
    broken(writer)
    reader = pa.RecordBatchReader.from_stream(writer.log.scan())
    assert reader.read_next_batch().num_rows == 30
    with pytest.raises(OSError, match="CorruptMessage: orders-3: the batch at offset 30: zstd"):
        reader.read_next_batch()
    with pytest.raises(errors.CorruptMessage):  # Python gets the error itself
        writer.log.scan().to_arrow()


def test_a_stream_is_let_go_of(mixed, pa):
    """Consumed, dropped half way, or never read."""
    assert not capsules._live
    scan = mixed.log.scan(batch_rows=10)
    capsule = scan.__arrow_c_stream__()
    assert len(capsules._live) == 1
    del capsule
    assert not capsules._live
    reader = pa.RecordBatchReader.from_stream(scan)
    reader.read_next_batch()
    del reader
    gc.collect()
    assert not capsules._live
    assert pa.RecordBatchReader.from_stream(scan).read_all().num_rows == len(mixed.kept)
    gc.collect()
    assert not capsules._live


def test_capsules_that_nobody_takes(mixed):
    (batch,) = mixed.log.scan()
    for _ in range(3):
        batch.__arrow_c_array__()
        batch.__arrow_c_schema__()
    assert batch.numpy("offset")[-1] == len(mixed.kept) - 1


def test_a_capsule_does_not_swallow_an_exception(mixed):
    def fails():
        capsule = mixed.log.scan().__arrow_c_stream__()
        raise LookupError(f"with {type(capsule).__name__} in hand")

    with pytest.raises(LookupError, match="PyCapsule in hand"):
        fails()
    assert not capsules._live


def test_streams_in_several_threads(mixed, pa):
    wanted = mixed.log.scan().to_arrow()
    equal = []

    def read():
        for _ in range(5):
            reader = pa.RecordBatchReader.from_stream(mixed.log.scan(batch_rows=30))
            equal.append(reader.read_all().equals(wanted))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 20


# ---- the others --------------------------------------------------------------------------


def test_polars(mixed):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(mixed.log.scan(batch_rows=50))
    assert frame.columns == list(COLUMNS)
    assert frame.height == len(mixed.kept)
    assert frame.rows(named=True) == [as_row(kept) for kept in mixed.kept]
    structs = polars.from_arrow(mixed.log.scan(batch_rows=50))
    assert structs.struct.unnest().equals(frame)
    assert polars.DataFrame(mixed.log.scan(0, 0)).shape == (0, 8)


def test_duckdb(mixed):
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.from_arrow(mixed.log.scan(batch_rows=50))
    sums = relation.aggregate('count(*), sum("offset"), count(key), sum(octet_length(value))')
    assert sums.fetchall()[0] == (
        len(mixed.kept),
        sum(kept.offset for kept in mixed.kept),
        sum(kept.key is not None for kept in mixed.kept),
        sum(len(kept.value or b"") for kept in mixed.kept),
    )
    headers = duckdb.from_arrow(mixed.log.scan(columns=["headers"]))
    assert headers.aggregate("sum(len(headers))").fetchall()[0][0] == sum(
        len(kept.headers) for kept in mixed.kept
    )


def test_pandas(mixed):
    pandas = pytest.importorskip("pandas")
    frame = mixed.log.scan(batch_rows=50).to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["value"].tolist() == [kept.value for kept in mixed.kept]
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"
    stamps = [as_row(kept)["timestamp"] for kept in mixed.kept]
    assert frame["timestamp"].tolist() == [pandas.Timestamp(stamp) for stamp in stamps]
    assert frame["headers"].tolist() == [kept.headers for kept in mixed.kept]
    assert mixed.log.scan(0, 0).to_pandas().shape == (0, 8)


def test_numpy(mixed):
    numpy = pytest.importorskip("numpy")
    arrays = mixed.log.scan(batch_rows=50, columns=NAMES).to_numpy()
    kept = mixed.kept
    assert {name: array.dtype.str for name, array in arrays.items()} == {
        "key": "|O", "value": "|O", "topic": "|O", "partition": "<i4", "offset": "<i8",
        "timestamp": "<M8[us]", "timestampType": "<i4", "headers": "|O", "leaderEpoch": "<i4",
    }  # fmt: skip
    assert arrays["key"].tolist() == [one.key for one in kept]
    assert arrays["value"].tolist() == [one.value for one in kept]
    assert arrays["headers"].tolist() == [one.headers for one in kept]
    assert arrays["topic"].tolist() == ["orders"] * len(kept)
    assert arrays["offset"].tolist() == list(range(len(kept)))
    times = numpy.array([one.timestamp_ms for one in kept]).astype("datetime64[ms]")
    assert (arrays["timestamp"] == times).all()
    empty = mixed.log.scan(0, 0).to_numpy()
    assert {array.shape for array in empty.values()} == {(0,)}
    assert empty["timestamp"].dtype == arrays["timestamp"].dtype


def test_numpy_views_share_the_batch(mixed):
    (batch,) = mixed.log.scan()
    view = batch.numpy("offset")
    assert not view.flags.writeable
    assert view.__array_interface__["data"] == batch.numpy("offset").__array_interface__["data"]
    text = batch.strings("key")
    owner = weakref.ref(view.base)
    del batch
    gc.collect()
    assert owner() is not None  # the owner of the memory
    assert view.tolist() == list(range(len(mixed.kept)))
    valid = [bool(text.validity[i // 8] >> i % 8 & 1) for i in range(len(mixed.kept))]
    assert valid == [one.key is not None for one in mixed.kept]


def test_a_column_that_was_not_asked_for(mixed):
    (batch,) = mixed.log.scan(columns=["offset", "headers"])
    with pytest.raises(errors.ArgumentError, match=r"'value': wanted one of .*\(offset, headers\)"):
        batch.numpy("value")
    for name in ("offset", "headers"):
        with pytest.raises(errors.ArgumentError, match=f"'{name}': wanted key, value or topic"):
            batch.strings(name)


def test_empty_and_null_strings_differ(log):
    writer = Writer(log)
    writer.batch([batches.Row(b"", b""), batches.Row(None, None), batches.Row(b"x", None)])
    writer.batch([batches.Row(b"", None)] * 20)
    assert [record.key for record in log.scan().records()] == [b""] + [None] * 22
    assert [record.value for record in log.scan().records()] == [b"", None, b"x"] + [b""] * 20
    arrays = log.scan().to_numpy()
    assert arrays["key"].tolist() == [b""] + [None] * 22
    assert arrays["value"].tolist() == [b"", None, b"x"] + [b""] * 20


def test_nothing_heavy_is_imported_before_its_use(mixed):
    """Records and counts need neither NumPy nor pyarrow; arrays do not need pyarrow."""
    program = """
        import sys, kafkalog
        with kafkalog.Log(sys.argv[1], mode="r") as log:
            scan = log.scan()
            assert len(list(scan.records())) == scan.count() == int(sys.argv[2])
            assert not {"numpy", "pyarrow", "ctypes"} & set(sys.modules), "too early"
            scan.to_numpy()
            next(iter(scan)).__arrow_c_array__()
            assert "pyarrow" not in sys.modules, "not needed"
    """
    lines = "\n".join(line[8:] for line in program.splitlines())
    mixed.log.close()
    run = subprocess.run(
        [sys.executable, "-c", lines, mixed.log.path, str(len(mixed.kept))],
        capture_output=True, text=True,
    )  # fmt: skip
    assert run.stderr == ""
    assert run.returncode == 0
