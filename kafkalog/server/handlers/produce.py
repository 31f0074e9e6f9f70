"""The slow path of Produce: batches that must be decompressed, and logs that must be opened.

The fast path in C appends batches unchanged.  Here each record is checked, and batches are
recompressed if the topic has its own codec.  Source: Kafka's LogValidator.
"""

import sys
import threading
from collections import deque
from functools import partial
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.check import prepared, refused_records, time_is_doubtful
from kafkalog.batch.codecs import ZSTD
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkalogError,
    MessageTooLarge,
    UnsupportedCompressionType,
    for_clients,
)
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.server.failures import code_of, handler_failed
from kafkalog.server.handlers.fetch import open_logs
from kafkalog.server.handlers.leaders import current_leader, endpoints
from kafkalog.server.handlers.writers import (
    ATTRIBUTES_POS,
    JOINS_SINCE,
    Refused,
    Verdict,
    Verdicts,
    allow,
    transactional,
    writer_of,
)
from kafkalog.server.network.reactor import Appended
from kafkalog.server.node import Node
from kafkalog.server.partitions import looks_inside
from kafkalog.server.request import Request
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["produce"]

NONE, LEADER, ALL = 0, 1, -1
"""The values of acks."""
ADMIN_CLIENT = "__admin_client"
"""Kafka's own tools, which may write to internal topics."""
INSIDE_BYTES = 16 << 20
"""Batches that decompress to more than this are processed one at a time."""
QUICK_BYTES = 65_536
LEADERS_SINCE = 10
"""From this version on, a refusal names the leader (KIP-951)."""
IDS_SINCE = 13
"""From this version on, requests name topics by id."""
ZSTD_SINCE = 7
"""KIP-110: older clients do not know zstd."""
LISTED_MAX = 1000
"""How many invalid records of a batch one answer names (KIP-467)."""


_DEFAULTS = TopicConfig()
Accepted = int | KafkalogError
"""The leader epoch in which a partition's records were accepted, before the coordinator was asked;
or the reason for refusing them."""


class _Outcome(NamedTuple):
    """The outcome for one partition's records."""

    topic: str
    partition: int
    answer: dict[str, Any]
    found: Appended | None
    """None if they were not appended."""

    @property
    def sync_due(self) -> bool:
        """flush.messages: answered only when on disk, whatever acks says."""
        return self.found is not None and self.found.sync_due


def produce(node: Node, request: Request) -> None:
    """Open the logs; append here what C cannot, else hand the request back."""
    node.admission.renew(request)
    body = request.body
    named = [(_name(node, request, topic), topic) for topic in body.topic_data]
    open_logs(node, ((n, p.index) for n, t in named if n for p in t.partition_data))
    if body.acks not in (NONE, LEADER, ALL):
        request.again()
    elif body.transactional_id is not None and (writes := transactional(named)):
        append = _Append(node, request, named)
        allow(node, request, writes, append.go_on, at_once=_is_quick(node, named))
    elif any(_inside(node, *each) for each in named):
        _Append(node, request, named).run()
    else:
        request.again()


def _name(node: Node, request: Request, topic: Any) -> str | None:
    """The topic's name; None if no topic has this id."""
    return node.image.names.get(topic.topic_id) if request.version >= IDS_SINCE else topic.name


def _inside(node: Node, name: str | None, topic: Any) -> bool:
    if name is None or name not in node.image.topics:
        return False
    config, now_ms = node.partitions.config(name), node.clock.now_ms()
    return looks_inside(config) or any(
        time_is_doubtful(partition.records or b"", config, now_ms)
        for partition in topic.partition_data
    )


def _is_quick(node: Node, named: list[tuple[str | None, Any]]) -> bool:
    """True if the append takes no longer than a coordinator's own."""
    sizes = (len(one.records or b"") for _, topic in named for one in topic.partition_data)
    return sum(sizes) <= QUICK_BYTES and not any(_inside(node, *each) for each in named)


class _TooMuch(Exception):
    """A batch decompresses to more than an I/O thread accepts."""


class _Append:
    """The partitions of a request: appended one after the other, then answered."""

    def __init__(self, node: Node, request: Request, named: list[tuple[str | None, Any]]) -> None:
        self._node = node
        self._request = request
        self._left = deque(
            (name, _accepted(node, name, p.index), p)
            for name, topic in named
            for p in topic.partition_data
        )
        self._done: list[_Outcome] = []
        self._verdicts: Verdicts = {}

    def go_on(self, verdicts: Verdicts) -> None:
        """Take the coordinator's decisions on the transactional batches."""
        self._verdicts = verdicts
        try:
            self.run()
        except Exception as problem:
            self._fail(problem)

    def run(self, limit: int = INSIDE_BYTES) -> None:
        """Append the remaining batches.  One that decompresses to more than `limit` bytes is left
        to the bulk thread, under the topic's own limit."""
        node, request = self._node, self._request
        while self._left:
            try:
                name, accepted, entry = self._left[0]
                key = name, entry.index, writer_of(entry.records)
                verdict = self._verdicts.get(key)
                self._done.append(_append(node, request, name, accepted, entry, limit, verdict))
            except _TooMuch:
                node.bulk.submit(self._rest)
                return
            self._left.popleft()
            entry.records = None  # acks=all may wait for long
            self._verdicts.pop(key, None)  # it held for one batch
        if request.body.acks == ALL or any(one.sync_due for one in self._done):
            _Waiting(node, request, self._done).begin()
        else:
            _finish(node, request, self._done)

    def _rest(self) -> None:
        try:
            self.run(sys.maxsize)
        except Exception as problem:
            self._fail(problem)

    def _fail(self, problem: Exception) -> None:
        for verdict in self._verdicts.values():
            verdict.end()
        handler_failed(self._request, problem)


def _accepted(node: Node, topic: str | None, partition: int) -> Accepted:
    try:
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return node.partitions.leader_epoch(topic, partition)
    except KafkalogError as problem:
        return problem


def _append(
    node: Node, request: Request, topic: str | None, accepted: Accepted, entry: Any, limit: int,
    verdict: Verdict | None,
) -> _Outcome:  # fmt: skip
    answer: dict[str, Any] = {"index": entry.index}
    found = None
    config = _DEFAULTS
    records = entry.records or b""
    now_ms = node.clock.now_ms()
    try:
        if isinstance(accepted, KafkalogError):
            raise accepted
        assert topic is not None  # it was already accepted
        log = node.partitions.log(topic, entry.index)
        config = log.config
        _check(request, topic, records)
        ready = _prepared(records, config, now_ms, limit)
        append = partial(
            node.reactor.append, topic, entry.index, ready, acks=request.body.acks, now_ms=now_ms,
            leader_epoch=accepted, one_batch=True,
        )  # fmt: skip
        if verdict is None:
            found = append(continues=True)
        else:
            found = verdict.append(partial(append, joins=request.version >= JOINS_SINCE))
        answer["base_offset"] = found.base_offset
        answer["log_append_time_ms"] = found.log_append_time_ms
        answer["log_start_offset"] = found.log_start_offset
    except _TooMuch:
        raise
    except Exception as problem:
        answer["error_code"] = problem.error if isinstance(problem, Refused) else code_of(problem)
        answer["error_message"] = for_clients(problem)
        answer["base_offset"] = -1
        if isinstance(problem, (InvalidRecord, InvalidTimestamp)):
            answer["record_errors"] = _record_errors(records, config, now_ms)
    if verdict is not None:
        verdict.end()
    return _Outcome(topic or "", entry.index, answer, found)


def _record_errors(records: bytes, config: TopicConfig, now_ms: int) -> list[dict[str, Any]]:
    """The records that break a rule of their topic, by their index in the batch.

    Empty if none can be named, as for a batch that cannot be parsed.
    """
    batch = ffi.new("kl_batch *")
    try:
        check(lib.kl_batch_parse(ffi.from_buffer("uint8_t[]", records), len(records), batch))
        view = memoryview(records)[lib.KL_BATCH_HEADER_BYTES : batch.batch_bytes]
        limit = config.kafkalog_max_decompressed_bytes
        body = codecs.decompress(batch.attributes & lib.KL_CODEC_MASK, view, limit)
    except KafkalogError:
        return []
    return [
        {"batch_index": one.place, "batch_index_error_message": one.why}
        for one in refused_records(batch, body, config, now_ms, LISTED_MAX)
    ]


def _prepared(records: bytes, config: TopicConfig, now_ms: int, limit: int) -> bytes:
    allowed = config.kafkalog_max_decompressed_bytes
    try:
        return prepared(records, config, now_ms, min(allowed, limit))
    except MessageTooLarge as problem:
        if len(records) > config.max_message_bytes or limit >= allowed:
            raise
        raise _TooMuch from problem


def _check(request: Request, topic: str, records: bytes) -> None:
    """Refuse here what the fast path refuses, too, before a log sees it."""
    if topic in INTERNAL_TOPICS and request.peer.client_id != ADMIN_CLIENT:
        raise InvalidTopic(f"topic {topic}: clients may not write to an internal topic")
    if len(records) < lib.KL_BATCH_HEADER_BYTES:
        raise InvalidRecord("no whole record batch, wanted exactly one")
    attributes = records[ATTRIBUTES_POS + 1]
    if attributes & lib.KL_CODEC_MASK == ZSTD and request.version < ZSTD_SINCE:
        raise UnsupportedCompressionType(f"zstd: wanted Produce version {ZSTD_SINCE} or later")
    if attributes & lib.KL_ATTR_TRANSACTIONAL and request.body.transactional_id is None:
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch in a request without a transactional id",
        )


class _Waiting:
    """acks=all or flush.messages: the answer is sent when the last partition has fulfilled what
    acks promises."""

    def __init__(self, node: Node, request: Request, done: list[_Outcome]) -> None:
        self._node = node
        self._request = request
        self._done = done
        self._lock = threading.Lock()  # guards what follows
        self._left = 0

    def begin(self) -> None:
        """Wait for every partition that took its records."""
        every = self._request.body.acks == ALL
        waits = [one for one in self._done if one.found is not None and (every or one.sync_due)]
        self._left = len(waits) + 1  # one for this loop, so that it ends before the answer is sent
        # Only acks=all has a timeout: the others wait for the disk alone, which answers.
        timeout_ms = max(self._request.body.timeout_ms, 0) if every else None
        for one in waits:
            assert one.found is not None
            where = TopicPartition(one.topic, one.partition)
            settle = partial(self._one, one)
            self._node.acknowledger.wait_for(where, one.found, timeout_ms, settle)
        self._settle()

    def _one(self, one: _Outcome, problem: Exception | None) -> None:
        if problem is not None:
            one.answer.update(
                error_code=code_of(problem), error_message=for_clients(problem), base_offset=-1
            )
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        _finish(self._node, self._request, self._done)


def _finish(node: Node, request: Request, done: list[_Outcome]) -> None:
    """Answer; with acks=0 there is no answer, and a failure closes the connection."""
    if request.body.acks == NONE:
        if request.cut or any(one.answer.get("error_code") for one in done):
            request.drop()
        else:
            request.answer_bytes(b"", -1)
        return
    leaders = (
        _name_leaders(node, request.peer.listener, done) if request.version >= LEADERS_SINCE else {}
    )
    answers = iter(done)

    def named(topic: Any) -> dict[str, Any]:
        by_id = request.version >= IDS_SINCE
        return {"topic_id": topic.topic_id} if by_id else {"name": topic.name}

    request.answer(
        {
            "responses": [
                {
                    **named(topic),
                    "partition_responses": [next(answers).answer for _ in topic.partition_data],
                }
                for topic in request.body.topic_data
            ],
            **leaders,
        }
    )


def _name_leaders(node: Node, listener: int, done: list[_Outcome]) -> dict[str, Any]:
    """Add the leaders of partitions that are not led here, and their addresses."""
    named: list[int] = []
    for one in done:
        if one.answer.get("error_code") == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = current_leader(node, one.topic, one.partition)
            if leader is not None:
                one.answer["current_leader"] = leader
                named.append(leader["leader_id"])
    return {"node_endpoints": endpoints(node, listener, named)} if named else {}
