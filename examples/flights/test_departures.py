"""A user's own test, as the demo runs it: a real broker that fails on command."""

from __future__ import annotations

from typing import Any

import kafkalog


def announce(servers: str, gate: str) -> None:
    """The code under test."""
    with kafkalog.Producer(servers) as producer:
        producer.send("gates", gate.encode()).result(30)


def test_a_lost_answer_announces_a_gate_once(kafkalog_broker: Any) -> None:
    fault = kafkalog_broker.drop_response("Produce")  # it is written, but the client cannot know
    announce(kafkalog_broker.bootstrap_servers, "B12")
    assert fault.hits == 1
    assert [record.value for record in kafkalog_broker.wait_for_records("gates", 1)] == [b"B12"]


def test_announced_departures_survive_a_power_cut(kafkalog_broker: Any) -> None:
    announce(kafkalog_broker.bootstrap_servers, "C4")
    kafkalog_broker.kill()
    kafkalog_broker.start()
    announce(kafkalog_broker.bootstrap_servers, "C5")
    kafkalog_broker.wait_for_records("gates", 2)
