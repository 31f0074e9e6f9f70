"""Shared by commands that talk to a broker: its address, actions, names of topics."""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import (
    CODECS,
    UsageError,
    count_argument,
    hint,
    warn,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.client.admin import Admin
    from kafkalog.client.buffer.delivery import Delivery
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.client.producer.producer import Producer
    from kafkalog.types import TopicPartition

__all__ = [
    "CONSUMER_PROPERTIES",
    "PRODUCER_PROPERTIES",
    "action_of",
    "add_actions",
    "add_backend",
    "add_bootstrap",
    "add_controllers",
    "add_sending",
    "apply_properties",
    "client_config",
    "config_changes",
    "known_partitions",
    "names_of",
    "open_admin",
    "open_cluster",
    "open_producer",
    "partitions_of",
    "picked",
    "read_config",
    "refuse",
    "say",
    "spread",
]

CLIENT_ID = "kafkalog-cli"
RECORD_BYTES_MAX = 1 << 30
"""The broker decides how large a record may be."""
STORAGE_TIMEOUT_MS = 2_000
"""A user at a terminal wants to know early that a disk is full."""

Property = tuple[str, Mapping[str, object] | None]
"""The option for a client property, and what its values mean."""

PRODUCER_PROPERTIES: Mapping[str, Property] = {
    "acks": ("acks", {"0": "0", "1": "1", "all": "all", "-1": "all"}),
    "batch.size": ("batch_size", None),
    "client.id": ("client_id", None),
    "compression.type": ("compression", {name: name for name in CODECS}),
    "enable.idempotence": ("no_idempotence", {"true": False, "false": True}),
    "max.in.flight.requests.per.connection": ("in_flight", None),
    "request.timeout.ms": ("request_timeout_ms", None),
}
CONSUMER_PROPERTIES: Mapping[str, Property] = {
    "auto.offset.reset": (
        "reset", {"earliest": "earliest", "latest": "latest", "none": "error"},
    ),
    "client.id": ("client_id", None),
    "group.id": ("group", None),
    "group.instance.id": ("instance_id", None),
    "isolation.level": (
        "isolation", {name: name for name in ("read_uncommitted", "read_committed")},
    ),
    "request.timeout.ms": ("request_timeout_ms", None),
}  # fmt: skip


BOOTSTRAP = "KAFKALOG_BOOTSTRAP_SERVERS"
"""The environment variable for --bootstrap-server."""
_OPTIONS = (
    ("client.id", "client_id", CLIENT_ID),
    ("request.timeout.ms", "request_timeout_ms", 30_000),
)
"""A client's settings that are options, too, and the options' defaults."""


def add_bootstrap(parser: Any, required: bool = True) -> None:
    """`--bootstrap-server` and how long to wait for it."""
    default = os.environ.get(BOOTSTRAP)
    parser.add_argument(
        "--bootstrap-server",
        required=required and not default,
        default=default or None,
        metavar="HOST:PORT",
        help=f"a broker of the cluster, or several with commas (default: {BOOTSTRAP})",
    )
    add_patience(parser)


def add_controllers(parser: argparse.ArgumentParser) -> None:
    """Either `--bootstrap-server` or `--bootstrap-controller`; checked by `open_admin`."""
    add_bootstrap(parser, required=False)
    parser.add_argument(
        "--bootstrap-controller",
        metavar="HOST:PORT",
        help="a controller of a KRaft cluster, or several with commas, instead of a broker",
    )


def add_patience(parser: Any) -> None:
    """`--request-timeout-ms`, `--client-id` and the client's other settings."""
    parser.add_argument(
        "--request-timeout-ms",
        type=int,
        default=30_000,
        metavar="MS",
        help="how long to wait for a broker's answer (default 30000)",
    )
    parser.add_argument(
        "--client-id", default=CLIENT_ID, metavar="NAME", help=f"in brokers' logs ({CLIENT_ID})"
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties file with a client's settings, such as security.protocol and sasl.*",
    )


def add_backend(parser: argparse.ArgumentParser, directory: str) -> None:
    """Either `--dir`, with this help, or `--bootstrap-server`."""
    default = os.environ.get(BOOTSTRAP)
    group = parser.add_mutually_exclusive_group(required=not default)
    group.add_argument("--dir", help=directory)
    group.add_argument(
        "--bootstrap-server",
        default=default or None,
        metavar="HOST:PORT",
        help="a broker of a cluster, or several with commas "
        f"(default: {BOOTSTRAP}; --dir overrides it)",
    )
    add_patience(parser)


def open_admin(options: argparse.Namespace) -> "Admin":
    """An Admin of the cluster that the options name; nothing is sent yet.

    Raises: UsageError, ArgumentError.
    """
    from kafkalog.client.admin import Admin

    config = client_config(options)
    controllers = getattr(options, "bootstrap_controller", None)
    if controllers is None and options.bootstrap_server is None:
        raise UsageError("give --bootstrap-server HOST:PORT, or --bootstrap-controller HOST:PORT")
    return Admin(
        options.bootstrap_server if controllers is None else controllers,
        controllers=controllers is not None,
        config=config,
        client_id=options.client_id,
        request_timeout_ms=options.request_timeout_ms,
        api_timeout_ms=2 * options.request_timeout_ms,
    )


def client_config(options: argparse.Namespace) -> dict[str, str]:
    """The settings of every client from --command-config and `apply_properties`.

    The client's id and the request time-out are put into the options, unless those are given.
    Raises: UsageError, InvalidSetting.
    """
    given = read_config(options.command_config, "--command-config")
    given |= getattr(options, "client_settings", {})
    for name, dest, default in _OPTIONS:
        value = given.pop(name, None)
        if value is not None and getattr(options, dest) == default:
            apply_properties(options, "--command-config", [f"{name}={value}"], {name: (dest, None)})
    if options.request_timeout_ms < 1:
        raise UsageError(
            f"--request-timeout-ms: found {options.request_timeout_ms}, wanted 1 or more"
        )
    return given


def read_config(path: str | None, option: str) -> dict[str, str]:
    """The settings in a client's properties file that every client has; None: no file.

    Those that only a producer or a consumer has are left out: commands have options for them.
    Raises: InvalidSetting.
    """
    from kafkalog.config.client_file import read_client_file

    return {} if path is None else read_client_file(path, option, warn)


def open_cluster(options: argparse.Namespace) -> "Cluster":
    """The cluster that the options name; nothing is sent yet.  Raises: ArgumentError."""
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.client.link.transport import Options
    from kafkalog.client.login.security import security_of
    from kafkalog.config.client import ClientConfig

    config = client_config(options)
    patience = Options(
        client_id=options.client_id,
        connect_timeout_ms=min(10_000, options.request_timeout_ms),
        request_timeout_ms=options.request_timeout_ms,
        api_timeout_ms=2 * options.request_timeout_ms,
        security=security_of(ClientConfig(config)),
    )
    return Cluster(options.bootstrap_server, patience)


def add_sending(parser: argparse.ArgumentParser) -> None:
    """How batches are sent: options of `open_producer`, next to --acks and --compression."""
    parser.add_argument(
        "--batch-size", type=count_argument, default=1 << 16, metavar="BYTES",
        help="the size of a batch before compression (default 65536)",
    )  # fmt: skip
    parser.add_argument(
        "--no-idempotence",
        action="store_true",
        help="send without a producer id: a retry may then duplicate records",
    )
    parser.add_argument(
        "--in-flight", type=count_argument, default=5, metavar="N",
        help="requests in flight at once (default 5)",
    )  # fmt: skip


def open_producer(
    options: argparse.Namespace,
    delivered: "Callable[[Delivery], object] | None" = None,
    partitioner: str = "murmur2",
) -> "Producer":
    """The producer for the options.  Raises: ArgumentError."""
    from kafkalog.client.producer.producer import Producer

    config = client_config(options)
    return Producer(
        options.bootstrap_server,
        acks=options.acks,
        compression=options.compression,
        batch_bytes=options.batch_size,
        in_flight=options.in_flight,
        idempotent=not options.no_idempotence and options.acks in ("all", "-1"),
        partitioner=partitioner,
        max_block_ms=2 * options.request_timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
        client_id=options.client_id,
        on_delivery=delivered,
        config={
            **config,
            "max.request.size": RECORD_BYTES_MAX,
            "kafkalog.storage.timeout.ms": STORAGE_TIMEOUT_MS,
        },
    )


# ---- actions -----------------------------------------------------------------------------


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, str], names: str) -> None:
    """The action as a word or, as in Kafka's tools, as an option; then `names`."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="ACTION " + names,
        help=f"the action, then names, which --{names.lower()} also takes",
    )
    group = parser.add_argument_group("actions as options, as Kafka's tools have them")
    for name in actions:
        group.add_argument(
            f"--{name}", dest="action", action="append_const", const=name, help=f"as {name}"
        )


def action_of(
    options: argparse.Namespace, actions: Mapping[str, str], default: str | None = None
) -> tuple[str, list[str]]:
    """(action, the words after it).  Raises: UsageError for none, two or an unknown one."""
    words = list(options.words)
    chosen = list(options.action or [])
    if not chosen:
        if words and words[0] in actions:
            chosen = [words.pop(0)]
        elif words:
            why = hint(words[0], actions, f"there are {', '.join(actions)}")
            raise UsageError(f"no action {words[0]!r}; {why}")
        elif default is not None:
            chosen = [default]
        else:
            raise UsageError(f"no action; there are {', '.join(actions)}")
    if len(set(chosen)) > 1:
        raise UsageError(f"found the actions {' and '.join(chosen)}, wanted one")
    return chosen[0], words


def apply_properties(
    options: argparse.Namespace, option: str, pairs: Iterable[str], known: Mapping[str, Property]
) -> None:
    """Client properties by Kafka's names, as our options.

    `known`: for each name of Kafka's, our option and its values by Kafka's (None: any text, or a
    number if the option has one).  A property overrides the option of the same meaning.  Other
    settings that every client has, such as `sasl.mechanism`, go into `options.client_settings`.

    Raises: UsageError.
    """
    from kafkalog.config.client import ClientConfig

    for pair in pairs:
        name, equals, value = pair.partition("=")
        if equals and name in ClientConfig.table and name not in known:
            options.client_settings = {**getattr(options, "client_settings", {}), name: value}
            continue
        if not equals or name not in known:
            raise UsageError(
                f"{option}: found {name!r}, wanted NAME=VALUE, one of {', '.join(known)}"
            )
        dest, values = known[name]
        if values is not None:
            if value not in values:
                wanted = ", ".join(values)
                raise UsageError(f"{option}: {name}: found {value!r}, wanted one of {wanted}")
            setattr(options, dest, values[value])
        elif isinstance(getattr(options, dest), int):
            if not value.isdigit():
                raise UsageError(f"{option}: {name}: found {value!r}, wanted a number")
            setattr(options, dest, int(value))
        else:
            setattr(options, dest, value)


def refuse(options: argparse.Namespace, why: str, **defaults: object) -> None:
    """Raise UsageError for the first of these options that is not at its default."""
    for name, default in defaults.items():
        if getattr(options, name) != default:
            raise UsageError(f"--{name.replace('_', '-')}: {why}")


def names_of(words: Iterable[str], *more: str | None) -> list[str]:
    """Names from words and from options, in which commas separate them; each once."""
    found: dict[str, None] = {}
    for text in (*words, *more):
        for name in (text or "").split(","):
            if name.strip():
                found[name.strip()] = None
    return list(found)


# ---- topics and settings -----------------------------------------------------------------


def partitions_of(admin: "Admin", text: str) -> "list[TopicPartition]":
    """`topic`, `topic:2` or `topic:0,2-5` as partitions that exist.

    Raises: UsageError, UnknownTopicOrPartition.
    """
    return picked(lambda topic: known_partitions(admin, topic), text)


def known_partitions(admin: "Admin", topic: str) -> "list[TopicPartition]":
    """All partitions of a topic.  Raises: UnknownTopicOrPartition."""
    from kafkalog.types import TopicPartition

    return [TopicPartition(topic, p) for p in admin.describe_topics([topic])[topic].partitions]


def picked(known: "Callable[[str], list[TopicPartition]]", text: str) -> "list[TopicPartition]":
    """As partitions_of, where `known` gives all partitions of a topic, or raises."""
    topic, colon, rest = text.partition(":")
    found = {tp.partition: tp for tp in known(topic)}
    if not colon:
        return list(found.values())
    wanted: list[int] = []
    for piece in rest.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece.strip())
        if match is None:
            raise UsageError(f"{text!r}: wanted a topic, topic:0 or topic:0,2-5")
        first, last = int(match[1]), int(match[2] or match[1])
        missing = [number for number in (first, last) if number not in found]
        if missing:
            raise UsageError(f"topic {topic!r} has no partition {missing[0]}: it has {len(found)}")
        wanted += [number for number in range(first, last + 1) if number in found]
    return [found[number] for number in wanted]


def spread(texts: Iterable[str]) -> list[str]:
    """Split comma-separated topics, whose own lists of partitions may have commas, too."""
    found: list[str] = []
    for text in texts:
        for piece in text.split(","):
            if found and ":" in found[-1] and re.fullmatch(r"\s*\d+(-\d+)?\s*", piece):
                found[-1] += "," + piece.strip()
            elif piece.strip():
                found.append(piece.strip())
    return found


def config_changes(texts: Iterable[str], option: str) -> dict[str, str]:
    """`a=b,c=[d,e]` as settings, as in Kafka's tools.  Raises: UsageError."""
    changes: dict[str, str] = {}
    for text in texts:
        for piece in re.findall(r"[^,\[]*(?:\[[^\]]*\])?[^,\[]*", text):
            if not piece.strip():
                continue
            name, equals, value = piece.partition("=")
            if not equals or not name.strip():
                raise UsageError(f"{option}: found {piece!r}, wanted name=value")
            value = value.strip()
            if value.startswith("[") and value.endswith("]"):
                value = value[1:-1]
            changes[name.strip()] = value
    return changes


def say(text: str) -> None:
    """Print and flush one line on stdout: something was changed."""
    print(text)
    sys.stdout.flush()
