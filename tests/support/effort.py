"""How much a search tries that could go on forever.

An ordinary run is the same each time: a fixed seed, fixed numbers of rounds.  Searching for
unforeseen cases is a separate run (`make explore`, `make torture`): its seed is drawn, and each
search takes KAFKALOG_EXPLORE_SECONDS.  A seed gives its rounds in the same order however many there
are, so the same seed finds the same failure again.

KAFKALOG_EFFORT multiplies the rounds: use less where each is expensive, as under a sanitizer.
KAFKALOG_LONG=1 selects the forms that take minutes to hours.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterator

SECONDS = float(os.environ.get("KAFKALOG_EXPLORE_SECONDS", "0"))
EXPLORING = SECONDS > 0
LONG = os.environ.get("KAFKALOG_LONG") == "1"
EFFORT = float(os.environ.get("KAFKALOG_EFFORT", "1" if EXPLORING or LONG else "0.35"))
GIVEN = os.environ.get("KAFKALOG_SEED")
SEED = int(GIVEN) if GIVEN else secrets.randbelow(2**32) if EXPLORING else 20_260_101
# For the processes that this one starts.
os.environ["KAFKALOG_SEED"] = str(SEED)


def rounds(count: int, searches: int = 1) -> Iterator[int]:
    """0, 1, ...: `count` of them, at least one; when exploring, as many as fit into the time of
    `searches` searches."""
    enough = max(1, round(count * EFFORT))
    end = time.monotonic() + searches * SECONDS
    for number in itertools.count():
        if number >= enough and time.monotonic() >= end:
            return
        yield number


def examples(count: int) -> int:
    """How many examples Hypothesis draws where `count` is an ordinary number."""
    return max(1, round(count * EFFORT * (10 if EXPLORING else 1)))


def patience_s(ordinary: float, searches: int = 3) -> float:
    """A time limit that leaves room for `searches` searches."""
    return ordinary + searches * SECONDS
