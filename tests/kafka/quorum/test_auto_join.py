"""A controller of either kind joins a quorum of either kind by itself
(`controller.quorum.auto.join.enable`)."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Node, Quorum, until
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
BROKER, SECOND = 2, 5
AUTO = "controller.quorum.auto.join.enable=true\n"


@pytest.mark.parametrize(("leads", "joins"), [(KAFKA, OURS), (OURS, KAFKA), (OURS, OURS)])
def test_a_controller_joins_by_itself(memory: Path, leads: str, joins: str) -> None:
    """It becomes a voter without a command.  The first one restarts, which takes the second one's
    vote; then topics are created."""
    home = memory / f"auto-{leads}-{joins}"
    try:
        with Quorum(home, [BROKER], dynamic=True, kinds={CONTROLLER: leads}) as quorum:
            quorum.nodes[BROKER].begin(OURS)
            ports = {CONTROLLER: quorum.controller.port, SECOND: apache.free_port()}
            second = Node(home, SECOND, ports, quorum.cluster, AUTO, dynamic=True)
            second._formatted = ["--no-initial-controllers"]
            second.begin(joins)
            quorum.controllers[SECOND] = second
            with kafkalog.Admin(quorum.controller.address, controllers=True) as admin:
                until(
                    lambda: (
                        {one.node for one in admin.describe_quorum().voters} == {CONTROLLER, SECOND}
                    ),
                    "it is a voter",
                )
            quorum.controller.stop()
            quorum.controller.begin()
            for one in quorum.controllers.values():
                until(one.answers, "both are there")
            quorum.create("later", [BROKER])
            quorum.produce("later", range(10))
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")
