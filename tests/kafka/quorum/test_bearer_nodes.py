"""Nodes of ours and of Apache Kafka that log in to each other by OAUTHBEARER, with the same
settings: a controller of Kafka, one of ours, and a broker of each under both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Quorum, until
from tests.kafka.quorum.secured import LOGIN, by_tokens, dressed
from tests.support import apache
from tests.support.bearer import Issuer
from tests.support.secured import papers

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
THEIRS, MINE = 2, 3
MODES = {"their controller": KAFKA, "our controller": OURS}


@pytest.fixture(scope="module", params=MODES)
def quorum(request: pytest.FixtureRequest, memory: Path) -> Iterator[Quorum]:
    name = request.param.replace(" ", "-")
    folder = memory / f"papers-{name}"
    folder.mkdir()
    issuer = Issuer(folder)
    files = [issuer.keys, issuer.token(LOGIN)]
    # Kafka reads tokens and keys only from where it is allowed to.
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    urls = f"{allowed}.urls=" + ",".join(one.as_uri() for one in files)
    paths = f"{allowed}.files=" + ",".join(map(str, files))
    dress = dressed(papers(folder), logins=by_tokens(issuer))
    kinds = {CONTROLLER: MODES[request.param]}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", f"{urls} {paths}")
        try:
            with Quorum(memory / name, [THEIRS, MINE], dress=dress, kinds=kinds) as running:
                running.nodes[THEIRS].begin(KAFKA)
                running.nodes[MINE].begin(OURS)
                running.all_known()
                yield running
        except apache.Unavailable as reason:
            pytest.skip(f"Apache Kafka cannot run here: {reason}")


def test_each_kind_leads_and_follows(quorum: Quorum) -> None:
    """With acks=all, a group, and transactions over both: everything between nodes logs in."""
    quorum.create("each", [THEIRS, MINE], [MINE, THEIRS])
    for partition in (0, 1):
        quorum.in_sync("each", THEIRS, MINE, partition=partition)
        quorum.produce("each", range(partition * 50, partition * 50 + 50), partition)
    for number in range(4):  # their coordinators are on both
        with (
            kafkalog.Producer(
                quorum.bootstrap, transactional_id=f"writer-{number}", config=quorum.client
            ) as producer,
            producer.transaction(),
        ):
            for partition in (0, 1):
                producer.send("each", b"%d" % (100 + number), partition=partition)
    wanted = sorted([*range(100), *range(100, 104), *range(100, 104)])
    for group in ("first", "second"):
        assert quorum.consumed("each", 108, group) == [b"%d" % n for n in wanted]
    for partition in (0, 1):
        assert quorum.same("each", THEIRS, MINE, partition=partition)


def test_a_controller_that_restarts_is_joined_again(quorum: Quorum) -> None:
    quorum.controller.kill()
    quorum.controller.begin()
    quorum.all_known()
    quorum.create("later", [MINE, THEIRS])
    until(lambda: quorum.row(MINE, "later"), "the broker follows it")
    quorum.produce("later", range(50))
