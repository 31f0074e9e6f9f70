"""`kafkalog cluster elect`: the reported leader leads, whichever node is asked."""

from __future__ import annotations

import threading

import pytest

from kafkalog.cli import main
from kafkalog.testing.cluster import NODES, TestCluster


@pytest.mark.kafkalog(topics={"t": NODES}, zookeeper=True)
def test_the_asked_node_hears_of_the_election_late(
    kafkalog_cluster: TestCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The controller elects; the node that was asked learns of it only later."""
    cluster = kafkalog_cluster
    every, controller = [*cluster.nodes], cluster.controller
    first, asked = [node for node in every if node != controller]
    partition = next(n for n in range(NODES) if cluster.leader("t", n) == first)
    cluster.stop(first)
    cluster.wait_until(lambda: cluster.leader("t", partition) not in (first, -1), "another leads")
    cluster.start(first)
    cluster.wait_until(lambda: cluster.in_sync("t", partition) == every, "all are in sync")
    words = ["cluster", "elect", f"t:{partition}", "--bootstrap-server"]
    words.append(cluster.nodes[asked].bootstrap_servers)
    said: list[int] = []
    command = threading.Thread(target=lambda: said.append(main(words)))
    cluster.partition(controller, asked)
    command.start()
    cluster.wait_until(lambda: cluster.leader("t", partition) == first, "the first one leads")
    cluster.heal()
    command.join()
    assert (said, capsys.readouterr().out) == ([0], f"t-{partition}: node {first} leads\n")
    assert main(words) == 0
    assert "nothing to elect" in capsys.readouterr().out
