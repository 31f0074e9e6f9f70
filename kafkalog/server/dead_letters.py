"""Writes the records that a share group gives up to its dead-letter topic (KIP-1191).

Source: KIP-1191, and the behaviour of Apache Kafka 4.4.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.batch import codecs
from kafkalog.batch.columns import Columns
from kafkalog.batch.encode import compressed_batches, one_batch
from kafkalog.batch.walk import end_of, whole_batches
from kafkalog.config.share_records import COPY_RECORD, LETTER_TOPIC, in_effect
from kafkalog.errors import KafkalogError, MessageTooLarge
from kafkalog.log.fetched import Decoder
from kafkalog.log.isolation import UNCOMMITTED
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import GROUP
from kafkalog.metrics.metric import OTHERS
from kafkalog.server.failures import known_code
from kafkalog.server.letter_topics import LetterTopics, Outcome
from kafkalog.server.threads.later import Later
from kafkalog.server.transactions.inter_broker_client import peer_code
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.config.server import ServerConfig
    from kafkalog.config.topic import TopicConfig
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.appends import Appends
    from kafkalog.server.partitions import Partitions
    from kafkalog.server.transactions.inter_broker_client import InterBrokerClient
    from kafkalog.shares.partition import Letter
    from kafkalog.types import Record

__all__ = ["DeadLetters", "LetterCounts"]

FLYING_MAX = 16
"""Letters that are written at the same time; the others wait, a few numbers each."""
ROUND_BYTES, ROUND_RECORDS = 1 << 20, 1_000
"""Bytes of the log that are read at a time for copies; also of the keys and values, and of the
headers, that are written together, and the number of their records."""
BATCH_BYTES = 8 << 20
"""A batch that decompresses to more is not copied, unless a letter may be as large."""
ATTEMPTS, PAUSE_S, PAUSE_MAX_S = 5, 1.0, 30.0
"""Attempts in a row without progress; the first pause between them, and the longest.  Each is twice
as long as the one before."""
PRODUCE_MS = 5_000
"""The longest that another leader waits for its followers: it answers before the connection is
given up, which would write the letters twice."""
BY_ID = 13
"""From this version on, Produce names topics by their ids."""
INTERNAL = "__"
REJECTED = "Offset rejected by client."
DELIVERED = "Offset delivery count exceeded the threshold."
_logger = limited(__name__)


class LetterCounts(NamedTuple):
    """Counts of a group since the start."""

    records: int
    """Written letters."""
    writes: int
    """Attempts to write a batch of them."""
    failed: int
    """Batches that were given up after such attempts."""


class _Source(NamedTuple):
    """Where the records are."""

    group: str
    topic: str
    partition: int


class _Work:
    """Letters that are being written."""

    def __init__(self, source: _Source, letter: Letter, done: Callable[[], None]) -> None:
        self.source, self.letter, self.done = source, letter, done
        self.next = letter.first
        """The first offset without a letter."""
        self.batches: deque[bytes] = deque()
        """Those of this round that are not written."""
        self.attempts = 0
        self.created: tuple[str, Outcome] | None = None
        """The outcome of the creation of a topic for which it has waited."""

    def __str__(self) -> str:
        group, topic, number = self.source
        first, last = self.letter.first, self.letter.last
        return f"share group {group}: {topic}-{number}, offsets {first} to {last}"


class DeadLetters:
    """Writes letters, each until it is acknowledged or given up.  Safe to use from many threads;
    ended by `stop`."""

    def __init__(
        self, metadata: Metadata, partitions: Partitions, appends: Appends,
        peers: InterBrokerClient | None, clock: Clock, config: Callable[[], ServerConfig],
        create: Callable[[str], ErrorCode], counted_max: int, name: str,
    ) -> None:  # fmt: skip
        """`peers`: in a cluster, the requests to other brokers; letters have connections of their
        own.  `config`: the settings in effect; `create` creates a topic of letters; `counted_max`:
        so many groups have counts of their own."""
        self._metadata, self._partitions, self._appends = metadata, partitions, appends
        self._clock, self._config = clock, config
        name += " dead letters"
        self._topics = LetterTopics(create, f"{name} topics")
        self._peers = None if peers is None else peers.apart(name)
        self._later = Later(name)
        self._lock = threading.Lock()  # guards what follows
        self._flying = 0
        self._waiting: deque[_Work] = deque()
        self._counted_max = counted_max
        self._counts: dict[str, LetterCounts] = {}

    def stop(self) -> None:
        """Stop: the state of letters that are not written says so to the next leader."""
        self._later.stop()
        self._topics.stop()
        if self._peers is not None:
            self._peers.stop()

    def bury(
        self, group: str, topic: str, partition: int, letter: Letter, done: Callable[[], None]
    ) -> None:
        """Write letters; `done` is called in another thread, also if they cannot be written."""
        self._enter(_Work(_Source(group, topic, partition), letter, done))

    def _enter(self, work: _Work) -> None:
        """Attempt it as soon as there is room."""
        with self._lock:
            if self._flying >= FLYING_MAX:
                self._waiting.append(work)
                return
            self._flying += 1
        self._later.run(0, partial(self._attempt, work))

    def _leave(self) -> None:
        """An attempt has ended: the next one has room."""
        with self._lock:
            following = self._waiting.popleft() if self._waiting else None
            self._flying -= following is None
        if following is not None:
            self._later.run(0, partial(self._attempt, following))

    def counts(self) -> dict[str, LetterCounts]:
        """Those of each group, the first that had letters; all later ones have OTHERS together."""
        with self._lock:
            return dict(self._counts)

    def _count(self, work: _Work, records: int = 0, writes: int = 0, failed: int = 0) -> None:
        with self._lock:
            group = work.source.group
            if group not in self._counts and len(self._counts) >= self._counted_max:
                group = OTHERS
            a, b, c = self._counts.get(group, LetterCounts(0, 0, 0))
            self._counts[group] = LetterCounts(a + records, b + writes, c + failed)

    def _end(self, work: _Work) -> None:
        self._leave()
        work.done()

    def _give_up(self, work: _Work, why: object) -> None:
        if self._later.stopped:
            return  # what fails now fails because the broker ends
        _logger.error("%s: not written to the dead-letter topic: %s", work, why)
        self._count(work, failed=bool(work.batches))
        self._end(work)

    def _again(self, work: _Work, why: object) -> None:
        work.attempts += 1
        if work.attempts >= ATTEMPTS:
            self._give_up(work, why)
            return
        work.batches.clear()  # any number of works may wait: they are made again
        pause_s = min(PAUSE_S * 2 ** (work.attempts - 1), PAUSE_MAX_S)
        self._leave()
        self._later.run(pause_s, partial(self._enter, work))

    # ---- one attempt -----------------------------------------------------------------------

    def _attempt(self, work: _Work) -> None:
        if self._later.stopped:
            return
        try:
            self._write(work)
        except Exception as problem:
            self._failed(work, problem)

    def _failed(self, work: _Work, problem: Exception) -> None:
        code = known_code(problem)
        if code is not None and _passes(code):
            self._again(work, problem)
            return
        if not isinstance(problem, KafkalogError):
            _logger.exception("%s", work, exc_info=problem)
        self._give_up(work, problem)

    def _write(self, work: _Work) -> None:
        config = self._config()
        own = self._metadata.image.config(GROUP, work.source.group)
        settings = in_effect(own, config)
        name = settings[LETTER_TOPIC]
        why = self._problem(name, config)
        if why is not None:
            self._give_up(work, why)
            return
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            self._await_topic(work, name)
            return
        where = TopicPartition(name, work.source.partition % len(topic.partitions))
        if not work.batches:
            self._begin_round(work, self._partitions.config(name), settings[COPY_RECORD])
        self._count(work, writes=1)
        broker = None if self._peers is None else self._peers.leader(where)
        if broker is None:
            self._append(work, where)
        else:
            self._ask(work, where, broker)

    def _await_topic(self, work: _Work, name: str) -> None:
        """The topic does not exist: have it created, while other letters have the room of this one.

        Raises: as the creation for which it has waited.
        """
        created, work.created = work.created, None
        if created is None or created[0] != name:
            work.batches.clear()  # as in _again
            self._leave()
            self._topics.create(name, partial(self._topic_created, work, name))
            return
        outcome = created[1]
        if isinstance(outcome, Exception):
            raise outcome
        end = self._again if _passes(outcome) else self._give_up
        end(work, f"{name} does not exist yet: {outcome.name}")

    def _topic_created(self, work: _Work, name: str, outcome: Outcome) -> None:
        work.created = name, outcome
        self._enter(work)

    def _problem(self, name: str, config: ServerConfig) -> str | None:
        """Why a topic takes no letters; None: it does, or would if it existed."""
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not name:
            return f"{LETTER_TOPIC} of the group is empty"
        if name.startswith(INTERNAL) or not name.startswith(prefix):
            return f"{name}: wanted a name that begins with {prefix!r}, and not with {INTERNAL!r}"
        if name in self._metadata.image.topics:
            if not self._partitions.config(name).errors_deadletterqueue_group_enable:
                return f"{name}: errors.deadletterqueue.group.enable is false"
        elif not config.errors_deadletterqueue_auto_create_topics_enable:
            return f"{name} does not exist, and brokers do not create it"
        return None

    def _append(self, work: _Work, where: TopicPartition) -> None:
        epoch = self._partitions.leader_epoch(*where)

        def done(problem: Exception | None) -> None:
            if problem is None:
                self._later.run(0, partial(self._written, work))
            else:
                self._later.run(0, partial(self._failed, work, problem))

        self._appends.append_batch(where, epoch, work.batches[0], done)

    def _ask(self, work: _Work, where: TopicPartition, broker: int) -> None:
        batch = work.batches[0]

        def then(answer: Any) -> None:
            code, message = _outcome(answer)
            if code is ErrorCode.NONE:
                self._later.run(0, partial(self._written, work))
            else:
                end = self._again if _passes(code) else self._give_up
                self._later.run(0, partial(end, work, f"{where}: {code.name}: {message}"))

        body = partial(_question, where, self._partitions.id_of(where.topic), batch)
        assert self._peers is not None
        try:
            self._peers.ask(broker, apis.PRODUCE, body, len(batch), then)
        except RuntimeError as problem:  # no thread can be started now
            self._again(work, problem)

    def _written(self, work: _Work) -> None:
        """The first batch of a round is written."""
        ((batch, _),) = whole_batches(work.batches.popleft(), check_crc=False)
        count = batch.last_offset - batch.base_offset + 1
        self._count(work, records=count)
        work.next += count
        work.attempts = 0
        if work.next <= work.letter.last:
            self._attempt(work)
        else:
            self._end(work)

    # ---- the records -----------------------------------------------------------------------

    def _begin_round(self, work: _Work, config: TopicConfig, copies: bool) -> None:
        """Make the next batches.  Raises: MessageTooLarge if not even the headers fit."""
        each = sum(len(name) + len(value) for name, value in _headers(work, work.letter.last))
        count = min(ROUND_RECORDS, ROUND_BYTES // each + 1)
        last = min(work.letter.last, work.next + count - 1)
        found: dict[int, Record] = {}
        if copies:
            found, last = self._read(work, last, config)
        work.batches = deque(self._batches(work, last, found, config))

    def _read(self, work: _Work, last: int, config: TopicConfig) -> tuple[dict[int, Record], int]:
        """Records by offset, and the last offset that was looked for.  What cannot be read, or is
        too large for a letter, is not copied."""
        _, topic, number = work.source
        try:
            log = self._partitions.existing_log(topic, number)
            if log is None:
                return {}, last
            data = log.read_batches(work.next, ROUND_BYTES, UNCOMMITTED, False)
            end = end_of(data)
        except KafkalogError as problem:
            _warn(work, problem)
            return {}, last
        last = last if end is None else min(last, end[0] - 1)
        found: dict[int, Record] = {}
        size = 0
        for record in _records(work, data, last, max(BATCH_BYTES, _limit(config))):
            if _fits(work, record, config):
                found[record.offset] = record
                size += len(record.key or b"") + len(record.value or b"")
                if size > ROUND_BYTES:
                    return found, record.offset
        return found, last

    def _batches(
        self, work: _Work, last: int, found: dict[int, Record], config: TopicConfig
    ) -> Iterator[bytes]:
        """Raises: MessageTooLarge."""
        offsets = range(work.next, last + 1)
        records = [found.get(offset) for offset in offsets]
        columns = Columns(
            [None if one is None else one.value for one in records],
            [None if one is None else one.key for one in records],
            headers=[_headers(work, offset) for offset in offsets],
            default_timestamp_ms=self._clock.now_ms(),
        )
        return compressed_batches(columns, codecs.NONE, config, _limit(config))


def _passes(code: ErrorCode) -> bool:
    """True if another attempt may succeed; NONE: this broker does not know the topic yet."""
    return code.retriable or code in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE)


def _warn(work: _Work, problem: object) -> None:
    _logger.warning("%s: dead letters without keys and values: %s", work, problem)


def _limit(config: TopicConfig) -> int:
    """The bytes of the largest batch that a topic takes."""
    return min(config.max_message_bytes, config.segment_bytes)


def _records(work: _Work, data: bytes, last: int, limit_bytes: int) -> Iterator[Record]:
    """The records from the next one to offset `last`, one batch decompressed at a time; those of
    a batch that is damaged, or decompresses to more than `limit_bytes`, are missing."""
    _, topic, number = work.source
    for batch, body in whole_batches(data, check_crc=False):
        end = batch.last_offset
        decoder = Decoder(check_crcs=False, limit_bytes=limit_bytes)
        try:
            for rows in decoder.records(topic, number, bytes(body), work.next):
                yield from rows.records(0, bisect_right(rows.offsets, last))
        except KafkalogError as problem:
            _warn(work, problem)
        if end >= last:
            return


def _fits(work: _Work, record: Record, config: TopicConfig) -> bool:
    """True if a letter may have the key and value of a record."""
    headers = [_headers(work, record.offset)]
    columns = Columns([record.value], [record.key], headers=headers)
    if columns.bytes_max <= _limit(config):
        return True
    try:
        one_batch(columns, codecs.NONE, config)
    except MessageTooLarge as problem:
        _warn(work, f"offset {record.offset}: {problem}")
        return False
    return True


def _headers(work: _Work, offset: int) -> list[tuple[str, bytes]]:
    group, topic, number = work.source
    letter = work.letter
    why = REJECTED if letter.rejected else DELIVERED
    found = {
        "topic": topic, "partition": number, "offset": offset, "group": group,
        "delivery.count": letter.deliveries, "message": why,
    }  # fmt: skip
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in found.items()]


def _question(where: TopicPartition, topic_id: Any, batch: bytes, version: int) -> dict[str, Any]:
    """The fields of Produce."""
    topic = {"name": where.topic, "topic_id": topic_id}
    entry = {"index": where.partition, "records": batch}
    del topic["topic_id" if version < BY_ID else "name"]
    return {"transactional_id": None, "acks": -1, "timeout_ms": PRODUCE_MS,
            "topic_data": [{**topic, "partition_data": [entry]}]}  # fmt: skip


def _outcome(answer: Any) -> tuple[ErrorCode, str]:
    if answer is None:
        return ErrorCode.NETWORK_EXCEPTION, "no answer"
    for topic in answer.responses:
        for row in topic.partition_responses:
            return peer_code(row.error_code), getattr(row, "error_message", None) or ""
    return ErrorCode.UNKNOWN_SERVER_ERROR, "an answer without the partition"
