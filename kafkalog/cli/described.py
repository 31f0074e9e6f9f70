"""The commands as data, read from their parsers: for docs/cli.md, manual pages and completion."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.cli import COMMANDS, actions_of, examples_of, parser_of

__all__ = ["Argument", "Described", "described"]

OF_PATHS = {"FILE", "DIR", "PATH"}
"""Placeholders of arguments that name a file or a folder."""
PATHS = {"dir", "file", "path", "folder", "into"}
"""The same for arguments without a placeholder, by name."""


class Argument(NamedTuple):
    """One argument of a command."""

    flags: tuple[str, ...]
    """Empty: it is given by its place."""
    value: str
    """The placeholder after the flags, or in its place; empty: there is none."""
    text: str
    choices: tuple[str, ...]
    """The only values; empty: others are possible."""
    is_path: bool
    repeated: bool

    @property
    def words(self) -> str:
        """As usage shows it: `--dir DIR`."""
        if not self.flags:
            return self.value + ("..." if self.repeated else "")
        flags = ", ".join(self.flags)
        return f"{flags} {self.value}" if self.value else flags


class Described(NamedTuple):
    """One command."""

    name: str
    text: str
    """Its purpose in a few words."""
    description: str
    actions: Mapping[str, str]
    arguments: tuple[Argument, ...]
    examples: tuple[str, ...]
    """Lines for a shell."""


def described() -> list[Described]:
    """All commands, in the order of the overview."""
    return [_command(name, text) for name, text in COMMANDS.items()]


def _command(name: str, text: str) -> Described:
    parser = parser_of(name)
    found = [one for one in parser._actions if not isinstance(one, argparse._HelpAction)]
    examples = [line.removeprefix("  ") for line in examples_of(name).strip().split("\n")[1:]]
    return Described(
        name, text, str(parser.description), actions_of(name), tuple(map(_argument, found)),
        tuple(examples),
    )  # fmt: skip


def _argument(action: argparse.Action) -> Argument:
    choices = tuple(map(str, action.choices or ()))
    shown = action.metavar if isinstance(action.metavar, str) else ""
    if choices:
        value = "|".join(choices)
    elif action.option_strings:
        value = "" if action.nargs == 0 else shown or action.dest.upper()
    else:
        value = shown or action.dest
    is_path = shown in OF_PATHS or (not shown and action.dest in PATHS)
    help_ = str(action.help or "").replace("%%", "%")
    repeated = action.nargs in ("+", "*")
    return Argument(tuple(action.option_strings), value, help_, choices, is_path, repeated)
