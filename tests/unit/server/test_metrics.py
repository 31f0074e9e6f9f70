"""The metrics of running nodes, over HTTP and as a mapping."""

from __future__ import annotations

import builtins
import json
import logging
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

import kafkalog
from kafkalog._native import ffi
from kafkalog.cli import serve
from kafkalog.errors import Closed, InvalidSetting, MissingPackage
from kafkalog.log.log import handle_of
from kafkalog.metadata.image import Change, MetadataImage, Partition, Topic, empty_image
from kafkalog.metrics.metric import OTHERS, Kind, Readings
from kafkalog.metrics.table import BY_NAME, METRICS
from kafkalog.replication.isr import Isr
from kafkalog.server.broker import node_of
from kafkalog.server.controller import Controller
from kafkalog.server.error_counts import ErrorCounts
from kafkalog.server.led_partitions import LedPartitions
from kafkalog.server.metrics import cluster, watch
from kafkalog.server.metrics.labels import Labels
from kafkalog.server.metrics.storage import log_states
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from tests.support.certificates import Certificates
from tests.support.controller_nodes import combined, controller, formatted
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.network import Server

HTTP = {"kafkalog.http.listen": "127.0.0.1:0"}
LABEL = r'(\w+)="([^"]*)"'
OPEN = "application/openmetrics-text; version=1.0.0"


def page(node: Any, path: str = "/metrics", accept: str = "text/plain") -> str:
    asked = urllib.request.Request(f"http://{node.http_address}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
        found: str = answer.read().decode()
    return found


def used(broker: kafkalog.Broker) -> None:
    """Records go through a topic; a group reads and commits them."""
    with kafkalog.Admin(broker) as admin:
        admin.create_topics([kafkalog.NewTopic("orders", 1)])
    with kafkalog.Producer(broker, transactional_id="tx") as producer, producer.transaction():
        for _ in range(3):
            producer.send("orders", b"value")
    with kafkalog.Consumer(broker, "orders", group="g", auto_offset_reset="earliest") as consumer:
        next(iter(consumer))
        consumer.commit()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Broker]:
    """A node with both roles, as it has most metrics."""
    path = formatted(tmp_path_factory.mktemp("metrics") / "node")
    with kafkalog.Broker(path, config={**combined(), **HTTP}) as broker:
        used(broker)
        yield broker


def test_the_exporter_exports_exactly_the_table(served: kafkalog.Broker) -> None:
    found = {family.name: family for family in prometheus(page(served))}
    shown = {name.removesuffix("_total") if name.endswith("_total") else name for name in BY_NAME}
    # It has no followers and no share group, and no client sends metrics.
    assert found.keys() == shown - {
        "kafkalog_follower_lag_records", "kafkalog_client_value", "kafkalog_client_count",
        "kafkalog_dead_letters", "kafka_server_sharepartitionmetrics_acquisitionlocktimeout",
        "kafka_server_sharepartitionmetrics_inflightmessagecount",
        "kafka_server_sharepartitionmetrics_inflightbatchcount",
        "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests",
        "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests",
    }  # fmt: skip
    for one in METRICS:
        family = found.get(one.name.removesuffix("_total"))
        if family is None:
            continue
        assert (family.type, family.documentation) == (one.kind.value, one.text)
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} in (set(), {*one.labels}), sample


def test_states_of_logs_keep_their_memory(served: kafkalog.Broker) -> None:
    """Others' memory does not take the place of what was read."""
    found = log_states(node_of(served).manager)
    size = ffi.sizeof("kl_log_state") * len(found)
    others = [ffi.new("uint8_t[]", b"\xff" * size) for _ in range(100)]
    state = found[TopicPartition("orders", 0)]
    assert (state.log_start_offset, state.log_end_offset) == (0, 4), len(others)


def test_the_mapping_has_the_same_values(served: kafkalog.Broker) -> None:
    mine = {_sorted(name) for name in served.metrics()}
    names = {
        _sorted(f"{sample.name}{_labels(sample.labels)}")
        for family in prometheus(page(served))
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
    assert names == mine
    assert {type(value) for value in served.metrics().values()} == {float}


def _sorted(name: str) -> str:
    """A name with its labels in the order of their names."""
    head, _, rest = name.partition("{")
    return f"{head} {sorted(re.findall(LABEL, rest))}"


def _labels(labels: dict[str, str]) -> str:
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


def test_open_metrics_for_those_that_ask(served: kafkalog.Broker) -> None:
    text = page(served, accept=OPEN)
    assert text.endswith("# EOF\n")
    kinds = {family.name: family.type for family in open_metrics(text)}
    assert kinds["kafka_server_brokertopicmetrics_bytesin"] == Kind.COUNTER.value
    assert kinds["kafka_network_requestmetrics_totaltimems"] == Kind.HISTOGRAM.value


def test_records_requests_and_groups_are_counted(served: kafkalog.Broker) -> None:
    found = served.metrics()
    topics = "kafka_server_brokertopicmetrics_"
    assert found[f'{topics}messagesin_total{{topic="orders"}}'] == 4  # the marker counts
    assert found[f"{topics}messagesin_total"] > 3  # the broker's own topics, too
    assert found[f'{topics}bytesin_total{{topic="orders"}}'] > 0
    assert found[f'{topics}bytesout_total{{topic="orders"}}'] > 0
    requests = 'kafka_network_requestmetrics_requests_total{request="Produce"}'
    assert found[requests] >= 1
    assert found['kafka_network_requestmetrics_errors_total{request="EndTxn",error="NONE"}'] == 1
    assert found['kafkalog_group_state{group="g",state="Empty"}'] == 1
    assert found['kafkalog_group_offset{group="g",topic="orders",partition="0"}'] == 1
    assert found['kafkalog_group_lag{group="g",topic="orders",partition="0"}'] == 3
    assert found['kafkalog_group_lag_sum{group="g"}'] == 3
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == 1
    assert found['kafkalog_transactions{state="CompleteCommit"}'] == 1
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert found["kafka_server_raft_metrics_current_leader"] == 1
    assert found['kafkalog_raft_state{state="leader"}'] == 1
    assert found["kafka_server_replicamanager_leadercount"] >= 1
    assert found['kafka_log_log_logendoffset{topic="orders",partition="0"}'] == 4


def test_health(served: kafkalog.Broker) -> None:
    assert json.loads(page(served, "/health/live")) == {"status": "live", "missing": []}
    assert json.loads(page(served, "/health/ready")) == {"status": "ready", "missing": []}
    assert served.metrics()["kafkalog_ready"] == 1


def test_a_node_that_starts_is_live_and_says_that_it_is_not_ready(tmp_path: Path) -> None:
    config = kafkalog.Broker(tmp_path / "x", listeners=())
    config.close()
    one = watch.Watch(type(config.config).of(HTTP), "test")
    try:
        missing = ["the node starts"]
        assert one.missing() == missing
        assert one.readings().flat() == {"kafkalog_ready": 0}

        class Node:
            http_address = one.address

        assert json.loads(page(Node, "/health/live"))["status"] == "live"
        with pytest.raises(urllib.error.HTTPError) as refused:
            page(Node, "/health/ready")
        assert refused.value.code == 503
        assert json.loads(refused.value.read()) == {"status": "not ready", "missing": missing}
    finally:
        one.close()


def test_a_controller_alone(tmp_path: Path) -> None:
    path = formatted(tmp_path / "c", 1)
    with Controller(str(path), {**controller(), **HTTP}) as node:
        wait_for(lambda: json.loads(page(node, "/health/live")), "it answers")
        wait_for(lambda: node.metrics()["kafkalog_ready"] == 1, "it knows the active controller")
        found = {family.name for family in prometheus(page(node))}
        assert "kafka_server_raft_metrics_current_epoch" in found
        assert "kafka_server_socket_server_metrics_connection_count" in found
        assert "kafka_log_log_size" not in found
        active = "kafka_controller_kafkacontroller_activecontrollercount"
        wait_for(lambda: node.metrics()[active] == 1, "it is the active one")
        info = next(name for name in node.metrics() if name.startswith("kafkalog_node_info"))
        assert 'roles="controller"' in info


def test_a_store(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "s", config=HTTP) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"x").result(LIMIT_S)
        sizes = [name for name in store.metrics() if name.startswith("kafka_log_log_size")]
        assert 'kafka_log_log_size{topic="t",partition="0"}' in sizes
    with pytest.raises(Closed):
        store.metrics()


# ---- settings --------------------------------------------------------------------------------


def test_nothing_listens_by_default(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", listeners=()) as broker:
        assert broker.http_address == ""
        assert broker.metrics()["kafkalog_ready"] == 1
    with pytest.raises(Closed):
        broker.metrics()


@pytest.mark.parametrize("text", ["x", "127.0.0.1", "127.0.0.1:65536", "http://h:1", "::1:80"])
def test_another_address_is_refused_before_anything_is_opened(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"kafkalog.http.listen: found '{text}'")):
        kafkalog.Broker(tmp_path / "data", config={"kafkalog.http.listen": text})
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("text", "host"), [
    ("0", "127.0.0.1"), (":0", "127.0.0.1"), ("[::1]:0", "[::1]"), ("localhost:0", "localhost"),
])  # fmt: skip
def test_a_port_alone_is_one_of_this_machine(tmp_path: Path, text: str, host: str) -> None:
    config = {"kafkalog.http.listen": text}
    with kafkalog.Broker(tmp_path / "data", listeners=(), config=config) as broker:
        assert broker.http_address.rpartition(":")[0] == host


def test_serve_says_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kafkalog.Broker(tmp_path / "data", config=HTTP) as broker:
        serve._say("data", broker)
        assert f"metrics and health: http://{broker.http_address}\n" in capsys.readouterr().out


def test_other_machines_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"kafkalog.http.listen": "0.0.0.0:0"}
    with caplog.at_level(logging.WARNING), kafkalog.Broker(tmp_path / "data", config=config):
        pass
    assert "kafkalog.http.listen: 0.0.0.0: everyone who can connect reads" in caplog.text


def test_the_package_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackage, match=re.escape('pip install "kafkalog[metrics]"')):
        kafkalog.Broker(tmp_path / "data", config=HTTP)
    with kafkalog.Broker(tmp_path / "data", listeners=()) as broker:
        assert broker.metrics()


# ---- what it meets ---------------------------------------------------------------------------


def test_a_restart_serves_again_and_counts_from_zero(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", config=HTTP) as broker:
        used(broker)
        name = 'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'
        assert broker.metrics()[name] == 4
        old = broker.http_address
        broker.restart(HTTP)
        assert broker.metrics().get(name, 0) == 0
        wait_for(lambda: "kafkalog_ready 1.0" in page(broker), "its groups are read")
        assert json.loads(page(broker, "/health/ready"))["status"] == "ready"
        if broker.http_address != old:
            with pytest.raises(OSError):
                urllib.request.urlopen(f"http://{old}/metrics", timeout=LIMIT_S)
        broker.restart({})
        assert broker.http_address == ""


def test_http_is_plain_text_next_to_tls(tmp_path: Path) -> None:
    keys = Certificates(tmp_path).settings()
    config = {**HTTP, "listeners": "SSL://127.0.0.1:0", **keys}
    with kafkalog.Broker(tmp_path / "data", config=config) as broker:
        assert "kafkalog_ready 1.0" in page(broker)


def test_scrapes_during_a_shutdown_end(tmp_path: Path) -> None:
    broker = kafkalog.Broker(tmp_path / "data", config=HTTP)
    place, done = broker.http_address, threading.Event()
    seen: list[int] = []

    class Node:
        http_address = place

    def scrape() -> None:
        while not done.is_set():
            try:
                page(Node)
                seen.append(200)
            except urllib.error.HTTPError as problem:
                seen.append(problem.code)
            except OSError:
                if done.is_set():
                    return

    threads = [threading.Thread(target=scrape) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(seen) > 5, "it is scraped")
    broker.close()
    done.set()
    for thread in threads:
        thread.join()
    assert set(seen) <= {200, 503}
    broker.close()


def test_an_abandoned_broker_frees_the_port(tmp_path: Path) -> None:
    broker = kafkalog.Broker(tmp_path / "data", config=HTTP)
    place = broker.http_address
    broker.abandon()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{place}/metrics", timeout=LIMIT_S)


# ---- bounds ----------------------------------------------------------------------------------


def test_labels_are_bounded_and_the_rest_is_summed(tmp_path: Path) -> None:
    config = {
        "kafkalog.metrics.max.topics": 2, "kafkalog.metrics.max.partitions": 3,
        "kafkalog.metrics.max.groups": 1,
    }  # fmt: skip
    with kafkalog.Store(tmp_path / "s", config=config) as store:
        for name in ("a", "b", "c", "d"):
            store.create_topic(name, 2)
            with store.producer() as producer:
                for partition in (0, 1):
                    producer.send(name, b"x", partition=partition).result(LIMIT_S)
        for group in ("g", "h"):
            with store.consumer(group=group) as consumer:
                consumer.assign([TopicPartition("a", 0), TopicPartition("a", 1)])
                consumer.commit({TopicPartition("a", 0): 1, TopicPartition("a", 1): 0})
        found = store.metrics()
        bytes_in = {
            name: value for name, value in found.items()
            if name.startswith("kafka_server_brokertopicmetrics_messagesin_total")
        }  # fmt: skip
        total = bytes_in.pop("kafka_server_brokertopicmetrics_messagesin_total")
        assert len(bytes_in) == 3
        assert sum(bytes_in.values()) == total
        assert any(OTHERS in name for name in bytes_in)
        sizes = {n: v for n, v in found.items() if n.startswith("kafka_log_log_size")}
        assert len(sizes) == 4
        assert sum(sizes.values()) == found["kafkalog_log_bytes"]
        groups = [name for name in found if name.startswith("kafkalog_group_members")]
        assert len(groups) == 1
        lags = [name for name in found if name.startswith("kafkalog_group_lag{")]
        assert len(lags) == 2
        assert found["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 2
        assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 4


def test_a_group_beyond_the_committed_offsets_shown_has_none(tmp_path: Path) -> None:
    config = {"kafkalog.metrics.max.partitions": 1}
    with kafkalog.Store(tmp_path / "s", config=config) as store:
        store.create_topic("a", 2)
        with store.consumer(group="g") as consumer:
            consumer.assign([TopicPartition("a", 0), TopicPartition("a", 1)])
            consumer.commit({TopicPartition("a", 0): 0, TopicPartition("a", 1): 0})
        found = store.metrics()
        assert found['kafkalog_group_members{group="g"}'] == 0
        assert [name for name in found if name.startswith("kafkalog_group_offset")] == []


def test_a_label_stays_for_as_long_as_its_name() -> None:
    labels = Labels[str](2)
    assert labels.shown(["b", "c", "d"]) == {"b", "c"}
    assert labels.shown(["a", "b", "c", "d"]) == {"b", "c"}
    assert labels.shown(["a", "c", "d"]) == {"c"}  # the sum of the others loses no part
    assert labels.shown(["a", "c", "d", "e"]) == {"c", "e"}
    assert labels.shown([]) == set()
    assert Labels[str](0).shown(["a"]) == set()


# ---- the metadata ----------------------------------------------------------------------------

MINE = 1
ID = UUID(int=7)


def part(number: int, **fields: Any) -> Partition:
    made = Partition(number, (1, 2, 3), (1, 2, 3), 1, 5, 0)
    return made._replace(**fields)


def image(*partitions: Partition) -> MetadataImage:
    topic = Topic("t", ID, {one.partition: one for one in partitions})
    return empty_image("c", MINE)._replace(topics={"t": topic}, names={ID: "t"})


def test_partitions_are_counted_once_for_each_state_of_the_metadata() -> None:
    asked: list[str] = []

    def min_isr(topic: str) -> int:
        asked.append(topic)
        return 2

    counts = cluster.ImageCounts(min_isr)
    many = image(
        part(0), part(1, isr=(1, 2)), part(2, isr=(1,)), part(3, leader=2), part(4, leader=-1),
        part(5, adding_replicas=(4,)), part(6, replicas=(2, 3), leader=2),
        *(part(number) for number in range(7, 10_000)),
    )  # fmt: skip
    for _ in range(2):
        readings = Readings(METRICS)
        counts.read(readings, many, MINE)
    assert asked == ["t"]
    found = readings.flat()
    wanted = {
        "kafka_controller_kafkacontroller_globalpartitioncount": 10_000,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 1,
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 2,
        "kafka_server_replicamanager_leadercount": 9_997,
        "kafka_server_replicamanager_partitioncount": 9_999,
        "kafka_server_replicamanager_underreplicatedpartitions": 2,
        "kafka_server_replicamanager_underminisrpartitioncount": 1,
        "kafka_server_replicamanager_atminisrpartitioncount": 1,
        "kafka_server_replicamanager_reassigningpartitions": 1,
    }
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(("new", "wanted"), [
    (part(0), (0, 0, 0, 0)),
    (part(0, leader=2, leader_epoch=6), (1, 0, 0, 0)),
    (part(0, leader=3, leader_epoch=6, isr=(3,)), (1, 0, 0, 0)),
    (part(0, leader=4, leader_epoch=6, isr=(4,)), (1, 1, 0, 0)),
    (part(0, leader=-1, leader_epoch=6), (0, 0, 0, 0)),
    (part(0, isr=(1, 2)), (0, 0, 1, 0)),
    (part(0, isr=(1, 2, 3, 4)), (0, 0, 0, 1)),
    (part(0, leader=2, isr=(1, 2)), (0, 0, 0, 0)),
])  # fmt: skip
def test_elections_and_isrs(new: Partition, wanted: tuple[int, ...]) -> None:
    old, after = image(part(0)), image(new)
    elections = cluster.Elections(MINE)
    elections.changed(Change(old, after, (after.topics["t"],), (), ()))
    elections.changed(Change(empty_image("c", MINE), after, (after.topics["t"],), (), ()))
    readings = Readings(METRICS)
    elections.read(readings)
    assert tuple(readings.flat().values()) == (
        wanted[2], wanted[3], wanted[0], wanted[1],
    )  # fmt: skip


def test_the_lag_of_followers(tmp_path: Path) -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    with (
        kafkalog.Log(tmp_path / "t-0") as first, kafkalog.Log(tmp_path / "t-1") as second,
        Server() as server,
    ):  # fmt: skip
        logs = {zero: first, one: second}
        server.reactor.put_topic("t", None)
        led = LedPartitions(threading.RLock(), logs, server.reactor, dict)
        for tp, log in logs.items():
            server.reactor.put_partition(handle_of(log), leader_epoch=0, durable=False)
            led.lead(tp, Isr(1, 0, 0, (1, 2, 3), (1, 2, 3)))
        first.append_many([b"x"] * 5)

        def lags() -> dict[str, float]:
            readings = Readings(METRICS)
            states = {tp: handle_of(log).state() for tp, log in logs.items()}
            cluster.read_followers(readings, server.reactor, led, states)
            return readings.flat()

        lag = "kafkalog_follower_lag_records"
        assert lags() == {f'{lag}{{broker="2"}}': 5, f'{lag}{{broker="3"}}': 5}
        led.remove(zero)
        assert lags() == {f'{lag}{{broker="2"}}': 0, f'{lag}{{broker="3"}}': 0}
        led.remove(one)
        assert lags() == {}


def test_error_codes_of_python_are_counted_wherever_they_are() -> None:
    counts = ErrorCounts()
    partitions = [{"partition_index": 0, "error_code": 3}, {"partition_index": 1, "error_code": 0}]
    counts.add(apis.OFFSET_COMMIT, {"topics": [{"name": "t", "partitions": partitions}]})
    counts.add(apis.HEARTBEAT, {"error_code": 27})
    counts.add(apis.LIST_GROUPS, {"error_code": 0, "groups": []})
    assert counts.counts() == {
        "OffsetCommit": {3: 1, 0: 1}, "Heartbeat": {27: 1}, "ListGroups": {0: 1},
    }  # fmt: skip


def test_the_coordinators_of_a_broker_that_ends_are_left_out(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", listeners=()) as broker:
        look: Callable[[], dict[str, float]] = broker.metrics
        assert "kafkalog_group_coordinator_bytes" in look()
        node_of(broker).coordinator.close()
        node_of(broker).transactions.close()
        found = look()
        assert "kafkalog_group_coordinator_bytes" not in found
        assert "kafkalog_transaction_open_seconds" not in found
