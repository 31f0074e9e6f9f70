"""The metrics of Kafka that two well-known dashboards ask for, and how they find them here.

Both are made for names that Prometheus's JMX exporter gives, each with rules of its own.  Most are
here; some are recorded from others by rules of Prometheus (docs/deploy/names.yml).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalog.metrics.table import BY_NAME

__all__ = ["DASHBOARDS", "Asked", "Dashboard", "recorded", "render_dashboards", "render_names"]

JOB = '{job="kafkalog"}'
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
PHASES = ("total", "requestqueue", "local", "remote", "responsequeue", "responsesend")


class Asked(NamedTuple):
    """A name that a dashboard asks for."""

    name: str
    labels: tuple[str, ...] = ()
    """Those that its queries use, besides the labels of targets."""
    rule: str = ""
    """The query that records it; empty: the name is here, or there is none."""
    why: str = ""
    """Why there is none."""


class Dashboard(NamedTuple):
    """A dashboard."""

    title: str
    asked: tuple[Asked, ...]


def _here(names: str, *labels: str) -> tuple[Asked, ...]:
    return tuple(Asked(name, labels) for name in names.split())


def _rule(name: str, ours: str, *labels: str) -> Asked:
    return Asked(name, labels, ours + JOB)


def _none(names: str, why: str) -> tuple[Asked, ...]:
    return tuple(Asked(name, (), "", why) for name in names.split())


_SERVER = "kafka_server_"
_TOPICS = f"{_SERVER}brokertopicmetrics_"
_REPLICAS = f"{_SERVER}replicamanager_"
_COUNTS = f"{_REPLICAS}leadercount {_REPLICAS}partitioncount {_REPLICAS}underreplicatedpartitions"
_SOCKETS = f"{_SERVER}socketservermetrics_"
_COORDINATOR = "kafka_coordinator_group_groupmetadatamanager_numgroups"
_CONVERSIONS = "No message format is converted."
_DISK = "The system has it: node_exporter's node_disk_*."
_STRAY = "A folder of an earlier topic of that name is renamed and kept, and the log says so."
_TIERED = "There is no tiered storage."

_STRIMZI = Dashboard("Strimzi's *Strimzi Kafka* (August 2026)", (
    *_here("kafka_controller_controllerstats_uncleanleaderelections_total "
           "kafka_controller_kafkacontroller_activecontrollercount "
           "kafka_controller_kafkacontroller_offlinepartitionscount"),
    *_here("kafka_log_log_size", "topic", "partition"),
    *_here(f"{_TOPICS}bytesin_total {_TOPICS}bytesout_total {_TOPICS}messagesin_total "
           f"{_TOPICS}failedfetchrequests_total {_TOPICS}failedproducerequests_total "
           f"{_TOPICS}totalfetchrequests_total {_TOPICS}totalproducerequests_total", "topic"),
    *_here(f"{_SERVER}kafkarequesthandlerpool_requesthandleravgidle_percent {_COUNTS}"),
    *_here(f"{_SERVER}socket_server_metrics_connection_count", "listener"),
    _rule("kafka_network_socketserver_networkprocessoravgidle_percent",
          "kafka_network_socketserver_networkprocessoravgidlepercent"),
    _rule("kafka_cluster_partition_atminisr", f"{_REPLICAS}atminisrpartitioncount"),
    _rule("kafka_cluster_partition_underminisr", f"{_REPLICAS}underminisrpartitioncount"),
    *_none("kafka_cluster_partition_replicascount",
           "It lists topics and partitions to choose from: kafka_log_log_size does, too."),
    *_none(f"{_SERVER}kafkaserver_linux_disk_read_bytes "
           f"{_SERVER}kafkaserver_linux_disk_write_bytes", _DISK),
))  # fmt: skip
_CONFLUENT = Dashboard("Confluent's *Kafka cluster, KRaft* (November 2025)", (
    *_here("kafka_controller_kafkacontroller_activecontrollercount "
           "kafka_controller_kafkacontroller_offlinepartitionscount "
           "kafka_controller_kafkacontroller_preferredreplicaimbalancecount "
           f"{_COORDINATOR} {_COORDINATOR}completingrebalance {_COORDINATOR}dead "
           f"{_COORDINATOR}empty {_COORDINATOR}preparingrebalance {_COORDINATOR}stable "
           "kafka_network_requestchannel_requestqueuesize "
           "kafka_network_socketserver_networkprocessoravgidlepercent "
           f"{_SERVER}fetchsessioncache_numincrementalfetchsessions {_COUNTS}"),
    *_here("kafka_log_log_size", "topic"),
    *(Asked(f"kafka_network_requestmetrics_{phase}timems", ("quantile", "request"),
            f"histogram_quantile(@, sum by (job, instance, request, le) "
            f"(rate(kafka_network_requestmetrics_{phase}timems_bucket{JOB}[5m])))")
      for phase in PHASES),
    _rule("kafka_controller_controllerstats_uncleanleaderelectionspersec",
          "kafka_controller_controllerstats_uncleanleaderelections_total"),
    _rule("kafka_network_requestmetrics_errorspersec", "kafka_network_requestmetrics_errors_total",
          "error"),
    _rule("kafka_network_requestmetrics_requestspersec",
          "kafka_network_requestmetrics_requests_total", "request"),
    *(_rule(f"{_TOPICS}{name}persec", f"{_TOPICS}{name}_total", "topic")
      for name in ("bytesin", "bytesout", "messagesin")),
    _rule(f"{_SERVER}fetchsessioncache_incrementalfetchsessionevictionspersec",
          f"{_SERVER}fetchsessioncache_incrementalfetchsessionevictions_total"),
    _rule(f"{_SERVER}kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
          f"{_SERVER}kafkarequesthandlerpool_requesthandleravgidle_percent"),
    _rule(f"{_REPLICAS}isrexpandspersec", f"{_REPLICAS}isrexpands_total"),
    _rule(f"{_REPLICAS}isrshrinkspersec", f"{_REPLICAS}isrshrinks_total"),
    _rule("kafka_cluster_partition_underminisr", f"{_REPLICAS}underminisrpartitioncount"),
    _rule(f"{_SOCKETS}connection_count", f"{_SERVER}socket_server_metrics_connection_count",
          "listener"),
    *_none("kafka_network_acceptor_acceptorblockedpercent",
           "kafkalog_accept_pauses_total has the pauses."),
    *_none("kafka_network_requestchannel_responsequeuesize",
           "kafka_network_requestmetrics_responsequeuetimems has how long answers wait."),
    *_none(f"{_TOPICS}fetchmessageconversionspersec {_TOPICS}producemessageconversionspersec",
           _CONVERSIONS),
    *_none(f"{_SERVER}kafkaserver_brokerstate", "It lists nodes to choose from: kafkalog_ready."),
    *_none(f"{_SERVER}kafkaserver_linux_disk_read_bytes "
           f"{_SERVER}kafkaserver_linux_disk_write_bytes", _DISK),
    *_none(f"{_SERVER}replicafetchermanager_maxlag",
           "The leader has each follower's lag: kafkalog_follower_lag_records."),
    *_none(f"{_SERVER}replicafetchermanager_minfetchrate", "Not counted."),
    *_none(f"{_REPLICAS}straypartitionscount {_REPLICAS}straypartitionsmisclassifiedcount "
           f"{_REPLICAS}straypartitionstotalsize", _STRAY),
    *_none(f"{_SOCKETS}connection_close_rate",
           "kafkalog_connections_closed_total has those that the broker closed, by reason."),
    *_none(f"{_SOCKETS}connection_creation_rate",
           "kafkalog_connections_accepted_total counts them, of all listeners."),
    *_none(f"{_SOCKETS}connections", "Clients' software is not counted."),
    *_none("kafka_log_log_tiersize kafka_tier_tasks_archive_tierarchiver_bytespersec "
           "kafka_tier_tasks_archive_tierarchiver_retriespersec "
           "kafka_tier_tasks_archive_tierarchiver_totallag "
           "kafka_tier_tasks_tiertasks_numpartitionsinerror", _TIERED),
))  # fmt: skip
DASHBOARDS: Sequence[Dashboard] = (_STRIMZI, _CONFLUENT)


def recorded() -> Iterator[tuple[str, str, str]]:
    """(name, query, quantile or empty) of each rule; each name and quantile once."""
    rules = {one.name: one.rule for each in DASHBOARDS for one in each.asked if one.rule}
    for name, rule in sorted(rules.items()):
        for quantile in QUANTILES if "@" in rule else ("",):
            yield name, rule.replace("@", quantile), quantile


def render_names() -> str:
    """docs/deploy/names.yml."""
    lines = ["# Rendered by `make docs` from the table in kafkalog/metrics/other_dashboards.py.",
             "groups:", "  - name: kafkalog_names", "    rules:"]  # fmt: skip
    for name, rule, quantile in recorded():
        lines += [f"      - record: {name}", f"        expr: {json.dumps(rule)}"]
        if quantile:
            lines.append(f'        labels: {{quantile: "{quantile}"}}')
    return "\n".join(lines) + "\n"


def render_dashboards() -> str:
    """The tables of docs/tools.md."""
    lines: list[str] = []
    for title, asked in DASHBOARDS:
        here = sum(one.name in BY_NAME and not one.rule for one in asked)
        rules = sum(bool(one.rule) for one in asked)
        lines += [
            f"### {title}", "",
            f"It asks for {len(asked)} metrics of Kafka: {here} are here under the same name, and "
            f"{rules} more with `names.yml`.", "",
            "| it asks for | here |", "| --- | --- |",
            *(f"| `{one.name}` | {_found(one)} |" for one in asked), "",
        ]  # fmt: skip
    return "\n".join(lines)


def _found(one: Asked) -> str:
    return one.why or ("recorded by `names.yml`" if one.rule else "the same")
