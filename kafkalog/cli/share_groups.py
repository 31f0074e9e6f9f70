"""`kafkalog share-groups`: share groups, their members, and where their partitions begin."""

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import CommandError, UsageError, repeated
from kafkalog.cli.groups import chosen, coordinator_row, member_rows
from kafkalog.cli.remote import (
    action_of,
    add_actions,
    add_bootstrap,
    names_of,
    open_admin,
    say,
    spread,
)
from kafkalog.cli.resets import plan_reset, target_of
from kafkalog.cli.rows import show_rows

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.groups import GroupInfo

EXAMPLES = """\
example:
  kafkalog share-groups --bootstrap-server localhost:9092
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
    "execute": ("reset-offsets",),
    "dry_run": ("reset-offsets",),
    **dict.fromkeys(("to_earliest", "to_latest", "to_datetime"), ("reset-offsets",)),
}
"""The options that belong to some actions only."""
DEFAULT = "list"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "GROUP")
    repeated(parser, "--group", metavar="NAME", help="the same as the positional name")
    parser.add_argument("--all-groups", action="store_true", help="all share groups")
    repeated(
        parser,
        "--topic",
        metavar="TOPIC",
        help="reset-offsets: topic, topic:2 or topic:0,2-5; delete-offsets: a topic; may be "
        "repeated",
    )
    parser.add_argument(
        "--all-topics",
        action="store_true",
        help="reset-offsets: every partition that the group has read",
    )
    parser.add_argument(
        "--members", action="store_true", help="describe: the members and their partitions"
    )
    parser.add_argument(
        "--offsets",
        action="store_true",
        help="describe: where partitions begin, and the lag (the default)",
    )
    parser.add_argument("--state", action="store_true", help="list, describe: the groups' states")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
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
    parser.add_argument(
        "--execute",
        action="store_true",
        help="reset-offsets: carry it out; without this the plan is only shown",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="reset-offsets: only show the plan (the default)"
    )


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    with open_admin(options) as admin:
        names = names_of(words, *options.group)
        if action == "list":
            _list(admin, options)
            return 0
        if options.all_groups:
            names += [g.group for g in admin.list_groups(kinds=["share"]) if g.group not in names]
        elif not names:
            raise UsageError(f"{action}: which group? give its name, or --all-groups")
        for name in names:
            DO[action](admin, options, name)
    return 0


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
        fields = ["member", "client", "host", "partitions"]
        none = f"group {name} has no members"
        show_rows(member_rows(info), fields, as_json=options.json, none=none)
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
    if options.execute and options.dry_run:
        raise UsageError("--execute and --dry-run: give one of them")
    target = target_of(options)
    info = admin.describe_groups([name])[name]
    if info.state not in ("Empty", "Dead"):
        raise CommandError(f"group {name!r} is {info.state}: its members must end first")
    before = admin.list_share_group_offsets(name)
    partitions = chosen(admin, options, list(before), "read")
    plan = plan_reset(admin, target, partitions, {})
    if options.execute:
        admin.alter_share_group_offsets(name, plan).check()
    rows = [
        {
            "group": name,
            "topic": tp.topic,
            "partition": tp.partition,
            "before": before[tp].offset if tp in before else None,
            "offset": offset,
            "done": options.execute,
        }
        for tp, offset in plan.items()
    ]
    fields = ["topic", "partition", "before", "offset"]
    show_rows(rows, fields, as_json=options.json, none="no partition", heads={"offset": "new"})
    if not options.json:
        done = "is done" if options.execute else "would be done; --execute does it"
        print(f"group {name}: this {done}")


def _delete(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    _group(admin, name)
    admin.delete_groups([name]).check()
    say(f"deleted group {name}")


def _delete_offsets(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    topics = spread(options.topic)
    if not topics:
        raise UsageError("delete-offsets: of which topics? give --topic")
    admin.delete_share_group_offsets(name, topics).check()
    say(f"group {name}: forgot {', '.join(topics)}")


DO = {
    "describe": _describe,
    "reset-offsets": _reset,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
}
