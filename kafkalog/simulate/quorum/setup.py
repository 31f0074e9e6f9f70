"""The settings of a simulated quorum, as a seed draws them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["FAULTS", "Setup", "drawn_setup"]

FAULTS: Mapping[str, int] = {
    "kill": 4, "power_cut": 4, "power_cut_of_all": 1, "pause": 4, "cut": 6, "isolate": 4, "jump": 2,
    "slow_disk": 2, "snapshot": 6, "resign": 2, "shut_down": 1, "add_voter": 4, "remove_voter": 4,
    "upgrade": 2, "wipe": 2, "roll": 4, "split": 2, "split_leader": 2,
}  # fmt: skip
"""How often each kind of fault is drawn, relative to the others."""
ROLLING: Mapping[str, int] = {"roll": 8, "kill": 2, "isolate": 2, "snapshot": 1}
MEMBERS: Mapping[str, int] = {
    "add_voter": 6, "remove_voter": 6, "split": 4, "split_leader": 6, "roll": 4, "kill": 2,
    "upgrade": 1, "wipe": 1, "snapshot": 2,
}  # fmt: skip
DARK: Mapping[str, int] = {
    "power_cut": 6, "power_cut_of_all": 3, "kill": 6, "isolate": 4, "slow_disk": 4, "snapshot": 2,
}  # fmt: skip
MOMENTS: Mapping[str, Mapping[str, int]] = {
    "elected": {
        "kill": 2,
        "power_cut": 2,
        "isolate": 2,
        "roll": 1,
        "split": 2,
        "ask_change": 2,
        "change_and_split": 4,
    },
    "appended": {"kill": 2, "power_cut": 2, "isolate": 2},
    "committed": {"kill": 2, "power_cut": 2, "isolate": 2, "snapshot": 1},
    "truncated": {"kill_leader": 2, "kill": 1, "power_cut": 1},
}
"""Faults at the worst moments: a leader is elected, appended and has not flushed yet, or committed,
or a follower truncates."""
SHARES: Mapping[str, float] = {
    "elected": 0.15, "appended": 0.01, "committed": 0.01, "truncated": 0.2,
}  # fmt: skip
"""In how many of these moments there is one."""


class Setup(NamedTuple):
    """The settings of a run."""

    voters: int = 3
    observers: int = 1
    version: int = 1
    delay_ms: float = 5.0
    slow_share: float = 0.05
    lost_share: float = 0.02
    twice_share: float = 0.02
    disk_ms: float = 2.0
    fault_ms: float = 400.0
    """The mean time between two faults."""
    append_ms: float = 40.0
    election_ms: float = 200.0
    auto_join: bool = True
    batches: int = 8
    """Batches of the log in one response."""
    faults: Mapping[str, int] = FAULTS
    moments: Mapping[str, Mapping[str, int]] = MOMENTS
    shares: Mapping[str, float] = SHARES


def drawn_setup(dice: random.Random) -> Setup:
    """The settings of a seed."""
    return Setup(
        voters=dice.choice((3, 3, 3, 4, 5)),
        observers=dice.choice((0, 1, 2)),
        version=dice.choice((0, 1, 1)),
        delay_ms=dice.choice((1.0, 5.0, 30.0)),
        slow_share=dice.choice((0.0, 0.05, 0.2)),
        lost_share=dice.choice((0.0, 0.02, 0.1)),
        twice_share=dice.choice((0.0, 0.05)),
        disk_ms=dice.choice((0.5, 5.0, 30.0)),
        fault_ms=dice.choice((100.0, 300.0, 1000.0)),
        append_ms=dice.choice((20.0, 60.0)),
        auto_join=dice.random() < 0.7,
        batches=dice.choice((1, 2, 8)),
        faults=dice.choice((FAULTS, FAULTS, ROLLING, MEMBERS, DARK)),
    )
