"""Voters of a quorum, Apache Kafka's and ours, come and go by `kafkalog quorum`, which prints what
kafka-metadata-quorum prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli import main
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Node, Quorum, until
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
BROKER, SECOND = 2, 5
TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
NUMBERS = re.compile(r"(?<![-\w.:])-?\d+(?![-\w.:])")
Told = Callable[..., str]


@pytest.fixture(scope="module", params=[KAFKA, OURS], ids=["theirs", "ours"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the voters."""
    return str(request.param)


@pytest.fixture(scope="module")
def quorum(memory: Path, kind: str) -> Iterator[Quorum]:
    """One voter, and a broker of Kafka's."""
    try:
        home, kinds = memory / f"voters-{kind}", {CONTROLLER: kind}
        with Quorum(home, [BROKER], dynamic=True, kinds=kinds) as running:
            running.nodes[BROKER].begin(KAFKA)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


@pytest.fixture(scope="module")
def second(quorum: Quorum, memory: Path, kind: str) -> Iterator[Node]:
    """A further controller, on a directory that we have formatted."""
    home = memory / f"second-{kind}"
    home.mkdir()
    ports = {CONTROLLER: quorum.controller.port, SECOND: apache.free_port()}
    made = Node(home, SECOND, ports, quorum.cluster, "", True)
    words = ["-t", quorum.cluster, "-c", str(made._properties), "--no-initial-controllers"]
    assert main(["storage", "format", *words]) == 0
    made.begin(kind)
    yield made
    if made.lives:
        made.kill()


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """The output of `kafkalog quorum` with these words."""

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main(["quorum", *words]) == 0
        return capsys.readouterr().out

    return run


def plain(text: str) -> list[list[str]]:
    """Its lines as words, without numbers: they grow, and the columns with them."""
    return [NUMBERS.sub("N", line).split() for line in text.strip().splitlines()]


@pytest.mark.parametrize("option", ["--bootstrap-server", "--bootstrap-controller"])
@pytest.mark.parametrize("what", ["--status", "--replication"])
def test_both_tools_print_the_same(quorum: Quorum, told: Told, option: str, what: str) -> None:
    """Numbers excepted, of brokers and of controllers."""
    at = quorum.bootstrap if option == "--bootstrap-server" else quorum.controller.address
    theirs = apache.ask(TOOL, option, at, "describe", what)
    assert plain(told("describe", what, option, at)) == plain(theirs)


def test_a_voter_is_added_and_removed(quorum: Quorum, second: Node, told: Told) -> None:
    """A controller that we formatted catches up as an observer, becomes a voter, and is one no
    longer; through a controller, then through a broker."""
    here = ("--bootstrap-controller", quorum.controller.address)
    with kafkalog.Admin(quorum.controller.address, controllers=True) as admin:
        assert [one.node for one in admin.describe_cluster().nodes] == [CONTROLLER]
        until(lambda: SECOND in {one.node for one in admin.describe_quorum().observers},
              "it is an observer")  # fmt: skip
        said = told("add-controller", "--config", str(second._properties), *here)
        assert said.startswith(f"Added controller {SECOND} with directory id "), said
        found = {one.node: one for one in admin.describe_quorum().voters}
        assert found.keys() == {CONTROLLER, SECOND}
        ends = [str(one) for one in found[SECOND].endpoints]
        assert ends == [f"CONTROLLER://127.0.0.1:{second.port}"]
        with pytest.raises(kafkalog.KafkalogError, match="DUPLICATE_VOTER"):
            admin.add_raft_voter(SECOND, found[SECOND].directory_id, found[SECOND].endpoints)
        directory = re.findall(r"directory id (\S+)", said)[0]
        words = ("remove-controller", "-i", str(SECOND), "-d", directory)
        said = told(*words, "--bootstrap-server", quorum.bootstrap)
        assert said == f"Removed  KRaft controller {SECOND} with directory id {directory}\n"
        until(lambda: [one.node for one in admin.describe_quorum().voters] == [CONTROLLER],
              "it is no voter")  # fmt: skip
