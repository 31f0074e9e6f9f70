"""Reads the metrics of share groups' records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.shares.partition import AckType

if TYPE_CHECKING:
    from kafkalog.metrics.metric import Readings
    from kafkalog.server.dead_letters import DeadLetters
    from kafkalog.server.metrics.labels import Labels
    from kafkalog.shares.figures import Place
    from kafkalog.shares.leader import Shares

__all__ = ["read_shares"]

_SESSIONS = "kafka_server_sharesessioncache_"
_GROUPS = "kafka_server_sharegroupmetrics_"
_PARTITIONS = "kafka_server_sharepartitionmetrics_"
_SAID = (AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW)


def read_shares(
    readings: Readings, shares: Shares, letters: DeadLetters, labels: Labels[Place]
) -> None:
    """Read the sessions, acknowledgements, dead letters and share partitions."""
    found = shares.figures()
    readings.add(f"{_SESSIONS}sharesessionscount", found.sessions)
    readings.add(f"{_SESSIONS}sharepartitionscount", found.partitions)
    readings.add("kafkalog_share_records_bytes", found.bytes)
    for kind in _SAID:
        count = found.acks.get(kind, 0)
        name = f"{_GROUPS}recordacknowledgements_total"
        readings.add(name, count, ackType=kind.name.capitalize())
    for group, counts in letters.counts().items():
        readings.add("kafkalog_dead_letters_total", counts.records, group=group)
        name = f"{_GROUPS}deadletterqueuetotalproducerequests_total"
        readings.add(name, counts.writes, group=group)
        name = f"{_GROUPS}deadletterqueuefailedproducerequests_total"
        readings.add(name, counts.failed, group=group)
    for place in sorted(labels.shown(found.places)):
        one = found.places[place]
        where = {"group": place.group, "topic": place.topic, "partition": str(place.partition)}
        readings.add(f"{_PARTITIONS}inflightmessagecount", one.offsets, **where)
        readings.add(f"{_PARTITIONS}inflightbatchcount", one.ranges, **where)
        readings.add(f"{_PARTITIONS}acquisitionlocktimeout_total", one.expired, **where)
