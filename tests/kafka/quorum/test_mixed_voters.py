"""Voters of both kinds in one quorum: each kind leads, voters die and pause, and all have the same
log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import TopicExists
from tests.kafka.quorum.mixed import all_logs_equal, leader, led_by
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OPEN, OURS, Quorum, until
from tests.kafka.quorum.secured import dressed
from tests.support import apache
from tests.support.secured import papers

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

SECOND, THIRD = 8, 9
THEIRS, MINE = 2, 3
"""Brokers of Kafka, and of ours."""
MIXES = {
    "one of ours": ({THIRD: OURS}, False),
    "two of ours": ({SECOND: OURS, THIRD: OURS}, False),
    "one of ours, in the log": ({THIRD: OURS}, True),
    "three of ours": ({CONTROLLER: OURS, SECOND: OURS, THIRD: OURS}, True),
    "one of ours, by SASL_SSL": ({THIRD: OURS}, True),
}


@pytest.fixture(scope="module", params=MIXES)
def quorum(request: pytest.FixtureRequest, memory: Path) -> Iterator[Quorum]:
    kinds, dynamic = MIXES[request.param]
    home = memory / request.param.replace(" ", "-").replace(",", "")
    dress = OPEN
    if "SASL_SSL" in request.param:
        files = home.with_suffix(".papers")
        files.mkdir()
        dress = dressed(papers(files))
    try:
        with Quorum(
            home, [THEIRS, MINE], controllers=(CONTROLLER, SECOND, THIRD), kinds=kinds,
            dynamic=dynamic, dress=dress,
        ) as running:  # fmt: skip
            running.nodes[THEIRS].begin(KAFKA)
            running.nodes[MINE].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


@pytest.mark.parametrize("ends", ["kill", "stop", "pause"])
@pytest.mark.parametrize("kind", [KAFKA, OURS])
def test_the_leader_of_either_kind_ends(quorum: Quorum, kind: str, ends: str) -> None:
    """Topics are created before and after; produce goes on; brokers are fenced and come back."""
    if kind not in {one.kind for one in quorum.controllers.values()}:
        pytest.skip("there is no such voter")
    gone = led_by(quorum, kind)
    quorum.all_known()  # one that is still fenced would lead no new partition
    topic = f"{kind}-{ends}"
    quorum.create(topic, [THEIRS, MINE], [MINE, THEIRS], min_insync_replicas="1")
    quorum.in_sync(topic, THEIRS, MINE)
    with contextlib.ExitStack() as paused:
        if ends == "pause":
            paused.enter_context(gone.stands_still())
        else:
            getattr(gone, ends)()
        quorum.produce(topic, range(20))
        assert leader(quorum) is not gone
        with contextlib.suppress(TopicExists):  # the answer of an earlier attempt was lost
            quorum.create(f"{topic}-later", [MINE, THEIRS])
    if ends != "pause":
        gone.begin()
    until(gone.answers, "it is back")
    quorum.produce(f"{topic}-later", range(20))
    assert quorum.consumed(topic, 20, group=topic) == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("kind", [KAFKA, OURS])
def test_a_leader_of_either_kind_fences_a_dead_broker(quorum: Quorum, kind: str) -> None:
    if kind not in {one.kind for one in quorum.controllers.values()}:
        pytest.skip("there is no such voter")
    led_by(quorum, kind)
    quorum.all_known()
    topic = f"{kind}-fences"
    quorum.create(topic, [THEIRS, MINE], min_insync_replicas="1")
    quorum.in_sync(topic, THEIRS, MINE)
    quorum.nodes[THEIRS].kill()
    quorum.led(topic, MINE)
    quorum.in_sync(topic, MINE)
    quorum.produce(topic, range(20))
    quorum.nodes[THEIRS].begin()
    quorum.in_sync(topic, THEIRS, MINE)
    with kafkalog.Admin(quorum.bootstrap, config=quorum.client) as admin:
        admin.delete_topics([topic]).check()


def test_all_metadata_logs_are_equal(quorum: Quorum) -> None:
    all_logs_equal(quorum, 5_000)
