"""Judges topics that were created and deleted, each name once, against what nodes list at the end.

Kinds of anomaly:

lost        a topic's creation was acknowledged, nobody tried to delete it, and a node lacks it
undead      a topic's deletion was acknowledged, and a node has it
phantom     a node has a topic that nobody tried to create
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tests.faults.history import Anomaly, History, Outcome, TopicChange


def check(history: History, node: str, listed: Collection[str]) -> Iterator[Anomaly]:
    """`listed`: the topics that a node names at the end."""
    changes = history.of(TopicChange)
    created = {one.topic: one for one in changes if one.exists}
    deleted = {one.topic: one for one in changes if not one.exists}
    for topic, creation in created.items():
        if creation.outcome is Outcome.OK and topic not in deleted and topic not in listed:
            yield Anomaly("lost", f"{topic} on {node}")
    for topic, deletion in deleted.items():
        if deletion.outcome is Outcome.OK and topic in listed:
            yield Anomaly("undead", f"{topic} on {node}")
    for topic in sorted({*listed} - {*created}):
        yield Anomaly("phantom", f"{topic} on {node}")
