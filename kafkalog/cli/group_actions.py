"""The part that `kafkalog groups`, `share-groups` and `streams-groups` have in common."""

import argparse
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import CommandError, UsageError, repeated
from kafkalog.cli.remote import (
    action_of,
    add_actions,
    add_bootstrap,
    names_of,
    open_admin,
    partitions_of,
    say,
    spread,
)
from kafkalog.cli.rows import show_rows
from kafkalog.cli.top import add_interval, watch

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.groups import GroupInfo
    from kafkalog.types import TopicPartition

__all__ = [
    "add_execution", "add_options", "chosen", "coordinator_row", "delete", "delete_offsets",
    "must_be_empty", "named_topics", "run_actions", "show_members", "show_plan",
]  # fmt: skip
Do = Callable[["Admin", argparse.Namespace, str], None]


# ---- arguments -----------------------------------------------------------------------------


def add_options(
    parser: argparse.ArgumentParser, actions: Mapping[str, str], groups: str, topic: str,
    all_topics: str, offsets: str,
) -> None:  # fmt: skip
    """All but where offsets are reset to.  `groups`: "all groups"; `topic`, `all_topics` and
    `offsets`: the help of these options."""
    add_bootstrap(parser)
    add_actions(parser, actions, "GROUP")
    repeated(parser, "--group", metavar="NAME", help="the same as the positional name")
    parser.add_argument("--all-groups", action="store_true", help=groups)
    repeated(parser, "--topic", metavar="TOPIC", help=topic)
    parser.add_argument("--all-topics", action="store_true", help=all_topics)
    parser.add_argument(
        "--members", action="store_true", help="describe: the members and their partitions"
    )
    parser.add_argument("--offsets", action="store_true", help=offsets)
    parser.add_argument("--state", action="store_true", help="list, describe: the groups' states")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--watch", action="store_true",
        help="list, describe: keep showing them, with rates and lag, as kafkalog top does",
    )  # fmt: skip
    add_interval(parser)


def add_execution(parser: argparse.ArgumentParser) -> None:
    """The options that carry a plan out, or only show it."""
    parser.add_argument(
        "--execute",
        action="store_true",
        help="reset-offsets: carry it out; without this the plan is only shown",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="reset-offsets: only show the plan (the default)"
    )


def run_actions(
    options: argparse.Namespace, actions: Mapping[str, str],
    listing: Callable[["Admin", argparse.Namespace], None], do: Mapping[str, Do],
    kinds: Collection[str] = (),
) -> int:  # fmt: skip
    """List the groups (the default action), or do something with each one named.  `kinds`: those
    that --all-groups stands for; none: any."""
    action, words = action_of(options, actions, "list")
    if options.watch:
        return _watched(options, action, names_of(words, *options.group), kinds)
    with open_admin(options) as admin:
        names = names_of(words, *options.group)
        if action == "list":
            listing(admin, options)
            return 0
        if options.all_groups:
            listed = admin.list_groups(kinds=list(kinds)) if kinds else admin.list_groups()
            names += [one.group for one in listed if one.group not in names]
        elif not names:
            raise UsageError(f"{action}: which group? give its name, or --all-groups")
        for name in names:
            do[action](admin, options, name)
    return 0


def _watched(
    options: argparse.Namespace, action: str, names: list[str], kinds: Collection[str]
) -> int:
    """Show groups as they change; describe: their partitions, too."""
    if action == "describe" and not names and not options.all_groups:
        raise UsageError(f"{action}: which group? give its name, or --all-groups")
    described = action == "describe"
    return watch(options, ["groups"], names, kinds, once=options.json, partitions=described)


# ---- what is shown -------------------------------------------------------------------------


def show_members(info: "GroupInfo", fields: list[str], as_json: bool) -> None:
    """A row for each member."""
    rows = [
        {
            "group": info.group,
            "member": m.member_id,
            "instance": m.instance_id,
            "client": m.client_id,
            "host": m.host,
            "partitions": [f"{tp.topic}-{tp.partition}" for tp in m.assignment],
        }
        for m in info.members
    ]
    show_rows(rows, fields, as_json=as_json, none=f"group {info.group} has no members")


def coordinator_row(admin: "Admin", info: "GroupInfo", state: str) -> dict[str, Any]:
    """A group's state, and the node that coordinates it."""
    from kafkalog.client.link.transport import Address

    nodes = {one.node: one for one in admin.describe_cluster().nodes}
    at = nodes.get(info.coordinator)
    where = Address(at.host, at.port) if at is not None else "unknown"
    return {
        "group": info.group,
        "coordinator": f"{where} (node {info.coordinator})",
        "state": state,
        "assignor": info.assignor,
        "members": len(info.members),
    }


# ---- changes -------------------------------------------------------------------------------


def must_be_empty(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    """Check that offsets of a group may be reset.  Raises: UsageError, CommandError."""
    if options.execute and options.dry_run:
        raise UsageError("--execute and --dry-run: give one of them")
    state = admin.describe_groups([name])[name].state
    if state not in ("Empty", "Dead"):
        raise CommandError(f"group {name!r} is {state}: its members must end first")


def chosen(
    admin: "Admin", options: argparse.Namespace, every: "list[TopicPartition]", done: str
) -> "list[TopicPartition]":
    """The partitions of --topic, or of --all-topics: `every`, for which the group has "committed",
    or that it has "read" (`done`).  Raises: UsageError."""
    texts = spread(options.topic)
    if bool(texts) == options.all_topics:
        raise UsageError(f"which topics? give --topic, or --all-topics for all that it {done}")
    if options.all_topics:
        if not every:
            raise UsageError(f"--all-topics: the group has {done} nothing")
        return every
    return sorted({tp for text in texts for tp in partitions_of(admin, text)})


def show_plan(
    options: argparse.Namespace, name: str, before: "Mapping[TopicPartition, Any]",
    plan: "Mapping[TopicPartition, int]",
) -> None:  # fmt: skip
    """The offsets that are, or would be, set; `before`: what there was, with `offset`."""
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


def delete(admin: "Admin", name: str) -> None:
    """Delete a group."""
    admin.delete_groups([name]).check()
    say(f"deleted group {name}")


def delete_offsets(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    """Delete what a group has committed for --topic.  Raises: UsageError."""
    partitions = [tp for text in named_topics(options) for tp in partitions_of(admin, text)]
    admin.delete_group_offsets(name, partitions).check()
    say(f"group {name}: forgot {', '.join(f'{tp.topic}-{tp.partition}' for tp in partitions)}")


def named_topics(options: argparse.Namespace) -> list[str]:
    """The topics of delete-offsets.  Raises: UsageError."""
    found = spread(options.topic)
    if not found:
        raise UsageError("delete-offsets: of which topics? give --topic")
    return found
