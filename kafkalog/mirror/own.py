"""Reads the topics in which mirrors keep their states."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafkalog import errors
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.mirror.state import STATES_BYTES_MAX, State, take
from kafkalog.mirror.wish import Side
from kafkalog.types import TopicPartition

__all__ = ["StateReader"]

READ_MS = 50
"""The last offset is a marker, for which no record comes."""
STATE_S = 60.0
"""How long reading a topic may make no progress."""


class StateReader:
    """The states of mirrors in one cluster, each read on from where it was read before.

    A context manager; one thread.
    """

    def __init__(self, at: Side, side: str, client_id: str, *, spans: bool = True) -> None:
        """Nothing is sent yet.  `side`: source or target, for messages; `spans`: see State."""
        self.states: dict[str, State] = {}
        """By topic."""
        self._side, self._spans = side, spans
        self._reader = Consumer(
            at.where, isolation="read_committed", client_id=client_id,
            auto_offset_reset="earliest", config=at.config, oauth_token=at.token,
        )  # fmt: skip
        self._places: dict[str, int] = {}

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def look(self, topics: Iterable[str]) -> None:
        """Read these topics to their ends; forget all others.

        Raises: BadAnswer: no mirror of this version wrote it; Timeout; as Consumer.
        """
        names = sorted(topics)
        for gone in self.states.keys() - set(names):
            del self.states[gone], self._places[gone]
        for name in names:
            self._read(TopicPartition(name, 0))

    def _read(self, tp: TopicPartition) -> None:
        reader = self._reader
        end = reader.end_offsets([tp])[tp]
        if end < self._places.get(tp.topic, -1):  # recreated
            del self.states[tp.topic], self._places[tp.topic]
        if end == self._places.get(tp.topic, 0):
            self.states.setdefault(tp.topic, State(spans=self._spans))
            self._places.setdefault(tp.topic, 0)
            return
        reader.assign([tp])
        if tp.topic in self.states:
            reader.seek(tp, self._places[tp.topic])
        else:
            reader.seek_to_beginning(tp)
        state = self.states.setdefault(tp.topic, State(spans=self._spans))
        until_s = time.monotonic() + STATE_S
        while (before := reader.position(tp)) < end:
            take(reader.poll(READ_MS), tp.topic, state)
            if sum(one.bytes for one in self.states.values()) > STATES_BYTES_MAX:
                raise errors.BadAnswer(
                    f"topic {tp.topic!r} of the {self._side}: found more than {STATES_BYTES_MAX} "
                    "bytes of mirrors' states, wanted less; delete the topics of mirrors that are "
                    "gone"
                )
            if reader.position(tp) > before:
                until_s = time.monotonic() + STATE_S
            elif time.monotonic() > until_s:
                raise errors.Timeout(
                    f"topic {tp.topic!r} of the {self._side}: at offset {before} for "
                    f"{STATE_S:g} s, wanted to read it up to {end}"
                )
        self._places[tp.topic] = reader.position(tp)
