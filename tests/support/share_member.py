"""A member of a share group, by raw requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog.wire import apis
from tests.support.raw import Raw

MEMBER = "0123456789abcdef012345"
Said = list[tuple[int, int, list[int]]]


class ShareMember:
    """One member on one connection; it counts the epochs of its session."""

    def __init__(self, raw: Raw, group: str, topics: dict[UUID, list[int]],
                 member: str = MEMBER) -> None:  # fmt: skip
        self.raw, self.group, self.member = raw, group, member
        self.topics = topics
        self.epoch = 0

    def send_fetch(
        self, acks: dict[tuple[UUID, int], Said] | None = None, version: int = 2, **fields: Any
    ) -> None:
        """Send a ShareFetch."""
        acks = acks or {}
        named = self.topics if self.epoch == 0 else {}
        topics = {one: list(numbers) for one, numbers in named.items()}
        for topic_id, number in acks:
            if number not in topics.setdefault(topic_id, []):
                topics[topic_id].append(number)
        body = {
            "group_id": self.group, "member_id": self.member, "share_session_epoch": self.epoch,
            "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24, "max_records": 500,
            "batch_size": 500, "share_acquire_mode": 0, "is_renew_ack": False,
            "forgotten_topics_data": [],
            "topics": [
                {"topic_id": topic_id, "partitions": [
                    {"partition_index": one, "acknowledgement_batches": _batches(
                        acks.get((topic_id, one), []))} for one in numbers]}
                for topic_id, numbers in topics.items()],
        }  # fmt: skip
        body.update(fields)
        if version < 2:
            del body["share_acquire_mode"], body["is_renew_ack"]
        self.raw.send(apis.SHARE_FETCH, version, body)

    def fetched(self, version: int = 2) -> Any:
        """The answer to the ShareFetch that was sent."""
        found = self.raw.receive(apis.SHARE_FETCH, version)
        if not found.error_code and self.epoch >= 0:
            self.epoch += 1
        return found

    def fetch(
        self, acks: dict[tuple[UUID, int], Said] | None = None, version: int = 2, **fields: Any
    ) -> Any:
        """A ShareFetch, answered."""
        self.send_fetch(acks, version, **fields)
        return self.fetched(version)

    def acknowledge(
        self, acks: dict[tuple[UUID, int], Said], version: int = 2, **fields: Any
    ) -> Any:
        """A ShareAcknowledge, answered."""
        body = {
            "group_id": self.group, "member_id": self.member, "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": [{"topic_id": where[0], "partitions": [
                {"partition_index": where[1], "acknowledgement_batches": _batches(said)}]}
                for where, said in acks.items()],
        }  # fmt: skip
        body.update(fields)
        if version < 2:
            del body["is_renew_ack"]
        found = self.raw.call(apis.SHARE_ACKNOWLEDGE, version, **body)
        if not found.error_code and self.epoch > 0:
            self.epoch += 1
        return found


def _batches(said: Said) -> list[dict[str, Any]]:
    return [{"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, types in said]  # fmt: skip


def acquired(found: Any) -> dict[int, dict[int, int]]:
    """By partition: the acquired offsets, with how many times they were delivered."""
    rows = [row for topic in found.responses for row in topic.partitions]
    return {
        row.partition_index: {
            offset: one.delivery_count for one in row.acquired_records
            for offset in range(one.first_offset, one.last_offset + 1)}
        for row in rows if getattr(row, "acquired_records", None)
    }  # fmt: skip


def codes(found: Any, name: str = "error_code") -> dict[int, int]:
    """By partition: an error code of the answer."""
    return {row.partition_index: getattr(row, name)
            for topic in found.responses for row in topic.partitions}  # fmt: skip
