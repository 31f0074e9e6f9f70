"""`kafkalog quotas`: shows and changes the quotas of clients."""

import argparse
from collections.abc import Sequence
from typing import Any

from kafkalog.cli.common import UsageError, json_line, repeated
from kafkalog.cli.remote import action_of, add_actions, add_bootstrap, open_admin, say

EXAMPLES = """\
example:
  kafkalog quotas --bootstrap-server localhost:9092
  kafkalog quotas alter --entity-type users --entity-name alice \\
    --add producer_byte_rate=1048576,request_percentage=50 --bootstrap-server localhost:9092
  kafkalog quotas alter --entity-type clients --entity-default --delete consumer_byte_rate \\
    --bootstrap-server localhost:9092
"""

ACTIONS = {
    "describe": "show quotas: of the named entities, or of all (the default action)",
    "alter": "set and remove quotas of one entity",
}
OPTIONS = {"add": ("alter",), "delete": ("alter",), "dry_run": ("alter",), "json": ("describe",)}
"""The options that belong to some actions only."""
DEFAULT = "describe"
TYPES = {
    "users": "user", "user": "user", "clients": "client-id", "client-id": "client-id",
    "ips": "ip", "ip": "ip",
}  # fmt: skip
"""The types by the names of Kafka's tools, and by those of the protocol."""
ANY = object()
"""A type without a name: all entities of it."""


class _Part(argparse.Action):
    """Collects the parts of an entity in their order."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        """As argparse.Action."""
        parts = list(getattr(namespace, self.dest) or [])
        kind = str(option).removeprefix("--entity-")
        namespace.__dict__[self.dest] = [*parts, (kind, values)]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "NAME")
    part: dict[str, Any] = {"dest": "entity", "action": _Part}
    parser.add_argument(
        "--entity-type", metavar="TYPE", **part,
        help="users, clients or ips; users and clients together: the clients of a user",
    )  # fmt: skip
    parser.add_argument(
        "--entity-name", metavar="NAME", **part, help="the name, for the type before it"
    )
    parser.add_argument(
        "--entity-default", nargs=0, **part, help="all of the type without quotas of their own"
    )
    for option, text in (("add", "KEY=VALUE"), ("delete", "KEY")):
        repeated(
            parser,
            f"--{option}",
            f"--{option}-config",
            metavar=text,
            help=f"alter: {option} quotas, several with commas; the keys are producer_byte_rate, "
            "consumer_byte_rate, request_percentage, controller_mutation_rate; of ips "
            "connection_creation_rate",
        )
    parser.add_argument(
        "--dry-run", action="store_true", help="alter: let the broker check it, but change nothing"
    )
    parser.add_argument("--json", action="store_true", help="describe: one JSON object per entity")


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    if words:
        raise UsageError(f"{action}: found {words[0]!r}, wanted --entity-type and --entity-name")
    entity = _entity(options.entity or [])
    if action == "describe":
        _describe(options, entity)
    else:
        _alter(options, entity)
    return 0


def _entity(parts: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The names by type.  In Kafka's tools, all types may come before all names."""
    types = [value for kind, value in parts if kind == "type"]
    names = [value if kind == "name" else None for kind, value in parts if kind != "type"]
    for one in types:
        if one not in TYPES:
            raise UsageError(f"--entity-type: found {one!r}, wanted users, clients or ips")
    if len(names) > len(types) or len(set(types)) < len(types):
        raise UsageError("wanted one --entity-type for each --entity-name or --entity-default")
    return {TYPES[kind]: names[place] if place < len(names) else ANY
            for place, kind in enumerate(types)}  # fmt: skip


def _describe(options: argparse.Namespace, entity: dict[str, Any]) -> None:
    named = {kind: name for kind, name in entity.items() if name is not ANY}
    with open_admin(options) as admin:
        found = admin.describe_client_quotas(
            named, types=[kind for kind in entity if kind not in named], strict=bool(entity)
        )
    for one, values in found.items():
        if options.json:
            print(json_line({"entity": dict(one), "quotas": values}))
            continue
        what = ", ".join(
            f"the default for {kind}" if name is None else f"{kind} '{name}'" for kind, name in one
        )
        print(f"Quotas of {what}: " + ", ".join(f"{key}={_shown(n)}" for key, n in values.items()))


def _shown(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _alter(options: argparse.Namespace, entity: dict[str, Any]) -> None:
    if not entity or ANY in entity.values():
        raise UsageError("alter: whose quotas? give --entity-type and --entity-name or its default")
    values: dict[str, float | None] = {}
    for text in _split(options.add):
        key, equals, number = text.partition("=")
        try:
            values[key.strip()] = float(number)
        except ValueError:
            raise UsageError(f"--add: found {text!r}, wanted KEY=NUMBER") from None
        if not equals or not key.strip():
            raise UsageError(f"--add: found {text!r}, wanted KEY=NUMBER")
    for key in _split(options.delete):
        if key in values:
            raise UsageError(f"found {key} in --add and in --delete, wanted it in one of them")
        values[key] = None
    if not values:
        raise UsageError("alter: which quotas? give --add or --delete")
    changed = tuple(sorted(entity.items()))
    with open_admin(options) as admin:
        admin.alter_client_quotas({changed: values}, validate_only=options.dry_run).check()
    say("The quotas can be changed." if options.dry_run else "The quotas were changed.")


def _split(texts: Sequence[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]
