"""`kafka.*` of a write: the settings of a producer, Java's names and ours.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..client_options import SERVERS, file_setting, resolved
from ..errors import BadOption

REFUSED = {
    "kafka.key.serializer": "keys are binary or strings; convert the column",
    "kafka.value.serializer": "values are binary or strings; convert the column",
    "kafka.interceptor.classes": "there is no Java producer to intercept",
    "kafka.transactional.id": "use sinkId",
    "kafka.enable.idempotence": "every write is a transaction, which wants true",
    "kafka.acks": "every write is a transaction, which wants all",
    "kafka.partitioner.ignore.keys": "leave out the column key, or fill the column partition",
    "kafka.transaction.two.phase.commit.enable": "the driver commits what it writes",
}
"""Producer settings that are not supported, and what to do instead."""

NEEDLESS = {
    "kafka.enable.idempotence": ("true",),
    "kafka.acks": ("all", "-1"),
    "kafka.partitioner.ignore.keys": ("false",),
    "kafka.transaction.two.phase.commit.enable": ("false",),
}
"""Those of them that may be given with the value that applies anyway."""

IGNORED = (
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
)
"""Settings of Java's producer that change no record: warned about."""

PARTITIONERS = {
    "": "murmur2",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
}
"""Java's classes, and our names for them."""

_DEFAULTS = {"transaction.timeout.ms": "900000", "batch.size": str(512 << 10)}
"""Defaults for the driver's producer: a whole micro-batch waits in files, so its batches may be
large."""


def producer_settings(
    given: Mapping[str, str],
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The settings for the driver's producer, checked before a row is staged; and the ignored ones.

    Raises: BadOption.
    """
    from kafkalog import KafkalogError
    from kafkalog.config.producer import ProducerConfig

    settings, ignored = {**_DEFAULTS, **file_setting(given)}, []
    for name, text in given.items():
        if not name.startswith("kafka.") or name == SERVERS:
            continue
        setting, value = name.removeprefix("kafka."), text.strip()
        if name in REFUSED:
            if value.lower() not in NEEDLESS.get(name, ()):
                raise BadOption(f"option {name!r} is not supported: {REFUSED[name]}")
        elif setting == "partitioner.class":
            settings["partitioner"] = _partitioner(value)
        elif setting in IGNORED:
            ignored.append(name)
        else:
            settings[setting] = value
    try:
        ProducerConfig.of(resolved(settings))
    except KafkalogError as error:
        raise BadOption(f"option 'kafka.*': {error}") from None
    return tuple(sorted(settings.items())), tuple(sorted(ignored))


def _partitioner(name: str) -> str:
    if name not in PARTITIONERS:
        raise BadOption(
            f"option 'kafka.partitioner.class': found {name!r}, wanted one of "
            f"{', '.join(filter(None, PARTITIONERS))}: another class of Java's cannot be called; "
            "fill the column partition"
        )
    return PARTITIONERS[name]
