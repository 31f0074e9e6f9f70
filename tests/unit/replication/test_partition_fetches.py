"""A leader knows exactly what its follower wants, however short the requests are."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kafkalog.client.fetch import sessions
from kafkalog.replication.partition_fetches import PartitionFetch, PartitionFetches
from kafkalog.types import TopicPartition
from tests.support.effort import SEED, rounds

NO_ID = UUID(int=0)


class Node:
    """A leader's state of a fetch session."""

    def __init__(self) -> None:
        self.session_id = 0
        self.known: dict[tuple[Any, int], Any] = {}

    def take(self, said: sessions.Ask) -> tuple[int, int]:
        """Handle a request; returns the session id and the number of partitions in the answer."""
        ids, by_id = said.after.ids, said.after.by_id

        def key(tp: TopicPartition) -> tuple[Any, int]:
            return (ids[tp.topic] if by_id else tp.topic, tp.partition)

        if said.epoch == sessions.NEW_EPOCH:
            self.session_id += 1
            self.known = {}
        for tp, topic_id in said.forgotten:
            self.known.pop((topic_id if by_id else tp.topic, tp.partition), None)
        self.known.update((key(tp), at) for tp, at in said.offsets.items())
        return self.session_id, len(said.offsets)


def test_wanted_partitions_are_remembered() -> None:
    """Partitions that advance, are added, removed or paused; recreated topics; lost requests."""
    for number in rounds(60):
        draw = random.Random(f"{SEED} {number}")
        fetches, node = PartitionFetches(), Node()
        ids = {f"t{n}": UUID(int=n + 1) for n in range(3)}
        for _ in range(60):
            for _ in range(draw.randrange(4)):
                tp = TopicPartition(f"t{draw.randrange(3)}", draw.randrange(4))
                if draw.random() < 0.25:
                    fetches.leave_out(tp)
                else:
                    asked = PartitionFetch(draw.randrange(9), 0, 0, draw.randrange(2))
                    fetches.put(tp, ids[tp.topic], asked)
            if draw.random() < 0.05:
                name = draw.choice(list(ids))
                ids[name] = draw.choice([NO_ID, UUID(int=draw.randrange(9, 1_000))])
                for tp, at in list(fetches.at.items()):
                    if tp.topic == name:
                        fetches.put(tp, ids[name], at)
            said = fetches.next(with_ids=True)
            if draw.random() < 0.1:
                fetches.lost(draw.choice([0, 70, 71]))  # FETCH_SESSION_ID_NOT_FOUND and more
                continue
            found = node.take(said)
            by_id = said.after.by_id
            assert by_id == (NO_ID not in {ids[tp.topic] for tp in fetches.at})
            wanted = {
                (ids[tp.topic] if by_id else tp.topic, tp.partition): at
                for tp, at in fetches.at.items()
            }
            assert node.known == wanted, f"seed {SEED}, round {number}"
            fetches.answered(said, *found)


def test_unchanged_partitions_are_not_sent() -> None:
    fetches = PartitionFetches()
    places = [TopicPartition("t", number) for number in range(1_000)]
    for tp in places:
        fetches.put(tp, UUID(int=1), PartitionFetch(0, 0, 0, 0))
    said = fetches.next(with_ids=True)
    assert len(said.offsets) == 1_000
    fetches.answered(said, 7, 1_000)
    for tp in places:
        fetches.put(tp, UUID(int=1), PartitionFetch(int(tp.partition == 5), 0, 0, 0))
    said = fetches.next(with_ids=True)
    assert said.offsets == {places[5]: PartitionFetch(1, 0, 0, 0)}
    assert fetches.topic("", UUID(int=1)) == "t"
