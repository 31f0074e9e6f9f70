"""`kafkalog configs`: the settings of topics, brokers, their loggers, groups and client metrics."""

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, json_line, repeated, table
from kafkalog.cli.remote import (
    action_of,
    add_actions,
    add_bootstrap,
    config_changes,
    open_admin,
    say,
)

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin

EXAMPLES = """\
example:
  kafkalog configs describe --topic access --bootstrap-server localhost:9092
  kafkalog configs alter --topic access --add-config retention.ms=86400000 \\
      --bootstrap-server localhost:9092
  kafkalog configs --describe --entity-type brokers --entity-name 1 --all \\
      --bootstrap-server localhost:9092
"""

ACTIONS = {
    "describe": "show the settings that were changed, or all of them",
    "alter": "set settings, or reset them to their defaults",
}
OF_BROKERS = {"broker", "default of all brokers", "properties file"}
"""Sources of a broker's settings other than the default."""
TYPES = {
    "topics": "topic", "brokers": "broker", "groups": "group", "client-metrics": "client_metrics",
    "broker-loggers": "broker_logger",
}  # fmt: skip

OPTIONS = {
    "all": ("describe",),
    "json": ("describe",),
    "add_config": ("alter",),
    "delete_config": ("alter",),
    "dry_run": ("alter",),
}
"""The options that belong to some actions only."""
DEFAULT = "describe"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "NAME")
    parser.add_argument("--topic", metavar="NAME", help="the topic")
    parser.add_argument("--broker", metavar="ID", help="the broker with this node id")
    parser.add_argument(
        "--broker-defaults", action="store_true", help="the defaults for all brokers"
    )
    parser.add_argument(
        "--entity-type", choices=tuple(TYPES), help="what --entity-name names, as in Kafka's tool"
    )
    parser.add_argument("--entity-name", metavar="NAME", help="a name, or a broker's node id")
    parser.add_argument(
        "--entity-default", action="store_true", help="the same as --broker-defaults"
    )
    parser.add_argument(
        "--all", action="store_true", help="describe: also settings that were not changed"
    )
    repeated(
        parser,
        "--add-config",
        metavar="NAME=VALUE,...",
        help="alter: new values; put a value with commas in brackets: a=[x,y]",
    )
    repeated(parser, "--delete-config", metavar="NAME,...", help="alter: reset to the default")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="alter: let the broker check the change, but change nothing",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per setting")


def run(options: argparse.Namespace) -> int:
    """Show or change settings."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    kind, name = _resource(options, words)
    with open_admin(options) as admin:
        if action == "describe":
            _describe(admin, options, kind, name)
        else:
            _alter(admin, options, kind, name)
    return 0


def _resource(options: argparse.Namespace, words: list[str]) -> tuple[str, str]:
    """The settings' owner: a type and a name, "" for all brokers."""
    found: list[tuple[str, str]] = [(TYPES["topics"], word) for word in words]
    if options.topic is not None:
        found.append((TYPES["topics"], options.topic))
    if options.broker is not None:
        found.append((TYPES["brokers"], options.broker))
    if options.broker_defaults or options.entity_default:
        found.append((TYPES["brokers"], ""))
    if options.entity_name is not None:
        if options.entity_type is None:
            raise UsageError(f"--entity-name: needs --entity-type {', '.join(TYPES)}")
        found.append((TYPES[options.entity_type], options.entity_name))
    if len(found) != 1:
        raise UsageError(
            f"found {len(found)} names, wanted one of --topic NAME, --broker ID, --broker-defaults"
        )
    return found[0]


def _describe(admin: "Admin", options: argparse.Namespace, kind: str, name: str) -> None:
    own = OF_BROKERS if kind == "broker" else {kind.replace("_", " ")}
    entries = admin.describe_configs([(kind, name)])[kind, name].values()
    shown = [entry for entry in entries if options.all or entry.source in own]
    if options.json:
        for entry in shown:
            row = {"name": entry.name, "value": entry.value}
            print(json_line({**row, "source": entry.source, "read_only": entry.read_only}))
        return
    if not shown:
        print(f"no setting was changed; --all shows all {len(entries)}")
        return
    cells = [
        [
            entry.name,
            "(secret)" if entry.sensitive else entry.value or "",
            entry.source + (", read-only" if entry.read_only else ""),
        ]
        for entry in shown
    ]
    print(table(["setting", "value", "from"], cells, left=frozenset({0, 1, 2})))


def _alter(admin: "Admin", options: argparse.Namespace, kind: str, name: str) -> None:
    changes: dict[str, str | None] = {**config_changes(options.add_config, "--add-config")}
    for text in options.delete_config:
        changes.update({key.strip(): None for key in text.split(",") if key.strip()})
    if not changes:
        raise UsageError("alter: what? give --add-config NAME=VALUE or --delete-config NAME")
    altered = admin.alter_configs({(kind, name): changes}, validate_only=options.dry_run)
    altered.check()
    would = "would be " if options.dry_run else ""
    for key, value in changes.items():
        change = f"= {value}" if value is not None else f"{would}reset to its default"
        say(f"{kind} {name or 'defaults'}: {key} {change}")
