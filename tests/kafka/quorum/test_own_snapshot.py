"""A controller of ours that writes snapshots often and keeps a short log, and brokers of both kinds
that begin late."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Quorum, until
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
SHORT = """
metadata.log.max.record.bytes.between.snapshots=1000
metadata.max.retention.bytes=1000
"""


@pytest.fixture(scope="module")
def quorum(memory: Path) -> Iterator[Quorum]:
    try:
        with Quorum(
            memory / "own-snapshots", [2, 3, 4], SHORT, kinds={CONTROLLER: OURS}
        ) as running:  # fmt: skip
            running.nodes[2].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def snapshots(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in folder.glob("*.checkpoint"):
        with contextlib.suppress(FileNotFoundError):  # a newer one has replaced it
            if int(path.name.partition("-")[0]):
                found[path.name] = path.read_bytes()
    return found


@pytest.mark.parametrize(("number", "kind"), [(3, KAFKA), (4, OURS)])
def test_a_late_broker_loads_our_snapshot(quorum: Quorum, number: int, kind: str) -> None:
    """It has the controller's bytes, serves, and begins again from its own copy."""
    folder = quorum.controller.metadata
    with kafkalog.Admin(quorum.bootstrap) as admin:
        for one in range(6):  # each has more than the bytes of a snapshot
            admin.create_topics([(f"before-{number}-{one}", -1, -1, {}, [[2]] * 20)]).check()
            until(lambda one=one: len(snapshots(folder)) > min(one, 1), "a snapshot")
    until(lambda: not (folder / f"{0:020d}.log").exists(), "the log has lost its beginning")
    known = snapshots(folder)
    late = quorum.nodes[number]
    late.begin(kind)
    quorum.all_known()
    quorum.create(f"with-{number}", [number, 2])
    quorum.in_sync(f"with-{number}", number, 2)
    quorum.produce(f"with-{number}", range(20))
    known |= snapshots(folder)
    mine = snapshots(late.metadata)
    shared = mine.keys() & known.keys()
    assert shared
    assert all(mine[name] == known[name] for name in shared)
    late.stop()
    late.begin()
    quorum.in_sync(f"with-{number}", number, 2)


def test_a_restarted_controller_has_everything(quorum: Quorum) -> None:
    quorum.controller.stop()
    quorum.controller.begin(OURS)
    quorum.create("after", [2])
    found = quorum.row(2, "before-4-0")
    assert found is not None and not found.error_code
