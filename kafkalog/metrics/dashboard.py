"""The dashboard of Grafana: docs/deploy/dashboard.json is made from this table."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

__all__ = ["ROWS", "Panel", "queries", "render_dashboard"]

SELECTED = 'job=~"$job",instance=~"$instance"'
"""Chosen at the top of the dashboard; `@` stands for it in the table."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, IN_A_ROW = 8, 8, 3
"""The size of a panel, in Grafana's units; a row of panels is 24 wide."""
_REQUESTS = "kafka_network_requestmetrics"
_TOPICS = "kafka_server_brokertopicmetrics"
_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_RATE = "[$__rate_interval]"


class Panel(NamedTuple):
    """One graph."""

    title: str
    unit: str
    """As Grafana names it."""
    series: tuple[tuple[str, str], ...]
    """Queries in PromQL, in which `@` stands for SELECTED, and their legends."""
    text: str = ""
    """Shown when the pointer is at the title's corner."""


def _by_topic(title: str, unit: str, name: str) -> Panel:
    query = f'sum by (topic) (rate({_TOPICS}_{name}_total{{@,topic!=""}}{_RATE}))'
    return Panel(title, unit, ((query, "{{topic}}"),))


def _quantile(share: str, name: str, labels: str, more: str = "") -> str:
    return (f"histogram_quantile({share}, sum by ({labels}, le) "
            f"(rate({name}_bucket{{@{more}}}{_RATE})))")  # fmt: skip


def _phases(request: str) -> Panel:
    phases = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
    chosen = f'@,request="{request}"'
    return Panel(f"{request} by phase, mean", "ms", tuple(
        (f"sum(rate({_REQUESTS}_{one}timems_sum{{{chosen}}}{_RATE})) / "
         f"sum(rate({_REQUESTS}_{one}timems_count{{{chosen}}}{_RATE}))", one) for one in phases
    ), "Queue: too few threads. Local: the disk. Remote: followers, syncs; of Fetch, new records "
       "are waited for. Response: slow clients.")  # fmt: skip


def _idle(threads: str) -> tuple[str, str]:
    chosen = f'@,threads="{threads}"'
    return (f"rate(kafkalog_thread_idle_seconds_total{{{chosen}}}{_RATE}) / "
            f"rate(kafkalog_thread_seconds_total{{{chosen}}}{_RATE})",
            f"{{{{instance}}}} {threads}")  # fmt: skip


def _each(title: str, unit: str, query: str, text: str = "", legend: str = "{{instance}}") -> Panel:
    return Panel(title, unit, ((query, legend),), text)


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("State", (
        _each("Ready", "short", "kafkalog_ready{@}", "/health/ready names what is missing."),
        Panel("Partitions in trouble", "short", (
            (f"max({_CONTROLLER}_offlinepartitionscount{{@}})", "no leader"),
            (f"sum({_REPLICAS}_underminisrpartitioncount{{@}})", "under min ISR"),
            (f"sum({_REPLICAS}_underreplicatedpartitions{{@}})", "under-replicated"),
            (f"sum({_REPLICAS}_offlinereplicacount{{@}})", "replicas offline"),
            (f"sum({_REPLICAS}_reassigningpartitions{{@}})", "being moved"),
        ), "All but the last should be 0."),
        Panel("Brokers", "short", (
            (f"max({_CONTROLLER}_activebrokercount{{@}})", "up"),
            (f"max({_CONTROLLER}_fencedbrokercount{{@}})", "fenced"),
            (f"sum({_CONTROLLER}_activecontrollercount{{@}})", "active controllers"),
        ), "A cluster has one active controller."),
    )),
    ("Topics", (
        _by_topic("Records in", "cps", "messagesin"),
        _by_topic("Bytes in", "Bps", "bytesin"),
        _by_topic("Bytes out", "Bps", "bytesout"),
    )),
    ("Requests", (
        _each("Requests", "reqps",
              f"sum by (request) (rate({_REQUESTS}_requests_total{{@}}{_RATE}))",
              "", "{{request}}"),
        _each("Errors", "reqps", "sum by (request, error) "
              f'(rate({_REQUESTS}_errors_total{{@,error!="NONE"}}{_RATE}))',
              "Some belong to every day's work, such as MEMBER_ID_REQUIRED and leaders that "
              "moved.", "{{request}} {{error}}"),
        _each("Total time, 99 %", "ms",
              _quantile("0.99", f"{_REQUESTS}_totaltimems", "request"),
              "Fetch waits for records up to fetch.max.wait.ms.", "{{request}}"),
        _phases("Produce"),
        _phases("Fetch"),
        Panel("Idle share of threads", "percentunit", (_idle("network"), _idle("io")),
              "Below 0.3: more num.network.threads or num.io.threads."),
        Panel("Request queue", "short", (
            ("kafka_network_requestchannel_requestqueuesize{@}", "{{instance}} waiting"),
            (f"rate(kafkalog_request_queue_full_total{{@}}{_RATE})", "{{instance}} full per s"),
        )),
        _each("Waiting Produce and Fetch", "short",
              "sum by (delayedOperation) "
              "(kafka_server_delayedoperationpurgatory_purgatorysize{@})",
              "", "{{delayedOperation}}"),
        _each("Throttled", "s", f"rate(kafkalog_throttled_seconds_total{{@}}{_RATE})",
              "Seconds of waiting for quotas per second."),
    )),
    ("Connections", (
        _each("Connections", "short", "sum by (instance, listener) "
              "(kafka_server_socket_server_metrics_connection_count{@})",
              "", "{{instance}} {{listener}}"),
        Panel("Accepted and refused", "cps", (
            (f"sum(rate(kafkalog_connections_accepted_total{{@}}{_RATE}))", "accepted"),
            (f"sum by (reason) (rate(kafkalog_connections_refused_total{{@}}{_RATE}))",
             "refused: {{reason}}"),
            (f"sum by (reason) (rate(kafkalog_connections_closed_total{{@}}{_RATE}))",
             "closed: {{reason}}"),
            (f"sum(rate(kafkalog_accept_pauses_total{{@}}{_RATE}))", "no descriptor"),
        )),
        Panel("Logins and handshakes that fail", "cps", (
            ("sum by (listener) (rate(kafka_server_socket_server_metrics_"
             f"failed_authentication_total{{@}}{_RATE}))", "login: {{listener}}"),
            (f'sum(rate(kafkalog_tls_handshakes_total{{@,result="failed"}}{_RATE}))', "TLS"),
        )),
        _each("Network", "Bps",
              f"sum by (direction) (rate(kafkalog_network_bytes_total{{@}}{_RATE}))",
              "", "{{direction}}"),
        _each("Memory of requests and answers", "bytes", "kafkalog_network_buffer_bytes{@}"),
        Panel("Fetch sessions", "short", (
            ("sum(kafka_server_fetchsessioncache_numincrementalfetchsessions{@})", "sessions"),
            ("sum(rate(kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total{@}"
             f"{_RATE}))", "evicted per s"),
        )),
    )),
    ("Disks", (
        _each("Free space", "bytes", "kafkalog_disk_free_bytes{@}"),
        _each("Size of open logs", "bytes",
              "topk(20, sum by (topic) (kafka_log_log_size{@}))", "The largest 20 topics.",
              "{{topic}}"),
        Panel("Time of syncs", "ms", tuple(
            (_quantile(share, "kafka_log_logflushstats_logflushrateandtimems", "instance"),
             f"{{{{instance}}}} {name}") for share, name in (("0.5", "median"), ("0.99", "99 %"))
        )),
        Panel("Logs", "short", (
            ("sum(kafkalog_partitions{@})", "partitions"), ("sum(kafkalog_logs_open{@})", "open"),
            ("sum(kafkalog_logs_offline{@})", "offline"),
        )),
        _each("Reads from the disk", "cps", f"rate(kafkalog_cold_reads_total{{@}}{_RATE})",
              "Consumers read old records."),
        _each("Failing jobs and ignored files", "short", "kafkalog_background_failures{@}"),
    )),
    ("Replication and controllers", (
        _each("Lag of followers", "short", "max by (broker) (kafkalog_follower_lag_records{@})",
              "Records that the follower lacks of the partition where it lacks most.",
              "{{broker}}"),
        Panel("ISR changes", "cps", (
            (f"sum(rate({_REPLICAS}_isrshrinks_total{{@}}{_RATE}))", "left"),
            (f"sum(rate({_REPLICAS}_isrexpands_total{{@}}{_RATE}))", "joined"),
        )),
        Panel("Replication", "Bps", (
            (f"rate({_TOPICS}_replicationbytesin_total{{@}}{_RATE})", "{{instance}} in"),
            (f"rate({_TOPICS}_replicationbytesout_total{{@}}{_RATE})", "{{instance}} out"),
        )),
        _each("Leaders", "short", f"{_REPLICAS}_leadercount{{@}}",
              "Uneven: kafkalog cluster elect."),
        Panel("Quorum", "short", (
            ("kafka_server_raft_metrics_current_epoch{@}", "{{instance}} epoch"),
            ("kafka_server_raft_metrics_current_leader{@}", "{{instance}} leader"),
        )),
        _each("Metadata not committed", "short", "kafka_server_raft_metrics_log_end_offset{@} - "
              "kafka_server_raft_metrics_high_watermark{@}"),
    )),
    ("Groups and transactions", (
        _each("Lag", "short", "topk(20, sum by (group) (kafkalog_group_lag_sum{@}))",
              "The largest 20 groups.", "{{group}}"),
        _each("Members", "short", "topk(20, sum by (group) (kafkalog_group_members{@}))", "",
              "{{group}}"),
        Panel("Transactions", "short", (
            ("sum by (state) (kafkalog_transactions{@})", "{{state}}"),
            ("max(kafkalog_transaction_open_seconds{@})", "age of the oldest open one, s"),
        )),
    )),
)  # fmt: skip


def queries() -> list[str]:
    """All queries, as Grafana sends them but for its variables."""
    return [query.replace("@", SELECTED)
            for _, panels in ROWS for one in panels for query, _ in one.series]  # fmt: skip


def render_dashboard() -> str:
    """docs/deploy/dashboard.json."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        at = {"h": 1, "w": WIDTH * IN_A_ROW, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False,
                       "gridPos": at, "panels": []})  # fmt: skip
        y += 1
        for place, one in enumerate(row):
            x = place % IN_A_ROW * WIDTH
            panels.append(_panel(one, len(panels) + 1, x, y + place // IN_A_ROW * HEIGHT))
        y += -(-len(row) // IN_A_ROW) * HEIGHT
    board = {
        "title": "kafkalog", "uid": "kafkalog", "tags": ["kafkalog"], "schemaVersion": 39,
        "editable": True, "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser", "annotations": {"list": []},
        "templating": {"list": _variables()}, "panels": panels,
    }  # fmt: skip
    return json.dumps(board, indent=1) + "\n"


def _panel(one: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    targets = [{"refId": chr(ord("A") + at), "datasource": DATASOURCE, "legendFormat": legend,
                "expr": query.replace("@", SELECTED)}
               for at, (query, legend) in enumerate(one.series)]  # fmt: skip
    return {
        "id": number, "type": "timeseries", "title": one.title, "description": one.text,
        "datasource": DATASOURCE, "targets": targets,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": one.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
    }  # fmt: skip


def _variables() -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = [{"name": "datasource", "type": "datasource",
                                     "query": "prometheus", "label": "Prometheus"}]  # fmt: skip
    for name, query in (
        ("job", "label_values(kafkalog_node_info, job)"),
        ("instance", 'label_values(kafkalog_node_info{job=~"$job"}, instance)'),
    ):
        chosen.append({
            "name": name, "type": "query", "datasource": DATASOURCE, "query": query,
            "definition": query, "refresh": 2, "includeAll": True, "multi": True, "sort": 1,
            "current": {"text": ["All"], "value": ["$__all"]},
        })  # fmt: skip
    return chosen
