"""The slow path of Produce: what needs a look into compressed batches, or a log opened.

The fast path in C appends batches as they came.  Here each record is looked at, and batches
are compressed again where the topic has a codec of its own; kafka.md 2.2 has the rules.
"""

import sys
import threading
from collections import deque
from functools import partial
from typing import Any, NamedTuple

from kafkalog._native import lib
from kafkalog.batch.check import prepared, time_is_doubtful
from kafkalog.batch.codecs import ZSTD
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    InvalidTxnState,
    MessageTooLarge,
    Timeout,
    UnsupportedCompressionType,
    for_clients,
)
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.server.handlers.common import code_of
from kafkalog.server.handlers.failures import handler_failed
from kafkalog.server.handlers.fetch import open_logs
from kafkalog.server.node import Node
from kafkalog.server.partitions import looks_inside
from kafkalog.server.rejected import record_errors
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["produce"]

NONE, LEADER, ALL = 0, 1, -1
"""What a producer may wait for (acks)."""
ADMIN_CLIENT = "__admin_client"
"""Kafka's own tools, which may write to internal topics."""
ATTRIBUTES_POS = 21
INSIDE_BYTES = 16 << 20
"""Bodies that decompress to more than this are looked into one at a time."""
ZSTD_SINCE = 7
"""KIP-110: older clients do not know zstd."""


class _Appended(NamedTuple):
    """What became of one partition's records."""

    topic: str
    partition: int
    last_offset: int
    answer: dict[str, Any]
    on_disk: bool = False
    """flush.messages: it is answered when it is there, whatever acks says."""


def produce(node: Node, request: Request) -> None:
    """Open the logs; append here what C cannot, else hand the request back."""
    body = request.body
    open_logs(node, ((t.name, p.index) for t in body.topic_data for p in t.partition_data))
    if body.acks not in (NONE, LEADER, ALL) or not any(_inside(node, t) for t in body.topic_data):
        request.again()
        return
    _Append(node, request).run()


def _inside(node: Node, topic: Any) -> bool:
    if topic.name not in node.image.topics:
        return False
    config, now_ms = node.partitions.config(topic.name), node.clock.now_ms()
    return looks_inside(config) or any(
        time_is_doubtful(partition.records or b"", config, now_ms)
        for partition in topic.partition_data
    )


class _TooMuch(Exception):
    """A body decompresses to more than an I/O thread takes on."""


class _Append:
    """The partitions of a request, appended one after the other, then answered."""

    def __init__(self, node: Node, request: Request) -> None:
        self._node = node
        self._request = request
        topics = request.body.topic_data
        self._left = deque((t.name, p) for t in topics for p in t.partition_data)
        self._done: list[_Appended] = []

    def run(self, limit: int = INSIDE_BYTES) -> None:
        """Append those that are left.  What decompresses to more than `limit` bytes goes on in
        the thread for what is large, under the topic's own limit."""
        node, request = self._node, self._request
        while self._left:
            try:
                self._done.append(_append(node, request, *self._left[0], limit))
            except _TooMuch:
                node.bulk.submit(self._rest)
                return
            self._left.popleft()
        if request.body.acks == ALL or any(one.on_disk for one in self._done):
            _Waiting(node, request, self._done).begin()
        else:
            _finish(request, self._done)

    def _rest(self) -> None:
        try:
            self.run(sys.maxsize)
        except Exception as problem:
            handler_failed(self._request, problem)


def _append(node: Node, request: Request, topic: str, asked: Any, limit: int) -> _Appended:
    answer: dict[str, Any] = {"index": asked.index}
    last_offset, on_disk = -1, False
    config = TopicConfig()
    records = asked.records or b""
    now_ms = node.clock.now_ms()
    try:
        log = node.partitions.log(topic, asked.index)
        config = log.config
        _check(request, topic, records)
        ready = _prepared(records, config, now_ms, limit)
        found = node.reactor.append(
            topic, asked.index, ready, acks=request.body.acks, now_ms=now_ms, one_batch=True,
        )  # fmt: skip
        last_offset, on_disk = found.last_offset, found.sync_due
        answer["base_offset"] = found.base_offset
        answer["log_append_time_ms"] = found.log_append_time_ms
        answer["log_start_offset"] = found.log_start_offset
    except _TooMuch:
        raise
    except Exception as problem:
        answer["error_code"] = code_of(problem)
        answer["error_message"] = for_clients(problem)
        answer["base_offset"] = -1
        if isinstance(problem, (InvalidRecord, InvalidTimestamp)):
            answer["record_errors"] = record_errors(records, config, now_ms)
    return _Appended(topic, asked.index, last_offset, answer, on_disk)


def _prepared(records: bytes, config: TopicConfig, now_ms: int, limit: int) -> bytes:
    allowed = config.kafkalog_max_decompressed_bytes
    try:
        return prepared(records, config, now_ms, min(allowed, limit))
    except MessageTooLarge as problem:
        if len(records) > config.max_message_bytes or limit >= allowed:
            raise
        raise _TooMuch from problem


def _check(request: Request, topic: str, records: bytes) -> None:
    """What the fast path, too, refuses before a log sees it."""
    if topic in INTERNAL_TOPICS and request.peer.client_id != ADMIN_CLIENT:
        raise InvalidTopic(f"topic {topic}: clients may not write to an internal topic")
    if len(records) < lib.KL_BATCH_HEADER_BYTES:
        raise InvalidRecord("no whole record batch, wanted exactly one")
    attributes = records[ATTRIBUTES_POS + 1]
    if attributes & lib.KL_CODEC_MASK == ZSTD and request.version < ZSTD_SINCE:
        raise UnsupportedCompressionType(f"zstd wants Produce of version {ZSTD_SINCE} or later")
    if attributes & lib.KL_ATTR_TRANSACTIONAL:
        raise InvalidTxnState("the producer has no transaction open in this partition")


class _Waiting:
    """acks=all or flush.messages: the answer goes out when the last of the partitions has what
    it promises."""

    def __init__(self, node: Node, request: Request, done: list[_Appended]) -> None:
        self._node = node
        self._request = request
        self._done = done
        self._lock = threading.Lock()  # guards what follows
        self._left = 0

    def begin(self) -> None:
        """Wait for every partition that took its records."""
        every = self._request.body.acks == ALL
        waits = [one for one in self._done if one.last_offset >= 0 and (every or one.on_disk)]
        self._left = len(waits) + 1  # one for this loop, so that it ends before the answer
        # Only acks=all has a time: the others wait for the disk alone, which answers.
        timeout_ms = max(self._request.body.timeout_ms, 0) if every else None
        for one in waits:
            self._node.acknowledger.wait(
                one.topic, one.partition, one.last_offset + 1, timeout_ms,
                partial(self._one, one), on_disk=one.on_disk,
            )  # fmt: skip
        self._settle()

    def _one(self, one: _Appended, problem: Exception | None) -> None:
        if problem is not None:
            code = ErrorCode.REQUEST_TIMED_OUT if isinstance(problem, Timeout) else code_of(problem)
            one.answer.update(error_code=code, error_message=for_clients(problem), base_offset=-1)
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        _finish(self._request, self._done)


def _finish(request: Request, done: list[_Appended]) -> None:
    """Answer; with acks=0 there is no answer, and a failure closes the connection."""
    if request.body.acks == NONE:
        if any(one.answer.get("error_code") for one in done):
            request.drop()
        else:
            request.answer_bytes(b"", -1)
        return
    answers = iter(done)
    request.answer(
        {
            "responses": [
                {
                    "name": topic.name,
                    "partition_responses": [next(answers).answer for _ in topic.partition_data],
                }
                for topic in request.body.topic_data
            ]
        }
    )
