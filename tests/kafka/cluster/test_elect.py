"""Kafka's own controller elects the same leaders as ours."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from kafkalog.controller import leader_election
from kafkalog.controller.leader_election import Leadership
from tests.support import apache, prepared

pytestmark = [pytest.mark.java, pytest.mark.slow]
KINDS = ("offline", "unclean", "reassign", "preferred", "shutdown")
SAMPLES = 400  # of each kind


def ours(
    kind: str, now: Leadership, replicas: list[int], live: set[int], ending: set[int],
    target: list[int],
) -> Leadership | None:  # fmt: skip
    if kind != "shutdown":  # no rule elects a node that shuts down
        live = live - ending
    if kind in ("offline", "unclean"):
        return leader_election.elect_for_offline(now, replicas, live, unclean=kind == "unclean")
    if kind == "reassign":
        return leader_election.elect_for_reassignment(now, target, live)
    if kind == "preferred":
        return leader_election.elect_preferred(now, replicas, live)
    return leader_election.elect_for_controlled_shutdown(now, replicas, live, ending)


def test_kafka_elects_the_same() -> None:
    rng = random.Random(390)
    asked, wanted = [], []
    for kind in KINDS:
        for _ in range(SAMPLES):
            replicas = rng.sample(range(1, 7), rng.randint(1, 5))
            isr = rng.sample(replicas, rng.randint(1, len(replicas)))
            live = {one for one in range(1, 7) if rng.random() < 0.6}
            ending = {one for one in live if rng.random() < 0.3}
            target = [one for one in replicas if rng.random() < 0.6] or replicas[:1]
            if kind == "reassign":  # during it the new replicas come first
                replicas = target + [one for one in replicas if one not in target]
            leader = rng.choice([-1, *isr])
            now = Leadership(leader, rng.randint(0, 9), tuple(isr))
            found = ours(kind, now, replicas, live, ending, target)
            rows = (isr, replicas, sorted(live), sorted(ending), target)
            lists = " ".join(",".join(map(str, row)) or "-" for row in rows)
            asked.append(f"{kind} {leader} {now.leader_epoch} {lists}")
            wanted.append("none" if found is None else shown(found))
    assert answers(asked) == wanted
    assert len({*wanted}) > 100 and wanted.count("none") > 100


def shown(found: Leadership) -> str:
    isr = ",".join(map(str, found.isr))
    return f"{found.leader} {found.leader_epoch} {isr} {str(found.recovering).lower()}"


def answers(asked: list[str]) -> list[str]:
    """Kafka's answer to each line."""
    try:
        jars = apache.jars_with_zookeeper()
        program = Path(__file__).with_name("Elections.java")
        jar = prepared.compiled("elections", [program], jars)
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot be asked: {reason}")
    done = subprocess.run(
        ["java", *prepared.QUICK, "-cp", f"{jar}:{jars}/*", "Elections"],
        input="\n".join(asked) + "\n", capture_output=True, text=True, timeout=apache.START_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
