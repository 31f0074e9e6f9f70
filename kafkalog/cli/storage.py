"""`kafkalog storage`: formats the directories of a KRaft node, as kafka-storage does."""

import argparse
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import CommandError, UsageError, json_line, repeated
from kafkalog.cli.remote import action_of, add_actions, say

if TYPE_CHECKING:
    from kafkalog.cli.node_file import NodeFile
    from kafkalog.disk.layout import MetaProperties
    from kafkalog.kraft.format import Format
    from kafkalog.raft.replicas import Voters

EXAMPLES = """\
example:
  kafkalog storage random-uuid
  kafkalog storage format --cluster-id 7JnyYWk9Qfu8aTtqzOvIaw --config server.properties
  kafkalog storage format -t 7JnyYWk9Qfu8aTtqzOvIaw -c server.properties --standalone
  kafkalog storage format -t 7JnyYWk9Qfu8aTtqzOvIaw -c server.properties --initial-controllers \\
      1@host1:9093:JEXY6aqzQY-32P5TStzaFg,2@host2:9093:MvDxzVmcRsaTz33bUuRU6A
  kafkalog storage info --config server.properties
"""

ACTIONS = {
    "format": "format a node's directories: its identity, and the first records of a controller",
    "info": "show the identity of a node's directories, and problems; exit status 1: a problem",
    "random-uuid": "print a new id, for a cluster or a directory",
    "version-mapping": "show the levels of features that a release has in a new cluster",
}
OPTIONS = {
    "config": ("format", "info"),
    "cluster_id": ("format",),
    "standalone": ("format",),
    "initial_controllers": ("format",),
    "no_initial_controllers": ("format",),
    "feature": ("format",),
    "add_scram": ("format",),
    "ignore_formatted": ("format",),
    "release_version": ("format", "version-mapping"),
    "json": ("info", "version-mapping"),
}
"""The options that belong to some actions only."""
DEFAULT = None
VOTERS = "controller.quorum.voters"
LEVEL_MAX = 32_767


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_actions(parser, ACTIONS, "NAME")
    parser.add_argument(
        "--config", "-c", metavar="FILE", help="format, info: the node's server.properties"
    )
    parser.add_argument(
        "--cluster-id", "-t", metavar="ID", help="format: the id of the cluster, see random-uuid"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--standalone",
        "-s",
        action="store_true",
        help="format: this controller is the first voter; others can be added",
    )
    group.add_argument(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY,...",
        help="format: these are the first voters, the same for all of them; others can be added",
    )
    group.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="format: this node joins a cluster that has controllers already",
    )
    parser.add_argument(
        "--release-version",
        "-r",
        metavar="RELEASE",
        help="format, version-mapping: the metadata.version of a new cluster and what belongs to "
        "it, such as 4.3 or 4.4-IV2 (the default)",
    )
    repeated(
        parser, "--feature", "-f", metavar="FEATURE=LEVEL",
        help="format: another level of a feature; may be repeated",
    )  # fmt: skip
    repeated(
        parser, "--add-scram", "-S", metavar="MECHANISM=[name=USER,password=...]",
        help="format: a user's credential, also with iterations= and salt= (base64); "
        "other users of the machine can see it",
    )  # fmt: skip
    parser.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="format: leave directories as they are that are formatted already",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="info: one JSON object; version-mapping: one per feature",
    )


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS)
    if words:
        raise UsageError(f"storage {action}: found {words[0]!r}, wanted only options")
    if action == "random-uuid":
        from kafkalog.disk.layout import random_topic_id, uuid_text

        say(uuid_text(random_topic_id()))
        return 0
    if action == "version-mapping":
        return _mapping(options.release_version, options.json)
    if options.config is None:
        raise UsageError(f"storage {action}: which node? give --config FILE")
    return _format(options) if action == "format" else _info(options.config, options.json)


# ---- format --------------------------------------------------------------------------------------


def _format(options: argparse.Namespace) -> int:
    from kafkalog.cli.node_file import read_node_file
    from kafkalog.clock import SystemClock
    from kafkalog.kraft.format import format_directory, read_meta
    from kafkalog.metadata.image import METADATA_VERSION
    from kafkalog.metadata.levels import RELEASES

    if options.cluster_id is None:
        raise UsageError("storage format: give --cluster-id ID; kafkalog storage random-uuid "
                         "prints a new one")  # fmt: skip
    node = read_node_file(options.config)
    wanted = _wanted(options, node)
    found = {path: read_meta(path) for path in node.directories}
    known = {path: meta for path, meta in found.items() if meta is not None}
    for path, meta in known.items():
        _check_same(path, meta, wanted)
    if known and not options.ignore_formatted:
        raise CommandError(
            f"Log directory {min(known)} is already formatted. Use --ignore-formatted to ignore "
            "this directory and format the others."
        )
    if len(known) == len(found):
        say("All of the log directories are already formatted.")
    for path in node.directories:
        if path not in known:
            metadata = path == node.metadata_directory
            level = RELEASES[wanted.levels[METADATA_VERSION] - 1]
            say(f"Formatting {wanted.kind(metadata)} {path} with {METADATA_VERSION} {level}.")
            format_directory(path, wanted, SystemClock(), metadata)
    return 0


def _check_same(path: str, meta: "MetaProperties", wanted: "Format") -> None:
    """Refuse a directory of another node.  Raises: CommandError."""
    if meta.cluster_id not in (None, wanted.cluster_id):
        raise CommandError(
            f"{path}: cluster.id: found {meta.cluster_id}, wanted {wanted.cluster_id}"
        )
    if meta.node_id not in (-1, wanted.node_id):
        raise CommandError(f"{path}: node.id: found {meta.node_id}, wanted {wanted.node_id}")


def _wanted(options: argparse.Namespace, node: "NodeFile") -> "Format":
    """Raises: UsageError, ArgumentError."""
    from kafkalog.kraft.format import Format, first_levels, parse_release

    voters = _voters(options, node)
    dynamic = not node.voters and (voters is not None or options.no_initial_controllers)
    release = options.release_version
    levels, kraft_version = first_levels(
        None if release is None else parse_release(release), _features(options.feature), dynamic
    )
    return Format(
        options.cluster_id, node.node_id, node.is_controller, levels, kraft_version, voters,
        _credentials(options.add_scram, levels),
    )  # fmt: skip


def _voters(options: argparse.Namespace, node: "NodeFile") -> "Voters | None":
    """The first voters that the options name.  Raises: UsageError, ArgumentError."""
    from kafkalog.disk.layout import random_topic_id
    from kafkalog.kraft.format import new_voter, parse_voters

    named = "--standalone" if options.standalone else "--initial-controllers"
    if options.standalone or options.initial_controllers is not None:
        if node.voters:
            raise UsageError(
                f"{named}: found next to {VOTERS} in {node.path}, wanted one of them; with voters "
                "that can change, give controller.quorum.bootstrap.servers"
            )
        if options.standalone and not node.is_controller:
            raise UsageError(f"--standalone: {node.path} is not of a controller (process.roles)")
        (listener, host, port), *_ = node.endpoints()
        if options.standalone:
            return (new_voter(node.node_id, random_topic_id(), listener, host, port),)
        return parse_voters(options.initial_controllers, listener)
    if node.is_controller and not node.voters and not options.no_initial_controllers:
        raise UsageError(
            f"Because {VOTERS} is not set on this controller, you must specify one of the "
            "following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    return None


def _features(texts: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, equals, level = text.partition("=")
        if not equals or not level.isdecimal() or int(level) > LEVEL_MAX:
            raise UsageError(f"--feature: found {text!r}, wanted FEATURE=LEVEL")
        if name in found:
            raise UsageError(f"--feature: found {name} twice, wanted it once")
        found[name] = int(level)
    return found


def _credentials(texts: list[str], levels: dict[str, int]) -> list[tuple[str, Any]]:
    """The records of users' credentials.  Raises: UsageError, CommandError."""
    if not texts:
        return []
    from kafkalog.cli.users import parse_add_scram
    from kafkalog.client.calls.users import row_of
    from kafkalog.controller.users import Upsertion, alter_user_scram_credentials
    from kafkalog.metadata.image import empty_image

    image = empty_image("", 0)._replace(features=levels)
    records: list[tuple[str, Any]] = []
    for text in texts:
        wanted = Upsertion(*row_of(parse_add_scram(text)).fields.values())
        made, (result,) = alter_user_scram_credentials(image, [], [wanted])
        if result["error_code"]:
            raise CommandError(f"--add-scram: user {wanted.user!r}: {result['error_message']}")
        records += made
    return records


# ---- the rest ------------------------------------------------------------------------------------


def _mapping(release: str | None, as_json: bool) -> int:
    from kafkalog.kraft.format import parse_release
    from kafkalog.metadata.image import METADATA_VERSION
    from kafkalog.metadata.levels import (
        FIRST_LEVELS,
        KRAFT_VERSION,
        KRAFT_VERSION_SINCE,
        LEVEL,
        RELEASES,
    )

    level = LEVEL if release is None else parse_release(release)
    name = release or RELEASES[level - 1]
    found = {KRAFT_VERSION: int(level >= KRAFT_VERSION_SINCE), **FIRST_LEVELS[level]}
    found.pop(METADATA_VERSION, None)
    if as_json:
        print(json_line({"feature": METADATA_VERSION, "level": level, "release": name}))
    else:
        print(f"{METADATA_VERSION}={level} ({name})")
    for feature, one in sorted(found.items()):
        print(json_line({"feature": feature, "level": one}) if as_json else f"{feature}={one}")
    return 0


def _info(path: str, as_json: bool) -> int:
    """Kafka's report; 1: there are problems."""
    from kafkalog.cli.node_file import read_node_file

    node = read_node_file(path)
    there, problems, first = _looked(node)
    if as_json:
        metadata = None if first is None else _properties(first)
        print(json_line({"directories": there, "metadata": metadata, "problems": problems}))
        return 1 if problems else 0
    if there:
        say("Found log directory:" if len(there) == 1 else "Found log directories:")
        say("\n".join(f"  {one}" for one in there) + "\n")
    if first is not None:
        say(f"Found metadata: {{{_shown(first)}}}\n")
    if problems:
        say("Found problem:" if len(problems) == 1 else "Found problems:")
        say("\n".join(f"  {one}" for one in problems) + "\n")
    return 1 if problems else 0


def _looked(node: "NodeFile") -> "tuple[list[str], list[str], MetaProperties | None]":
    """The directories that exist, the problems, and the first identity."""
    import os

    from kafkalog.errors import CorruptLog
    from kafkalog.kraft.format import read_meta

    there: list[str] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for path in node.directories:
        if not os.path.isdir(path):
            why = "is not a directory" if os.path.exists(path) else "does not exist"
            problems.append(f"{path} {why}")
            continue
        there.append(path)
        try:
            meta = read_meta(path)
        except CorruptLog as problem:
            problems.append(f"Error loading {problem}")
            continue
        if meta is None:
            problems.append(f"{path} is not formatted.")
        elif first is None:
            first = meta
        elif first.cluster_id != meta.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != meta.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    if first is not None and first.version == 0:
        problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but the "
            "directories are formatted for legacy mode."
        )
    return there, problems, first


def _shown(meta: "MetaProperties") -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(_properties(meta).items()))


def _properties(meta: "MetaProperties") -> dict[str, str]:
    from kafkalog.config.properties import parse_properties
    from kafkalog.disk.layout import render_meta_properties

    return dict(parse_properties(render_meta_properties(meta).decode()))
