"""The sink without a JVM: writers are pickled as Spark does, and the test reads what they wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog.errors import BadOption
from pyspark_kafkalog.sink import delivery, options, settings, staging
from pyspark_kafkalog.sink.rows import SinkError
from pyspark_kafkalog.source import KafkalogSource

import kafkalog
from kafkalog import TopicPartition
from kafkalog.config.producer import ProducerConfig
from kafkalog.testing.broker import TestBroker
from tests.spark.conftest import START_MS
from tests.spark.writing import Job, batch, ddl, values


def written(target: Path | str) -> dict[str, list[tuple[int, bytes | None, bytes | None]]]:
    """The committed (partition, key, value), by topic, in the order of each partition."""
    found: dict[str, list[tuple[int, bytes | None, bytes | None]]] = {}
    with kafkalog.Store(target) as store:
        for topic in store.topics:
            for log in store[topic]:
                found.setdefault(topic, []).extend(
                    (log.partition, one.key, one.value)
                    for one in log.read(isolation="read_committed")
                )
    return found


# ---- rows ----------------------------------------------------------------------------------


def test_tasks_in_their_order(job: Job, tmp_path: Path) -> None:
    job(values("a", "b"), [], values("c"))
    assert written(tmp_path / "data") == {"t": [(0, None, b"a"), (0, None, b"b"), (0, None, b"c")]}
    assert not (tmp_path / "data.staging").exists()


def test_every_column(job: Job, tmp_path: Path) -> None:
    """Topic, partition, time, headers from columns; nulls; a column without meaning."""
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("a", 3)
        store.create_topic("b", 2)
    rows = batch(
        key=[b"k", None, b"k", None, b""],
        value=[b"1", b"2", None, b"4", b"5"],
        topic=["b", "a", "b", "a", "a"],
        partition=[1, 2, 1, 0, 2],
        timestamp=[START_MS * 1000 + 1999, None, 0, 1000, 2000],
        headers=[[{"key": "h", "value": b"v"}, {"key": "n", "value": None}], None, [], None, None],
        more=[1.0] * 5,
    )
    job([rows], schema="all", topic="")
    with kafkalog.Store(tmp_path / "data") as store:
        b, a = list(store["b"][1].read()), list(store["a"][2].read())
        assert [(one.key, one.value) for one in b] == [(b"k", b"1"), (b"k", None)]
        assert b[0].timestamp_ms == START_MS + 1
        assert b[1].timestamp_ms == 0
        assert [tuple(h) for h in b[0].headers] == [("h", b"v"), ("n", None)]
        assert [(one.key, one.value) for one in a] == [(None, b"2"), (b"", b"5")]
        assert a[0].timestamp_ms > START_MS
        assert [one.value for one in store["a"][0].read()] == [b"4"]


def test_the_option_goes_before_the_column(job: Job, tmp_path: Path) -> None:
    rows = batch(value=[b"1", b"2"], topic=["x", None], partition=[0, None])
    job([rows], schema="all", topic="y")
    assert sorted(written(tmp_path / "data")["y"]) == [(0, None, b"1"), (0, None, b"2")]


def test_text_and_keys_as_the_producer_places_them(job: Job, tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", 5)
        store.create_topic("u", 5)
        keys = [f"k{i}" for i in range(200)]
        with store.producer() as producer:
            producer.send_many("u", [k.encode() for k in keys], [k.encode() for k in keys])
    job([batch("text", key=keys, value=keys)], schema="text")
    found = written(tmp_path / "data")
    assert sorted(found["t"]) == sorted(found["u"])


def test_many_targets_keep_their_order(job: Job, tmp_path: Path) -> None:
    """Interleaved rows of 3 topics and 4 partitions, over several batches."""
    rows = [(f"t{i % 3}", i % 4, b"%d" % i) for i in range(1200)]
    with kafkalog.Store(tmp_path / "data") as store:
        for number in range(3):
            store.create_topic(f"t{number}", 4)
    some = [
        batch(topic=[r[0] for r in part], partition=[r[1] for r in part],
              value=[r[2] for r in part])
        for part in (rows[:500], rows[500:501], rows[501:])
    ]  # fmt: skip
    job(some, schema="all", topic="")
    found = written(tmp_path / "data")
    for topic in found:
        for number in range(4):
            wanted = [row[2] for row in rows if row[:2] == (topic, number)]
            assert [v for p, _, v in found[topic] if p == number] == wanted


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_many_partitions_cost_an_append_each(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """However many batches Spark passes.  A task has one log, which is opened twice.

    `at_once`: bytes of rows; with one byte each batch is appended separately.
    """
    partitions, batches = 20, 30
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", partitions)
    opens, appends = [], []

    class Counted(kafkalog.Log):
        def __init__(self, path: str, *args: Any, **named: Any) -> None:
            opens.append(path)
            super().__init__(path, *args, **named)

        def append_many(self, *args: Any, **named: Any) -> Any:
            appends.append(self.path)
            return super().append_many(*args, **named)

    monkeypatch.setattr(kafkalog, "Log", Counted)
    monkeypatch.setattr(staging, "GATHER_BYTES", at_once)
    rows = [
        batch(value=[b"%d.%d" % (i, p) for p in range(partitions)], partition=range(partitions))
        for i in range(batches)
    ]
    job(rows, schema="all")
    assert len(opens) == 2
    assert len(appends) == partitions * (batches if at_once == 1 else 1)
    wanted = [(p, None, b"%d.%d" % (i, p)) for p in range(partitions) for i in range(batches)]
    assert written(tmp_path / "data") == {"t": wanted}


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ({"topic": [None]}, "KAFKA_NULL_TOPIC_IN_DATA"),
        ({"topic": ["a"], "partition": [-1]}, "partition: found -1"),
    ],
)
def test_rows_that_cannot_be(job: Job, tmp_path: Path, columns: Any, wanted: str) -> None:
    with pytest.raises(SinkError, match=wanted):
        job([batch(value=[b"x"], **columns)], schema="all", topic="")
    assert not list((tmp_path / "data.staging").glob("*/*/*"))


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([[{"key": "h", "value": b""}, None]], "found null"),
        ([[{"key": None, "value": b""}]], "found a header without a name"),
    ],
)
def test_headers_that_cannot_be(job: Job, tmp_path: Path, headers: Any, wanted: str) -> None:
    """A null in the array is not a header without a name, and not silently left out."""
    rows = batch(value=[b"x"], headers=headers)
    with pytest.raises(SinkError, match=wanted):
        job([rows], schema="all")
    assert not (tmp_path / "data").exists()


def test_headers_are_left_out_on_request_alone(job: Job, tmp_path: Path) -> None:
    """As Spark's Kafka sink writes the column, without an option."""
    rows = batch(value=[b"x"], headers=[[{"key": "h", "value": b"v"}]])
    for more in ({}, {"includeHeaders": "true"}, {"includeHeaders": "false"}):
        job([rows], schema="all", **more)
    with kafkalog.Store(tmp_path / "data") as store:
        found = [[tuple(h) for h in one.headers] for one in store["t"][0].read()]
    assert found == [[("h", b"v")], [("h", b"v")], []]


def test_a_partition_that_is_not_there_writes_nothing(job: Job, tmp_path: Path) -> None:
    job(values("before"))
    rows = batch(value=[b"x", b"y"], topic=["t", "t"], partition=[0, 7])
    with pytest.raises(SinkError, match="partition"):
        job([rows], schema="all", topic="")
    assert written(tmp_path / "data") == {"t": [(0, None, b"before")]}


def test_large_rows_and_late_times_are_the_targets_to_judge(job: Job, tmp_path: Path) -> None:
    """Staging has no limits of its own."""
    allowed = {"max.message.bytes": 4 << 20, "message.timestamp.after.max.ms": 2**63 - 1}
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", config=allowed)
    late_us = START_MS * 1000 + 50 * 365 * 86_400 * 10**6
    rows = batch(value=[b"x" * (2 << 20), b"y"], timestamp=[None, late_us])
    job([rows], schema="all", **{"kafka.max.request.size": str(4 << 20)})
    with kafkalog.Store(tmp_path / "data") as store:
        found = list(store["t"][0].read())
    assert [len(one.value or b"") for one in found] == [2 << 20, 1]
    assert found[1].timestamp_ms == late_us // 1000


# ---- once ----------------------------------------------------------------------------------


def test_a_micro_batch_is_written_once(micro: Any, tmp_path: Path) -> None:
    """Committed, then run again, as after a crash before Spark recorded the commit."""
    for _ in range(2):
        writer, messages = micro(0, values("a"), values("b"))
        writer.commit(messages, 0)
    writer, messages = micro(1, values("c"))
    writer.commit(messages, 1)
    writer.commit(messages, 1)  # Spark may call it twice; staged rows are gone by then
    assert [v for *_, v in written(tmp_path / "data")["t"]] == [b"a", b"b", b"c"]
    assert not (tmp_path / "data.staging").exists()


def test_queries_do_not_know_each_other(micro: Any, tmp_path: Path) -> None:
    for query in ("q1", "q2"):
        writer, messages = micro(0, values(query), query=query)
        writer.commit(messages, 0)
    assert [v for *_, v in written(tmp_path / "data")["t"]] == [b"q1", b"q2"]


def test_a_batch_is_known_after_one_of_its_topics_went(job: Job, tmp_path: Path) -> None:
    """A group's offsets of a topic are deleted with it."""
    rows = batch(value=[b"1", b"2"], topic=["a", "b"])
    job([rows], schema="all", topic="", sinkId="mine", batchId="0")
    with kafkalog.Store(tmp_path / "data") as store:
        store.delete_topic("a")
    job([rows], schema="all", topic="", sinkId="mine", batchId="0")
    assert written(tmp_path / "data")["b"] == [(0, None, b"2")]


def test_a_sink_id_outlives_its_checkpoint(micro: Any, tmp_path: Path) -> None:
    for query in ("q1", "q2"):
        writer, messages = micro(0, values(query), query=query, sinkId="mine")
        writer.commit(messages, 0)
    assert [v for *_, v in written(tmp_path / "data")["t"]] == [b"q1"]


def test_a_batch_that_may_be_another_is_not_dropped_in_silence(
    micro: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A sinkId with a new checkpoint, whose batches begin at 0; not one that runs again."""
    for number, query in ((0, "q1"), (1, "q1"), (1, "q1"), (0, "q2")):
        assert not caplog.records
        writer, messages = micro(number, values("x"), query=query, sinkId="mine")
        writer.commit(messages, number)
    assert "mine, batch 0: not written" in caplog.text
    assert "there are batches up to 1 of another query, q1 (this one is q2)" in caplog.text


def test_a_batch_of_another_query_with_the_same_number(
    micro: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for query in ("q1", "q2"):
        writer, messages = micro(0, values("x"), query=query, sinkId="mine")
        writer.commit(messages, 0)
    assert "of another query, q1" in caplog.text


def test_a_number_long_past(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    for number in ("7", "7", "3"):
        assert not caplog.records
        job(values("x"), sinkId="mine", batchId=number)
    assert "mine, batch 3: not written" in caplog.text
    assert "up to 7 in " in caplog.text


def test_a_task_that_ran_twice_counts_once(micro: Any, tmp_path: Path) -> None:
    """Speculation, or a retry: only rows that a message names are taken."""
    micro(0, values("lost"))
    writer, messages = micro(0, values("kept"))
    writer.commit(messages, 0)
    assert [v for *_, v in written(tmp_path / "data")["t"]] == [b"kept"]
    assert not (tmp_path / "data.staging").exists()


def test_an_abort_removes_only_staged_rows(micro: Any, tmp_path: Path) -> None:
    writer, messages = micro(0, values("a"))
    writer.commit(messages, 0)
    writer.abort([*messages, None], 0)
    writer, messages = micro(1, values("b"))
    writer.abort([*messages, None], 1)
    assert not (tmp_path / "data.staging").exists()
    assert [v for *_, v in written(tmp_path / "data")["t"]] == [b"a"]


def test_a_batch_without_rows(micro: Any, tmp_path: Path) -> None:
    writer, messages = micro(0, [], [batch(value=[])])
    writer.commit(messages, 0)
    assert not (tmp_path / "data").exists()


def test_foreach_batch_writes_once(job: Job, tmp_path: Path) -> None:
    for text in ("first", "again"):
        job(values(text), sinkId="mine", batchId="0")
    job(values("next"), sinkId="mine", batchId="1")
    assert [v for *_, v in written(tmp_path / "data")["t"]] == [b"first", b"next"]


def served(broker: TestBroker, tmp_path: Path, **given: str) -> dict[str, str]:
    """Options of a write to a broker that gives up soon."""
    return {
        "path": "", "kafka.bootstrap.servers": broker.bootstrap_servers,
        "stagingDir": str(tmp_path / "s"), "kafka.max.block.ms": "300",
        "kafka.retry.backoff.ms": "10", "kafka.retry.backoff.max.ms": "20", **given,
    }  # fmt: skip


class Flushed(kafkalog.Producer):
    """Only its commit has a short timeout: rows may take as long as a busy machine needs."""

    def commit_transaction(self) -> None:
        self.flush()
        super().commit_transaction()


def test_a_commit_that_is_not_answered_is_asked_for_again(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a batchId it could not be checked afterwards."""
    asked = 0

    class Healing(Flushed):
        def commit_transaction(self) -> None:
            nonlocal asked
            asked += 1
            if asked == 2:
                broker.heal()
            super().commit_transaction()

    monkeypatch.setattr(kafkalog, "Producer", Healing)
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.drop_response("EndTxn", times=None)
        job(values("a"), **served(broker, tmp_path))
        assert asked == 2
        assert [one.value for one in broker.records("t")] == [b"a"]
    assert not (tmp_path / "s" / "kafkalog-staging").exists()


def test_a_commit_that_nobody_answers_is_said_to_be_unknown(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafkalog, "Producer", Flushed)
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.drop_response("EndTxn", times=None)
        with pytest.raises(SinkError, match="all rows may be there, or none"):
            job(values("a"), **served(broker, tmp_path))
        assert [one.value for one in broker.records("t")] == [b"a"]


def test_a_write_that_is_not_answered_is_not_there(job: Job, tmp_path: Path) -> None:
    """No commit was requested, so there is no doubt."""
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.drop_response("Produce", times=None)
        timeouts = {"kafka.delivery.timeout.ms": "300", "kafka.request.timeout.ms": "200"}
        with pytest.raises(SinkError) as caught:
            job(values("a"), **served(broker, tmp_path, **timeouts))
        assert "may be there" not in str(caught.value)
        broker.heal()
        assert broker.records("t") == []


def test_all_clients_of_a_write_have_its_settings(job: Job, tmp_path: Path) -> None:
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t")
        asked = [
            broker.delay(api, 0, times=None, client_id="mine")
            for api in ("OffsetFetch", "Produce", "EndTxn")
        ]
        given = {"sinkId": "s", "batchId": "0", "kafka.client.id": "mine"}
        job(values("a"), **served(broker, tmp_path, **given))
        assert all(fault.hits for fault in asked)


STEPS = ["_target", "_write", "_recall", "_send", "forget"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_that_dies(
    micro: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """In a separate process, at each step; then the batch runs again."""
    writer, messages = micro(0, values("a"))
    writer.commit(messages, 0)
    writer, messages = micro(1, values("b", "c"), values("d"))
    child = os.fork()
    if not child:
        real = getattr(delivery, step)

        def dies(*args: Any) -> Any:
            if not after:
                os._exit(9)
            found = real(*args)
            if step == "_target":
                found.__enter__()
            os._exit(9)

        monkeypatch.setattr(delivery, step, dies)
        try:
            writer.commit(messages, 1)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    writer, messages = micro(1, values("b", "c"), values("d"))
    writer.commit(messages, 1)
    assert [v for *_, v in written(tmp_path / "data")["t"]] == [b"a", b"b", b"c", b"d"]


# ---- errors --------------------------------------------------------------------------------


def test_a_directory_that_a_broker_has(job: Job, tmp_path: Path) -> None:
    """The error says what to do, and that works."""
    with kafkalog.Broker(tmp_path / "data", listeners=["127.0.0.1:0"]) as broker:
        with pytest.raises(SinkError, match=r"option 'kafka\.bootstrap\.servers' in place of"):
            job(values("a"), **{"kafka.delivery.timeout.ms": "1"})
        servers = {"path": "", "kafka.bootstrap.servers": broker.bootstrap_servers}
        job(values("b"), **servers, stagingDir=str(tmp_path / "s"))
    assert written(tmp_path / "data") == {"t": [(0, None, b"b")]}


def test_a_staging_folder_that_the_driver_does_not_see(micro: Any, tmp_path: Path) -> None:
    writer, messages = micro(0, values("a"), stagingDir=str(tmp_path / "s"))
    os.rename(tmp_path / "s", tmp_path / "elsewhere")
    with pytest.raises(SinkError, match="'stagingDir'"):
        writer.commit(messages, 0)


def test_old_leftovers_go(tmp_path: Path) -> None:
    made = options.parse({"path": str(tmp_path / "data"), "topic": "t"}, streaming=False)
    old, new = (Path(made.staging, name, "0", "x") for name in ("old", "new"))
    for place in (old, new):
        place.mkdir(parents=True)
    long_ago_s = old.stat().st_mtime - staging.LEFT_S - 60
    for place in (old, old.parent, old.parent.parent):
        os.utime(place, (long_ago_s, long_ago_s))
    for ahead_s in (-3600, 3600):  # a clock that is set by an hour removes nothing of a live job
        staging.sweep(made, new.stat().st_mtime + ahead_s)
    assert not old.exists() and new.exists()


def test_a_stream_clears_up_after_jobs_that_died(micro: Any, tmp_path: Path) -> None:
    """Even if no batch write ever comes."""
    old = tmp_path / "data.staging" / "old"
    (old / "0").mkdir(parents=True)
    long_ago_s = old.stat().st_mtime - staging.LEFT_S - 60
    for place in (old / "0", old):
        os.utime(place, (long_ago_s, long_ago_s))
    writer, messages = micro(0, values("a"))
    writer.commit(messages, 0)
    assert not old.exists()


@pytest.fixture
def anybodys(tmp_path: Path) -> Path:
    """A folder like /tmp."""
    place = tmp_path / "anybodys"
    place.mkdir()
    place.chmod(0o1777)
    return place


def test_staged_rows_below_a_place_of_all_are_their_owners_alone(
    micro: Any, anybodys: Path
) -> None:
    micro(0, values("a"), stagingDir=str(anybodys))
    assert (anybodys / "kafkalog-staging").stat().st_mode & 0o077 == 0


def test_a_staging_folder_of_somebody_else_is_refused(
    job: Job, anybodys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user that created it first could read the rows, or change them."""
    staged = anybodys / "kafkalog-staging"
    leftover = tmp_path / "elsewhere" / "old"
    leftover.mkdir(parents=True)
    os.utime(leftover, (0, 0))
    staged.symlink_to(leftover.parent)
    with pytest.raises(SinkError, match="found a link, wanted a folder of the user"):
        job(values("a"), stagingDir=str(anybodys))
    assert leftover.exists()
    staged.unlink()
    staged.mkdir()
    staged.chmod(0o777)
    with pytest.raises(SinkError, match="found one that anybody may write to"):
        job(values("a"), stagingDir=str(anybodys))
    staged.chmod(0o700)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(SinkError, match=f"found one of the user {mine}, .*'stagingDir'"):
        job(values("a"), stagingDir=str(anybodys))
    assert not (tmp_path / "data").exists()


def test_foreign_files_stay(job: Job, tmp_path: Path) -> None:
    """In a folder that the user names as stagingDir, however old they are."""
    kept = tmp_path / "s" / "letters" / "2019"
    kept.mkdir(parents=True)
    for place in (kept, kept.parent):
        os.utime(place, (1_000_000_000,) * 2)
    for number in ("0", "2020"):
        given = {"sinkId": "letters", "batchId": number}
        job(values(number), stagingDir=str(tmp_path / "s"), **given)
    assert kept.exists()
    assert os.listdir(tmp_path / "s") == ["letters"]


def test_users_of_one_machine_stage_apart() -> None:
    found = options.parse({"kafka.bootstrap.servers": "h:1"}, streaming=False).staging
    assert found.endswith(f"kafkalog-staging-{os.getuid()}")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "found neither"),
        ({"path": "/d", "kafka.bootstrap.servers": "h:1"}, "found both"),
        ({"path": "hdfs://x/y"}, "wanted a local path"),
        ({"path": "/d", "topc": "t"}, "did you mean 'topic'"),
        ({"path": "/d", "topic": " "}, "'topic': found nothing"),
        ({"path": "/d", "sinkid": "a/b"}, "'sinkId': found 'a/b'"),
        ({"path": "/d", "sinkid": "a"}, "found one, wanted both"),
        ({"path": "/d", "sinkid": "a", "batchid": "-1"}, "'batchId': found '-1'"),
        ({"path": "/d", "includeheaders": "yes"}, "wanted true or false"),
        ({"path": "/d", "kafka.acks": "1"}, "'kafka.acks' is not supported"),
        ({"path": "/d", "kafka.lingr.ms": "1"}, r"'kafka\.\*': .*lingr\.ms.*linger\.ms"),
        ({"path": "/d", "kafka.compression.type": "bzip9"}, r"'kafka\.\*': .*bzip9"),
        ({"path": "/d", "kafka.security.protocol": "TLS"}, "found 'TLS', wanted one of PLAINTEXT"),
        ({"path": "/d", "kafka.partitioner.class": "my.Own"}, "'my.Own', wanted one of org.apache"),
        ({"path": "/d", "kafka.partitioner.ignore.keys": "true"}, "leave out the column key"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], wanted: str) -> None:
    with pytest.raises(BadOption, match=wanted):
        options.parse(given, streaming=False)
    if "batchid" not in given and "sinkid" in given and given["sinkid"] == "a":
        assert options.parse(given, streaming=True).sink_id == "a"


def test_settings_of_javas_producer(caplog: pytest.LogCaptureFixture) -> None:
    """Settings that always hold are accepted; those that change no record are ignored by name."""
    names = {f"kafka.{name}": "1" for name in settings.IGNORED}
    given = {
        "path": "/d", "topic": "t", "kafka.security.protocol": "PLAINTEXT", "kafka.acks": "all",
        "kafka.enable.idempotence": "true", "kafka.linger.ms": "0", **names,
        "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
    }  # fmt: skip
    found = options.parse(given, streaming=False)
    assert found.ignored == tuple(names)
    assert {"linger.ms": "0", "partitioner": "round_robin"}.items() <= dict(found.producer).items()
    assert not {*settings.IGNORED} & {*ProducerConfig.table}
    KafkalogSource(given).writer(ddl("value binary"), False)
    assert len(caplog.messages) == len(names)
    assert "'kafka.send.buffer.bytes' has no meaning here and is ignored" in caplog.text


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ("key binary", "Required attribute 'value' not found"),
        ("value binary", "topic option required when no 'topic' attribute"),
        ("value int, topic string", "value attribute unsupported type int"),
        ("value binary, topic int", "topic attribute unsupported type int"),
        ("value binary, topic string, partition bigint", "partition attribute unsupported"),
        ("value binary, topic string, key double", "key attribute unsupported type double"),
        ("value binary, topic string, timestamp string", "timestamp attribute unsupported"),
        ("value binary, topic string, headers binary", "headers attribute unsupported type binary"),
    ],
)
def test_columns_that_cannot_be(tmp_path: Path, schema: str, wanted: str) -> None:
    """With the error messages of Spark's Kafka sink."""
    source = KafkalogSource({"path": str(tmp_path)})
    with pytest.raises(BadOption, match=wanted):
        source.writer(ddl(schema), False)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source = KafkalogSource({"path": str(tmp_path), "topic": "t"})
    schema = ddl("value binary")
    with pytest.raises(BadOption, match="overwrite"):
        source.writer(schema, True)
    with pytest.raises(BadOption, match=r"complete|wanted PySpark 4\.1"):
        source.streamWriter(schema, True)


def test_the_group_says_how_far_it_is(micro: Any, tmp_path: Path) -> None:
    for number in (3, 4):
        writer, messages = micro(number, values("x"), sinkId="mine")
        writer.commit(messages, number)
    with kafkalog.Store(tmp_path / "data") as store:
        found = store.admin.list_group_offsets("spark-sink-mine")
        assert {tp: one.offset for tp, one in found.items()} == {TopicPartition("t", 0): 5}
