"""`kafkalog test-broker`: runs a broker for a test suite in any language; it ends with its
parent."""

import argparse
import json
import os
import select
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, port_argument, repeated, settings_of
from kafkalog.cli.signals import on_signals
from kafkalog.system import parent_descriptor

if TYPE_CHECKING:
    from kafkalog.testing.broker import TestBroker
    from kafkalog.testing.security import Security

EXAMPLES = """\
example:
  kafkalog test-broker
  kafkalog test-broker --topic orders:3 --topic payments --print json
  kafkalog test-broker --port 19092 --set auto.create.topics.enable=false
  kafkalog test-broker --security sasl_ssl --user alice=secret --acl alice:READ:topic:orders-*
"""

WORDS = """\
It reads commands from standard input, one per line, and answers each with a line, `ok` or
`error: why`:

    fail API ERROR [TIMES]    answer with Kafka's error, not carried out
        delay API MS [TIMES]      answer this much later
    disconnect API [TIMES]    close the connection, not carried out
    drop-response API [TIMES] carry it out, and close the connection
    heal                      remove all of these; start and resume
        pause | resume            answer nothing; go on
        stop | start | restart    orderly, at the same address
    kill                      a power cut: everything that was not on disk is lost; then start
    advance MS                let this much time pass at once
    topic NAME [PARTITIONS]   create a topic
    certificate KIND          present another: valid, expired, wrong-host, untrusted

TIMES is 1 by default; `all` means until heal.  The broker exits when its standard input ends, if
that is a pipe, and always when the process that started it is gone.
"""
LINE_MAX = 1 << 16
"""Bytes of a command; a longer one closes the connection."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.description = f"{parser.description}\n\n{WORDS}"
    parser.add_argument(
        "--port",
        type=port_argument,
        default=0,
        metavar="N",
        help="the port on 127.0.0.1 (default: a free one)",
    )
    parser.add_argument(
        "--dir", help="the data directory, which is kept (default: a temporary one)"
    )
    repeated(
        parser, "--topic", metavar="NAME[:PARTITIONS]", help="a topic to create; may be repeated"
    )
    repeated(
        parser, "--set", metavar="NAME=VALUE", help="a setting (docs/settings.md); may be repeated"
    )
    parser.add_argument(
        "--security",
        choices=("ssl", "sasl_plaintext", "sasl_ssl"),
        help="how clients must connect (default: in plain text); certificates are made for it",
    )
    repeated(parser, "--user", metavar="NAME=PASSWORD", help="a user, with SASL; may be repeated")
    repeated(
        parser,
        "--acl",
        metavar="USER:OPERATIONS:TYPE:NAME[:DENY]",
        help="what a user may do; without any, everything; a name that ends with * is a prefix; "
        "may be repeated",
    )
    parser.add_argument(
        "--print",
        choices=("text", "json"),
        default="text",
        help="the first line: the address alone, or an object with bootstrap_servers, pid, "
        "directory and client, the settings of Java's clients",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until the parent is gone, the input ends, or a signal comes."""
    from kafkalog.testing.broker import TestBroker

    parent = parent_descriptor()
    topics = [_topic(text) for text in options.topic]
    ended = _Ended()
    with (
        on_signals(ended.note),
        _directory(options.dir) as path,
        TestBroker(
            path,
            config=settings_of(options.set),
            port=options.port,
            security=_security(options),
        ) as broker,
    ):
        for name, partitions in topics:
            broker.create_topic(name, partitions)
        if options.print == "json":
            fields = {"bootstrap_servers": broker.bootstrap_servers, "pid": os.getpid()}
            more = {"directory": broker.path, "client": broker.client_config("java")}
            print(json.dumps({**fields, **more}), flush=True)
        else:
            print(broker.bootstrap_servers, flush=True)
        for line in _lines(parent, ended):
            print(_answer(broker, line), flush=True)
    return 0


def _topic(text: str) -> tuple[str, int]:
    name, colon, count = text.partition(":")
    if colon and not (count.isdecimal() and int(count) > 0):
        raise UsageError(f"--topic: found {text!r}, wanted NAME or NAME:PARTITIONS")
    return name, int(count) if colon else 1


def _security(options: argparse.Namespace) -> "Security | None":
    from kafkalog.testing.security import Security

    if options.security is None:
        if options.user or options.acl:
            raise UsageError("--user, --acl: found without --security, wanted it with them")
        return None
    users: dict[str, str] = {}
    for text in options.user:
        name, equals, password = text.partition("=")
        if not (name and equals):
            raise UsageError("--user: found one without = or name, wanted NAME=PASSWORD")
        users[name] = password
    acls = [tuple(text.split(":")) for text in options.acl]
    return Security(options.security, users, acls=acls or None)


@contextmanager
def _directory(given: str | None) -> Iterator[str]:
    from kafkalog.testing.place import in_memory

    if given is not None:
        yield given
        return
    with in_memory("kafkalog-test-") as path:
        yield path


# ---- when it ends --------------------------------------------------------------------------------


class _Ended:
    """A descriptor that becomes readable on SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def note(self, _number: int) -> None:
        """One has come."""
        with suppress(BlockingIOError):
            os.write(self._write, b"x")

    def fileno(self) -> int:
        """The pipe's reading end."""
        return self._read


def _is_pipe(descriptor: int) -> bool:
    """True if its end means that the parent closed it: not for a terminal or /dev/null."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _lines(parent: int | None, ended: _Ended) -> Iterator[str]:
    """The lines of the input, until it is time to stop."""
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    if parent is not None:
        poll.register(parent, select.POLLIN)
    if _is_pipe(0):
        poll.register(0, select.POLLIN)
    rest = b""
    while [descriptor for descriptor, _ in poll.poll()] == [0]:
        data = os.read(0, LINE_MAX)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if not data or len(rest) > LINE_MAX:
            return


# ---- commands ------------------------------------------------------------------------------------


def _answer(broker: "TestBroker", line: str) -> str:
    """Carry out a line; returns the answer, as one line."""
    from kafkalog.errors import KafkalogError

    try:
        _obey(broker, shlex.split(line))
    except (KafkalogError, ValueError, OSError) as problem:
        return "error: " + " ".join(str(problem).split())
    return "ok"


def _obey(broker: "TestBroker", words: list[str]) -> None:
    command, *rest = words or [""]
    if command in _PLAIN and not rest:
        _PLAIN[command](broker)
    elif command in ("fail", "delay") and len(rest) in (2, 3):
        second = rest[1] if command == "fail" else _number(rest[1])
        getattr(broker, command)(_named(rest[0]), second, _times(rest[2:]))
    elif command in ("disconnect", "drop-response") and len(rest) in (1, 2):
        getattr(broker, command.replace("-", "_"))(_named(rest[0]), _times(rest[1:]))
    elif command == "advance" and len(rest) == 1:
        broker.clock.advance(_number(rest[0]))
    elif command == "certificate" and len(rest) == 1 and broker.security:
        broker.security.present(rest[0])
    elif command == "topic" and len(rest) in (1, 2):
        broker.create_topic(rest[0], _number(rest[1]) if rest[1:] else 1)
    else:
        raise ValueError(f"found {' '.join(words)!r}; see kafkalog test-broker --help")


_PLAIN: dict[str, Callable[["TestBroker"], None]] = {
    "heal": lambda broker: broker.heal(),
    "pause": lambda broker: broker.pause(),
    "resume": lambda broker: broker.resume(),
    "stop": lambda broker: broker.stop(),
    "start": lambda broker: broker.start(),
    "restart": lambda broker: broker.restart(),
    "kill": lambda broker: broker.kill(),
}


def _named(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"found {text!r}, wanted a number")
    return int(text)


def _times(words: list[str]) -> int | None:
    return None if words == ["all"] else _number(words[0]) if words else 1
