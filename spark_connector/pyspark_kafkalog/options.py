"""The options of a read: text in, checked `ReadOptions` or `StreamOptions` out.  Pure, and light.

Names, meanings and defaults are those of Spark's own Kafka source; ours are `path`, `columns`,
`maxBytesPerPartition` and `isolation.level` (read_committed by default).  Spark hands the names
over in lower case, so names are compared without case.

Source: Spark's Structured Streaming + Kafka integration guide.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from .client_options import SERVERS, client_settings, is_ignored
from .errors import BadOption
from .option_table import BATCH, IGNORED, OF_BROKERS, OURS, REFUSED, STREAM, options_of

EARLIEST = -2
LATEST = -1
LARGEST = -3
"""Instead of a time: the record with the largest timestamp."""
DEFAULT_MAX_BYTES = 128 << 20
DEFAULT_STREAM_MAX_BYTES = 32 << 20
"""A micro-batch is small; its slowest task should not take long."""
DEFAULT_MAX_DELAY_MS = 15 * 60_000
DEFAULT_HOLD_BYTES = 10 << 30

Key = tuple[str, int]
"""A topic and a partition."""

T = TypeVar("T")


@dataclass(frozen=True)
class Selection:
    """Which topic-partitions to read.  Exactly one of the three is given."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[Key, ...] | None = None


@dataclass(frozen=True)
class Limit:
    """Where a read starts or ends: one value for every partition, or one for each.

    A value is an offset, EARLIEST or LATEST; `by_time`: milliseconds since 1970 UTC instead,
    standing for the first offset with a timestamp at or after it, or one of the two, or LARGEST.
    """

    option: str
    by_time: bool = False
    everywhere: int | None = None
    each: Mapping[Key, int] | None = None
    topics: Mapping[str, int] = field(default_factory=dict)
    """In addition to `each`: EARLIEST or LATEST for all partitions of a topic."""


@dataclass(frozen=True)
class Retries:
    """How long a read waits for brokers."""

    times: int = 3
    """How many times `default.api.timeout.ms` a plan waits for brokers that do not answer."""
    poll_ms: int = 120_000
    """How long a task waits for the records it reads."""


@dataclass(frozen=True)
class ReadOptions:
    """The checked options of a read.  Plain values only: it travels to the executors."""

    path: str | None
    """None: brokers are read."""
    selection: Selection
    start: Limit
    end: Limit
    start_without_match: str = "error"
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    isolation: str = "read_committed"
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()
    servers: str | None = None
    """`host:port,...`"""
    client: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings for the brokers' client, by the names of Kafka's consumer; they may be secret."""
    retries: Retries = Retries()

    @property
    def place(self) -> str:
        """For messages: the path, or the servers."""
        return self.path if self.path is not None else f"the brokers at {self.servers}"


@dataclass(frozen=True)
class HoldOptions:
    """A retention hold: see kafkalog.disk.holds."""

    name: str
    max_bytes: int
    age_ms: int


@dataclass(frozen=True)
class StreamOptions(ReadOptions):
    """The checked options of a stream: a read without an end, and the size of a micro-batch."""

    max_offsets: int | None = None
    """For all partitions together in one micro-batch."""
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS
    """How long to wait for `min_offsets`."""
    max_trigger_bytes: int | None = None
    """On disk, of all partitions together in one micro-batch."""
    only_flushed: bool = False
    hold: HoldOptions | None = None


_TRUE_FALSE = {"true": True, "false": False}
_BYTES = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNIT_MS = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000
}  # fmt: skip
_DURATION = re.compile(rf"(\d{{1,12}})\s*({'|'.join(_UNIT_MS)})?", re.IGNORECASE)
_HOLD_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_WANTED_TIME = "wanted milliseconds since 1970 (-1: the end, -2: the start, -3: the largest time)"
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS_EXAMPLE = '{"orders":{"0":23,"1":-2}}'
_TIMES_EXAMPLE = '{"orders":{"0":1735689600000}}'


def parse_batch(options: Mapping[str, str], known_columns: tuple[str, ...]) -> ReadOptions:
    """Check the options of one `read.load()`.

    Raises: BadOption, naming the option, what was found and what was wanted.
    """
    given, ignored = _given(options, BATCH)
    return ReadOptions(
        start=_limit(given, "starting", EARLIEST, {EARLIEST: "earliest"}),
        end=_limit(given, "ending", LATEST, {LATEST: "latest"}),
        ignored=ignored,
        **_common(given, known_columns),
    )


def parse_stream(options: Mapping[str, str], known_columns: tuple[str, ...]) -> StreamOptions:
    """Check the options of one `readStream.load()`.  Raises: as `parse_batch`."""
    given, ignored = _given(options, STREAM)
    most, least = (_positive(given, f"{side}OffsetsPerTrigger") for side in ("max", "min"))
    if most is not None and least is not None and least > most:
        raise BadOption(
            f"option 'minOffsetsPerTrigger': found {least}, wanted at most "
            f"maxOffsetsPerTrigger, which is {most}"
        )
    common = _common(given, known_columns)
    common["max_bytes"] = _bytes(given, "maxBytesPerPartition", DEFAULT_STREAM_MAX_BYTES)
    only_flushed = _one_of(given, "onlyFlushed", _TRUE_FALSE) is True
    hold = _hold(given)
    if common["path"] is None and (only_flushed or hold):
        name = "onlyFlushed" if only_flushed else "retentionHold"
        raise BadOption(f"option {name!r}: found {SERVERS}, wanted a path: brokers cannot be asked")
    return StreamOptions(
        start=_limit(given, "starting", LATEST, {EARLIEST: "earliest", LATEST: "latest"}),
        end=Limit(option="endingOffsets", everywhere=LATEST),
        ignored=ignored,
        max_offsets=most,
        min_offsets=least,
        max_delay_ms=_duration_ms(given, "maxTriggerDelay", DEFAULT_MAX_DELAY_MS),
        max_trigger_bytes=_bytes(given, "maxBytesPerTrigger", 0) or None,
        only_flushed=only_flushed,
        hold=hold,
        **common,
    )


def says_stream(options: Mapping[str, str]) -> bool:
    """True if the options are a stream's: they start at latest, or include one of a stream's."""
    given = {name.lower(): text for name, text in options.items()}
    only = {name.lower() for name in options_of(STREAM)} - {n.lower() for n in options_of(BATCH)}
    starts = given.get("startingoffsets", "").strip().lower()
    return bool(only & set(given)) or bool(re.search(r"^latest$|-1|:\s*\"latest\"", starts))


def _given(options: Mapping[str, str], mode: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The options by their names in lower case, and which of them will be ignored."""
    if not options:
        raise BadOption(
            "found no options at all, wanted at least a path. (Spark does not hand the options of "
            "a CREATE TABLE to this source when the table is read: use CREATE TEMPORARY VIEW, or "
            "SELECT ... FROM t WITH ('path' = '...', 'subscribe' = '...'))"
        )
    given = _without_table_properties({name.lower(): text for name, text in options.items()})
    return given, _check_names(given, mode)


def _common(given: Mapping[str, str], known_columns: tuple[str, ...]) -> dict[str, Any]:
    """The options that a batch and a stream share: fields of ReadOptions."""
    strategies = {"error": "error", "latest": "latest"}
    path, servers = _path(given), given.get(SERVERS, "").strip() or None
    if (path is None) == (servers is None):
        raise BadOption(
            f"where to read: found {'both' if path else 'neither'}, wanted either a path (a data "
            "directory, a folder of partition folders, or one partition's folder) or "
            f"{SERVERS}"
        )
    return {
        "path": path,
        "servers": servers,
        "client": client_settings(servers, given) if servers else (),
        "retries": Retries(
            times=_positive(given, "fetchOffset.numRetries") or Retries.times,
            poll_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or Retries.poll_ms,
        ),
        "selection": _selection(given),
        "start_without_match": _one_of(given, "startingOffsetsByTimestampStrategy", strategies)
        or "error",
        "fail_on_data_loss": _one_of(given, "failOnDataLoss", _TRUE_FALSE) is not False,
        "min_partitions": _positive(given, "minPartitions"),
        "max_records": _positive(given, "maxRecordsPerPartition"),
        "max_bytes": _bytes(given, "maxBytesPerPartition", DEFAULT_MAX_BYTES),
        "isolation": _isolation(given),
        "include_headers": _one_of(given, "includeHeaders", _TRUE_FALSE) is True,
        "columns": _columns(given, known_columns),
    }


def _without_table_properties(given: dict[str, str]) -> dict[str, str]:
    """The options that a table was created with, without those of Spark's catalog.

    `CREATE TABLE ... USING kafkalog OPTIONS (x ...)` gives x, option.x, provider, owner, location,
    and whatever TBLPROPERTIES says.
    """
    if "provider" not in given:
        return given
    kept = {name: text for name, text in given.items() if f"option.{name}" in given}
    return {"path": given.get("path") or given.get("location", ""), **kept}


def _check_names(given: Mapping[str, str], mode: str) -> tuple[str, ...]:
    """The names that will be ignored; an unknown name is refused with the nearest known one.

    As in Spark: a batch ignores options of streams only, a stream refuses an end.
    """
    known = {name.lower(): name for name in options_of(mode)}
    ignored = {name.lower(): name for name in IGNORED}
    elsewhere = {name.lower(): name for name in OURS if name.lower() not in known}
    if mode == BATCH:
        ignored |= elsewhere
        elsewhere = {}
    skipped = []
    for name in given:
        if name in REFUSED:
            raise BadOption(f"option {name!r} is not supported: {REFUSED[name]}")
        if name in known or name == "kafka.isolation.level":
            if SERVERS not in given and known.get(name) in OF_BROKERS:
                skipped.append(known[name])
            continue
        if name in ignored or name.startswith("kafka."):
            if is_ignored(name, SERVERS in given):
                skipped.append(ignored.get(name, name))
            continue
        if name == "paths":
            raise BadOption("option 'path': found several, wanted one directory for each load()")
        if name in elsewhere:
            raise BadOption(
                f"option {elsewhere[name]!r} belongs to batch reads; a stream has no end"
            )
        near = get_close_matches(name, [*known, *ignored], n=1, cutoff=0.6)
        hint = (
            f"did you mean {(known | ignored)[near[0]]!r}?"
            if near
            else f"known: {_list(list(options_of(mode)))}"
        )
        raise BadOption(f"unknown option {name!r} for a {mode} read; {hint}")
    return tuple(sorted(skipped))


def _path(given: Mapping[str, str]) -> str | None:
    text = given.get("path", "").strip()
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", text):
        url = urlsplit(text)
        if url.scheme.lower() != "file" or url.netloc not in ("", "localhost"):
            raise BadOption(f"option 'path': found {text!r}, wanted a local path or file:///...")
        return unquote(url.path)
    return text or None


def _selection(given: Mapping[str, str]) -> Selection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(ways) != 1:
        found = f"found {_list(ways)}" if ways else "found none of them"
        raise BadOption(f"which topics: {found}, wanted one of subscribe, subscribePattern, assign")
    way = ways[0]
    text = given[way.lower()].strip()
    if way == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise BadOption(f"option 'subscribe': found {text!r}, wanted topics: 'orders,flights'")
        return Selection(topics=topics)
    if way == "subscribePattern":
        return Selection(pattern=_pattern(text))
    return Selection(assigned=_assigned(text))


def _pattern(text: str) -> str:
    if not text:
        raise BadOption("option 'subscribePattern' is empty: wanted a regular expression")
    try:
        with warnings.catch_warnings():
            # Python's word for what other languages read as sets within sets: `[a-z&&[^e]]`.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, FutureWarning) as error:
        raise BadOption(
            f"option 'subscribePattern': {text!r} is no regular expression of Python: {error}"
        ) from None
    return text


def _assigned(text: str) -> tuple[Key, ...]:
    wanted = 'wanted JSON like {"orders":[0,1]}'
    found = _object("assign", text, wanted)
    keys: list[Key] = []
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(map(_is_partition, partitions)):
            raise BadOption(f"option 'assign': found {text}, {wanted}")
        keys += [(topic, partition) for partition in partitions]
    if not keys:
        raise BadOption(f"option 'assign': found {text}, which names no partition; {wanted}")
    return tuple(dict.fromkeys(keys))


def _limit(given: Mapping[str, str], side: str, default: int, words: Mapping[int, str]) -> Limit:
    """One side of the range.  As in Spark: a timestamp for all, then by partition, then offsets.

    `words`: names allowed instead of an offset, by its number.
    """
    option = f"{side}Timestamp"
    if option.lower() in given:
        at_ms = _milliseconds(option, given[option.lower()].strip())
        return Limit(option=option, by_time=True, everywhere=at_ms)
    option = f"{side}OffsetsByTimestamp"
    if option.lower() in given:
        return _limit_timestamps(option, given[option.lower()].strip())
    option = f"{side}Offsets"
    if option.lower() in given:
        return _limit_offsets(option, given[option.lower()].strip(), words)
    return Limit(option=option, everywhere=default)


def _limit_timestamps(option: str, text: str) -> Limit:
    form = f"wanted JSON like {_TIMES_EXAMPLE}"
    each = _each(option, text, form, _object(option, text, form))
    for key, timestamp_ms in each.items():
        if timestamp_ms < LARGEST:
            raise BadOption(
                f"option {option!r}: found {timestamp_ms} for {_name(key)}, {_WANTED_TIME}"
            )
    return Limit(option=option, by_time=True, each=each)


def _limit_offsets(option: str, text: str, words: Mapping[int, str]) -> Limit:
    wanted = " or ".join(repr(word) for word in words.values())
    number = _WORDS.get(text.lower())
    if number is not None:
        if number not in words:
            raise BadOption(f"option {option!r}: found {text!r}; a batch read wants {wanted} here")
        return Limit(option=option, everywhere=number)
    form = f"wanted {wanted} or JSON like {_OFFSETS_EXAMPLE}"
    found = _object(option, text, form)
    topics = {topic: one for topic, one in found.items() if isinstance(one, str)}
    each = _each(option, text, form, {t: one for t, one in found.items() if t not in topics})
    for topic, word in topics.items():
        if word.lower() not in words.values():
            raise BadOption(f"option {option!r}: found {word!r} for topic {topic}, wanted {wanted}")
    for key, offset in each.items():
        if offset < EARLIEST:
            raise BadOption(f"option {option!r}: found offset {offset} for {_name(key)}")
        if offset < 0 and offset not in words:
            meant = " or ".join(f"{number} for {word!r}" for number, word in words.items())
            raise BadOption(
                f"option {option!r}: found {offset} for {_name(key)}; a batch read wants an "
                f"offset, or {meant}, here"
            )
    numbers = {topic: _WORDS[word.lower()] for topic, word in topics.items()}
    return Limit(option=option, each=each, topics=numbers)


def _each(option: str, text: str, wanted: str, found: Mapping[str, Any]) -> dict[Key, int]:
    each: dict[Key, int] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise BadOption(f"option {option!r}: found {text}, {wanted}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_int(number):
                raise BadOption(f"option {option!r}: found {text}, {wanted}")
            each[topic, int(partition)] = number
    return each


def _object(option: str, text: str, wanted: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadOption(f"option {option!r}: found {text!r}, {wanted}")
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _milliseconds(option: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}|-[123]", text):
        raise BadOption(f"option {option!r}: found {text!r}, {_WANTED_TIME}")
    return int(text)


def _positive(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower(), "").strip()
    if option.lower() not in given:
        return None
    if not re.fullmatch(r"\d{1,18}", text) or int(text) == 0:
        raise BadOption(f"option {option!r}: found {text!r}, wanted a whole number above 0")
    return int(text)


def _bytes(given: Mapping[str, str], option: str, default: int) -> int:
    if option.lower() not in given:
        return default
    text = given[option.lower()].strip()
    match = _BYTES.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise BadOption(f"option {option!r}: found {text!r}, wanted bytes, like 134217728 or 128m")
    return int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")


def _duration_ms(given: Mapping[str, str], option: str, default: int) -> int:
    if option.lower() not in given:
        return default
    text = given[option.lower()].strip()
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadOption(f"option {option!r}: found {text!r}, wanted a time, like 90s or 15m")
    return int(match[1]) * _UNIT_MS[(match[2] or "ms").lower()]


def _hold(given: Mapping[str, str]) -> HoldOptions | None:
    if "retentionhold" not in given:
        for option in ("retentionHoldMaxBytes", "retentionHoldMaxAge"):
            if option.lower() in given:
                raise BadOption(f"option {option!r}: found no 'retentionHold', wanted it, too")
        return None
    name = given["retentionhold"].strip()
    if not _HOLD_NAME.fullmatch(name):
        raise BadOption(
            f"option 'retentionHold': found {name!r}, wanted up to 200 letters, digits, '.', '_' "
            "and '-'"
        )
    age_ms = _duration_ms(given, "retentionHoldMaxAge", _UNIT_MS["d"])
    if not 0 < age_ms <= 7 * _UNIT_MS["d"]:
        text = given["retentionholdmaxage"]
        raise BadOption(f"option 'retentionHoldMaxAge': found {text!r}, wanted 1ms to 7d")
    return HoldOptions(name, _bytes(given, "retentionHoldMaxBytes", DEFAULT_HOLD_BYTES), age_ms)


def _one_of(given: Mapping[str, str], option: str, values: Mapping[str, T]) -> T | None:
    """The value of a word, or None when the option is not given."""
    if option.lower() not in given:
        return None
    text = given[option.lower()].strip()
    if text.lower() not in values:
        raise BadOption(f"option {option!r}: found {text!r}, wanted {' or '.join(values)}")
    return values[text.lower()]


def _isolation(given: Mapping[str, str]) -> str:
    levels = {level: level for level in ("read_committed", "read_uncommitted")}
    ours = _one_of(given, "isolation.level", levels)
    theirs = _one_of(given, "kafka.isolation.level", levels)
    if ours and theirs and ours != theirs:
        raise BadOption(f"isolation.level is {ours}, but kafka.isolation.level is {theirs}")
    return ours or theirs or "read_committed"


def _columns(given: Mapping[str, str], known: tuple[str, ...]) -> tuple[str, ...] | None:
    if "columns" not in given:
        return None
    by_lower_case = {name.lower(): name for name in known}
    names = [name.strip() for name in given["columns"].split(",") if name.strip()]
    unknown = [name for name in names if name.lower() not in by_lower_case]
    if unknown or not names:
        raise BadOption(f"option 'columns': found {_list(unknown)}, wanted some of {_list(known)}")
    chosen = tuple(by_lower_case[name.lower()] for name in names)
    if len(set(chosen)) != len(chosen):
        raise BadOption(f"option 'columns': found a column twice in {given['columns']!r}")
    return chosen


def _list(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) or "nothing"


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"
