"""The command line: `kafkalog COMMAND ...`, one module of this package per command.

A command's module is imported only when it is called, and it imports what it needs only
when it runs, so that `kafkalog --help` answers immediately.  Modules that are not a command are
what several commands share.
"""

import argparse
import errno
import importlib
import io
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

from kafkalog.cli.common import CommandError, UsageError, hint

__all__ = [
    "COMMANDS",
    "EXIT_CODES",
    "OF_KAFKA",
    "OVERVIEW",
    "actions_of",
    "examples_of",
    "main",
    "parser_of",
]

COMMANDS: dict[str, str] = {
    "serve": "run a broker on a port, for any Kafka client",
    "ingest": "append the lines of text, JSON or CSV files to a topic",
    "produce": "send lines, JSON records or whole files to a broker's topic",
    "consume": "print the records of a topic, from a directory or a broker",
    "topics": "show, create, alter and delete topics; delete records",
    "groups": "show consumer groups and their lag; reset offsets; delete them",
    "share-groups": "show share groups and their lag; reset offsets; delete groups",
    "streams-groups": "show streams groups, their tasks; reset offsets; delete groups",
    "transactions": "list and describe transactions; find hanging ones and end them",
    "configs": "show and change settings of topics, brokers and groups",
    "client-metrics": "show and change which metrics clients send to their brokers",
    "quotas": "show and change quotas of clients: bytes, time, connections",
    "users": "show users' SCRAM credentials; add, replace and delete them",
    "acls": "show, add and remove permissions",
    "tokens": "show, create, renew and expire delegation tokens",
    "cluster": "administer a cluster: nodes, replicas, leaders; try one here",
    "top": "watch a cluster: nodes, topics, groups, rates and lag",
    "quorum": "show the quorum of controllers; add and remove voters",
    "storage": "format the directories of a KRaft cluster's node; new ids",
    "features": "show and change the levels of a cluster's features",
    "offsets": "show where partitions begin and end, or the offset at a time",
    "mirror": "copy topics, settings and groups' offsets to another cluster",
    "console": "show a cluster in the browser; topics, messages, groups",
    "perf": "measure a broker: produce, consume, end to end",
    "dump": "show what is inside Kafka's files, batch by batch",
    "verify": "check every byte that can be checked",
    "repair": "show how damage would be repaired; --execute repairs it",
    "compact": "keep only the last record of each key, in sealed segments",
    "holds": "show what lagging readers hold back from retention; end a hold",
    "adopt": "adopt a directory whose topics no metadata names",
    "simulate": "simulate a cluster with faults from a seed; check its promises",
    "test-broker": "run a broker for a test suite in any language",
    "completion": "print a script that completes commands in a shell",
    "man": "show a manual page, or write all of them",
}
HIDDEN = {"failpoints": "list the failpoints of the test build"}
"""For developers of kafkalog: not shown in the overview or in docs/cli.md."""

OF_KAFKA = {
    "connect-mirror-maker": "mirror",
    "kafka-acls": "acls",
    "kafka-broker-api-versions": None,
    "kafka-client-metrics": "client-metrics",
    "kafka-cluster": "cluster id, cluster endpoints, cluster unregister",
    "kafka-configs": "configs, users, quotas",
    "kafka-console-consumer": "consume",
    "kafka-console-producer": "produce",
    "kafka-consumer-groups, kafka-groups": "groups",
    "kafka-consumer-perf-test, kafka-producer-perf-test, kafka-e2e-latency": "perf",
    "kafka-delegation-tokens": "tokens",
    "kafka-delete-records": "topics delete-records",
    "kafka-dump-log": "dump",
    "kafka-features": "features",
    "kafka-get-offsets": "offsets --time",
    "kafka-leader-election": "cluster elect",
    "kafka-log-dirs": "cluster log-dirs",
    "kafka-metadata-quorum": "quorum",
    "kafka-reassign-partitions": "cluster reassign, cluster drain",
    "kafka-replica-verification": "cluster check",
    "kafka-server-start": "serve",
    "kafka-console-share-consumer": None,
    "kafka-share-groups": "share-groups",
    "kafka-storage": "storage",
    "kafka-streams-groups": "streams-groups",
    "kafka-topics": "topics",
    "kafka-transactions": "transactions",
    "kafka-verifiable-producer, kafka-verifiable-consumer": None,
}
"""The scripts in Kafka's bin/ that administer or try a cluster, and what is the same here; None:
nothing."""
EXIT_CODES = {
    0: "done; verify: no damage; cluster status, check: no problem",
    1: "failed; verify: damage, or something that could not be checked; cluster status, check: "
    "a problem",
    2: "wrong usage: an argument, a path or a name that does not exist",
    130: "ended by Ctrl-C",
}

OVERVIEW = """\
A commit log that is Kafka: the same files on disk, the same protocol on the wire.

example, without a server:
  kafkalog ingest access.log --dir data --topic access --partitions 3 --compression zstd
  kafkalog consume --dir data --topic access --max-messages 10

example, with one:
  kafkalog serve --dir data --listen localhost:9092
  kafkalog produce access.log --topic access --bootstrap-server localhost:9092
  kafkalog consume --topic access --group me --follow --bootstrap-server localhost:9092
"""


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line, as commands do."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing argparse's usage."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message = self._unknown(unknown.split()[0])
        command = self.prog.removeprefix("kafkalog").strip()
        where = f"{command}: " if command else ""
        raise UsageError(f"{where}{message}; see {self.prog} --help")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"unexpected argument {word!r}"
        import difflib

        near = difflib.get_close_matches(word, self._option_string_actions, 1)
        return f"no option {word}" + (f" (did you mean {near[0]}?)" if near else "")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse, but a failed write is reported."""
        (file or sys.stderr).write(message)


class _Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, without the import of shutil, which takes longer than the rest."""

    def __init__(self, prog: str) -> None:
        width = int(columns) if (columns := os.environ.get("COLUMNS", "")).isdigit() else 0
        out = sys.__stdout__
        if not width:
            try:
                width = 80 if out is None else os.get_terminal_size(out.fileno()).columns
            except (ValueError, OSError):  # it is no terminal, or closed
                width = 80
        super().__init__(prog, width=width - 2)


def exit_codes() -> str:
    """The exit codes as lines of text, for --help."""
    return "exit status:\n" + "\n".join(f"  {c:<4}{text}" for c, text in EXIT_CODES.items())


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"kafkalog.cli.{command.replace('-', '_')}")


def actions_of(command: str) -> Mapping[str, str]:
    """The actions of a command and what they do; empty: it has none."""
    found: Mapping[str, str] = getattr(_module(command), "ACTIONS", {})
    return found


def examples_of(command: str) -> str:
    """The examples of a command, after a line of introduction."""
    return str(_module(command).EXAMPLES)


def parser_of(command: str, action: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command: description, options, an example, the exit codes.

    `action`: its help shows only the options that this action has.
    """
    module = _module(command)
    text = (COMMANDS | HIDDEN)[command] if action is None else module.ACTIONS[action]
    parser = _Parser(
        prog=f"kafkalog {command}{f' {action}' if action else ''}",
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"{_examples(module.EXAMPLES, action)}\n{exit_codes()}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    module.arguments(parser)
    if action is None and hasattr(module, "ACTIONS"):
        parser.add_argument_group("actions (each has --help)", _in_lines(module.ACTIONS))
        parser._action_groups.insert(0, parser._action_groups.pop())
    if action is not None:
        for option in parser._actions:
            others = action not in module.OPTIONS.get(option.dest, (action,))
            if others or option.dest in ("action", "words"):
                option.help = argparse.SUPPRESS
    return parser


def _in_lines(texts: Mapping[str, str]) -> str:
    """A line for each name and its text."""
    width = max(map(len, texts)) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in texts.items())


def _examples(text: str, action: str | None) -> str:
    """The examples; with an action, those that name it."""
    if action is None:
        return text
    head, *each = text.split("\n  kafkalog")
    named = [one for one in each if f" {action} " in one or f" --{action} " in one]
    return "\n  kafkalog".join([head, *named]).rstrip() + "\n" if named else ""


def _action_in(command: str, words: Sequence[str]) -> str | None:
    """The action, given as a word or as an option, if the command has actions."""
    module = _module(command)
    if not hasattr(module, "OPTIONS"):
        return None
    names = (word.removeprefix("--") for word in words)
    return next((name for name in names if name in module.ACTIONS), None)


def _check_options(command: str, options: argparse.Namespace) -> None:
    """Check that each given option belongs to the action.  Raises: UsageError."""
    module = _module(command)
    if not hasattr(module, "OPTIONS"):
        return
    from kafkalog.cli.remote import action_of

    action, _ = action_of(options, module.ACTIONS, module.DEFAULT)
    plain = parser_of(command)
    for dest, actions in module.OPTIONS.items():
        if action not in actions and getattr(options, dest) != plain.get_default(dest):
            raise UsageError(
                f"{command} {action}: --{dest.replace('_', '-')} is an option of "
                f"{' and '.join(actions)}; see kafkalog {command} {action} --help"
            )


def _overview() -> argparse.ArgumentParser:
    commands = textwrap.indent(_in_lines(COMMANDS), "  ")
    parser = _Parser(
        prog="kafkalog",
        description=OVERVIEW,
        epilog=f"commands (each has --help):\n{commands}\n\n{exit_codes()}\n\n"
        "KAFKALOG_DEBUG=1 in the environment shows the traceback of a failure.",
        formatter_class=_Help,
        usage="kafkalog COMMAND [option ...]",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status, which `EXIT_CODES` explains."""
    words = list(sys.argv[1:] if argv is None else argv)
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A file's name or a key may contain anything: it must print in any encoding.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(words)
        sys.stdout.flush()  # Python itself would report a failed write too late
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except Exception as problem:
        return _failed(problem)


def _run(words: list[str]) -> int:
    try:
        if not words or words[0].startswith("-"):
            return _without_command(words)
        command, rest = words[0], words[1:]
        if command not in COMMANDS | HIDDEN:
            raise UsageError(_unknown(command))
        if "--help" in rest or "-h" in rest:
            parser_of(command, _action_in(command, rest)).print_help()
            return 0
        options = parser_of(command).parse_intermixed_args(rest)
        _check_options(command, options)
        return int(_module(command).run(options))
    except SystemExit as end:  # argparse's, after --help
        return end.code if isinstance(end.code, int) else 2


def _fill_closed_streams() -> None:
    """Reopen standard descriptors that the shell closed (`>&-`): otherwise the next opened file
    would get the number, and output would go into it.  Writing to a closed output fails, as for any
    program; errors that nobody can see are dropped."""
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is not None:
            continue
        made = os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)
        if made != number:  # it is open nevertheless: somebody else's
            os.close(made)
        elif number == 1:
            sys.stdout = open(made, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        elif number == 2:
            sys.stderr = open(made, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _silence_stdout() -> None:
    """The reader of our output has closed it; what is still buffered is dropped."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _without_command(words: list[str]) -> int:
    options = _overview().parse_args(words)
    if options.version:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"kafkalog {version('kafkalog')}")
        except PackageNotFoundError:
            print("kafkalog, not installed: run from its sources")
        return 0
    _overview().print_help()
    return 0


def _unknown(command: str) -> str:
    known = f"there are {', '.join(COMMANDS)}"
    return f"no command {command!r}; {hint(command, COMMANDS, known)}"


_NEXT = {
    errno.ECONNREFUSED: "nothing listens there; kafkalog serve starts a broker",
    errno.EADDRINUSE: "give another port, or port 0 for a free one",
    errno.EBADF: "the output was closed",
}
"""A hint about a common failure of the environment."""


def _what_next(problem: Exception) -> str:
    """A hint after a message; empty if the message says enough."""
    from kafkalog.errors import Locked

    if isinstance(problem, Locked):
        return "; a broker's directory is reached through it: --bootstrap-server"
    cause: BaseException | None = problem
    while cause is not None and getattr(cause, "errno", None) is None:
        cause = cause.__cause__ or cause.__context__
    hint = _NEXT.get(getattr(cause, "errno", None) or 0)
    return f"; {hint}" if hint else ""


def _failed(problem: Exception) -> int:
    """One line for an error of the user or the environment; a traceback for our own bugs."""
    from kafkalog.errors import ArgumentError, KafkalogError, NotFound, UnknownTopicOrPartition

    if os.environ.get("KAFKALOG_DEBUG"):
        raise problem
    if not isinstance(problem, (CommandError, KafkalogError, OSError)):
        raise problem
    if isinstance(problem, KafkalogError) or not isinstance(problem, OSError):
        text = str(problem)
    else:
        text = problem.strerror or str(problem)
        text = f"{os.fsdecode(problem.filename)}: {text}" if problem.filename else text
    print(f"kafkalog: {text}{_what_next(problem)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # it was the output: Python would report it again at exit
        _silence_stdout()
    if isinstance(problem, CommandError):
        return problem.status
    usage = (ArgumentError, FileNotFoundError, NotFound, UnknownTopicOrPartition)
    return 2 if isinstance(problem, usage) else 1
