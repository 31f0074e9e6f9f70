"""Changes of ISRs that wait to be proposed."""

from __future__ import annotations

import threading
from pathlib import Path

import kafkalog
from kafkalog.log.log import handle_of
from kafkalog.replication.isr import Isr, Proposal
from kafkalog.server.led_partitions import LedPartitions
from kafkalog.types import TopicPartition
from tests.unit.net.network import Server


def test_a_proposal_rings_and_nothing_else_does(tmp_path: Path) -> None:
    """The thread that proposes sleeps until then: it looked twenty times a second."""
    tp, whole = TopicPartition("t", 0), Isr(1, 0, 0, (1, 2, 3), (1, 2, 3))
    with kafkalog.Log(tmp_path / "t-0") as log, Server() as server:
        server.reactor.put_topic("t", None)
        server.reactor.put_partition(handle_of(log), leader_epoch=0, durable=False)
        led = LedPartitions(threading.RLock(), {tp: log}, server.reactor, dict)
        led.lead(tp, whole)
        led.change(tp, lambda isr: isr._replace(partition_epoch=1))
        assert not led.news.is_set() and not led.due()
        proposed = whole._replace(proposal=Proposal((1, 2), (5, 5)))
        assert proposed.due
        led.change(tp, lambda _: proposed)
        assert led.news.is_set() and {*led.due()} == {tp}
