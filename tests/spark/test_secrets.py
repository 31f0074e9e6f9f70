"""Secrets of a secured cluster in Spark: in no plan, event log, checkpoint, message or file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog import register

import kafkalog
from kafkalog.testing.broker import TestBroker
from tests.support import secured
from tests.support.tls_front import TlsFront

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECRET = "hunter2hunter2"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> secured.Papers:
    return secured.papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def front(files: secured.Papers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsFront]:
    """A broker that only takes clients with a certificate."""
    with ExitStack() as stack:
        made = stack.enter_context(TlsFront(files.server, files.authority))
        config = {"advertised.listeners": f"PLAINTEXT://{made.servers}"}
        broker = TestBroker(tmp_path_factory.mktemp("broker"), config=config)
        stack.enter_context(broker)
        made.target = int(broker.bootstrap_servers.rpartition(":")[2])
        yield made


@pytest.mark.parametrize("way", ["file", "options"])
def test_secrets_are_only_where_they_must_be(
    spark: Any, tmp_path: Path, front: TlsFront, files: secured.Papers, way: str
) -> None:
    """The password that SASL would send stands for every secret: the listener asks for none."""
    register(spark)
    config = {
        **secured.settings("SSL", files),
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.client),
        "sasl.jaas.config": secured.jaas(secured.PLAIN, username="u", password=SECRET),
    }  # fmt: skip
    topic = f"secret-{way}"
    if way == "file":
        file = tmp_path / "client.properties"
        lines = (f"{name}={value}\n" for name, value in config.items())
        file.write_text("".join(lines))
        options = {"clientConfigFile": str(file)}
    else:
        options = {f"kafka.{name}": value for name, value in config.items()}
    options["kafka.bootstrap.servers"] = front.servers
    with kafkalog.Admin(front.servers, config=config) as admin:
        admin.create_topics([topic]).check()
    shown = Shown(spark)
    events = EventLog(spark, tmp_path / "events")
    spark.range(10).selectExpr("cast(id as string) value").write.format("kafkalog").options(
        topic=topic, **options
    ).mode("append").save()
    stream = spark.readStream.format("kafkalog").options(
        subscribe=topic, startingOffsets="earliest", **options
    )
    query = (
        stream.load().writeStream.format("kafkalog")
        .options(topic=f"{topic}-copy", checkpointLocation=str(tmp_path / "checkpoint"), **options)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    read = spark.read.format("kafkalog").options(subscribe=f"{topic}-copy", **options).load()
    assert read.count() == 10
    shown.add(query.lastProgress, read._jdf.queryExecution().toString())
    shown.add(read._jdf.queryExecution().logical().toString())
    with pytest.raises(Exception, match="nowhere") as told:
        spark.read.format("kafkalog").options(subscribe="nowhere", **options).load().count()
    shown.add(str(told.value))
    for place in (tmp_path / "checkpoint").rglob("*"):
        if place.is_file():
            shown.add(place.read_bytes())
    shown.add(events.text())
    assert SECRET not in shown.text()


class Shown:
    """The texts that Spark shows of its work: the plans in its events, as the event log and the UI
    have them, and whatever is added."""

    def __init__(self, spark: Any) -> None:
        self._store = spark._jsparkSession.sharedState().statusStore()
        self._before = self._store.executionsCount()
        self._parts: list[str] = []

    def add(self, *parts: object) -> None:
        self._parts += [str(part) for part in parts]

    def text(self) -> str:
        found = self._store.executionsList()
        for at in range(self._before, found.size()):
            one = found.apply(at)
            self._parts += [one.physicalPlanDescription(), str(one.modifiedConfigs())]
        assert found.size() > self._before
        return "".join(self._parts)


class EventLog:
    """Spark's own event log, from now on: the file that the history server reads."""

    def __init__(self, spark: Any, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._context = spark.sparkContext._jsc.sc()
        jvm = spark.sparkContext._jvm
        conf = self._context.conf().clone()
        for name in ("compress", "rolling.enabled"):
            conf.set(f"spark.eventLog.{name}", "false")
        self._listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
            self._context.applicationId(), jvm.scala.Option.empty(),
            jvm.java.net.URI(folder.as_uri()), conf,
        )  # fmt: skip
        self._listener.start()
        self._context.addSparkListener(self._listener)

    def text(self) -> str:
        """Everything in it; nothing is added any more."""
        self._context.listenerBus().waitUntilEmpty()
        self._context.removeSparkListener(self._listener)
        self._listener.stop()
        found = "".join(path.read_text() for path in self._folder.rglob("*") if path.is_file())
        assert "SparkListenerSQLExecutionStart" in found and "SparkListenerJobStart" in found
        return found
