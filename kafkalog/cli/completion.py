"""`kafkalog completion`: a script that completes commands, options and values in a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.cli.described import Argument, Described

EXAMPLES = """\
example:
  kafkalog completion bash
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("shell", choices=tuple(SHELLS), help="for which shell")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from kafkalog.cli.described import described

    sys.stdout.write("\n".join(SHELLS[options.shell](described())) + "\n")
    return 0


def _choices(command: Described) -> Iterator[tuple[Argument, str]]:
    """The arguments with a value, and the words that it can be: a list, or empty for any."""
    for one in command.arguments:
        if one.flags and one.value:
            yield one, " ".join(one.choices)


def _quoted(text: str) -> str:
    """For all three shells, within single quotes."""
    return "'" + text.replace("\\", "").replace("'", "`").replace("\n", " ") + "'"


# ---- bash --------------------------------------------------------------------------------------


def _bash(commands: Sequence[Described]) -> list[str]:
    lines = [
        "# bash completion of kafkalog",
        "_kafkalog() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        "    if [ $COMP_CWORD -eq 1 ]; then",
        f'        words="{" ".join(one.name for one in commands)} --help --version"',
        "    else",
        '        case "${COMP_WORDS[1]} $before" in',
    ]
    for command in commands:
        for one, choices in _choices(command):
            patterns = "|".join(f'"{command.name} {flag}"' for flag in one.flags)
            body = f'words="{choices}"' if choices else "return"  # the shell offers files
            lines.append(f"        {patterns}) {body} ;;")
    lines += ["        *)", '            case "${COMP_WORDS[1]}" in']
    for command in commands:
        lines.append(f'            {command.name}) words="{" ".join(_words(command))}" ;;')
    return [
        *lines, "            esac ;;", "        esac", "    fi",
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")',
        "}",
        "complete -o default -o bashdefault -F _kafkalog kafkalog",
    ]  # fmt: skip


def _words(command: Described) -> Iterator[str]:
    yield from command.actions
    for one in command.arguments:
        yield from one.flags or one.choices
    yield "--help"


# ---- zsh ---------------------------------------------------------------------------------------


def _zsh(commands: Sequence[Described]) -> list[str]:
    lines = [
        "#compdef kafkalog",
        "_kafkalog() {",
        "    local -a found",
        "    if (( CURRENT == 2 )); then",
        "        found=(",
        *(f"            {_quoted(f'{one.name}:{one.text}')}" for one in commands),
        "        )",
        "        _describe command found",
        "        return",
        "    fi",
        '    case "$words[2] $words[CURRENT-1]" in',
    ]
    for command in commands:
        for one, choices in _choices(command):
            patterns = "|".join(f'"{command.name} {flag}"' for flag in one.flags)
            body = f"compadd -- {choices}" if choices else "_files"
            lines.append(f"    {patterns}) {body}; return ;;")
    lines += ["    esac", '    case "$words[2]" in']
    for command in commands:
        lines += [f"    {command.name}) found=("]
        lines += [f"        {_quoted(f'{name}:{text}')}" for name, text in _described(command)]
        lines += ["        ) ;;"]
    return [
        *lines, "    esac", "    _describe argument found", "    _files", "}",
        # As a file of $fpath it is called; sourced, it is only defined.
        'if [ "$funcstack[1]" = _kafkalog ]; then _kafkalog "$@"',
        "else compdef _kafkalog kafkalog; fi",
    ]  # fmt: skip


def _described(command: Described) -> Iterator[tuple[str, str]]:
    yield from command.actions.items()
    for one in command.arguments:
        for name in one.flags or one.choices:
            yield name, one.text
    yield "--help", "show its arguments"


# ---- fish --------------------------------------------------------------------------------------


def _fish(commands: Sequence[Described]) -> list[str]:
    lines = ["# fish completion of kafkalog"]
    begin = "complete -c kafkalog"
    for command in commands:
        name, text = command.name, _quoted(command.text)
        lines.append(f"{begin} -n __fish_use_subcommand -xa {name} -d {text}")
        here = f"{begin} -n '__fish_seen_subcommand_from {name}'"
        for action, meaning in command.actions.items():
            lines.append(f"{here} -a {action} -d {_quoted(meaning)}")
        for one in command.arguments:
            told = f"-d {_quoted(one.text)}"
            if not one.flags:
                lines += (
                    [f"{here} -a {_quoted(' '.join(one.choices))} {told}"] if one.choices else []
                )
                continue
            flags = " ".join(f"-{'l' if len(flag) > 2 else 's'} {flag.lstrip('-')}"
                             for flag in one.flags)  # fmt: skip
            value = f" -xa {_quoted(' '.join(one.choices))}" if one.choices else " -r"
            lines.append(f"{here} {flags}{value if one.value else ''} {told}")
    return lines


SHELLS: Mapping[str, Callable[[Sequence[Described]], list[str]]] = {
    "bash": _bash, "zsh": _zsh, "fish": _fish,
}  # fmt: skip
