"""The records of an input, block by block: text here, JSON and CSV in fields."""

import re
from collections.abc import Iterator

from kafkalog.cli.common import CommandError, UsageError
from kafkalog.cli.fields import csv_blocks, json_blocks
from kafkalog.cli.inputs import Bad, Block, Input, Row, Shape, block_of, checked_row, read_lines

__all__ = ["check_shape", "read_blocks"]


SHAPING = ("key", "timestamp", "value", "key_regex", "timestamp_regex", "key_separator")


def read_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    """The records of an input, in blocks of about a megabyte.

    `bad(line, why)` is called with each invalid line, and raises when there were
    too many.  Raises: CommandError for a file that cannot be decompressed or decoded, UsageError
    for options that do not fit its format.
    """
    kind = source.format(shape.format)
    check_shape(source.name, kind, shape)
    try:
        if kind == "csv":
            yield from csv_blocks(source, shape, bad)
        elif kind == "json":
            yield from json_blocks(source, shape, bad)
        else:
            yield from _text_blocks(source, shape, bad)
    except (EOFError, OSError) as problem:
        raise CommandError(f"{source.name}: {problem}") from None
    except Exception as problem:
        # zlib.error and ZstdError share no base class with anything.
        if type(problem).__module__ in ("zlib", "zstd", "zstandard", "zstandard.backend_c"):
            raise CommandError(f"{source.name}: {problem}") from None
        raise


def check_shape(name: str, kind: str, shape: Shape) -> None:
    """Check that the options fit the input's format.  Raises: UsageError naming one that does
    not."""
    if kind in ("records", "whole"):
        named = [o for o in SHAPING if getattr(shape, o) is not None]
        if named:
            option = f"--{named[0].replace('_', '-')}"
            raise UsageError(f"{option}: has no meaning with --format {kind}")
        return
    if kind == "text":
        for option in ("key", "timestamp", "value"):
            if getattr(shape, option) is not None:
                instead = "" if option == "value" else f"; of text --{option}-regex finds it"
                raise UsageError(
                    f"--{option}: {name} is text, which has no fields (--format json or csv)"
                    + instead
                )
        return
    for option in ("key_regex", "timestamp_regex", "key_separator"):
        if getattr(shape, option) is not None:
            raise UsageError(
                f"--{option.replace('_', '-')}: is for text, {name} is {kind}; "
                f"--{option.split('_')[0]} names a field"
            )


# ---- text ----------------------------------------------------------------------------------


def _text_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    regex = shape.key_regex
    previous: int | None = None
    for number, lines in read_lines(source):
        # A key is a part of its line: twice the longest line is more than any record.
        simple = shape.timestamp_regex is None and shape.key_separator is None
        if simple and 2 * max(map(len, lines)) <= shape.limit_bytes:
            values = lines if b"" not in lines else [line for line in lines if line]
            keys = None if regex is None else [_key_in(value, regex) for value in values]
            yield Block(values, keys, None, len(lines) - len(values))
            continue
        rows: list[Row] = []
        blank = 0
        for i, line in enumerate(lines):
            if not line:
                blank += 1
                continue
            try:
                if shape.timestamp_regex is not None:
                    previous = _time_in(line, shape.timestamp_regex, shape, previous)
                key = None if regex is None else _key_in(line, regex)
                if shape.key_separator is not None:
                    key, line = _split(line, shape.key_separator)
                rows.append(checked_row(line, key, previous, shape))
            except ValueError as problem:
                yield block_of(rows)
                rows = []
                bad(number + i, str(problem))
        yield block_of(rows, blank)


def _key_in(line: bytes, regex: re.Pattern[bytes]) -> bytes | None:
    match = regex.search(line)
    return match[1 if regex.groups else 0] if match else None


def _split(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"no {separator.decode('utf-8', 'backslashreplace')!r} after a key")
    return key, value


def _time_in(
    line: bytes, regex: re.Pattern[bytes], shape: Shape, previous: int | None
) -> int | None:
    match = regex.search(line)
    if match is None:
        if shape.without_timestamp == "now":
            return None
        if shape.without_timestamp == "previous":
            return previous
        raise ValueError("--timestamp-regex finds nothing")
    return shape.clock(match[1 if regex.groups else 0].decode("utf-8", "replace"))
