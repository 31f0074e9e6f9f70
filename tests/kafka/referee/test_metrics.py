"""Kafka's MBeans: those that our table names are there, and each that is there has its row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from kafkalog import Admin, Consumer, NewTopic, Producer, ShareConsumer
from kafkalog.metrics.kafka import documented
from kafkalog.metrics.kafka_undocumented import UNDOCUMENTED
from kafkalog.metrics.table import METRICS
from tests.support import apache
from tests.support.waiting import LIMIT_S, wait_for

pytestmark = [pytest.mark.java, pytest.mark.long]

ONLY_DOCUMENTED = {"kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs"}
"""Kafka's controllers on ZooKeeper had it; its document still names it."""


class _Shown(apache.Broker):
    """A broker of Kafka with a port for JMX."""

    jmx = 0

    def command(self, properties: Path, heap: str, folder: Path) -> list[str]:
        found = super().command(properties, heap, folder)
        jmx = "-Dcom.sun.management.jmxremote"
        found[1:1] = [
            f"{jmx}.port={self.jmx}", f"{jmx}.rmi.port={self.jmx}", f"{jmx}.authenticate=false",
            f"{jmx}.ssl=false", "-Djava.rmi.server.hostname=127.0.0.1",
        ]  # fmt: skip
        return found


def wanted(bean: str) -> tuple[str, str, str]:
    """Domain, type, and the name of the bean or of its attribute."""
    match = re.fullmatch(r"([a-z.]+):type=([\w-]+)(?:,name=| )([\w-]+)", bean)
    assert match, bean
    return match[1], match[2], match[3]


STATISTICS = frozenset((
    "50thPercentile", "75thPercentile", "95thPercentile", "98thPercentile", "99thPercentile",
    "999thPercentile", "Count", "EventType", "FifteenMinuteRate", "FiveMinuteRate", "LatencyUnit",
    "Max", "Mean", "MeanRate", "Min", "OneMinuteRate", "RateUnit", "StdDev", "Value", "null",
))  # fmt: skip
"""The attributes of MBeans that have a name; of the others each attribute is a metric."""
ENDS = ("avg", "max", "min", "p50", "p95", "p99", "p999", "rate", "total")
"""Kafka documents some attributes without these ends."""


@contextmanager
def sharing(bootstrap_servers: str) -> Iterator[None]:
    """A member of a share group reads; one record that it rejected became a dead letter, and the
    letter of another did not fit its topic."""
    name = "errors.deadletterqueue.topic.name"
    small = {"errors.deadletterqueue.group.enable": "true", "max.message.bytes": "10"}
    config = {"share.acknowledgement.mode": "explicit", "max.poll.records": 1}
    with (
        Admin(bootstrap_servers) as admin,
        ShareConsumer(bootstrap_servers, "t", group="s", config=config) as worker,
        Consumer(bootstrap_servers, auto_offset_reset="earliest") as reader,
    ):
        admin.create_topics([NewTopic("dlq.small", config=small)]).check()
        for topic in ("dlq.small", "dlq.t"):
            own = {"share.auto.offset.reset": "earliest", name: topic}
            admin.alter_configs({("group", "s"): own}).check()
            (record,) = wait_for(lambda: worker.poll(200), "a record")
            worker.acknowledge(record, "reject")
            worker.commit().check()
        wait_for(lambda: "dlq.t" in reader.list_topics(), "the topic")
        reader.assign([("dlq.t", 0)])
        wait_for(lambda: reader.poll(200), "the dead letter")
        yield


class _Second(_Shown):
    """A broker, node 2, of the cluster of another node that is its controller, too."""

    def __init__(self, directory: Path, first: apache.Broker, properties: str) -> None:
        there = (first.directory / "meta.properties").read_text()
        voters = re.search("controller.quorum.voters=.*", first.properties.read_text())
        assert voters
        self._cluster = dict(line.split("=", 1) for line in there.splitlines() if "=" in line)
        port = apache.free_port()
        super().__init__(
            directory, f"node.id=2\nprocess.roles=broker\n{voters[0]}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port}\n{properties}", port=port,
        )  # fmt: skip

    def __enter__(self) -> apache.Broker:
        cluster = self._cluster["cluster.id"]
        apache.ask("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties))
        return super().__enter__()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, ...]]:
    """The MBeans (domain, type, name or attribute) of a broker that is a controller, too, and of
    another broker, which both have worked."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    made = "errors.deadletterqueue.auto.create.topics.enable=true\n"
    first = _Shown(tmp_path_factory.mktemp("first") / "data", made)
    first.jmx = apache.free_port()
    with first:
        second = _Second(tmp_path_factory.mktemp("second") / "data", first, made)
        second.jmx = apache.free_port()
        with second:
            _work(first.bootstrap_servers)
            with sharing(first.bootstrap_servers):
                said = [apache.ask("Beans", str(one.jmx)) for one in (first, second)]
    return {tuple(line.split(" ", 2)) for each in said for line in each.splitlines()}


def _work(servers: str) -> None:
    """Use what has MBeans of its own only once it is used."""
    with Admin(servers) as admin:
        wait_for(lambda: len(admin.describe_cluster().nodes) == 2, "both brokers", LIMIT_S)
        admin.create_topic("t", 2, 2)
        admin.alter_client_quotas(
            {(("client-id", "kafkalog"),): {"producer_byte_rate": 1e9}}
        ).check()
    with Producer(servers, transactional_id="x") as producer, producer.transaction():
        for partition in (0, 1):
            producer.send("t", b"x", partition=partition).result(LIMIT_S)
    for protocol in ("classic", "consumer"):
        with Consumer(
            servers, "t", group=protocol, group_protocol=protocol, auto_offset_reset="earliest"
        ) as consumer:
            next(iter(consumer))
            consumer.commit()


def test_kafka_has_the_beans_of_the_same_meaning(there: set[tuple[str, ...]]) -> None:
    assert len(there) > 100
    missing = {one.kafka for one in METRICS if one.kafka and wanted(one.kafka) not in there}
    assert missing == ONLY_DOCUMENTED


def patterns(row: str) -> list[tuple[str, str, str]]:
    """Domain, type and name that a row stands for; `*` for any text."""
    match = re.fullmatch(r"([a-z.]+):type=([^, ]+)(?:,name=| )?(.*)", row)
    assert match, row
    domain, kind, name = match.groups()
    options = re.search(r"\{(.*)\}", kind + name)
    words = options[1].split("|") if options else [""]
    texts = [(text.replace(f"{{{options[1]}}}", word) if options else text)
             for word in words for text in (kind, name)]  # fmt: skip
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [(domain, kind, name.split(",")[0] or "*") for kind, name in pairs]


def test_each_bean_of_kafka_has_a_row(there: set[tuple[str, ...]]) -> None:
    rows = [row for row, _, _ in documented()]
    known = {bean for row in rows for bean in patterns(row)}
    known |= {(domain, kind, f"{name}-{end}") for domain, kind, name in known for end in ENDS}
    wild = [bean for bean in known if "*" in "".join(bean)]
    own = {row: patterns(row) for row, _ in UNDOCUMENTED}
    unused, unknown = set(own), []
    for bean in sorted(there):
        if bean[2] in STATISTICS or bean in known or any(matches(bean, one) for one in wild):
            continue
        found = {row for row, some in own.items() if any(matches(bean, one) for one in some)}
        unused -= found
        if not found:
            unknown.append(bean)
    assert (unknown, unused) == ([], set())


def matches(bean: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    return all(map(fnmatchcase, bean, pattern))
