"""`kafkalog groups`: consumer groups, their members, their lag, and changes to their offsets."""

import argparse
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import CommandError, plural
from kafkalog.cli.group_actions import (
    add_execution,
    add_options,
    chosen,
    coordinator_row,
    delete,
    delete_offsets,
    must_be_empty,
    run_actions,
    show_members,
    show_plan,
)
from kafkalog.cli.resets import TARGETS, add_targets, plan_reset, target_of
from kafkalog.cli.rows import show_rows

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.groups import GroupInfo, MemberInfo
    from kafkalog.types import TopicPartition

EXAMPLES = """\
example:
  kafkalog groups --bootstrap-server localhost:9092
  kafkalog groups --watch --bootstrap-server localhost:9092
  kafkalog groups describe billing --bootstrap-server localhost:9092
  kafkalog groups reset-offsets billing --topic access --to-datetime 2026-07-04T12:00 \\
      --bootstrap-server localhost:9092
  kafkalog groups --reset-offsets --group billing --topic access:0 --shift-by -10 --execute \\
      --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "list the groups (the default action)",
    "describe": "show a group's committed offsets, its lag and its members",
    "reset-offsets": "change where a group without members continues; shows the plan, "
    "--execute carries it out",
    "delete": "delete groups without members, with their offsets",
    "delete-offsets": "delete a group's committed offsets for --topic",
}

OPTIONS = {
    "group": ("describe", "reset-offsets", "delete", "delete-offsets"),
    "all_groups": ("describe", "reset-offsets", "delete", "delete-offsets"),
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
    **dict.fromkeys(TARGETS, ("reset-offsets",)),
}
"""The options that belong to some actions only."""
DEFAULT = "list"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_options(
        parser, ACTIONS, "all groups",
        "reset-offsets, delete-offsets: topic, topic:2 or topic:0,2-5; may be repeated",
        "reset-offsets: every topic for which the group has committed offsets",
        "describe: offsets, the lag, and how much of it can still be read (the default)",
    )  # fmt: skip
    add_targets(parser.add_argument_group("reset-offsets: where to"))
    add_execution(parser)


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    return run_actions(options, ACTIONS, _list, DO)


def _list(admin: "Admin", options: argparse.Namespace) -> None:
    rows = [
        {"group": g.group, "state": g.state, "type": g.kind, "protocol_type": g.protocol_type}
        for g in admin.list_groups()
    ]
    fields = ["group", "state", "type", "protocol_type"]
    show_rows(rows, fields, as_json=options.json, none="no group")


# ---- describe ------------------------------------------------------------------------------


def _describe(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    info = admin.describe_groups([name])[name]
    listed = None if info.state != "Dead" else _listed(admin, name)
    if options.members:
        fields = ["member", "instance", "host", "client", "partitions"]
        show_members(info, fields, options.json)
    elif options.state:
        _state(admin, info, listed, options)
    else:
        _lags(admin, info, listed, options)


def _listed(admin: "Admin", name: str) -> str:
    """The state from the list of groups; only there are groups of Kafka 4's own protocol reported.

    Raises: CommandError for a group that is not in it either.
    """
    found = [g.state for g in admin.list_groups() if g.group == name]
    if not found:
        raise CommandError(f"no group {name!r}")
    return found[0]


def _lags(
    admin: "Admin", info: "GroupInfo", listed: str | None, options: argparse.Namespace
) -> None:
    rows = [{"group": info.group, **row} for row in lag_rows(admin, info)]
    state = listed or info.state
    if rows and not options.json:
        members, lag = len(info.members), sum(max(row["lag"] or 0, 0) for row in rows)
        plain = info.protocol_type in ("", "consumer")
        kind = "" if plain else f", protocol {info.protocol_type}"
        print(f"group {info.group}: {state}{kind}, {plural(members, 'member')}, lag {lag}")
    fields = ["topic", "partition", "committed", "end", "lag", "readable", "member", "host",
              "client"]  # fmt: skip
    none = f"group {info.group} ({state}) has committed nothing and has no members"
    show_rows(rows, fields, as_json=options.json, none=none)


def lag_rows(admin: "Admin", info: "GroupInfo") -> list[dict[str, Any]]:
    """A row for each partition with a committed offset or a member, and for each member without a
    partition: only their own protocol knows what members of Connect or a schema registry own.
    """
    committed = admin.list_group_offsets(info.group)
    owners = {tp: m for m in info.members for tp in m.assignment}
    partitions = sorted({*committed, *owners})
    starts, ends = _bounds(admin, partitions)
    rows = []
    for tp in partitions:
        at = committed[tp].offset if tp in committed else None
        end, owner = ends.get(tp), owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": at,
                "end": end,
                "lag": None if at is None or end is None else end - at,
                "readable": None if at is None or end is None else _readable(at, starts[tp], end),
                **_owned(owner),
            }
        )
    nothing = dict.fromkeys(("topic", "partition", "committed", "end", "lag", "readable"))
    return rows + [{**nothing, **_owned(m)} for m in info.members if not m.assignment]


def _owned(owner: "MemberInfo | None") -> dict[str, Any]:
    return {
        "member": owner and owner.member_id,
        "instance": owner and owner.instance_id,
        "host": owner and owner.host,
        "client": owner and owner.client_id,
    }


def _readable(at: int, start: int, end: int) -> int:
    """How much of the lag can still be read: records below the log's start are deleted."""
    return max(end - max(at, start), 0)


def _bounds(
    admin: "Admin", partitions: "list[TopicPartition]"
) -> "tuple[dict[TopicPartition, int], dict[TopicPartition, int]]":
    """The start and end offsets of partitions; those of deleted topics are left out, and those
    without a leader, as nobody knows them now."""
    names = {tp.topic for tp in partitions}
    topics = admin.describe_topics(sorted(names.intersection(admin.list_topics(internal=True))))
    there = [
        tp
        for tp in partitions
        if tp.topic in topics.done
        and (info := topics[tp.topic].partitions.get(tp.partition)) is not None
        and info.leader >= 0
    ]
    starts, ends = (
        {tp: at.offset for tp, at in admin.list_offsets(dict.fromkeys(there, when)).check().items()}
        for when in ("earliest", "latest")
    )
    return starts, ends


def _state(
    admin: "Admin", info: "GroupInfo", listed: str | None, options: argparse.Namespace
) -> None:
    row = coordinator_row(admin, info, listed or info.state)
    show_rows([row], list(row), as_json=options.json, none="")


# ---- changes -------------------------------------------------------------------------------


def _reset(admin: "Admin", options: argparse.Namespace, name: str) -> None:
    target = target_of(options)
    must_be_empty(admin, options, name)
    before = admin.list_group_offsets(name)
    partitions = chosen(admin, options, sorted(before), "committed")
    plan = plan_reset(admin, target, partitions, {tp: c.offset for tp, c in before.items()})
    if options.execute:
        admin.alter_group_offsets(name, plan).check()
    show_plan(options, name, before, plan)


def _delete(admin: "Admin", _options: argparse.Namespace, name: str) -> None:
    delete(admin, name)


DO = {
    "describe": _describe,
    "reset-offsets": _reset,
    "delete": _delete,
    "delete-offsets": delete_offsets,
}
