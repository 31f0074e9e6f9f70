"""Voters of both kinds in one quorum: each kind leads, voters die and pause, and all have the same
log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import KafkalogError, TopicExists
from kafkalog.wire import apis
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Node, Quorum, until
from tests.support import apache
from tests.support.copies import batches_in

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

SECOND, THIRD = 8, 9
THEIRS, MINE = 2, 3
"""Brokers of Kafka, and of ours."""
MIXES = {
    "one of ours": ({THIRD: OURS}, False),
    "two of ours": ({SECOND: OURS, THIRD: OURS}, False),
    "one of ours, in the log": ({THIRD: OURS}, True),
    "three of ours": ({CONTROLLER: OURS, SECOND: OURS, THIRD: OURS}, True),
}


@pytest.fixture(scope="module", params=MIXES)
def quorum(request: pytest.FixtureRequest, memory: Path) -> Iterator[Quorum]:
    kinds, dynamic = MIXES[request.param]
    home = memory / request.param.replace(" ", "-").replace(",", "")
    try:
        with Quorum(
            home, [THEIRS, MINE], controllers=(CONTROLLER, SECOND, THIRD), kinds=kinds,
            dynamic=dynamic,
        ) as running:  # fmt: skip
            running.nodes[THEIRS].begin(KAFKA)
            running.nodes[MINE].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def leader(quorum: Quorum) -> Node:
    """The controller that leads, as the others say."""

    def named() -> int:
        for one in quorum.controllers.values():
            if one.lives:
                with contextlib.suppress(OSError, KafkalogError), one.connection() as made:
                    body = {"include_cluster_authorized_operations": False, "endpoint_type": 2}
                    found = int(made.call(apis.DESCRIBE_CLUSTER, body, 1).controller_id)
                    if found in quorum.controllers and quorum.controllers[found].lives:
                        return found
        return 0

    return quorum.controllers[until(named, "a controller leads")]


def led_by(quorum: Quorum, kind: str) -> Node:
    """Let one of a kind win: it asks for votes while the others start."""
    for _ in range(10):
        one = leader(quorum)
        if one.kind == kind:
            return one
        others = [each for each in quorum.controllers.values() if each.kind != kind]
        for each in [*(each for each in others if each is not one), one]:
            each.stop()
        for each in others:
            each.begin()
            until(each.answers, "it is back")
    raise AssertionError(f"no controller of kind {kind} was elected")


@pytest.mark.parametrize("ends", ["kill", "stop", "pause"])
@pytest.mark.parametrize("kind", [KAFKA, OURS])
def test_the_leader_of_either_kind_ends(quorum: Quorum, kind: str, ends: str) -> None:
    """Topics are created before and after; produce goes on; brokers are fenced and come back."""
    if kind not in {one.kind for one in quorum.controllers.values()}:
        pytest.skip("there is no such voter")
    gone = led_by(quorum, kind)
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
    topic = f"{kind}-fences"
    quorum.create(topic, [THEIRS, MINE], min_insync_replicas="1")
    quorum.in_sync(topic, THEIRS, MINE)
    quorum.nodes[THEIRS].kill()
    quorum.led(topic, MINE)
    quorum.in_sync(topic, MINE)
    quorum.produce(topic, range(20))
    quorum.nodes[THEIRS].begin()
    quorum.in_sync(topic, THEIRS, MINE)
    with kafkalog.Admin(quorum.bootstrap) as admin:
        admin.delete_topics([topic]).check()


def test_all_metadata_logs_are_equal(quorum: Quorum) -> None:
    """Byte for byte, as far as each goes; Kafka's tool reads all of them."""
    for node in (*quorum.nodes.values(), *quorum.controllers.values()):
        node.stop()
    everybody = {**quorum.controllers, **quorum.nodes}
    logs = {number: b"".join(batches_in(one.metadata)) for number, one in everybody.items()}
    whole = max(logs.values(), key=len)
    assert len(whole) > 5_000
    for number, found in logs.items():
        assert whole.startswith(found), f"the metadata log of {number}"
        assert len(found) > len(whole) // 2
    for number, one in quorum.controllers.items():
        files = ",".join(str(path) for path in sorted(one.metadata.glob("*.log")))
        shown = apache.ask(
            "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", files
        )
        assert "LeaderChange" in shown and "REGISTER_BROKER_RECORD" in shown, number
