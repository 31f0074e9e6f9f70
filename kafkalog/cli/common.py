"""Shared by commands: usage errors, times and sizes as text, opening logs."""

import argparse
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from kafkalog.log.log import Log
    from kafkalog.types import TopicPartition

__all__ = [
    "CODECS",
    "PORT_MAX",
    "SECONDS_LIMIT",
    "CommandError",
    "UsageError",
    "add_dir",
    "agreed",
    "count_argument",
    "find_partitions",
    "hint",
    "json_bytes",
    "json_line",
    "no_topic",
    "open_log",
    "parse_moment",
    "parse_time",
    "plural",
    "port_argument",
    "preview",
    "repeated",
    "settings_of",
    "show_bytes",
    "show_time",
    "table",
    "time_ms",
    "warn",
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PORT_MAX = 65_535
SECONDS_LIMIT = 100_000_000_000  # as milliseconds this is 1973, as seconds the year 5138


class CommandError(Exception):
    """A failure that is reported in one line on stderr; exit status 1."""

    status = 1


class UsageError(CommandError):
    """An error of the user: exit status 2."""

    status = 2


def add_dir(parser: argparse.ArgumentParser, topic: bool = True) -> None:
    """`--dir` and `--topic`, which most commands take."""
    parser.add_argument("--dir", required=True, help="the data directory")
    if topic:
        parser.add_argument("--topic", required=True, help="the topic's name")


def count_argument(text: str) -> int:
    """An integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def port_argument(text: str) -> int:
    """A TCP port; 0: any that is free."""
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"found {text!r}, wanted a number from 0 to {PORT_MAX}")
    return int(text)


def repeated(parser: Any, *names: str, metavar: str, help: str) -> None:
    """An option that may be given several times: a list of its texts."""
    parser.add_argument(*names, action="append", default=[], metavar=metavar, help=help)


def settings_of(pairs: Iterable[str], option: str = "--set") -> dict[str, str]:
    """`name=value` words as settings.  Raises: UsageError."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            found = f"found {pair!r}, " if option == "--set" else ""  # it may be a password
            raise UsageError(f"{option}: {found}wanted name=value")
        settings[name] = value
    return settings


# json and datetime are imported where they are used: `kafkalog --help` needs neither.


def parse_time(text: str, zone: "tzinfo | None" = None) -> int:
    """Milliseconds since 1970 from an ISO 8601 time, or from a number (ms, or s if small).

    A time without an offset is in `zone`, None: UTC.  Raises: ValueError.
    """
    from datetime import datetime, timezone

    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        return number if abs(number) >= SECONDS_LIMIT else number * 1000
    if re.fullmatch(r"-?\d+\.\d+", text):
        return int(float(text) * 1000)
    plain = text.strip().replace(",", ".").replace("Z", "+00:00")
    # Before Python 3.11, fromisoformat reads fractions of 3 or 6 digits only.
    plain = re.sub(r"\.(\d{1,9})", lambda m: "." + m[1][:6].ljust(6, "0"), plain, count=1)
    moment = datetime.fromisoformat(plain)
    return time_ms(moment if moment.tzinfo else moment.replace(tzinfo=zone or timezone.utc))


def parse_moment(text: str) -> int:
    """Milliseconds since 1970 from an option's time, at least 0: ISO 8601 (UTC), or
    that number itself, however small, as in Kafka's tools.

    Raises: ValueError.
    """
    if re.fullmatch(r"\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d*\.?\d+", text):
        raise ValueError(f"found {text!r}")
    return max(parse_time(text), 0)


def time_ms(moment: "datetime") -> int:
    """Milliseconds since 1970 of a time that knows its zone."""
    from datetime import datetime, timedelta, timezone

    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def show_time(timestamp_ms: int) -> str:
    """ISO 8601 in UTC, to the millisecond; `-` for none, the number if it is not a date."""
    if timestamp_ms == -1:
        return "-"
    from datetime import datetime, timedelta, timezone

    try:
        epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
        moment = epoch + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def show_bytes(count: float) -> str:
    """`1.5 MiB`."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """`1 topic`, `2,000 topics`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def preview(data: bytes | None, limit: int = 60) -> str:
    """Bytes for a line of text: quoted, control characters escaped, shortened."""
    if data is None:
        return "null"
    import json

    text = data[: limit * 4].decode("utf-8", "backslashreplace")
    cut = len(data) > limit * 4 or len(text) > limit
    return json.dumps(text[:limit], ensure_ascii=False) + ("…" if cut else "")


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """{name: text}, or {name_base64: ...} for bytes that are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data).decode()}


def json_line(value: Any) -> str:
    """JSON in one line."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def table(heads: list[str], rows: list[list[str]], left: frozenset[int] = frozenset()) -> str:
    """Columns under headings, numbers right-aligned; `left`: the columns of text."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = []
    for row in [heads, *rows]:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """The known name that this one may mean, else `otherwise`."""
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else otherwise


def no_topic(where: str, name: str, topics: list[str]) -> UsageError:
    """The error for a missing topic, which names a similar one or those that exist."""
    some = f"it has {', '.join(topics[:10]) or 'none'}"
    return UsageError(f"{where}no topic {name!r}; {hint(name, topics, some)}")


def find_partitions(
    directory: str, topic: str, partition: int | None = None
) -> "dict[TopicPartition, str]":
    """The folders of a topic's partitions.  Raises: UsageError if there is none; OSError."""
    import os

    from kafkalog.disk.layout import list_directory

    names = list_directory(directory).partitions
    topics = sorted({tp.topic for tp in names})
    if topic not in topics:
        raise no_topic(f"{directory}: ", topic, topics)
    chosen = {
        tp: os.path.join(directory, names[tp])
        for tp in sorted(names)
        if tp.topic == topic and partition in (None, tp.partition)
    }
    if not chosen:
        raise UsageError(f"{directory}: topic {topic!r} has no partition {partition}")
    return chosen


def open_log(tp: "TopicPartition", path: str) -> "Log | None":
    """A log for reading; None for a partition that was never written.

    Raises: KafkalogError.
    """
    from kafkalog.disk.layout import leads_nowhere
    from kafkalog.errors import NotFound
    from kafkalog.log.log import Log

    try:
        return Log(path, mode="r", topic=tp.topic, partition=tp.partition)
    except NotFound:
        if leads_nowhere(path):
            raise
        return None


def warn(text: str) -> None:
    """One line on stderr."""
    print(f"kafkalog: {text}", file=sys.stderr)


def agreed(what: str) -> bool:
    """Ask the user at the terminal whether to continue with `what`, a sentence.

    Without a terminal the answer is no; so it is for Ctrl-D.  Asks on stderr, as stdout may go into
    a program.
    """
    if sys.stdin is None or not sys.stdin.isatty():  # None: it was closed
        return False
    print(f"{what} Go on? [y/N] ", end="", file=sys.stderr)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)  # Ctrl-D leaves the cursor after the question
        return False
    return answer.strip().lower() in ("y", "yes")
