"""The join of two streams: what goes in, what must come out, and what the instances say."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict

from tests.kafka.streams.application import WAIT_S, Application, committed

__all__ = ["PARTITIONS", "TASKS", "TOPICS", "Fed", "has_all", "joined", "placed"]

TOPICS = ("left", "right", "pairs")
TASKS = {"0_0", "0_1", "0_2", "0_3"}
"""A task for each partition."""
PARTITIONS = len(TASKS)
KEYS = 20
COUNT = 400
"""Records of each side between two kills."""
STEP_MS, NEAR_MS = 10, 1_000
"""From one record to the next, and between the records of a pair."""


class Fed:
    """The records produced so far, and the pairs that they make."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self._bootstrap, self._rng = bootstrap, rng
        self._now_ms = int(time.time() * 1_000) - 60_000
        self._sides: dict[str, dict[str, list[tuple[str, int]]]] = {
            "left": defaultdict(list), "right": defaultdict(list)
        }  # fmt: skip
        self._number = 0

    def more(self) -> None:
        """Produce COUNT records more to each side."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for _ in range(COUNT):
            self._number += 1
            self._now_ms += STEP_MS
            for side, records in self._sides.items():
                key = str(self._rng.randrange(KEYS))
                records[key].append((str(self._number), self._now_ms))
                producer.produce(side, str(self._number), key, timestamp=self._now_ms)
        assert producer.flush(WAIT_S) == 0

    def pairs(self) -> Counter[tuple[str, str]]:
        """Key and values of each pair."""
        return Counter(
            (key, f"{left}:{right}")
            for key, lefts in self._sides["left"].items()
            for left, left_ms in lefts
            for right, right_ms in self._sides["right"][key]
            if abs(left_ms - right_ms) <= NEAR_MS
        )


def joined(bootstrap: str) -> Counter[tuple[str, str]]:
    """Key and values of each pair that came out."""
    found = committed(bootstrap, "pairs", PARTITIONS)
    return Counter((key.decode(), value.decode()) for key, value in found)


def placed(instances: list[Application]) -> bool:
    """True if each task is active at one instance and standby at the other."""
    first, second = instances
    return (
        set(first.ask("active")) == set(second.ask("standby"))
        and set(first.ask("standby")) == set(second.ask("active"))
        and {*first.ask("active"), *second.ask("active")} == TASKS
        and bool(first.ask("active")) and bool(second.ask("active"))
    )  # fmt: skip


def has_all(instance: Application) -> bool:
    return set(instance.ask("active")) == TASKS
