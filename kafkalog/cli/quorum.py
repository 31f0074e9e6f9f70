"""`kafkalog quorum`: the replicas and voters of a KRaft cluster's metadata log, as
kafka-metadata-quorum shows and changes them."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalog.cli.common import CommandError, UsageError, json_line
from kafkalog.cli.remote import action_of, add_actions, add_controllers, open_admin, say

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.quorum import QuorumInfo, QuorumReplica

EXAMPLES = """\
example:
  kafkalog quorum describe --status --bootstrap-server localhost:9092
  kafkalog quorum describe --replication --human-readable --bootstrap-controller localhost:9093
  kafkalog quorum add-controller --config server.properties --bootstrap-controller localhost:9093
  kafkalog quorum remove-controller --controller-id 3 --bootstrap-controller localhost:9093 \\
      --controller-directory-id 7JnyYWk9Qfu8aTtqzOvIaw
"""

ACTIONS = {
    "describe": "show the quorum's state, or how far its replicas are (the default action)",
    "add-controller": "make a running controller a voter",
    "remove-controller": "remove a controller from the voters",
}
OPTIONS = {
    "status": ("describe",),
    "replication": ("describe",),
    "human_readable": ("describe",),
    "json": ("describe",),
    "config": ("add-controller",),
    "controller_id": ("remove-controller",),
    "controller_directory_id": ("remove-controller",),
    "dry_run": ("add-controller", "remove-controller"),
}
"""The options that belong to some actions only."""
DEFAULT = "describe"
HEADS = (
    "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp",
    "Status",
)  # fmt: skip
"""Kafka's columns."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_controllers(parser)
    add_actions(parser, ACTIONS, "NAME")
    parser.add_argument(
        "--status", action="store_true", help="describe: the leader, the lag and the voters"
    )
    parser.add_argument(
        "--replication",
        action="store_true",
        help="describe: how far each replica is (the default)",
    )
    parser.add_argument(
        "--human-readable",
        action="store_true",
        help="describe --replication: how long ago, not when",
    )
    parser.add_argument("--json", action="store_true", help="describe: one JSON object per replica")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="add-controller: the controller's server.properties, whose log.dirs are on this "
        "machine (default: the file of --command-config, as in Kafka's tool)",
    )
    parser.add_argument(
        "--controller-id", "-i", type=int, metavar="N", help="remove-controller: the node's id"
    )
    parser.add_argument(
        "--controller-directory-id",
        "-d",
        metavar="ID",
        help="remove-controller: its directory's id, as describe shows it",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="add-controller, remove-controller: say what would be done, and do nothing",
    )


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    if words:
        raise UsageError(f"quorum {action}: found {words[0]!r}, wanted only options")
    if action == "describe":
        if options.status and options.replication:
            raise UsageError("describe: found --status and --replication, wanted one of them")
        if options.status and options.human_readable:
            raise UsageError("--human-readable: found with --status, wanted --replication")
        with open_admin(options) as admin:
            _describe(admin, options)
        return 0
    if action == "add-controller":
        _add(options)
    else:
        _remove(options)
    return 0


# ---- describe ------------------------------------------------------------------------------------


def _describe(admin: "Admin", options: argparse.Namespace) -> None:
    found = admin.describe_quorum()
    if options.json:
        for role, one in _replicas(found):
            print(json_line(_row(found, role, one)))
    elif options.status:
        _status(admin.describe_cluster().cluster_id, found)
    else:
        _replication(found, options.human_readable)


def _replicas(found: "QuorumInfo") -> "Iterable[tuple[str, QuorumReplica]]":
    """The leader, then the other voters, then the observers, with their roles."""
    for one in found.voters:
        if one.node == found.leader:
            yield "Leader", one
    for one in found.voters:
        if one.node != found.leader:
            yield "Follower", one
    for one in found.observers:
        yield "Observer", one


def _end(found: "QuorumInfo") -> int:
    """The log end of the leader; while a leader leaves the voters, that of the furthest voter."""
    ends = {one.node: one.end_offset for one in found.voters}
    return ends.get(found.leader, max(ends.values(), default=found.high_watermark))


def _row(found: "QuorumInfo", role: str, one: "QuorumReplica") -> dict[str, object]:
    return {
        "node": one.node, "directory_id": _id(one.directory_id), "status": role.lower(),
        "end_offset": one.end_offset, "lag": _end(found) - one.end_offset,
        "epoch": found.leader_epoch, "fetched_ms": one.fetched_ms,
        "caught_up_ms": one.caught_up_ms, "endpoints": list(map(str, one.endpoints)),
    }  # fmt: skip


def _id(directory_id: "UUID") -> str:
    from kafkalog.disk.layout import uuid_text

    return uuid_text(directory_id)


def _replication(found: "QuorumInfo", ago: bool) -> None:
    rows = [list(HEADS)]
    for role, one in _replicas(found):
        times = [_time(at_ms, ago) for at_ms in (one.fetched_ms, one.caught_up_ms)]
        lag = _end(found) - one.end_offset
        rows.append([str(one.node), _id(one.directory_id), str(one.end_offset), str(lag), *times,
                     role])  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))


def _time(at_ms: int, ago: bool) -> str:
    from kafkalog.clock import SystemClock

    if at_ms < 0 or not ago:
        return str(at_ms)
    return f"{max(0, SystemClock().now_ms() - at_ms)} ms ago"


def _status(cluster_id: str, found: "QuorumInfo") -> None:
    last = min(found.voters, key=lambda one: one.end_offset)
    leader = next((one for one in found.voters if one.node == found.leader), None)
    lag_ms = -1
    if leader is last:
        lag_ms = 0
    elif leader is not None and leader.caught_up_ms >= 0 and last.caught_up_ms >= 0:
        lag_ms = leader.caught_up_ms - last.caught_up_ms
    facts = {
        "ClusterId": cluster_id, "LeaderId": found.leader, "LeaderEpoch": found.leader_epoch,
        "HighWatermark": found.high_watermark, "MaxFollowerLag": _end(found) - last.end_offset,
        "MaxFollowerLagTimeMs": lag_ms, "CurrentVoters": _named(found.voters),
        "CurrentObservers": _named(found.observers),
    }  # fmt: skip
    for name, value in facts.items():
        print(f"{name + ':':<24}{value}")


def _named(replicas: "Iterable[QuorumReplica]") -> str:
    return "[" + ", ".join(map(_named_one, replicas)) + "]"


def _named_one(one: "QuorumReplica") -> str:
    directory = f'"{_id(one.directory_id)}"' if one.directory_id.int else "null"
    ends = ", ".join(f'"{end}"' for end in one.endpoints)
    more = f', "endpoints": [{ends}]' if ends else ""
    return f'{{"id": {one.node}, "directoryId": {directory}{more}}}'


# ---- changes -------------------------------------------------------------------------------------


def _add(options: argparse.Namespace) -> None:
    from kafkalog.cli.node_file import read_node_file
    from kafkalog.client.calls.quorum import RaftVoterEndpoint
    from kafkalog.config.client import ClientConfig

    path = options.config or options.command_config
    if path is None:
        raise UsageError("add-controller: which one? give its server.properties: --config FILE")
    node = read_node_file(path)
    if options.config is None:  # a server's file, which has a client's settings, too
        options.command_config = None
        mine = ClientConfig.table
        options.client_settings = {n: v for n, v in node.settings.items() if n in mine}
    if not node.is_controller:
        raise UsageError(f"{path}: process.roles: found {','.join(node.roles)}, wanted controller")
    directory_id = _directory_of(node.metadata_directory)
    endpoints = [RaftVoterEndpoint(*one) for one in node.endpoints()]
    if not options.dry_run:
        with open_admin(options) as admin:
            admin.add_raft_voter(node.node_id, directory_id, endpoints)
    say(
        f"{'DRY RUN of adding' if options.dry_run else 'Added'} controller {node.node_id} with "
        f"directory id {_id(directory_id)} and endpoints: {', '.join(map(str, endpoints))}"
    )


def _directory_of(path: str) -> "UUID":
    """The id of a formatted directory.  Raises: CommandError, CorruptLog, OSError."""
    from kafkalog.directory.identity import look

    meta = look(path).meta
    if meta is None or meta.directory_id is None:
        raise CommandError(f"{path}: found no directory.id, wanted a formatted directory: "
                           "kafkalog storage format")  # fmt: skip
    return meta.directory_id


def _remove(options: argparse.Namespace) -> None:
    from kafkalog.disk.layout import parse_uuid

    node, text = options.controller_id, options.controller_directory_id
    if node is None or text is None:
        missing = "--controller-id N" if node is None else "--controller-directory-id ID"
        raise UsageError(f"remove-controller: which one? give {missing}")
    if node < 0:
        raise UsageError(f"--controller-id: found {node}, wanted a node's number")
    try:
        directory_id = parse_uuid(text)
    except ValueError as problem:
        raise UsageError(f"--controller-directory-id: {problem}") from None
    if not options.dry_run:
        with open_admin(options) as admin:
            admin.remove_raft_voter(node, directory_id)
    say(
        f"{'DRY RUN of removing ' if options.dry_run else 'Removed '} KRaft controller {node} with "
        f"directory id {text}"
    )
