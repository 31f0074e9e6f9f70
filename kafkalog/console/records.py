"""Records of a topic: by offset, by time, the last ones, with a key, and those that follow."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafkalog.client.consumer.consumer import Consumer
from kafkalog.console.asked import Asked, Refused
from kafkalog.console.person import Person
from kafkalog.console.topics import offsets
from kafkalog.types import Record, TopicPartition

__all__ = ["Download", "read_raw", "read_record", "read_records"]

COUNT, COUNT_MAX = 50, 200
"""Records in an answer."""
PARTITIONS_MAX = 500
"""Partitions that are read at once: of a topic with more, choose one."""
SCANNED_MAX = 50_000
SCANNED_BYTES_MAX = 64 << 20
SCAN_S = 6.0
"""How far one request looks for records: the next one continues."""
POLL_MS = 250
SHOWN_BYTES = 4_096
"""The beginning of a key or a value in a list."""
LIST_BYTES_MAX = 2 << 20
"""A list ends after the record with which its JSON has so much."""
VALUE_BYTES_MAX, KEY_BYTES_MAX = 1 << 20, 1 << 16
"""How much of an answer a record's value has at most, as JSON, and its key."""
HEADERS_MAX = 20
FROM = ("last", "first", "offset", "time", "next")


class Download(NamedTuple):
    """Bytes that a browser saves as a file."""

    name: str
    data: bytes


class _Wish(NamedTuple):
    """The records that are looked for."""

    key: bytes | None
    text: bytes | None
    """A part of the key or the value."""
    most: int

    @property
    def filters(self) -> bool:
        """True if records without these are skipped."""
        return self.key is not None or self.text is not None

    def fits(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        return self.text is None or any(
            self.text in part for part in (record.key, record.value) if part is not None
        )


class _Found:
    """The records of an answer, and how far the search came."""

    def __init__(self, wish: _Wish, next_: dict[TopicPartition, int], asked: Asked) -> None:
        self.wish = wish
        self._asked = asked
        self.records: list[Record] = []
        self.next = next_
        self.scanned = self.bytes = 0
        self.room = LIST_BYTES_MAX
        self._until_s = time.monotonic() + SCAN_S

    def take(self, record: Record) -> None:
        """Look at one record, the next of its partition."""
        self.next[TopicPartition(record.topic, record.partition)] = record.offset + 1
        self.scanned += 1
        self.bytes += len(record.key or b"") + len(record.value or b"")
        if self.wish.fits(record):
            self.records.append(record)
            if self.wish.most <= COUNT_MAX:  # all of them are shown
                self.room -= _weight(record)

    @property
    def full(self) -> bool:
        """True if there are enough, or the search has to stop."""
        return (
            len(self.records) >= self.wish.most or self.scanned >= SCANNED_MAX
            or self.bytes >= SCANNED_BYTES_MAX or self.room <= 0
            or time.monotonic() >= self._until_s or self._asked.abandoned
        )  # fmt: skip


def read_records(person: Person, asked: Asked) -> dict[str, Any]:
    """Records of a `topic`, or of one `partition` of it.

    `from`: last, first, offset (with `at`, and a partition), time (`at` in ms since 1970), next
    (`at` as an earlier answer's `next`).  `key`: only with this key; `text`: only with this in key
    or value.  `count`; `committed`: only of ended transactions.  The answer has where to go on,
    and if it came to the `end` of all partitions.
    """
    topic = person.topic(asked.text("topic"))
    number = asked.whole("partition", -1, -1, (1 << 31) - 1)
    if number >= 0 and number not in topic.partitions:
        raise Refused(404, f"topic {topic.name!r} has no partition {number}")
    chosen = [number] if number >= 0 else sorted(topic.partitions)
    if len(chosen) > PARTITIONS_MAX:
        raise Refused(400, f"found {len(chosen)} partitions, wanted one, or up to {PARTITIONS_MAX}")
    tps = [TopicPartition(topic.name, one) for one in chosen]
    kind = asked.one_of("from", FROM, "last")
    count = asked.whole("count", COUNT, 1, COUNT_MAX)
    wish = _Wish(_bytes(asked, "key"), _bytes(asked, "text"), count)
    committed = asked.flag("committed")
    starts, ends = offsets(person, tps, committed)
    depth = SCANNED_MAX // len(tps) if wish.filters else count
    begin = _begin(person, asked, kind, [tp for tp in tps if tp in ends], starts, ends, depth)
    with person.reader(committed) as reader:
        if kind == "last":  # they are chosen among all
            wish = wish._replace(most=SCANNED_MAX)
        found = _search(reader, begin, ends, _Found(wish, dict(begin), asked))
    records = found.records
    if kind == "last":
        records = sorted(records, key=lambda one: (one.timestamp_ms, one.offset))
        records = _last(records, count)
    return {
        "records": [_shown(one, SHOWN_BYTES) for one in records],
        "next": {str(tp.partition): at for tp, at in sorted(found.next.items())},
        "end": all(at >= ends[tp] for tp, at in found.next.items()),
        "scanned": found.scanned, "starts": _numbers(starts), "ends": _numbers(ends),
        "missing": len(tps) - len(ends),
    }  # fmt: skip


def _weight(record: Record) -> int:
    return len(json.dumps(_shown(record, SHOWN_BYTES)))


def _last(records: list[Record], count: int) -> list[Record]:
    """The last ones, as many as a list has room for."""
    first, room = len(records), LIST_BYTES_MAX
    while first > max(0, len(records) - count) and room > 0:
        first -= 1
        room -= _weight(records[first])
    return records[first:]


def _numbers(found: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(tp.partition): offset for tp, offset in sorted(found.items())}


def _bytes(asked: Asked, name: str) -> bytes | None:
    found = asked.text(name, "")
    return found.encode() if found else None


def _begin(
    person: Person, asked: Asked, kind: str, tps: list[TopicPartition],
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], depth: int,
) -> dict[TopicPartition, int]:  # fmt: skip
    """Where each partition is read from."""
    if kind == "last":
        return {tp: max(starts.get(tp, 0), ends[tp] - depth) for tp in tps}
    if kind == "first":
        return {tp: starts.get(tp, 0) for tp in tps}
    if kind == "offset":
        if len(tps) != 1:
            raise Refused(400, "from=offset: choose a partition")
        return {tp: _inside(asked.whole("at", 0), tp, starts, ends) for tp in tps}
    if kind == "time":
        at_ms = asked.whole("at", 0)
        found = person.admin.list_offsets(dict.fromkeys(tps, at_ms)).done
        return {tp: one.offset if one.offset >= 0 else ends[tp] for tp, one in found.items()}
    given = _next_of(asked.text("at", "", PARTITIONS_MAX * 30))
    return {tp: _inside(given.get(tp.partition, ends[tp]), tp, starts, ends) for tp in tps}


def _inside(
    offset: int, tp: TopicPartition, starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> int:  # fmt: skip
    return min(max(offset, starts.get(tp, 0)), ends[tp])


def _next_of(text: str) -> dict[int, int]:
    """`partition:offset` with commas."""
    found: dict[int, int] = {}
    for pair in filter(None, text.split(",")):
        number, colon, offset = pair.partition(":")
        if not (colon and number.isdecimal() and offset.isdecimal() and len(pair) <= 32):
            raise Refused(400, f"at: found {pair[:40]!r}, wanted partition:offset")
        found[int(number)] = int(offset)
    return found


def _search(
    reader: Consumer, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int],
    found: _Found,
) -> _Found:  # fmt: skip
    """Read up to the ends, or until enough is found."""
    for record in _records(reader, begin, ends, found):
        found.take(record)
    return found


def _records(
    reader: Consumer, begin: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int],
    found: _Found,
) -> Iterator[Record]:  # fmt: skip
    left = {tp for tp, at in begin.items() if at < ends[tp]}
    reader.assign(left)
    for tp in left:
        reader.seek(tp, begin[tp])
    while left and not found.full:
        for record in reader.poll(POLL_MS, max_records=500):
            tp = TopicPartition(record.topic, record.partition)
            if tp not in left or found.full:
                continue
            if record.offset >= ends[tp]:
                found.next[tp] = ends[tp]
                left.discard(tp)
                continue
            yield record
        # Positions also pass what is no record: markers of transactions, and compacted offsets.
        for tp in list(left):
            if found.full:
                break
            at = reader.position(tp)
            found.next[tp] = max(found.next[tp], min(at, ends[tp]))
            if at >= ends[tp]:
                left.discard(tp)
        if left != set(reader.assignment):
            reader.incremental_unassign(set(reader.assignment) - left)


def read_record(person: Person, asked: Asked) -> dict[str, Any]:
    """One record of a `topic`, at a `partition` and an `offset`; long parts are `shortened`."""
    record = _record_at(person, asked)
    return {
        **_shown(record, SHOWN_BYTES),
        "key": _field(record.key, KEY_BYTES_MAX, KEY_BYTES_MAX),
        "value": _field(record.value, VALUE_BYTES_MAX, VALUE_BYTES_MAX),
    }


def read_raw(person: Person, asked: Asked) -> Download:
    """All bytes of a `part`, key or value, of a record; see `read_record`."""
    part = asked.one_of("part", ("value", "key"), "value")
    record = _record_at(person, asked)
    data = record.value if part == "value" else record.key
    name = f"{record.topic}-{record.partition}-{record.offset}.{part}"
    if data is None:
        raise Refused(404, f"{name}: it is null")
    return Download(name, data)


def _record_at(person: Person, asked: Asked) -> Record:
    topic = person.topic(asked.text("topic"))
    tp = TopicPartition(topic.name, asked.whole("partition", 0, 0, (1 << 31) - 1))
    offset = asked.whole("offset", 0)
    if tp.partition not in topic.partitions:
        raise Refused(404, f"topic {topic.name!r} has no partition {tp.partition}")
    until_s = time.monotonic() + SCAN_S
    with person.reader(committed=False) as reader:
        reader.assign([tp])
        reader.seek(tp, offset)
        while time.monotonic() < until_s and not asked.abandoned:
            for record in reader.poll(POLL_MS, max_records=1):
                if record.offset == offset:
                    return record
                raise Refused(404, f"{tp.topic}-{tp.partition} has no record at offset {offset}")
            if reader.position(tp) > offset:
                break
    raise Refused(404, f"{tp.topic}-{tp.partition} has no record at offset {offset}")


def _shown(record: Record, most: int) -> dict[str, Any]:
    return {
        "partition": record.partition, "offset": record.offset, "time": record.timestamp_ms,
        "appended": record.timestamp_type == 1,
        "key": _field(record.key, most), "value": _field(record.value, most),
        "headers": [
            [key[:200], _field(value, min(most, 1_000))]
            for key, value in record.headers[:HEADERS_MAX]
        ],
        "more_headers": max(0, len(record.headers) - HEADERS_MAX),
    }  # fmt: skip


def _field(data: bytes | None, most: int, json_max: int | None = None) -> dict[str, Any] | None:
    """Bytes as text, or as base64 if they are none; `bytes` is how many there are, `shortened`
    says that only the first ones are here.

    At most `most` of them, and `json_max` bytes as JSON, which may need six for one.
    """
    if data is None:
        return None
    found: dict[str, Any] = {}
    text = _text(data, most)
    if text is None:
        piece = data[: most if json_max is None else min(most, json_max * 3 // 4)]
        found["base64"], shown = base64.b64encode(piece).decode(), len(piece)
    else:
        found["text"] = text if json_max is None else _within(text, json_max)
        shown = len(found["text"].encode())
    found["bytes"] = len(data)
    if shown < len(data):
        found["shortened"] = True
    return found


def _text(data: bytes, most: int) -> str | None:
    """The first bytes as a text; None: they are none."""
    piece = data[:most]
    try:
        return piece.decode()
    except UnicodeDecodeError as problem:
        if len(data) > most and problem.start > most - 4:  # cut inside of a character
            return piece[: problem.start].decode()
    return None


def _within(text: str, json_max: int) -> str:
    """The beginning of a text whose JSON has at most so many bytes; about as much as fits."""
    while (found := len(json.dumps(text))) > json_max:
        text = text[: min(len(text) * json_max // found, len(text) - len(text) // 32 - 1)]
    return text
