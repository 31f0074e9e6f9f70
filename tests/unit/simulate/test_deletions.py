"""A topic is deleted and created again while nodes fail."""

from __future__ import annotations

from kafkalog.simulate.rules import Rules
from kafkalog.simulate.run import run


def test_nothing_of_a_deleted_topic_comes_back() -> None:
    """In the end no node has a replica of a deleted topic; a recreated one has no old record."""
    recreated = 0
    for seed in range(3):
        found = run(seed, deletes=True, events=2_000)
        assert found.failure == "", f"kafkalog simulate --delete --seed {seed} --seeds 1"
        recreated += sum(step.kind == "recreate" for step in found.steps)
    assert recreated > 5


def test_a_replica_whose_files_stay_is_found() -> None:
    """A planted mistake: its node says that it has deleted it."""
    found = run(2, deletes=True, events=2_000, rules=Rules(drops=False))
    assert found.failure.startswith("recreated: ")
