"""`kafkalog topics`: shows what a data directory or a cluster holds, and changes topics."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkalog.cli.backends import Backend, ClusterBackend, DirectoryBackend, open_backend
from kafkalog.cli.common import (
    CommandError,
    UsageError,
    count_argument,
    json_line,
    no_topic,
    plural,
    repeated,
    table,
    warn,
)
from kafkalog.cli.remote import (
    action_of,
    add_actions,
    add_backend,
    config_changes,
    names_of,
    partitions_of,
    refuse,
    say,
    spread,
)

if TYPE_CHECKING:
    from kafkalog.types import TopicPartition

EXAMPLES = """\
example:
  kafkalog topics --dir data
  kafkalog topics --dir data --topic access --draw access.svg
  kafkalog topics create orders --partitions 3 --bootstrap-server localhost:9092
  kafkalog topics --describe --topic orders --bootstrap-server localhost:9092
  kafkalog topics delete-records orders:0 --before 1207 --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "list names only",
    "describe": "show every partition (the default action)",
    "create": "create topics",
    "alter": "add partitions, or change settings",
    "delete": "delete topics and their records",
    "delete-records": "delete the records of partitions (orders, orders:0,2-5) before an offset",
}

OPTIONS = {
    "draw": ("describe",),
    "internal": ("list", "describe"),
    "exclude_internal": ("list", "describe"),
    "under_replicated_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "json": ("list", "describe"),
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create",),
    "config": ("create", "alter"),
    "if_not_exists": ("create",),
    "if_exists": ("alter", "delete"),
    "before": ("delete-records",),
    "offset_json_file": ("delete-records",),
}
"""The options that belong to some actions only."""
DEFAULT = "describe"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_backend(parser, "a data directory: list and describe; nothing is written")
    parser.add_argument("--topic", metavar="NAME", help="only this topic, or several with commas")
    parser.add_argument("--json", action="store_true", help="one JSON object per partition")
    parser.add_argument(
        "--draw",
        metavar="FILE.svg",
        help="--dir: draw a topic's segments over offsets and time; needs --topic if there are "
        "several",
    )
    add_actions(parser, ACTIONS, "TOPIC")
    _change_arguments(parser.add_argument_group("create, alter, delete"))
    group = parser.add_argument_group("delete-records")
    group.add_argument(
        "--before", metavar="OFFSET", help="the first offset to keep; latest: keep none"
    )
    group.add_argument(
        "--offset-json-file", metavar="FILE", help="the offsets of many, as Kafka's tool takes them"
    )
    group = parser.add_argument_group("describe, list")
    group.add_argument(
        "--internal",
        action="store_true",
        help="also show Kafka's internal topics, such as __consumer_offsets",
    )
    group.add_argument(
        "--exclude-internal",
        action="store_true",
        help="leave out internal topics (the default here)",
    )
    group.add_argument(
        "--under-replicated-partitions",
        action="store_true",
        help="only partitions with a replica out of sync",
    )
    group.add_argument(
        "--unavailable-partitions", action="store_true", help="only partitions without a leader"
    )


def _change_arguments(group: Any) -> None:
    group.add_argument(
        "--partitions",
        type=count_argument,
        metavar="N",
        help="the number of partitions (create: default of the broker; alter: more than now)",
    )
    group.add_argument(
        "--replication-factor",
        type=count_argument,
        metavar="N",
        help="replicas of each partition (default of the broker)",
    )
    group.add_argument(
        "--replica-assignment",
        metavar="NODE:NODE,...",
        help="the nodes of each partition; the first one leads",
    )
    repeated(
        group,
        "--config",
        metavar="NAME=VALUE",
        help="a topic setting (docs/settings.md), such as retention.ms=86400000",
    )
    group.add_argument(
        "--if-not-exists", action="store_true", help="create: an existing topic is no error"
    )
    group.add_argument(
        "--if-exists", action="store_true", help="alter, delete: a missing topic is no error"
    )


def run(options: argparse.Namespace) -> int:
    """Carry out the action, in a directory or a cluster."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    given = [*words, *([options.topic] if options.topic else [])]
    names = spread(given) if action == "delete-records" else names_of(given)
    with open_backend(options) as backend:
        if action in CHANGES:
            if not isinstance(backend, ClusterBackend):
                raise UsageError(
                    f"{action}: needs --bootstrap-server; a directory's topics are created by "
                    "`kafkalog ingest` or `kafkalog serve`"
                )
            if not names and options.offset_json_file is None:
                raise UsageError(f"{action}: which topic? give its name")
            CHANGES[action](backend, options, names)
            return 0
        chosen = _chosen(backend, options, names)
        if action == "list":
            for name in chosen:
                print(json_line({"topic": name}) if options.json else name)
            return 0
        _describe(backend, options, chosen)
    return 0


def _chosen(backend: Backend, options: argparse.Namespace, names: list[str]) -> list[str]:
    """The named topics, else all but internal ones.  Raises: UsageError."""
    if options.internal and options.exclude_internal:
        raise UsageError("--internal and --exclude-internal: give one of them")
    if not names:
        return backend.topics(options.internal)
    found = backend.topics(True)
    for name in names:
        if name not in found:
            raise no_topic(
                "" if isinstance(backend, ClusterBackend) else f"{backend.name}: ", name, found
            )
    return names


def _describe(backend: Backend, options: argparse.Namespace, names: list[str]) -> None:
    rows = [row for name in names for row in backend.describe(name)]
    if isinstance(backend, DirectoryBackend):
        why = "needs --bootstrap-server: a directory has one replica of each"
        refuse(options, why, under_replicated_partitions=False, unavailable_partitions=False)
        if options.draw is not None:
            if len(names) != 1:
                raise UsageError(f"--draw: {backend.name} has several topics or none: give --topic")
            backend.draw(names[0], options.draw)
    else:
        refuse(options, "is for --dir", draw=None)
        rows = [row for row in rows if _wanted(row, options)]
    if options.json:
        for row in rows:
            print(json_line(row))
    elif rows:
        cells = [backend.cells(row) for row in rows]
        print(table(list(backend.heads), cells, left=backend.texts))
        print(backend.footer(rows))
    else:
        print("no topic" if isinstance(backend, ClusterBackend) else f"{backend.name}: no topic")


def _wanted(row: dict[str, Any], options: argparse.Namespace) -> bool:
    if options.under_replicated_partitions and len(row["isr"]) >= len(row["replicas"]):
        return False
    return not (options.unavailable_partitions and row["leader"] >= 0)


# ---- changes -------------------------------------------------------------------------------


def _create(backend: ClusterBackend, options: argparse.Namespace, names: list[str]) -> None:
    from kafkalog.errors import TopicExists

    config = config_changes(options.config, "--config")
    assignment = _assignment(options.replica_assignment)
    if assignment and (options.partitions or options.replication_factor):
        raise UsageError(
            "--replica-assignment says how many there are: "
            "leave out --partitions and --replication-factor"
        )
    for name in names:
        try:
            topic = (
                name, options.partitions or -1, options.replication_factor or -1, config, assignment
            )  # fmt: skip
            backend.admin.create_topics([topic]).check()
        except TopicExists:
            if not options.if_not_exists:
                raise
            say(f"topic {name} already exists")
        else:
            say(f"created topic {name}")


def _assignment(text: str | None) -> list[list[int]]:
    """`1:2,2:1`: the nodes of each partition."""
    try:
        return [[int(n) for n in part.split(":")] for part in (text or "").split(",") if part]
    except ValueError:
        raise UsageError(
            f"--replica-assignment: found {text!r}, wanted node:node,... as in 1:2,2:1"
        ) from None


def _alter(backend: ClusterBackend, options: argparse.Namespace, names: list[str]) -> None:
    changes = config_changes(options.config, "--config")
    if options.partitions is None and not changes:
        raise UsageError("alter: what? give --partitions N or --config NAME=VALUE")
    for name in _existing(backend, names, options.if_exists):
        with _known(backend, name, options.if_exists):
            if options.partitions is not None:
                backend.admin.create_partitions({name: options.partitions}).check()
                say(f"topic {name} has {options.partitions} partitions")
            if changes:
                backend.admin.alter_configs({("topic", name): changes}).check()
                say(f"topic {name}: " + ", ".join(f"{k}={v}" for k, v in changes.items()))


def _delete(backend: ClusterBackend, options: argparse.Namespace, names: list[str]) -> None:
    for name in _existing(backend, names, options.if_exists):
        with _known(backend, name, options.if_exists):
            backend.admin.delete_topic(name)
            say(f"deleted topic {name}")


def _delete_records(backend: ClusterBackend, options: argparse.Namespace, names: list[str]) -> None:
    if (options.before is None) == (options.offset_json_file is None) or (
        names and options.before is None
    ):
        raise UsageError(
            "delete-records: give partitions and --before OFFSET, or --offset-json-file FILE"
        )
    if options.offset_json_file is None:
        offset = _offset("--before", options.before)
        before = {tp: offset for text in names for tp in partitions_of(backend.admin, text)}
    else:
        before = _offsets_in(options.offset_json_file)
    results = backend.admin.delete_records(before)
    for tp in before:
        if tp in results.errors:
            warn(f"{tp.topic}-{tp.partition}: {results.errors[tp]}")
        else:
            say(f"partition: {tp.topic}-{tp.partition}\tlow_watermark: {results[tp]}")
    if results.errors:
        raise CommandError(f"{len(results.errors)} of {plural(len(before), 'partition')} failed")


def _offset(what: str, text: object) -> int:
    """An offset, or -1: the end.  Raises: UsageError."""
    value = -1 if text in ("latest", "-1", -1) else text
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < -1:
        raise UsageError(f"{what}: found {text!r}, wanted an offset or latest")
    return value


def _offsets_in(path: str) -> "dict[TopicPartition, int]":
    """{"partitions": [{"topic": "orders", "partition": 0, "offset": 3}], "version": 1}.

    Raises: UsageError, naming the file.
    """
    import json
    from pathlib import Path

    from kafkalog.types import TopicPartition

    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))["partitions"]
        found = {
            TopicPartition(str(row["topic"]), int(row["partition"])): _offset(
                "offset", row["offset"]
            )
            for row in rows
        }
    except (ValueError, KeyError, TypeError, UsageError) as problem:
        raise UsageError(
            f"{path}: found {type(problem).__name__}: {problem}, wanted "
            '{"partitions": [{"topic": "orders", "partition": 0, "offset": 3}]}'
        ) from None
    if len(found) < len(rows):
        raise UsageError(f"{path}: found a partition twice, wanted it once")
    return found


def _existing(backend: ClusterBackend, names: list[str], if_exists: bool) -> list[str]:
    """The names; all must exist unless `if_exists` is set."""
    found = []
    for name in names:
        with _known(backend, name, if_exists):
            backend.admin.describe_topics([name]).check()
            found.append(name)
    return found


@contextmanager
def _known(backend: ClusterBackend, name: str, if_exists: bool) -> Iterator[None]:
    """Wrap a change of a topic that must exist unless `if_exists`.

    Checking first is not enough: the topic may be deleted in between, and the node that is asked
    may not yet know what another has deleted.
    """
    from kafkalog.errors import UnknownTopicOrPartition

    try:
        yield
    except UnknownTopicOrPartition:
        if not if_exists:
            others = [topic for topic in backend.topics(True) if topic != name]
            raise no_topic("", name, others) from None
        say(f"there is no topic {name}")


CHANGES = {"create": _create, "alter": _alter, "delete": _delete, "delete-records": _delete_records}
