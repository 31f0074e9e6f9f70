"""The data source as Spark calls it, with real logs but without a JVM; tasks are pickled."""

from __future__ import annotations

import io
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog import task as task_module
from pyspark_kafkalog.columns import NAMES, schema_of
from pyspark_kafkalog.errors import BadOption, DataLoss, ReadError
from pyspark_kafkalog.places import directory
from pyspark_kafkalog.places.directory import ends_of, partition_folders
from pyspark_kafkalog.places.opened import Opened

import kafkalog
from kafkalog.directory.manager import Manager
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.log.scan.cuts import batch_starts
from tests.spark.conftest import START_MS, spark_environment, write_topic
from tests.spark.reading import reader_of, run
from tests.support import kafka_data


def offsets_by_log(path: Path, topic: str, **how: Any) -> list[tuple[str, int, int]]:
    """The records that kafkalog.Log reads from a topic."""
    rows = []
    for (name, number), folder in sorted(partition_folders(str(path)).items()):
        if name == topic:
            with kafkalog.Log(folder, mode="r") as log:
                rows += [(topic, number, record.offset) for record in log.read(**how)]
    return rows


# ---- where the logs are


def test_partitions_of_a_plain_folder(topics):
    assert set(partition_folders(str(topics))) == {
        *(("orders", number) for number in range(3)),
        ("one", 0),
    }


def test_one_partitions_own_folder(topics, tmp_path):
    assert partition_folders(str(topics / "one-0")) == {("one", 0): str(topics / "one-0")}
    with kafkalog.Log(tmp_path / "bare") as log:
        log.append(b"x")
    assert partition_folders(str(tmp_path / "bare")) == {("bare", 0): str(tmp_path / "bare")}


def test_other_folders_are_no_partitions(tmp_path):
    write_topic(tmp_path, "a", 1, 1)
    (tmp_path / "notes").mkdir()
    (tmp_path / "a-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    assert set(partition_folders(str(tmp_path))) == {("a", 0)}


def test_a_partition_that_was_never_written_is_there(tmp_path, caplog):
    """Whichever were written: offsets name all, and a topic without records is no mistake."""
    with kafkalog.Store(tmp_path) as store:
        store.create_topic("a", 3)
        store.create_topic("b", 2)
        store["a"][1].append(b"x")
    tasks, rows = run(reader_of(tmp_path, subscribe="a"))
    assert len(tasks) == 1 and [row[1] for row in rows] == [1]
    named = '{"a":{"0":0,"1":0,"2":-2}}'
    assert len(run(reader_of(tmp_path, subscribe="a", startingOffsets=named))[1]) == 1
    assert run(reader_of(tmp_path, subscribe="b")) == ([], [])
    assert run(reader_of(tmp_path, assign='{"b":[1]}', endingOffsets='{"b":{"1":0}}'))[1] == []
    with pytest.raises(DataLoss, match="b-1: wanted offsets 0 to 3, found"):
        reader_of(tmp_path, assign='{"b":[1]}', endingOffsets='{"b":{"1":3}}').partitions()


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(BadOption, match=f"no directory {tmp_path / 'nowhere'} on "):
        reader_of(tmp_path / "nowhere", subscribe="a").partitions()


# ---- exactness


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxBytesPerPartition": "3000"},
        {"maxBytesPerPartition": "1"},
        {"maxBytesPerPartition": "40000"},
        {"maxRecordsPerPartition": "77"},
        {"minPartitions": "2"},
        {"minPartitions": "23"},
        {"minPartitions": "23", "maxBytesPerPartition": "5k", "maxRecordsPerPartition": "100"},
    ],
)
def test_no_record_is_lost_or_read_twice_at_the_cuts(topics, options):
    tasks, rows = run(reader_of(topics, subscribe="orders", **options))
    assert rows == offsets_by_log(topics, "orders")
    assert len(rows) == 3000
    assert len(tasks) >= int(options.get("minPartitions", 1))


def test_cuts_lie_where_batches_begin(topics):
    """A task that started inside a batch would decode its beginning in vain."""
    tasks, _ = run(reader_of(topics, subscribe="orders", maxBytesPerPartition="3000"))
    assert len(tasks) > 20
    for piece in (piece for task in tasks for piece in task.pieces):
        with kafkalog.Log(piece.folder, mode="r") as log:
            batches = log.read_batches(piece.range.start, max_bytes=1)
            assert int.from_bytes(batches[:8], "big") == piece.range.start


NEW_FORMAT = [p for p in kafka_data.partitions() if not kafka_data.magics(p) & {0, 1}]


@pytest.mark.parametrize("case", sorted({p.directory for p in NEW_FORMAT}), ids=lambda p: p.name)
def test_marks_ascend_whatever_the_indexes_hold(case):
    """In clean directories, and in those of a killed broker (with zeros after the entries)."""
    for partition in (p for p in NEW_FORMAT if p.directory == case):
        print(partition.path)
        marks_ascend(partition)


def marks_ascend(partition):
    with kafkalog.Log(partition.path, mode="r") as log:
        ends, (offsets, bytes_before) = ends_of(log, "read_committed"), batch_starts(log, 1)
    assert all(a < b for a, b in pairwise(offsets))
    assert all(a <= b for a, b in pairwise(bytes_before))
    assert ends.start == ends.stop or offsets[-1] >= ends.stop


def test_small_partitions_share_a_task(topics):
    tasks, _ = run(reader_of(topics, subscribe="orders"))
    assert len(tasks) == 1
    assert [piece.range.key for piece in tasks[0].pieces] == [("orders", n) for n in range(3)]


def test_rows_are_the_records(topics):
    reader = reader_of(topics, subscribe="one")
    (task,) = reader.partitions()
    table = pa.Table.from_batches(list(reader.read(task)))
    with kafkalog.Log(topics / "one-0", mode="r") as log:
        records = list(log.read())
    assert table.to_pylist() == [
        {
            "key": record.key,
            "value": record.value,
            "topic": "one",
            "partition": 0,
            "offset": record.offset,
            "timestamp": pa.scalar(record.timestamp_ms * 1000, pa.timestamp("us", "UTC")).as_py(),
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for record in records
    ]


# ---- limits


def test_offsets(topics):
    limits = {
        "startingOffsets": '{"orders":{"0":100,"1":-2,"2":999}}',
        "endingOffsets": '{"orders":{"0":100,"1":3,"2":-1}}',
    }
    _, rows = run(reader_of(topics, subscribe="orders", **limits))
    assert rows == [*(("orders", 1, i) for i in range(3)), ("orders", 2, 999)]


def test_assigned_partitions_only(topics):
    _, rows = run(reader_of(topics, assign='{"orders":[2]}'))
    assert Counter(row[:2] for row in rows) == {("orders", 2): 1000}


def test_times_for_all_partitions(topics):
    limits = {
        "startingTimestamp": str(START_MS + 9_001),
        "endingTimestamp": str(START_MS + 12_000),
    }
    _, rows = run(reader_of(topics, subscribe="orders", **limits))
    assert rows == [("orders", number, i) for number in range(3) for i in (10, 11)]


def test_times_by_partition(topics):
    reader = reader_of(
        topics,
        assign='{"orders":[0,1]}',
        startingOffsetsByTimestamp=f'{{"orders":{{"0":{START_MS},"1":{START_MS + 999_000}}}}}',
        endingOffsetsByTimestamp=f'{{"orders":{{"0":{START_MS + 1},"1":{START_MS + 10**9}}}}}',
    )
    assert run(reader)[1] == [("orders", 0, 0), ("orders", 1, 999)]


def test_no_record_at_the_starting_time(topics):
    after = {"subscribe": "one", "startingTimestamp": str(START_MS + 10**9)}
    with pytest.raises(BadOption, match="one-0: no record at or after"):
        reader_of(topics, **after).partitions()
    reader = reader_of(topics, **after, startingOffsetsByTimestampStrategy="latest")
    assert reader.partitions() == []


def test_offsets_that_are_not_there(topics, caplog):
    limits = {"subscribe": "one", "endingOffsets": '{"one":{"0":51}}'}
    with pytest.raises(DataLoss, match="one-0: wanted offsets 0 to 51, found committed offsets 0"):
        reader_of(topics, **limits).partitions()
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        _, rows = run(reader_of(topics, **limits, failOnDataLoss="false"))
    assert len(rows) == 50
    assert "one-0: wanted offsets 0 to 51" in caplog.text


# ---- columns


@pytest.mark.parametrize("columns", [("offset",), ("value", "key"), ("headers",), NAMES[::-1]])
def test_only_the_columns_asked_for(topics, columns):
    reader = reader_of(topics, columns, subscribe="one")
    (task,) = reader.partitions()
    table = pa.Table.from_batches(list(reader.read(task)))
    assert tuple(table.schema.names) == columns
    assert table.num_rows == 50


def test_missing_topics_are_reported_at_load(topics, tmp_path):
    """When Spark asks for the schema, not at the first action."""
    with pytest.raises(BadOption, match="no directory"):
        DefaultSource({"path": str(tmp_path / "no"), "subscribe": "one"}).schema()
    with pytest.raises(BadOption, match="no topic 'on' here; did you mean 'one'"):
        DefaultSource({"path": str(topics), "subscribe": "on"}).schema()
    with pytest.raises(BadOption, match="no partition 7 of 'one'"):
        DefaultSource({"path": str(topics), "assign": '{"one":[7]}'}).schema()


def test_the_columns_option_and_headers_make_the_schema(topics):
    def names(**options: str) -> list[str]:
        source = DefaultSource({"path": str(topics), "subscribe": "one", **options})
        return source.schema().fieldNames()

    assert names() == list(NAMES[:-1])
    assert names(includeheaders="true") == list(NAMES)
    assert names(columns="value,offset") == ["value", "offset"]


def test_a_schema_against_the_columns_option_is_refused(topics):
    source = DefaultSource({"path": str(topics), "subscribe": "one", "columns": "value"})
    with pytest.raises(BadOption, match="give one of them"):
        source.reader(schema_of(("key",)))
    assert source.reader(source.schema()) is not None


# ---- changes under a reader


def test_a_topic_without_records(tmp_path):
    kafkalog.Log(tmp_path / "empty-0").close()
    reader = reader_of(tmp_path, subscribe="empty")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_plan_is_a_snapshot_and_a_new_one_sees_more(tmp_path):
    write_topic(tmp_path, "a", 1, 10)
    reader = reader_of(tmp_path, subscribePattern="[ab]")
    (task,) = reader.partitions()
    with kafkalog.Log(tmp_path / "a-0") as log:
        log.append(b"later")
    write_topic(tmp_path, "b", 1, 5)
    assert sum(batch.num_rows for batch in reader.read(task)) == 10
    _, rows = run(reader_of(tmp_path, subscribePattern="[ab]"))
    assert Counter(row[0] for row in rows) == {"a": 11, "b": 5}


def test_a_pattern_that_matches_nothing_is_warned_about(topics, caplog):
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        assert reader_of(topics, subscribePattern="q.*").partitions() == []
    assert "no topic of" in caplog.text


def test_records_deleted_after_planning(tmp_path):
    write_topic(tmp_path, "a", 1, 1000)
    strict = reader_of(tmp_path, subscribe="a")
    lenient = reader_of(tmp_path, subscribe="a", failOnDataLoss="false")
    (task,) = strict.partitions()
    with kafkalog.Log(tmp_path / "a-0") as log:
        log.delete_before(600)
    with pytest.raises(DataLoss, match=r"a-0, offsets 0 to 1000.* found committed offsets 600"):
        list(strict.read(task))
    assert sum(batch.num_rows for batch in lenient.read(task)) == 400


def test_records_deleted_before_the_end_that_was_asked_for(tmp_path, caplog):
    """The log now begins at 600: nothing of the requested range is left."""
    write_topic(tmp_path, "a", 1, 1000)
    with kafkalog.Log(tmp_path / "a-0") as log:
        log.delete_before(600)
    given = {"subscribe": "a", "endingOffsets": '{"a":{"0":30}}'}
    with pytest.raises(DataLoss, match="a-0: wanted offsets 0 to 30, found committed offsets 600"):
        reader_of(tmp_path, **given).partitions()
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        assert run(reader_of(tmp_path, failOnDataLoss="false", **given)) == ([], [])
    assert "wanted offsets 0 to 30" in caplog.text


@pytest.mark.parametrize("columns", [("offset", "value"), ("value",)])
def test_records_deleted_while_they_are_read(tmp_path, columns, caplog):
    """Retention overtakes a reader: it continues at the new start, or reports the loss."""
    write_topic(tmp_path, "a", 1, 100_000)
    for strict in (False, True):
        options = {"subscribe": "a", "failOnDataLoss": str(strict).lower()}
        reader = reader_of(tmp_path, columns, **options)
        with kafkalog.Log(tmp_path / "a-0", mode="r") as log:
            first, new_start = log.start_offset, log.start_offset + 45_000
        (task,) = reader.partitions()
        batches = reader.read(task)
        seen = [next(batches).column("value").to_pylist()]
        with kafkalog.Log(tmp_path / "a-0", config={"file.delete.delay.ms": 0}) as log:
            log.delete_before(new_start)
        if strict:
            with pytest.raises(DataLoss, match=r"a-0, .*deleted while it was read"):
                list(batches)
            continue
        seen += [batch.column("value").to_pylist() for batch in batches]
        offsets = [int(value.split(b":")[1]) for some in seen for value in some]
        assert offsets == sorted(set(offsets)) and offsets[-1] == 99_999
        assert offsets[0] == first and {*range(new_start, 100_000)} <= {*offsets}
        assert len(offsets) < 100_000


def test_a_recreated_topic_is_another_topic(tmp_path, caplog):
    """By the topic's id, or without one by the folder."""
    for known in (True, False):
        directory = tmp_path / str(known)
        for round_ in range(2):
            if known:
                with kafkalog.Store(directory) as store:
                    if round_:
                        store.delete_topic("a")
                    store.create_topic("a")[0].append_many([b"x"] * 10)
            else:
                if round_:
                    shutil.rmtree(directory / "a-0")
                write_topic(directory, "a", 1, 10)
            if not round_:
                strict = reader_of(directory, subscribe="a")
                lenient = reader_of(directory, subscribe="a", failOnDataLoss="false")
                (task,) = strict.partitions()
        with pytest.raises(DataLoss, match="the topic was deleted and recreated"):
            list(strict.read(task))
        assert list(lenient.read(task)) == []
    assert "recreated" in caplog.text


@pytest.mark.parametrize("known", [True, False], ids=["topic id", "plain folder"])
def test_a_copied_directory(tmp_path, known):
    """With the topic's id it is the same log anywhere; a plain folder only in its old place."""
    directory = tmp_path / "data"
    if known:
        with kafkalog.Store(directory) as store:
            store.create_topic("a")[0].append_many([b"x"] * 10)
    else:
        write_topic(directory, "a", 1, 10)
    planned = reader_of(directory, subscribe="a")
    (task,) = planned.partitions()
    shutil.copytree(directory, tmp_path / "copy")
    directory.rename(tmp_path / "old")
    (tmp_path / "copy").rename(directory)
    if known:
        assert sum(map(len, planned.read(task))) == 10
    else:
        with pytest.raises(DataLoss, match=r"or this is a copy: without partition\.metadata"):
            list(planned.read(task))
    anew = reader_of(directory, subscribe="a")
    assert sum(map(len, anew.read(anew.partitions()[0]))) == 10


def test_a_folder_with_a_torn_id_is_read(tmp_path):
    """A power cut leaves an empty file, or zeros."""
    write_topic(tmp_path, "a", 1, 10)
    (tmp_path / "a-0" / "partition.metadata").write_bytes(b"")
    assert len(run(reader_of(tmp_path, subscribe="a"))[1]) == 10


def test_a_folder_that_gets_an_id_is_the_same(tmp_path):
    """A directory adopts a lone log between the plan and the read."""
    write_topic(tmp_path, "a", 1, 10)
    reader = reader_of(tmp_path, subscribe="a")
    (task,) = reader.partitions()
    with Manager(tmp_path, adopt=True) as manager, MetadataLog.open(manager, adopt=True):
        pass  # as `kafkalog adopt` does
    with kafkalog.Store(tmp_path) as store:
        store["a"][0].append(b"more")
    assert (tmp_path / "a-0" / "partition.metadata").exists()
    assert sum(some.num_rows for some in reader.read(task)) == 10


def test_a_topic_that_goes(tmp_path, monkeypatch, caplog):
    """After the plan was made, and while it is being made."""
    write_topic(tmp_path, "a", 1, 10)
    write_topic(tmp_path, "b", 1, 10)
    strict = reader_of(tmp_path, subscribe="a,b")
    lenient = reader_of(tmp_path, subscribe="a,b", failOnDataLoss="false")
    (task,) = strict.partitions()
    (tmp_path / "a-0").rename(tmp_path / "elsewhere")
    with pytest.raises(DataLoss, match=r"a-0, offsets 0 to 10.*: the topic was deleted"):
        list(strict.read(task))
    assert sum(batch.num_rows for batch in lenient.read(task)) == 10
    listed = {("a", 0): str(tmp_path / "a-0"), ("b", 0): str(tmp_path / "b-0")}
    monkeypatch.setattr(directory, "partition_folders", lambda _: listed)
    with pytest.raises(DataLoss, match=r"a-0: .* was deleted while the read was planned"):
        strict.partitions()
    assert [row[0] for row in run(lenient)[1]] == ["b"] * 10
    limits = {
        "startingOffsets": '{"a":{"0":3},"b":{"0":3}}',
        "endingOffsetsByTimestamp": f'{{"a":{{"0":{START_MS}}},"b":{{"0":{START_MS + 10**9}}}}}',
    }
    named = reader_of(tmp_path, subscribe="a,b", failOnDataLoss="false", **limits)
    assert [row[2] for row in run(named)[1]] == [*range(3, 10)]


def test_a_folder_that_an_executor_does_not_see(tmp_path):
    write_topic(tmp_path / "data", "a", 1, 10)
    reader = reader_of(tmp_path / "data", subscribe="a")
    (task,) = reader.partitions()
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(ReadError, match="no such folder; every executor must see"):
        list(reader.read(task))


def test_a_damaged_batch_is_named_with_its_partition(tmp_path):
    write_topic(tmp_path, "a", 1, 1000)
    first = tmp_path / "a-0" / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[200] ^= 1
    first.write_bytes(data)
    reader = reader_of(tmp_path, subscribe="a")
    (task,) = reader.partitions()
    with pytest.raises(ReadError, match=r"a-0, offsets 0 to 1000, in .*: CorruptMessage: ") as told:
        list(reader.read(task))
    for words in ("00000000000000000000.log at byte 0", "offset 0", "kafkalog verify", "endingOff"):
        assert words in str(told.value)


def test_compaction_between_the_plan_and_the_read_and_while_it_reads(tmp_path):
    """Removed records are no loss; the others come once, and complete."""
    config = {"cleanup.policy": "compact", "segment.bytes": 20_000, "min.cleanable.dirty.ratio": 0}
    rows = range(20_000)
    with kafkalog.Log(tmp_path / "a-0", config=config) as log:
        log.append_many(
            [b"%d" % i for i in rows], keys=[b"%d" % (i % 50) for i in rows], batch_bytes=1_000
        )
        reader = reader_of(tmp_path, ("offset", "value"), subscribe="a", maxBytesPerPartition="9k")
        tasks = reader.partitions()
        assert len(tasks) > 20
        batches = (batch for task in tasks for batch in reader.read(task))
        seen = [next(batches)]
        log.compact()
        seen += batches
        left = [record.offset for record in log.read()]
    found = [at for batch in seen for at in batch.column("offset").to_pylist()]
    assert found == sorted({*found}) and {*left} <= {*found}
    assert len(left) < len(found) < 10_000
    assert [at for batch in seen for at in batch.column("value").to_pylist()] == [
        b"%d" % at for at in found
    ]


def counted(monkeypatch):
    """The folders that are opened from now on."""
    opened, real = [], Opened._open

    def count(folder, key):
        opened.append(os.path.basename(folder))
        return real(folder, key)

    monkeypatch.setattr(Opened, "_open", staticmethod(count))
    return opened


def test_the_tasks_of_a_worker_open_a_log_once(tmp_path, monkeypatch):
    """After a writer's death, opening a log reads all that was not flushed: not once per task."""
    write_topic(tmp_path, "a", 2, 2_000)
    for number in range(2):
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (tmp_path / f"a-{number}" / name).unlink(missing_ok=True)
    opened = counted(monkeypatch)
    reader = reader_of(tmp_path, subscribe="a", maxBytesPerPartition="3k")
    tasks = reader.partitions()
    assert len(tasks) > 40 and opened == ["a-0", "a-1"]
    opened.clear()
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 4_000
    assert opened == ["a-0", "a-1"]


def test_a_worker_keeps_only_the_logs_of_its_last_reads_open(tmp_path, monkeypatch):
    """Also if their tasks alternate, as those of two streams of a session do."""
    monkeypatch.setattr(task_module, "_kept", [])
    for topic in "abcde":
        write_topic(tmp_path, topic, 1, 10)
    readers = [reader_of(tmp_path, subscribe=topic) for topic in "abcde"]
    tasks = [reader.partitions()[0] for reader in readers]
    opened = counted(monkeypatch)
    for number in (0, 1, 2, 3, 0, 1, 2, 3, 0):
        assert sum(batch.num_rows for batch in readers[number].read(tasks[number])) == 10
    assert opened == ["a-0", "b-0", "c-0", "d-0"]
    longest = task_module._kept[0][2]
    assert len(list(readers[4].read(tasks[4]))) == 1 and len(longest._opened) == 0
    assert len(task_module._kept) == task_module.KEPT_MAX


def test_another_version_on_an_executor_is_named(topics, monkeypatch):
    reader = reader_of(topics, subscribe="one")
    (task,) = reader.partitions()
    monkeypatch.setattr(kafkalog, "__version__", "0.0.0")
    with pytest.raises(ReadError, match=r"kafkalog 0\.0\.0 on .* planned with"):
        list(reader.read(task))


# ---- pickles


class Recorder(pickle.Unpickler):
    """Unpickles, and records every class and function that it imports."""

    def __init__(self, value: object) -> None:
        super().__init__(io.BytesIO(cloudpickle.dumps(value)))
        self.found: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.found.add(f"{module}.{name}")
        return super().find_class(module, name)


def globals_of(value: object) -> set[str]:
    recorder = Recorder(value)
    assert recorder.load() is not value
    return recorder.found


def test_partitions_travel_as_plain_values(topics):
    for task in reader_of(topics, subscribe="orders", minPartitions="5").partitions():
        assert globals_of(task) == {
            "pyspark_kafkalog.task.LogPartition",
            "pyspark_kafkalog.places.piece.Piece",
            "pyspark_kafkalog.plan.Range",
        }


def test_the_reader_travels_as_plain_values(topics):
    """Only our own classes and Spark's types: no handle, no lock, no numpy."""
    reader = reader_of(topics, subscribePattern="or.*")
    reader.partitions()
    assert {name.rpartition(".")[0] for name in globals_of(reader)} == {
        "pyspark_kafkalog.options",
        "pyspark_kafkalog.batch",
        "pyspark.sql.types",
    }


def test_ignored_options_are_warned_about_by_name(topics, caplog):
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        reader_of(topics, subscribe="one", kafka__fetch__max__bytes="5").partitions()
    assert "'kafka.fetch.max.bytes' has no meaning here" in caplog.text


LIGHT = """
import sys
from pyspark_kafkalog import DefaultSource, register
print(sorted({"kafkalog", "numpy", "pyarrow"} & set(sys.modules)))
sys.modules["pyspark.sql.datasource"] = None
for name in [name for name in sys.modules if name.startswith("pyspark_kafkalog")]:
    del sys.modules[name]
import pyspark_kafkalog
print(hasattr(pyspark_kafkalog, "DefaultSource"))
try:
    pyspark_kafkalog.register(None)
except ImportError as error:
    print(error)
"""


def test_the_import_is_light_and_never_fails():
    """PySpark imports every `pyspark_*` package before it looks for one."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT],
        env={**os.environ, **spark_environment()},
        capture_output=True,
        text=True,
        timeout=280,
    )
    loaded, found, error = done.stdout.splitlines()
    assert (loaded, found) == ("[]", "False"), done.stderr
    assert error.startswith("kafkalog needs PySpark 4.0 or later: ")
