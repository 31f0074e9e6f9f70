"""`kafkalog features`: shows and changes the levels of a cluster's features, as Kafka's tool
does."""

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import CommandError, UsageError, json_line, repeated
from kafkalog.cli.remote import action_of, add_actions, add_bootstrap, open_admin, say

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin

EXAMPLES = """\
example:
  kafkalog features --bootstrap-server localhost:9092
  kafkalog features upgrade transaction.version=2 --bootstrap-server localhost:9092
  kafkalog features downgrade transaction.version=1 --dry-run --bootstrap-server localhost:9092
"""

ACTIONS = {
    "describe": "show the levels that the broker supports and those in use (the default action)",
    "upgrade": "give features higher levels",
    "downgrade": "give features lower levels",
    "disable": "set features to level 0",
}

OPTIONS = {
    "feature": ("upgrade", "downgrade", "disable"),
    "unsafe": ("downgrade", "disable"),
    "dry_run": ("upgrade", "downgrade", "disable"),
    "json": ("describe",),
}
"""The options that belong to some actions only."""
DEFAULT = "describe"
LEVEL_MAX = 32_767
METADATA = "metadata.version"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "FEATURE")
    repeated(
        parser,
        "--feature",
        metavar="FEATURE=LEVEL",
        help="the same as the positional name; to disable, without a level",
    )
    parser.add_argument(
        "--unsafe", action="store_true", help="downgrade, disable: even if metadata may be lost"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="let the broker check the change, but change nothing"
    )
    parser.add_argument("--json", action="store_true", help="describe: one JSON object per feature")


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    named = [*words, *options.feature]
    if action == "describe":
        if named:
            raise UsageError(f"describe: found {named[0]!r}, wanted no feature")
        with open_admin(options) as admin:
            _describe(admin, options)
        return 0
    levels = _levels(action, named)
    with open_admin(options) as admin:
        _update(admin, options, action, levels)
    return 0


def _levels(action: str, named: list[str]) -> dict[str, int]:
    if not named:
        raise UsageError(f"{action}: which feature? give its name" + _wanted(action))
    found: dict[str, int] = {}
    for text in named:
        name, equals, level = text.partition("=")
        name = name.strip()
        fine = not equals if action == "disable" else level.strip().isdigit()
        if not name or not fine or (equals and int(level) > LEVEL_MAX):
            raise UsageError(f"{action}: found {text!r}, wanted FEATURE{_wanted(action)}")
        if name in found:
            raise UsageError(f"{action}: found {name} twice, wanted it once")
        found[name] = int(level) if equals else 0
    return found


def _wanted(action: str) -> str:
    return "" if action == "disable" else "=LEVEL"


def _level(name: str, level: int) -> str:
    from kafkalog.metadata.levels import RELEASES

    known = name == METADATA and 0 < level <= len(RELEASES)
    return RELEASES[level - 1] if known else str(level)


def _describe(admin: "Admin", options: argparse.Namespace) -> None:
    found = admin.describe_features()
    for one in found.features:
        if options.json:
            row = {"feature": one.name, "supported_min": one.lowest, "supported_max": one.highest}
            print(json_line({**row, "finalized": one.level, "epoch": found.epoch}))
            continue
        low, high, level = (_level(one.name, n) for n in (one.lowest, one.highest, one.level))
        print(
            f"Feature: {one.name}\tSupportedMinVersion: {low}\tSupportedMaxVersion: {high}\t"
            f"FinalizedVersionLevel: {level}\tEpoch: {'-' if found.epoch < 0 else found.epoch}"
        )


def _update(
    admin: "Admin", options: argparse.Namespace, action: str, levels: dict[str, int]
) -> None:
    how = "upgrade"
    if action != "upgrade":
        how = "unsafe_downgrade" if options.unsafe else "safe_downgrade"
    dry = options.dry_run
    from kafkalog.client.link.failures import name_of

    found = admin.update_features(levels, how=how, validate_only=dry)
    for name in sorted(levels):
        to = "" if action == "disable" else f" to {levels[name]}"
        if name not in found.errors:
            say(f"{name} {'can be' if dry else 'was'} {action}d{to}.")
        else:
            # The broker's message as Kafka's tool prints it: without repeating the name or the
            # code.
            problem = found.errors[name]
            words = str(problem).rpartition(f"{name_of(problem.code or 0)}: ")[2]
            say(f"{'Can not' if dry else 'Could not'} {action} {name}{to}. {words}")
    if found.errors:
        raise CommandError(f"{len(found.errors)} out of {len(levels)} operation(s) failed.")
