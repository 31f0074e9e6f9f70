"""The judge of topics names every anomaly, and finds none in good histories."""

from __future__ import annotations

import pytest

from tests.faults.history import History, Outcome, TopicChange
from tests.faults.judges import topics

OUTCOMES = {"": Outcome.OK, "?": Outcome.UNKNOWN}


@pytest.mark.parametrize(
    ("changes", "listed", "kinds"),
    [
        ("", "", []),
        ("+a +b", "a b", []),
        ("+a -a", "", []),
        ("+a? +b?", "b", []),
        ("+a -a?", "a", []),
        ("+a -a?", "", []),
        ("+a? -a", "", []),
        ("+a +b", "a", ["lost"]),
        ("+a -a", "a", ["undead"]),
        ("+a", "a b", ["phantom"]),
    ],
)
def test_anomalies_are_found(changes: str, listed: str, kinds: list[str]) -> None:
    history = History([
        TopicChange(process="p", start=n, end=n + 1, topic=word[1], exists=word[0] == "+",
                    outcome=OUTCOMES[word[2:]])
        for n, word in enumerate(changes.split())
    ])  # fmt: skip
    assert [one.kind for one in topics.check(history, "1", listed.split())] == kinds
