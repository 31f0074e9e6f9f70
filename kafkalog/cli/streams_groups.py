"""`kafkalog streams-groups`: applications of Kafka Streams, their tasks, and their offsets."""

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import CommandError, UsageError, repeated
from kafkalog.cli.group_actions import (
    add_execution,
    add_options,
    chosen,
    coordinator_row,
    delete,
    delete_offsets,
    must_be_empty,
    run_actions,
    show_plan,
)
from kafkalog.cli.groups import lag_rows
from kafkalog.cli.remote import partitions_of, say, spread
from kafkalog.cli.resets import TARGETS, add_targets, plan_reset, target_of
from kafkalog.cli.rows import show_rows

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.streams_groups import StreamsGroupInfo

EXAMPLES = """\
example:
  kafkalog streams-groups --bootstrap-server localhost:9092
  kafkalog streams-groups describe word-count --members --bootstrap-server localhost:9092
  kafkalog streams-groups reset-offsets word-count --all-topics --to-earliest --execute \\
      --delete-all-internal-topics --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "list the streams groups (the default action)",
    "describe": "show a group's committed offsets, its lag, and its members with their tasks",
    "reset-offsets": "change where a group without members continues; shows the plan, "
    "--execute carries it out",
    "delete": "delete groups without members, with their offsets",
    "delete-offsets": "delete a group's committed offsets for --topic",
}

OPTIONS = {
    "group": ("describe", "reset-offsets", "delete", "delete-offsets"),
    "all_groups": ("describe", "reset-offsets", "delete"),
    "topic": ("reset-offsets", "delete-offsets"),
    "all_topics": ("reset-offsets",),
    "members": ("describe",),
    "offsets": ("describe",),
    "state": ("list", "describe"),
    "json": ("list", "describe", "reset-offsets"),
    "execute": ("reset-offsets",),
    "dry_run": ("reset-offsets",),
    "delete_internal_topic": ("reset-offsets",),
    "delete_all_internal_topics": ("reset-offsets", "delete"),
    **dict.fromkeys(TARGETS, ("reset-offsets",)),
}
"""The options that belong to some actions only."""
DEFAULT = "list"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_options(
        parser, ACTIONS, "all streams groups",
        "reset-offsets, delete-offsets: topic, topic:2 or topic:0,2-5; may be repeated",
        "reset-offsets: every topic that the application reads, without its internal ones",
        "describe: offsets and the lag (the default)",
    )  # fmt: skip
    add_targets(parser.add_argument_group("reset-offsets: where to"))
    add_execution(parser)
    repeated(
        parser, "--delete-internal-topic", metavar="TOPIC",
        help="reset-offsets --execute: also delete this internal topic of the application",
    )  # fmt: skip
    parser.add_argument(
        "--delete-all-internal-topics",
        action="store_true",
        help="reset-offsets --execute, delete: also delete all internal topics of the application",
    )


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    return run_actions(options, ACTIONS, _list, DO, ["streams"])


def _list(admin: "Admin", options: argparse.Namespace) -> None:
    rows = [{"group": g.group, "state": g.state} for g in admin.list_groups(kinds=["streams"])]
    show_rows(rows, ["group", "state"], as_json=options.json, none="no streams group")


def _group(admin: "Admin", name: str) -> "StreamsGroupInfo":
    """A streams group.  Raises: CommandError: there is none of this name."""
    if name not in {one.group for one in admin.list_groups(kinds=["streams"])}:
        raise CommandError(f"no streams group {name!r}")
    return admin.describe_streams_groups([name])[name]


def _describe(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    info = _group(admin, name)
    if options.members:
        _members(info, options)
    elif options.state:
        row = coordinator_row(admin, admin.describe_groups([name])[name], info.state)
        row |= {"epoch": info.epoch, "assignment_epoch": info.assignment_epoch}
        show_rows([row], list(row), as_json=options.json, none="")
    else:
        fields = ["topic", "partition", "committed", "end", "lag"]
        rows = [
            {"group": name, **{field: row[field] for field in fields}}
            for row in lag_rows(admin, admin.describe_groups([name])[name])
            if row["topic"] is not None
        ]
        none = f"group {name} ({info.state}) has committed nothing"
        show_rows(rows, fields, as_json=options.json, none=none)


def _members(info: "StreamsGroupInfo", options: argparse.Namespace) -> None:
    rows = [
        {
            "group": info.group,
            "member": m.member_id,
            "epoch": m.epoch,
            "instance": m.instance_id,
            "process": m.process_id,
            "client": m.client_id,
            "host": m.host,
            "active": list(map(str, m.active)),
            "standby": list(map(str, m.standby)),
            "warmup": list(map(str, m.warmup)),
        }
        for m in info.members
    ]
    fields = ["member", "epoch", "process", "host", "active", "standby"]
    none = f"group {info.group} has no members"
    show_rows(rows, fields, as_json=options.json, none=none)


def _reset(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    target = target_of(options)
    must_be_empty(admin, options, name)
    info = _group(admin, name)
    before = admin.list_group_offsets(name)
    inputs = [] if not options.all_topics else list(info.input_topics)
    every = sorted({tp for topic in inputs for tp in partitions_of(admin, topic)})
    partitions = chosen(admin, options, every, "read")
    plan = plan_reset(admin, target, partitions, {tp: one.offset for tp, one in before.items()})
    gone = _internal(admin, options, info)
    if options.execute:
        admin.alter_group_offsets(name, plan).check()
    show_plan(options, name, before, plan)
    if options.execute:
        _delete_topics(admin, gone)


def _internal(admin: "Admin", options: argparse.Namespace, info: "StreamsGroupInfo") -> list[str]:
    """The internal topics to delete.  Raises: UsageError."""
    named = spread(options.delete_internal_topic)
    if named and options.delete_all_internal_topics:
        raise UsageError("--delete-internal-topic, --delete-all-internal-topics: give one of them")
    for topic in named:
        if topic not in info.internal_topics:
            raise UsageError(f"--delete-internal-topic: {topic!r} is none of the application's")
    every = info.internal_topics if options.delete_all_internal_topics else named
    return sorted(set(every).intersection(admin.list_topics()))


def _delete_topics(admin: "Admin", names: list[str]) -> None:
    if names:
        admin.delete_topics(names).check()
        say(f"deleted {', '.join(names)}")


def _delete(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    gone = _internal(admin, options, _group(admin, name))
    delete(admin, name)
    _delete_topics(admin, gone)


DO = {
    "describe": _describe,
    "reset-offsets": _reset,
    "delete": _delete,
    "delete-offsets": delete_offsets,
}
