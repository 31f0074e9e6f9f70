"""The dashboard and the alarms ask for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kafkalog.coordinator.groups.group import State
from kafkalog.metrics import alarms, dashboard
from kafkalog.metrics.alarms import ALARMS
from kafkalog.metrics.metric import Kind
from kafkalog.metrics.table import BY_NAME
from kafkalog.server.request import KNOWN
from kafkalog.wire.error_codes import ErrorCode
from tests.house import tree
from tests.support.promql import ON_COUNTERS, BadQuery, Selection, parse

TARGET = {"job", "instance"}
"""Labels that Prometheus gives to each series."""
UP = "up"
"""Prometheus's own metric."""


def problems(query: str) -> list[str]:
    """The ways in which a query does not fit the table of metrics."""
    return [f"{one.name}: {said}" for one in parse(query) for said in _wrong(one)]


def _wrong(one: Selection) -> list[str]:
    if one.name == UP:
        return []
    part = re.fullmatch(r"(.*)_(bucket|sum|count)", one.name)
    metric = BY_NAME.get(one.name) or (BY_NAME.get(part[1]) if part else None)
    if metric is None or (metric.kind is Kind.HISTOGRAM) == (metric.name == one.name):
        return ["no such series"]
    labels = {*metric.labels, *TARGET} | ({"le"} if one.name.endswith("_bucket") else set())
    named = {label for label, _, _ in one.matchers} | one.grouped
    found = [f"no label {label}" for label in sorted(named - labels)]
    counts = metric.kind is not Kind.GAUGE
    if one.function and counts != (one.function in ON_COUNTERS):
        found.append(f"{one.function} of a {metric.kind.value}")
    if metric.labels == ("topic",) and "topic" not in {label for label, _, _ in one.matchers}:
        found.append("counts the sum of all topics twice")
    for label, _, value in one.matchers if not found else ():
        found += [f"no {label} {word}" for word in value.split("|")
                  if not _exists(label, word, metric.name)]  # fmt: skip
    return found


def _exists(label: str, value: str, metric: str) -> bool:
    if label in TARGET or not value:
        return True
    if label == "error":
        return value in ErrorCode.__members__
    if label == "request":
        return value in {api.name for api in KNOWN.values()}
    if label == "threads":
        return value in ("network", "io")
    if metric == "kafkalog_group_state":
        return value in {one.value for one in State}
    return re.search(rf"\b{re.escape(value)}\b", BY_NAME[metric].text) is not None


def test_each_query_of_the_dashboard_fits_the_table() -> None:
    asked = dashboard.queries()
    assert len(asked) > 50
    assert [said for query in asked for said in problems(query)] == []


def test_each_query_of_an_alarm_fits_the_table() -> None:
    assert len({one.name for one in ALARMS}) == len(ALARMS) > 20
    assert [said for one in ALARMS for said in problems(one.expression)] == []


def test_alarms_ask_for_our_job_only() -> None:
    """Apache Kafka's exporter uses some of the names."""
    ours = ("job", "=", "kafkalog")
    assert [one.name for one in ALARMS if any(ours not in each.matchers
            for each in parse(one.expression))] == []  # fmt: skip


@pytest.mark.parametrize("query", [
    "kafkalog_no_such", "kafkalog_ready{topic=\"t\"}", "sum by (topic) (kafkalog_ready)",
    "rate(kafkalog_ready[5m])", "deriv(kafkalog_cold_reads_total[5m])",
    "rate(kafka_network_requestmetrics_totaltimems[5m])",
    'kafkalog_thread_seconds_total{threads="none"}',
    'kafka_network_requestmetrics_errors_total{error="NO_SUCH"}',
    'kafka_network_requestmetrics_requests_total{request="NoSuch"}',
    "sum(rate(kafka_server_brokertopicmetrics_bytesin_total[5m]))",
    'kafkalog_group_state{state="Asleep"}',
])  # fmt: skip
def test_a_query_of_something_else_is_found(query: str) -> None:
    assert len(problems(query)) == 1


@pytest.mark.parametrize("query", [
    "rate(up)", "up[5m]", "sum(up", "up == ", "no_such_function(up)", "up{job=kafkalog}", "up; up",
    "rate(up[5])", "up{job=\"a\" instance=\"b\"}", "up up",
])  # fmt: skip
def test_no_promql_is_refused(query: str) -> None:
    with pytest.raises(BadQuery):
        parse(query)


def test_the_dashboard_is_one_of_grafana() -> None:
    board = json.loads(dashboard.render_dashboard())
    panels = [one for one in board["panels"] if one["type"] != "row"]
    assert [one["id"] for one in board["panels"]] == [*range(1, len(board["panels"]) + 1)]
    assert len({one["title"] for one in panels}) == len(panels) > 25
    places = {(x, y) for one in panels for at in [one["gridPos"]]
              for x in range(at["x"], at["x"] + at["w"])
              for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
    assert len(places) == sum(one["gridPos"]["w"] * one["gridPos"]["h"] for one in panels)
    legends = [(target["legendFormat"], target["expr"]) for one in panels
               for target in one["targets"]]  # fmt: skip
    for legend, query in legends:
        shown = {*re.findall(r"{{(\w+)}}", legend)}
        for one in parse(query):
            known = one.grouped if "by (" in query else {*BY_NAME[one.name].labels, *TARGET} if (
                one.name in BY_NAME) else TARGET  # fmt: skip
            assert shown <= known, (legend, query)


# ---- Prometheus's own tool -------------------------------------------------------------------

RULES = tree.ROOT / "docs" / "deploy" / "alerts.yml"
FLUSHES = "kafka_log_logflushstats_logflushrateandtimems_bucket"
ERRORS = "kafka_network_requestmetrics_errors_total"

FIRES: dict[str, dict[str, str]] = {
    "KafkalogDown": {"up": "0x100"},
    "KafkalogNotReady": {"kafkalog_ready": "0x100"},
    "KafkalogRestarts": {"kafkalog_start_time_seconds": "1x80 2x5 3x5 4x9"},
    "KafkalogOutOfDescriptors": {"kafkalog_accept_pauses_total": "0x95 3x5"},
    "KafkalogReplicasOffline": {"kafka_server_replicamanager_offlinereplicacount": "1x100"},
    "KafkalogDiskAlmostFull": {"kafkalog_disk_free_bytes": "2000000000x100"},
    "KafkalogDiskFillsUp": {"kafkalog_disk_free_bytes": "100000000000-100000000x100"},
    "KafkalogJobsFail": {"kafkalog_background_failures": "1x100"},
    "KafkalogSyncsSlow": {f'{FLUSHES}{{le="100"}}': "0+9x100",
                          f'{FLUSHES}{{le="1000"}}': "0+10x100",
                          f'{FLUSHES}{{le="+Inf"}}': "0+10x100"},
    "KafkalogStorageErrors": {f'{ERRORS}{{request="Produce",error="KAFKA_STORAGE_ERROR"}}':
                              "0+1x100"},
    "KafkalogPartitionsWithoutLeader":
        {"kafka_controller_kafkacontroller_offlinepartitionscount": "2x100"},
    "KafkalogUnderMinIsr": {"kafka_server_replicamanager_underminisrpartitioncount": "1x100"},
    "KafkalogUnderReplicated":
        {"kafka_server_replicamanager_underreplicatedpartitions": "1x100"},
    "KafkalogUncleanElection":
        {"kafka_controller_controllerstats_uncleanleaderelections_total": "0x95 1x5"},
    "KafkalogBrokersFenced": {"kafka_controller_kafkacontroller_fencedbrokercount": "1x100"},
    "KafkalogQuorumWithoutLeader": {"kafka_server_raft_metrics_current_leader": "-1x100"},
    "KafkalogQuorumElections": {"kafka_server_raft_metrics_current_epoch": "1x90 2+1x10"},
    "KafkalogNetworkThreadsBusy": {'kafkalog_thread_idle_seconds_total{threads="network"}':
                                   "0+10x100",
                                   'kafkalog_thread_seconds_total{threads="network"}': "0+60x100"},
    "KafkalogIoThreadsBusy": {'kafkalog_thread_idle_seconds_total{threads="io"}': "0+10x100",
                              'kafkalog_thread_seconds_total{threads="io"}': "0+60x100"},
    "KafkalogRequestQueueFull": {"kafkalog_request_queue_full_total": "0+1x100"},
    "KafkalogUnknownServerErrors": {f'{ERRORS}{{request="Fetch",error="UNKNOWN_SERVER_ERROR"}}':
                                    "_x95 1x5"},
    "KafkalogAuthenticationFails":
        {'kafka_server_socket_server_metrics_failed_authentication_total{listener="X"}':
         "0+6x100"},
    "KafkalogCoordinatorFailed":
        {'kafkalog_transaction_coordinator_partitions{state="failed"}': "1x100"},
    "KafkalogGroupRebalances":
        {'kafkalog_group_state{group="g",state="PreparingRebalance"}': "1x100"},
    "KafkalogLagGrows": {'kafkalog_group_lag_sum{group="g"}': "0+1000x100"},
    "KafkalogGroupsTakeMemory": {"kafkalog_group_coordinator_bytes": "900000000x100"},
    "KafkalogTransactionOpen": {"kafkalog_transaction_open_seconds": "1260x100"},
}  # fmt: skip
"""Series of 100 minutes, at whose end the alarm fires."""

WELL: dict[str, str] = {
    "up": "1x100",
    "kafkalog_ready": "1x100",
    "kafkalog_start_time_seconds": "1x90 2x10",
    "kafkalog_accept_pauses_total": "7x100",
    "kafka_server_replicamanager_offlinereplicacount": "0x100",
    "kafkalog_disk_free_bytes": "100000000000-1000x100",
    "kafkalog_background_failures": "0x95 1x5",
    f'{FLUSHES}{{le="100"}}': "0+10x100",
    f'{FLUSHES}{{le="1000"}}': "0+10x100",
    f'{FLUSHES}{{le="+Inf"}}': "0+10x100",
    f'{ERRORS}{{request="Produce",error="NONE"}}': "0+9x100",
    f'{ERRORS}{{request="Fetch",error="UNKNOWN_SERVER_ERROR"}}': "3x100",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "0x100",
    "kafka_server_replicamanager_underminisrpartitioncount": "0x100",
    "kafka_server_replicamanager_underreplicatedpartitions": "0x95 4x5",
    "kafka_controller_controllerstats_uncleanleaderelections_total": "1x100",
    "kafka_controller_kafkacontroller_fencedbrokercount": "0x95 1x5",
    "kafka_server_raft_metrics_current_leader": "1x100",
    "kafka_server_raft_metrics_current_epoch": "4x90 5x10",
    'kafkalog_thread_idle_seconds_total{threads="network"}': "5x100",
    'kafkalog_thread_seconds_total{threads="network"}': "60x100",
    'kafkalog_thread_idle_seconds_total{threads="io"}': "0+50x100",
    'kafkalog_thread_seconds_total{threads="io"}': "0+60x100",
    "kafkalog_request_queue_full_total": "5x100",
    'kafka_server_socket_server_metrics_failed_authentication_total{listener="X"}': "0+1x100",
    'kafka_server_group_coordinator_metrics_num_partitions{state="failed"}': "0x100",
    'kafkalog_group_state{group="g",state="Stable"}': "1x100",
    'kafkalog_group_lag_sum{group="g"}': "50000-100x100",
    "kafkalog_group_coordinator_bytes": "5000x100",
    "kafkalog_transaction_open_seconds": "800x100",
}
"""Series of a node with nothing to complain about; some have short or old troubles."""


def _series(values: dict[str, str], job: str, instance: str) -> list[dict[str, str]]:
    found = []
    for name, text in values.items():
        bare, _, labels = name.rstrip("}").partition("{")
        both = ",".join(filter(None, (f'job="{job}",instance="{instance}"', labels)))
        found.append({"series": f"{bare}{{{both}}}", "values": text})
    return found


def _case(series: list[dict[str, str]], firing: list[str]) -> dict[str, object]:
    """`firing`: labels."""
    query = 'count by (alertname, instance) (ALERTS{alertstate="firing"})'
    samples = [{"labels": labels, "value": 1} for labels in firing]
    return {"interval": "1m", "input_series": series, "promql_expr_test": [
        {"expr": query, "eval_time": "98m", "exp_samples": samples}]}  # fmt: skip


promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on this machine"
)


def _ran(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alarm_has_series_that_raise_it() -> None:
    assert [*FIRES] == [one.name for one in ALARMS]


@promtool
def test_prometheus_takes_the_rules() -> None:
    _ran("check", "rules", RULES)


@promtool
def test_each_alarm_fires_and_none_at_a_node_that_is_well(tmp_path: Path) -> None:
    """The trouble of each alarm has a node of its own, at which only this alarm fires; and nothing
    fires for Apache Kafka, whose exporter has some of the names."""
    well = _series(WELL, "kafkalog", "well")
    troubles, firing = [], []
    for one in ALARMS:
        well += _series(FIRES[one.name], "kafka", one.name)
        troubles += _series(FIRES[one.name], "kafkalog", one.name)
        of_all = "by (job" in one.expression and "instance" not in one.expression
        where = "" if of_all else f',instance="{one.name}"'
        firing.append(f'{{alertname="{one.name}"{where}}}')
    test = tmp_path / "rules.yml"  # JSON is YAML
    test.write_text(json.dumps({
        "rule_files": [str(RULES)], "evaluation_interval": "1m",
        "tests": [_case(well, []), _case(troubles, firing)],
    }))  # fmt: skip
    _ran("test", "rules", test)


def test_rules_have_all_alarms_in_plain_text() -> None:
    text = alarms.render_rules()
    assert re.findall(r"- alert: (\w+)", text) == [one.name for one in ALARMS]
    assert "@" not in text and "`" not in text.partition("groups:")[2]
