"""Voters of both kinds whose disks are full: another one leads, and they come back with space."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import KafkalogError
from tests.kafka.quorum.mixed import all_logs_equal, leader, led_by
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Node, Quorum, until
from tests.support import apache
from tests.support.smalldisks import Ballast, mounted

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

SECOND, THIRD = 8, 9
BROKER = 3
MIXES = {
    "one of ours": {THIRD: OURS},
    "two of ours": {SECOND: OURS, THIRD: OURS},
}
MIB = 48


class Full(Quorum):
    """Each controller has a small disk of its own."""

    disks: dict[int, Ballast]


@pytest.fixture(scope="module", params=MIXES)
def quorum(request: pytest.FixtureRequest, memory: Path) -> Iterator[Full]:
    home = memory / request.param.replace(" ", "-")
    made = Full(home, [BROKER], controllers=(CONTROLLER, SECOND, THIRD), kinds=MIXES[request.param])
    with contextlib.ExitStack() as undo:
        made.disks = {}
        for number, one in made.controllers.items():
            folder = home / f"disk{number}"
            folder.mkdir()
            disk = undo.enter_context(mounted("ext4", folder, MIB))
            (disk / "data").mkdir()
            one.data.symlink_to(disk / "data")
            made.disks[number] = Ballast(disk)
        try:
            with made:
                made.nodes[BROKER].begin(OURS)
                made.all_known()
                yield made
        except apache.Unavailable as reason:
            pytest.skip(f"Apache Kafka cannot run here: {reason}")


def changed(quorum: Full, name: str) -> bool:
    """Change the metadata; False: it was not acknowledged."""
    with (
        contextlib.suppress(KafkalogError),
        kafkalog.Admin(quorum.bootstrap, api_timeout_ms=5_000) as admin,
    ):
        admin.create_topics([(name, 1, 1)]).check()
        return True
    return False


def replaced(quorum: Full, full: Node, prefix: str) -> None:
    """Change the metadata until a controller other than the full one has taken changes."""
    counts = iter(range(10_000))
    until(lambda: leader(quorum) is not full or not changed(quorum, f"{prefix}-{next(counts)}"),
          "the full one leads no more")  # fmt: skip
    until(lambda: leader(quorum) is not full, "another one leads")
    until(lambda: changed(quorum, f"{prefix}-after-{next(counts)}"), "the quorum goes on")


@pytest.mark.parametrize("kind", [KAFKA, OURS])
def test_a_leader_of_either_kind_whose_disk_is_full_is_replaced(quorum: Full, kind: str) -> None:
    full = led_by(quorum, kind)
    disk = quorum.disks[full.number]
    disk.fill()
    try:
        replaced(quorum, full, f"{kind}-full")
    finally:
        disk.drop()
    if full.ended():
        full.begin()
    until(full.answers, "it is back")
    for n in range(5):
        until(lambda n=n: changed(quorum, f"{kind}-back-{n}"), "changes go on")


@pytest.mark.parametrize("kind", [KAFKA, OURS])
def test_a_follower_of_either_kind_whose_disk_is_full_comes_back(quorum: Full, kind: str) -> None:
    """The others are a majority; what it missed it fetches."""
    led_by(quorum, OURS if kind == KAFKA else KAFKA)
    full = next(one for one in quorum.controllers.values() if one.kind == kind)
    disk = quorum.disks[full.number]
    disk.fill()
    try:
        for n in range(40):  # more than fits into the last block of its log
            until(lambda n=n: changed(quorum, f"{kind}-follows-{n}"), "changes go on")
    finally:
        disk.drop()
    if full.ended():
        full.begin()
    until(full.answers, "it is back")


def test_all_metadata_logs_are_equal(quorum: Full) -> None:
    for one in quorum.controllers.values():
        if one.ended():
            one.begin()
        until(one.answers, "it answers")
    all_logs_equal(quorum, 5_000)
