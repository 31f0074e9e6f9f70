"""`kafkalog share-groups`: share groups, their members, and where their partitions begin."""

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import CommandError
from kafkalog.cli.group_actions import (
    add_execution,
    add_options,
    chosen,
    coordinator_row,
    delete,
    must_be_empty,
    named_topics,
    run_actions,
    show_members,
    show_plan,
)
from kafkalog.cli.remote import say
from kafkalog.cli.resets import plan_reset, target_of
from kafkalog.cli.rows import show_rows

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.groups import GroupInfo

EXAMPLES = """\
example:
  kafkalog share-groups --bootstrap-server localhost:9092
  kafkalog share-groups --watch --bootstrap-server localhost:9092
  kafkalog share-groups describe workers --members --bootstrap-server localhost:9092
  kafkalog share-groups reset-offsets workers --topic jobs --to-earliest --execute \\
      --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "list the share groups (the default action)",
    "describe": "show where a group's partitions begin, its lag and its members",
    "reset-offsets": "change where the partitions of a group without members begin; shows the "
    "plan, --execute carries it out",
    "delete": "delete groups without members, with all that is kept for them",
    "delete-offsets": "forget where the partitions of --topic begin for a group without members",
}

OPTIONS = {
    "group": ("describe", "reset-offsets", "delete", "delete-offsets"),
    "all_groups": ("describe", "delete"),
    "topic": ("reset-offsets", "delete-offsets"),
    "all_topics": ("reset-offsets",),
    "members": ("describe",),
    "offsets": ("describe",),
    "state": ("list", "describe"),
    "json": ("list", "describe", "reset-offsets"),
    "watch": ("list", "describe"),
    "interval_ms": ("list", "describe"),
    "execute": ("reset-offsets",),
    "dry_run": ("reset-offsets",),
    **dict.fromkeys(("to_earliest", "to_latest", "to_datetime"), ("reset-offsets",)),
}
"""The options that belong to some actions only."""
DEFAULT = "list"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_options(
        parser, ACTIONS, "all share groups",
        "reset-offsets: topic, topic:2 or topic:0,2-5; delete-offsets: a topic; may be repeated",
        "reset-offsets: every partition that the group has read",
        "describe: where partitions begin, and the lag (the default)",
    )  # fmt: skip
    where = parser.add_argument_group("reset-offsets: where to")
    where.add_argument("--to-earliest", action="store_true", help="to the logs' starts")
    where.add_argument("--to-latest", action="store_true", help="to their ends")
    where.add_argument(
        "--to-datetime",
        metavar="TIME",
        help="to the first record at or after this time, ISO 8601 (UTC) or ms; to the end if "
        "there is none",
    )
    parser.set_defaults(to_current=False, to_offset=None, shift_by=None, by_duration=None)
    add_execution(parser)


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    return run_actions(options, ACTIONS, _list, DO, ["share"])


def _list(admin: "Admin", options: argparse.Namespace) -> None:
    rows = [{"group": g.group, "state": g.state} for g in admin.list_groups(kinds=["share"])]
    show_rows(rows, ["group", "state"], as_json=options.json, none="no share group")


def _group(admin: "Admin", name: str) -> "GroupInfo":
    """A share group.  Raises: CommandError: there is none of this name."""
    info = admin.describe_groups([name])[name]
    if info.state == "Dead":
        raise CommandError(f"no share group {name!r}")
    if info.protocol_type != "share":
        raise CommandError(f"group {name!r} is no share group: kafkalog groups shows it")
    return info


def _describe(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    info = _group(admin, name)
    if options.members:
        show_members(info, ["member", "client", "host", "partitions"], options.json)
    elif options.state:
        row = coordinator_row(admin, info, info.state)
        show_rows([row], list(row), as_json=options.json, none="")
    else:
        rows = [
            {"group": name, "topic": tp.topic, "partition": tp.partition, "start": one.offset,
             "lag": one.lag}
            for tp, one in admin.list_share_group_offsets(name).items()
        ]  # fmt: skip
        none = f"group {name} ({info.state}) has read nothing yet"
        fields = ["topic", "partition", "start", "lag"]
        show_rows(rows, fields, as_json=options.json, none=none)


def _reset(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    target = target_of(options)
    must_be_empty(admin, options, name)
    before = admin.list_share_group_offsets(name)
    partitions = chosen(admin, options, list(before), "read")
    plan = plan_reset(admin, target, partitions, {})
    if options.execute:
        admin.alter_share_group_offsets(name, plan).check()
    show_plan(options, name, before, plan)


def _delete(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    _group(admin, name)
    delete(admin, name)


def _delete_offsets(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    topics = named_topics(options)
    admin.delete_share_group_offsets(name, topics).check()
    say(f"group {name}: forgot {', '.join(topics)}")


DO = {
    "describe": _describe,
    "reset-offsets": _reset,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
}
