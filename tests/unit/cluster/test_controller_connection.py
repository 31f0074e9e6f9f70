"""Connections to the controller."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.link.transport import Address, Options, parse_servers
from kafkalog.cluster.node.controller_connection import ControllerConnection
from kafkalog.config.server import ServerConfig
from kafkalog.metadata.requests import NewTopic, NewTopics
from kafkalog.replication.inter_broker import node_securities
from kafkalog.wire.apis import ALTER_PARTITION, CREATE_TOPICS
from kafkalog.wire.error_codes import ErrorCode
from tests.support.membership import joined, reigns
from tests.support.sasl import settings
from tests.support.scripted import SILENCE, Peer
from tests.support.secured import PLAIN, jaas
from tests.support.waiting import LIMIT_S, wait_for

ASKED = {"broker_id": 1, "broker_epoch": 0, "topics": []}


def controller(answer: object) -> Peer:
    made = Peer()
    made.versions[ALTER_PARTITION] = (0, ALTER_PARTITION.max_version)
    made.on(ALTER_PARTITION, answer)
    return made


def test_a_request_moves_to_the_next_controller() -> None:
    """It does not wait for the old one's timeout: a follower would stay in sync that long."""
    with (
        controller(SILENCE) as old, controller({"error_code": 0, "topics": []}) as new,
        joined({7: old, 8: new}) as member, ThreadPoolExecutor(1) as pool,
    ):  # fmt: skip
        line = member.controller_connection()
        answer = pool.submit(line.ask, ALTER_PARTITION, ASKED)
        wait_for(lambda: old.count(ALTER_PARTITION), "it is asked")
        reigns(member, 8, 2, {7: old, 8: new})
        with pytest.raises(errors.PeerGone):
            answer.result()
        assert line.ask(ALTER_PARTITION, ASKED).error_code == ErrorCode.NONE


def test_a_request_waits_while_no_controller_is_known() -> None:
    """The last one may have carried it out: its answer is not thrown away."""
    ends = threading.Event()

    def answer(*_: object) -> dict[str, object]:
        ends.wait(LIMIT_S)
        return {"error_code": 0, "topics": []}

    with controller(answer) as peer, ThreadPoolExecutor(1) as pool:
        seen: list[tuple[int, Address | None]] = [(7, Address("127.0.0.1", peer.port))]
        line = ControllerConnection(1, lambda: seen[-1], Options())
        asked = pool.submit(line.ask, ALTER_PARTITION, ASKED)
        wait_for(lambda: peer.count(ALTER_PARTITION), "it is asked")
        seen.append((-1, None))
        line.turn()
        ends.set()
        assert asked.result().error_code == ErrorCode.NONE
        line.close()


def test_a_request_does_not_wait_for_an_earlier_reign() -> None:
    """A node that is the controller again may have lost the request, and its connection."""
    with controller(SILENCE) as peer, ThreadPoolExecutor(1) as pool:
        epochs, where = [1], (7, Address("127.0.0.1", peer.port))
        line = ControllerConnection(1, lambda: where, Options(), lambda: epochs[-1])
        asked = pool.submit(line.ask, ALTER_PARTITION, ASKED)
        wait_for(lambda: peer.count(ALTER_PARTITION), "it is asked")
        epochs.append(2)
        line.turn()
        with pytest.raises(errors.PeerGone):
            asked.result()
        line.close()


def test_an_idle_connection_ends_with_its_reign() -> None:
    """The next request does not fail on it: its sender would take its outcome for unknown."""
    with controller({"error_code": 0, "topics": []}) as peer:
        epochs, where = [1], (7, Address("127.0.0.1", peer.port))
        line = ControllerConnection(1, lambda: where, Options(), lambda: epochs[-1])
        line.ask(ALTER_PARTITION, ASKED)
        epochs.append(2)
        line.turn()
        assert line.ask(ALTER_PARTITION, ASKED).error_code == ErrorCode.NONE
        line.close()


def test_a_close_waits_for_no_answer() -> None:
    with controller(SILENCE) as silent, ThreadPoolExecutor(1) as pool:
        with joined({7: silent}) as member:
            answer = pool.submit(member.controller_connection().ask, ALTER_PARTITION, ASKED)
            wait_for(lambda: silent.count(ALTER_PARTITION), "it is asked")
        with pytest.raises(errors.PeerGone):
            answer.result()


def test_separate_lines_do_not_wait_for_each_other() -> None:
    """An ISR changes while the controller creates a topic for a client."""
    with (
        controller({"error_code": 0, "topics": []}) as peer, joined({7: peer}) as member,
        ThreadPoolExecutor(1) as pool,
    ):  # fmt: skip
        peer.on(CREATE_TOPICS, SILENCE)
        made = pool.submit(member.create_topics, NewTopics([NewTopic("t", 1, 1)]))
        wait_for(lambda: peer.count(CREATE_TOPICS), "it is asked")
        assert (
            member.controller_connection().ask(ALTER_PARTITION, ASKED).error_code == ErrorCode.NONE
        )
        assert not made.done()
        member.close_controller_connection()
        with pytest.raises(errors.PeerGone):
            made.result()
        with pytest.raises(errors.NotController):
            member.create_topics(NewTopics([]))


def test_a_controller_that_does_not_accept_this_node(tmp_path: Path) -> None:
    """It is no failed login of the client whose request is forwarded: that one retries."""
    login = jaas(PLAIN, username="alice", password="wr0ng")
    config = ServerConfig({
        "listeners": "IN://h:1", "listener.security.protocol.map": "IN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.in.plain.sasl.jaas.config": login,
    })  # fmt: skip
    with kafkalog.Broker(tmp_path / "data", config=settings()) as broker:
        (address,) = parse_servers(broker.bootstrap_servers)
        how = Options(security=node_securities(config)["IN"])
        line = ControllerConnection(1, lambda: (7, address), how)
        with pytest.raises(errors.NotController, match="do not accept each other") as found:
            line.ask(CREATE_TOPICS, {"topics": [], "timeout_ms": 1})
        assert "wr0ng" not in str(found.value)
        line.close()
