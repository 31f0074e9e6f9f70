"""`kafkalog client-metrics`: the metrics that clients are asked to send, as Kafka's tool changes
them."""

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, json_line
from kafkalog.cli.remote import action_of, add_actions, add_bootstrap, open_admin, say

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin

EXAMPLES = """\
example:
  kafkalog client-metrics alter --name slow --metrics org.apache.kafka.producer.node. \\
      --interval 60000 --match client_id=orders-.* --bootstrap-server localhost:9092
  kafkalog client-metrics describe --bootstrap-server localhost:9092
  kafkalog client-metrics delete --name slow --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "show the names of the subscriptions (the default action)",
    "describe": "show the settings of one subscription, or of all",
    "alter": "create a subscription, or change its settings",
    "delete": "remove a subscription",
}
OPTIONS = {
    "generate_name": ("alter",),
    "metrics": ("alter",),
    "interval": ("alter",),
    "match": ("alter",),
    "name": ("describe", "alter", "delete"),
    "json": ("list", "describe"),
}
"""The options that belong to some actions only."""
DEFAULT = "list"
KIND = "client_metrics"
SETTINGS = {"metrics": "metrics", "interval": "interval.ms", "match": "match"}
"""Options, and the settings that they change."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "NAME")
    parser.add_argument("--name", metavar="NAME", help="the subscription")
    parser.add_argument(
        "--generate-name", action="store_true", help="alter: a new subscription with a random name"
    )
    parser.add_argument(
        "--metrics", metavar="NAME,...", help="alter: beginnings of metrics' names; *: all"
    )
    parser.add_argument("--interval", metavar="MS", help="alter: time between two pushes")
    parser.add_argument(
        "--match",
        metavar="NAME=PATTERN,...",
        help="alter: the clients, by client_id, client_instance_id, client_software_name, "
        "client_software_version, client_source_address, client_source_port",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per subscription")


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    names = [*words, *([options.name] if options.name else [])]
    if len(names) > (action != "list") or (names and options.generate_name):
        raise UsageError(f"{action}: found {len(names)} names, wanted one at most")
    if action in ("alter", "delete") and not names and not options.generate_name:
        raise UsageError(f"{action}: which subscription? give --name NAME")
    with open_admin(options) as admin:
        if action in ("list", "describe"):
            _show(admin, options, names, with_settings=action == "describe")
        elif action == "alter":
            _alter(admin, options, names)
        else:
            _delete(admin, names[0])
    return 0


def _show(
    admin: "Admin", options: argparse.Namespace, names: list[str], with_settings: bool
) -> None:
    found = names or [one.name for one in admin.list_config_resources([KIND])]
    for name in found:
        if not with_settings:
            print(json_line({"name": name}) if options.json else name)
            continue
        entries = admin.describe_configs([(KIND, name)])[KIND, name].values()
        values = {entry.name: entry.value for entry in entries}
        if options.json:
            print(json_line({"name": name, **values}))
        else:
            print(f"Client metrics configs for {name} are:")
            print("\n".join(f"  {key}={value}" for key, value in sorted(values.items())))


def _alter(admin: "Admin", options: argparse.Namespace, names: list[str]) -> None:
    changes = {
        key: getattr(options, option)
        for option, key in SETTINGS.items()
        if getattr(options, option) is not None
    }
    if not changes:
        raise UsageError("alter: what? give --metrics, --interval or --match")
    name = names[0] if names else _random_name()
    admin.alter_configs({(KIND, name): changes}).check()
    say(f"Altered client metrics config for {name}.")


def _random_name() -> str:
    from uuid import uuid4

    from kafkalog.disk.layout import uuid_text

    return uuid_text(uuid4())


def _delete(admin: "Admin", name: str) -> None:
    entries = admin.describe_configs([(KIND, name)])[KIND, name].values()
    own = [entry.name for entry in entries if entry.source == KIND.replace("_", " ")]
    if own:
        admin.alter_configs({(KIND, name): dict.fromkeys(own)}).check()
    say(f"Deleted client metrics config for {name}.")
