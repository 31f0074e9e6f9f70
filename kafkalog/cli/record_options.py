"""Options that say how lines become records, for the commands that read files."""

import argparse
import os
import re
from collections.abc import Iterable
from datetime import timezone, tzinfo
from typing import Any

from kafkalog.cli.blocks import check_shape
from kafkalog.cli.common import UsageError, plural
from kafkalog.cli.inputs import Shape, format_by_name, timestamp_parser

__all__ = ["add_errors", "add_fields", "add_times", "check_files", "left_out", "shape_of"]


def add_fields(parser: Any) -> None:
    """The parts of a line that are the key, the time, the value."""
    parser.add_argument("--key", metavar="FIELD", help="JSON, CSV: the field that is the key")
    parser.add_argument(
        "--timestamp", metavar="FIELD", help="JSON, CSV: the field that is the record's timestamp"
    )
    parser.add_argument(
        "--value", metavar="FIELD", help="JSON, CSV: the field that is the value (default: all)"
    )
    parser.add_argument(
        "--key-regex",
        metavar="REGEX",
        help="text: the first group is the key; without a match there is no key",
    )
    parser.add_argument(
        "--timestamp-regex", metavar="REGEX", help="text: the first group is the record's timestamp"
    )


def add_errors(parser: Any) -> None:
    """How many lines may be invalid."""
    parser.add_argument(
        "--max-errors",
        type=int,
        default=0,
        metavar="N",
        help="skip up to N invalid lines, and report them (default 0: stop at the first)",
    )


def add_times(parser: Any) -> None:
    """How the time of a line is written."""
    parser.add_argument(
        "--timestamp-format",
        metavar="FORMAT",
        help="a strptime format, or ms, or s (default: ISO 8601, or a number of ms or s)",
    )
    parser.add_argument(
        "--timestamp-year",
        type=int,
        metavar="YEAR",
        help="the year, if the format has none (default: the current year)",
    )
    parser.add_argument(
        "--timezone",
        metavar="NAME",
        default="UTC",
        help="the time zone of timestamps without one (default UTC)",
    )
    parser.add_argument(
        "--without-timestamp",
        choices=("error", "previous", "now"),
        default="error",
        help="the timestamp of a text line in which the regex finds none",
    )


def shape_of(options: argparse.Namespace) -> Shape:
    """The options as a Shape.  Raises: UsageError."""
    return Shape(
        options.format,
        options.key,
        options.timestamp,
        options.value,
        _regex("--key-regex", options.key_regex),
        _regex("--timestamp-regex", options.timestamp_regex),
        timestamp_parser(options.timestamp_format, _zone(options.timezone), options.timestamp_year),
        options.without_timestamp,
        plain_ms=options.timestamp_format in (None, "ms"),
    )


def check_files(files: Iterable[str], shape: Shape, form: str) -> None:
    """Check before anything is sent that each file exists and its format has what the options need.

    Raises: UsageError, OSError.
    """
    for path in files:
        if path != "-":
            if os.path.isdir(path):
                raise UsageError(f"{path}: is a directory, wanted a file")
            os.stat(path)
        kind = format_by_name(path) if form == "auto" else form
        if path != "-" or form != "auto":
            check_shape("stdin" if path == "-" else path, kind, shape)


def left_out(errors: int, blank: int) -> str:
    """For a summary: lines that became no record."""
    parts = [f"{plural(errors, 'line')} skipped"] if errors else []
    if blank:
        parts.append(f"{plural(blank, 'blank line')} left out")
    return "".join(f", {part}" for part in parts)


def _regex(name: str, text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(text.encode())
    except re.error as problem:
        raise UsageError(f"{name}: {problem}") from None


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return timezone.utc
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"--timezone: no time zone {name!r}") from None
