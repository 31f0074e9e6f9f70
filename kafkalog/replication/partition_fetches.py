"""A leader's knowledge of each partition, and the next request to it.  Pure.

A node follows thousands of partitions, few of which change between two requests: a request costs
as much as those few.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kafkalog.client.fetch import sessions
from kafkalog.types import TopicPartition

__all__ = ["PartitionFetch", "PartitionFetches"]

NO_ID = UUID(int=0)


class PartitionFetch(NamedTuple):
    """A partition in a request to its leader; a fetch session omits it while it stays the same."""

    offset: int
    log_start: int
    last_epoch: int
    leader_epoch: int


class PartitionFetches:
    """The partitions to fetch, for the next request.  One thread."""

    def __init__(self) -> None:
        self.session = sessions.NONE
        self.at: dict[TopicPartition, PartitionFetch] = {}
        """All of them."""
        self._ids: dict[TopicPartition, UUID] = {}
        self._topics: dict[UUID, str] = {}
        self._moved: dict[TopicPartition, PartitionFetch] = {}
        self._full = True
        """Partitions that differ from what the leader knows."""

    def put(self, tp: TopicPartition, topic_id: UUID, asked: PartitionFetch) -> None:
        """Fetch it from there on."""
        if tp not in self.at or self._ids[tp] != topic_id:
            self._ids[tp] = topic_id
            self._full = True
        elif self.at[tp] == asked:
            return
        self.at[tp] = self._moved[tp] = asked

    def leave_out(self, tp: TopicPartition) -> None:
        """Do not fetch it."""
        if self.at.pop(tp, None) is not None:
            del self._ids[tp]
            self._full = True

    def next(self, with_ids: bool) -> sessions.Ask:
        """The fields of the next request; `with_ids`: topics may be named by id."""
        if self._full or self.session.epoch == sessions.NEW_EPOCH:
            ids = {tp.topic: one for tp, one in self._ids.items()}
            self._topics = {one: name for name, one in ids.items()}
            by_id = with_ids and NO_ID not in self._topics
            said = sessions.ask(self.session, dict(self.at), ids, by_id)
        else:
            said = sessions.ask_some(self.session, dict(self._moved))
        self._moved.clear()
        self._full = False
        return said

    def topic(self, name: str, topic_id: UUID) -> str:
        """The name of a topic in an answer; empty if it was not requested."""
        return name or self._topics.get(topic_id, "")

    def answered(self, said: sessions.Ask, session_id: int, partitions: int) -> None:
        """The request was answered without an error."""
        self.session = sessions.answered(said, session_id, partitions)

    def lost(self, code: int = 0) -> None:
        """Send everything again."""
        self.session = sessions.lost(self.session, code)
