"""docs/cli.md and the manual pages, rendered from the commands' parsers."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog.cli import EXIT_CODES, OF_KAFKA, OVERVIEW
from kafkalog.cli.described import Described, described

__all__ = ["manual_pages", "render_markdown"]

DEBUG = "KAFKALOG_DEBUG"


# ---- docs/cli.md -------------------------------------------------------------------------------


def render_markdown() -> str:
    """docs/cli.md: every command, its options, an example and the exit codes."""
    commands = described()
    lines = [
        "# The command line",
        "",
        "Rendered from the parsers in `kafkalog/cli/` by `make docs`; do not edit.",
        "`python -m kafkalog` is the same as `kafkalog`.",
        "",
        "| command | what it does |",
        "| --- | --- |",
        *(f"| [{one.name}](#kafkalog-{one.name}) | {one.text} |" for one in commands),
        "",
        "| exit status | meaning |",
        "| --- | --- |",
        *(f"| {code} | {text} |" for code, text in EXIT_CODES.items()),
        "",
        "| Kafka's script | here |",
        "| --- | --- |",
        *(f"| {scripts} | {_commands(text)} |" for scripts, text in OF_KAFKA.items()),
        "",
        "`serve` formats the new directory of a single node itself.",
        "",
        "An error is one line on stderr that begins with `kafkalog:`. With `KAFKALOG_DEBUG=1`",
        "in the environment a failure shows its traceback.",
        "",
        "With `--json` a command prints what it shows as JSON, one object per line. No command",
        "prints colours. Work that takes long shows its progress on stderr, if that is a terminal",
        "(other than `TERM=dumb`).",
        "",
        "`source <(kafkalog completion bash)`, or `zsh`, completes commands, options and values;",
        "in fish it is `kafkalog completion fish | source`. `kafkalog man serve | man -l -` shows",
        "a manual page; `kafkalog man --dir ~/.local/share/man/man1` writes all of them.",
    ]
    for command in commands:
        lines += ["", *_markdown(command)]
    return "\n".join(lines) + "\n"


def _commands(text: str | None) -> str:
    return ", ".join(f"`kafkalog {one}`" for one in text.split(", ")) if text else "-"


def _markdown(command: Described) -> list[str]:
    lines = [f"## kafkalog {command.name}", "", command.description, ""]
    if command.actions:
        lines += ["| action | what it does |", "| --- | --- |"]
        lines += [*(f"| `{one}` | {text} |" for one, text in command.actions.items()), ""]
    lines += ["| argument | meaning |", "| --- | --- |"]
    for one in command.arguments:
        words, text = (cell.replace("|", "\\|") for cell in (one.words, one.text))
        lines.append(f"| `{words}` | {text} |")
    return [*lines, "", "```sh", *command.examples, "```"]


# ---- manual pages ------------------------------------------------------------------------------


def manual_pages() -> Iterator[tuple[str, str]]:
    """Each page's name, without `.1`, and its text for groff's man macros."""
    commands = described()
    yield "kafkalog", _page("kafkalog", "a commit log that is Kafka", [
        ".SH SYNOPSIS", r".B kafkalog", r"\fICOMMAND\fR [\fIoption\fR ...]",
        ".SH DESCRIPTION", *_plain(OVERVIEW),
        ".SH COMMANDS",
        *(line for one in commands for line in (
            ".TP", rf"\fBkafkalog\-{_escaped(one.name)}\fR(1)", _escaped(one.text))),
    ])  # fmt: skip
    for one in commands:
        yield f"kafkalog-{one.name}", _command_page(one)


def _command_page(command: Described) -> str:
    head, *more = command.description.split("\n\n")
    synopsis = [".SH SYNOPSIS", rf".B kafkalog {_escaped(command.name)}"]
    if command.actions:
        synopsis.append(r"\fIACTION\fR")
    synopsis += [
        rf"\fI{_escaped(one.words)}\fR" for one in command.arguments
        if not one.flags and not command.actions
    ]  # fmt: skip
    lines = [*synopsis, r"[\fIoption\fR ...]", ".SH DESCRIPTION", *_plain(head)]
    for part in more:
        lines += [".PP", *_plain(part)]
    if command.actions:
        lines.append(".SH ACTIONS")
        for name, text in command.actions.items():
            lines += [".TP", rf"\fB{_escaped(name)}\fR", _escaped(text)]
    lines.append(".SH OPTIONS")
    for one in command.arguments:
        flags = ", ".join(rf"\fB{_escaped(flag)}\fR" for flag in one.flags)
        value = rf"\fI{_escaped(one.value)}\fR" if one.value else ""
        lines += [".TP", f"{flags} {value}".strip(), _escaped(one.text) or r"\&"]
    lines += [".SH EXAMPLES", ".nf", *map(_escaped, command.examples), ".fi"]
    return _page(f"kafkalog-{command.name}", command.text, lines)


def _page(name: str, text: str, lines: list[str]) -> str:
    codes = [
        line for code, meaning in EXIT_CODES.items()
        for line in (".TP", rf"\fB{code}\fR", _escaped(meaning))
    ]  # fmt: skip
    return "\n".join([
        f'.TH {name.upper()} 1 "" kafkalog "User Commands"',
        ".SH NAME", rf"{_escaped(name)} \- {_escaped(text)}", *lines,
        ".SH EXIT STATUS", *codes,
        ".SH ENVIRONMENT", ".TP", rf"\fB{DEBUG}\fR",
        "With 1 a failure shows its traceback instead of one line.", "",
    ])  # fmt: skip


def _plain(text: str) -> list[str]:
    """Text as it is, with its lines."""
    return [".nf", *map(_escaped, text.strip("\n").split("\n")), ".fi"]


def _escaped(text: str) -> str:
    """Text without meaning for groff, on one line."""
    safe = " ".join(text.split("\n")).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{safe}" if safe[:1] in (".", "'") else safe
