"""Nodes that answer Fetch, OffsetForLeaderEpoch, ListOffsets and Metadata as Kafka's do, from what
each knows at the time; they keep fetch sessions (KIP-227)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.client.fetch.simulated_leaders import Batch, Logs, Part, Replica

__all__ = ["Held", "Node", "Visit"]

Key = tuple[UUID, int]
BATCHES_MAX = 6
"""The most batches in an answer."""


class Held:
    """A partition in a session."""

    def __init__(self, offset: int, epoch: int) -> None:
        self.offset = offset
        self.epoch = epoch
        self.said: tuple[int, int] | None = None
        """High watermark and log start in the last answer."""


class Kept:
    """A session."""

    def __init__(self, parts: dict[Key, Held]) -> None:
        self.epoch = 1
        self.parts = parts


class Visit(NamedTuple):
    """A Fetch that the node has accepted."""

    parts: dict[Key, Held]
    session_id: int
    whole: bool
    """True if all partitions are answered."""
    rack: bool
    committed: bool


class Node:
    """A broker."""

    def __init__(self, number: int, logs: Logs) -> None:
        self.number = number
        self.up = True
        self.silent_until_ms = 0
        self.sessions: dict[int, Kept] = {}
        self.room = True
        """True if it keeps sessions."""
        self.nearer = 0.0
        """How often it names another replica as preferred."""
        self.view: dict[str, Any] = {}
        """Metadata as it knows it, by topic."""
        self.version = -1
        self._logs = logs
        self._rng = logs.time.rng

    def restart(self) -> None:
        self.up = True
        self.sessions.clear()

    # ---- Fetch -----------------------------------------------------------------------------

    def take(self, fields: dict[str, Any]) -> Visit | SimpleNamespace:
        """Accept a request, or return the answer that refuses it."""
        number, epoch = fields["session_id"], fields["session_epoch"]
        pending = {
            (topic["topic_id"], row["partition"]): Held(
                row["fetch_offset"], row["current_leader_epoch"]
            )
            for topic in fields["topics"]
            for row in topic["partitions"]
        }
        rest = bool(fields["rack_id"]), bool(fields["isolation_level"])
        if epoch in (0, -1):
            self.sessions.pop(number, None)
            if epoch == -1 or not self.room or not pending:
                return Visit(pending, 0, True, *rest)
            made = self._rng.randint(1, 1 << 30)
            self.sessions[made] = Kept(pending)
            return Visit(pending, made, True, *rest)
        kept = self.sessions.get(number)
        if kept is None:
            return _answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if kept.epoch != epoch:
            return _answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        kept.epoch += 1
        for topic in fields["forgotten_topics_data"]:
            for partition in topic["partitions"]:
                kept.parts.pop((topic["topic_id"], partition), None)
        kept.parts |= pending
        return Visit(kept.parts, number, False, *rest)

    def look(self, visit: Visit, late: bool) -> SimpleNamespace | None:
        """The answer; None: there is no data yet, and it is not too `late` to wait."""
        rows: dict[UUID, list[SimpleNamespace]] = {}
        found: list[tuple[Key, Held, SimpleNamespace]] = []
        news, left = False, BATCHES_MAX
        for key, held in visit.parts.items():
            row, taken = self._row(key, held, visit, left)
            left -= taken
            tells = bool(row.error_code or row.records or row.preferred_read_replica >= 0)
            if tells or visit.whole or held.said != (row.high_watermark, row.log_start_offset):
                found.append((key, held, row))
            news |= tells
        if not news and not late:
            return None
        for key, held, row in found:
            rows.setdefault(key[0], []).append(row)
            held.said = None if row.error_code else (row.high_watermark, row.log_start_offset)
            if row.records:  # the other partitions have their turn next
                visit.parts[key] = visit.parts.pop(key)
        answer = _answer(0, visit.session_id)
        answer.responses = [
            SimpleNamespace(topic="", topic_id=topic_id, partitions=some)
            for topic_id, some in rows.items()
        ]
        return answer

    def _row(self, key: Key, held: Held, visit: Visit, left: int) -> tuple[SimpleNamespace, int]:
        row = SimpleNamespace(
            partition_index=key[1], error_code=0, high_watermark=-1, last_stable_offset=-1,
            log_start_offset=-1, aborted_transactions=None, records=None,
            preferred_read_replica=-1,
            current_leader=SimpleNamespace(leader_id=-1, leader_epoch=-1),
        )  # fmt: skip
        part = self._find(key)
        if part is None:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return row, 0
        log = part.replicas.get(self.number)
        row.error_code = self._code(log, held.epoch)
        if log is None or row.error_code:
            if (log is None or log.epoch == part.epoch) and self._rng.random() < 0.5:
                row.current_leader = SimpleNamespace(leader_id=part.leader, leader_epoch=part.epoch)
            return row, 0
        if not log.start <= held.offset <= log.end:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            if log.leads:
                late = log is not part.leading and held.offset > log.end
                refused = self._logs.refused_late if late else self._logs.refused
                refused.add((part.tp, held.offset))
                if held.offset < log.start:
                    self._logs.retained.add((part.tp, held.offset))
            return row, 0
        row.high_watermark, row.log_start_offset = log.high, log.start
        row.last_stable_offset = log.stable
        if log.leads and visit.rack and self._rng.random() < self.nearer:
            row.preferred_read_replica = self._rng.choice(
                [node for node in part.replicas if node != self.number] or [-1]
            )
            return row, 0
        bound = log.stable if visit.committed else log.high
        there = [one for one in log.batches if held.offset < one.end <= bound]
        some = there[: min(left, self._rng.randint(1, 3))]
        row.records = self._bytes(some, there[len(some) :])
        return row, len(some)

    def _bytes(self, some: list[Batch], others: list[Batch]) -> bytes:
        """Whole batches, and perhaps some bytes of the next one."""
        data = b"".join(one.data for one in some)
        if data and others and self._rng.random() < 0.2:
            data += others[0].data[: self._rng.randint(1, len(others[0].data) - 1)]
        return data

    def _find(self, key: Key) -> Part | None:
        for topic in self._logs.topics.values():
            if topic.topic_id == key[0]:
                return topic.parts[key[1]] if key[1] < len(topic.parts) else None
        return None

    @staticmethod
    def _code(log: Replica | None, epoch: int) -> int:
        if log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > log.epoch else 0

    # ---- OffsetForLeaderEpoch, ListOffsets -------------------------------------------------

    def _leading(self, tp: TopicPartition, epoch: int) -> tuple[Replica | None, int]:
        part = self._logs.part(tp)
        if part is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = part.replicas.get(self.number)
        code = self._code(log, epoch)
        if log is not None and not code and not log.leads:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return (None if code else log), code

    def ends(self, fields: dict[str, Any]) -> SimpleNamespace:
        """Answer OffsetForLeaderEpoch."""
        topics = []
        for topic in fields["topics"]:
            rows = []
            for one in topic["partitions"]:
                tp = TopicPartition(topic["topic"], one["partition"])
                log, code = self._leading(tp, one["current_leader_epoch"])
                epoch, end = (-1, -1) if log is None else log.end_of(one["leader_epoch"])
                rows.append(
                    SimpleNamespace(
                        partition=tp.partition, error_code=code, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(SimpleNamespace(topic=topic["topic"], partitions=rows))
        return SimpleNamespace(throttle_time_ms=0, topics=topics)

    def offset(self, tp: TopicPartition, epoch: int, where: str) -> tuple[int, int, int]:
        """Answer ListOffsets: (error number, offset, leader epoch)."""
        log, code = self._leading(tp, epoch)
        if log is None:
            return code, -1, -1
        if where == "latest":
            return 0, log.high, log.epoch
        return 0, log.start, log.batches[0].epoch if log.batches else log.epoch

    # ---- Metadata --------------------------------------------------------------------------

    def metadata(self, names: list[str]) -> SimpleNamespace:
        alive = self.view.get("", [self.number])
        return SimpleNamespace(
            brokers=[SimpleNamespace(node_id=n, host="h", port=1 + n, rack=None) for n in alive],
            cluster_id="c", controller_id=0,
            topics=[self._topic(name) for name in names],
        )  # fmt: skip

    def _topic(self, name: str) -> SimpleNamespace:
        found = self.view.get(name)
        code = 0 if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id, rows = found or (UUID(int=0), [])
        return SimpleNamespace(
            error_code=code, name=name, topic_id=topic_id, is_internal=False,
            partitions=[
                SimpleNamespace(
                    partition_index=number, leader_id=leader, leader_epoch=epoch,
                    replica_nodes=nodes, isr_nodes=nodes,
                )
                for number, (leader, epoch, nodes) in enumerate(rows)
            ],
        )  # fmt: skip


def _answer(code: int, session_id: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        throttle_time_ms=0, error_code=code, session_id=session_id, responses=[],
        node_endpoints=[],
    )  # fmt: skip
