"""How much is tried where one could go on for ever.

An ordinary run is the same each time: a fixed seed, fixed numbers of rounds.  Searching for what
nobody thought of is a run of its own (`make explore`, `make torture`): its seed is drawn, and
each search goes on for KAFKALOG_EXPLORE_SECONDS.  The rounds of a seed come in the same order
however many there are, so that the seed finds again what it found.

KAFKALOG_EFFORT multiplies the rounds: less where each is dear, as under a sanitizer.
KAFKALOG_LONG=1 asks for the forms that take minutes to hours.
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
EFFORT = float(os.environ.get("KAFKALOG_EFFORT", "1" if EXPLORING or LONG else "0.5"))
GIVEN = os.environ.get("KAFKALOG_SEED")
SEED = int(GIVEN) if GIVEN else secrets.randbelow(2**32) if EXPLORING else 20_260_101
# For the processes that this one starts.
os.environ["KAFKALOG_SEED"] = str(SEED)


def rounds(count: int, searches: int = 1) -> Iterator[int]:
    """0, 1, ...: `count` of them, at least one; when exploring, as many as there is time for, which
    is that of so many searches."""
    enough = max(1, round(count * EFFORT))
    end = time.monotonic() + searches * SECONDS
    for number in itertools.count():
        if number >= enough and time.monotonic() >= end:
            return
        yield number


def examples(count: int) -> int:
    """How many examples Hypothesis shall draw where `count` is an ordinary number."""
    return max(1, round(count * EFFORT * (10 if EXPLORING else 1)))


def patience_s(ordinary: float, searches: int = 3) -> float:
    """A time limit that leaves room for a search, or so many."""
    return ordinary + searches * SECONDS
