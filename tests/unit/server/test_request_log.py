"""The log of requests, and of slow ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.server import ServerConfig
from kafkalog.logs import levels
from kafkalog.logs.events import event_of, fields_of
from kafkalog.logs.levels import REQUEST_LOGGER, set_level
from kafkalog.security.principal import Principal
from kafkalog.server.admission import FIRST
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.network.outcomes import Finished
from kafkalog.server.request_log import RequestLog
from kafkalog.wire import apis
from tests.support import sasl
from tests.support.raw import Raw
from tests.support.waiting import wait_for

MakeBroker = Callable[..., Broker]
SETTING = "kafkalog.slow.request.ms"


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """The fields of the lines of an event, so far."""
    logger = levels.logger_of(REQUEST_LOGGER)
    before = logger.level

    def found(event: str) -> list[dict[str, Any]]:
        return [
            fields_of(event_of(one), one) for one in list(caplog.records)
            if one.name == logger.name and event_of(one).name == event
        ]  # fmt: skip

    yield found
    logger.setLevel(before)


Records = Callable[[str], list[dict[str, Any]]]


def of(api: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in rows if one["api"] == api]


def test_it_is_off_at_first(raw: Raw, records: Records) -> None:
    assert levels.level_of(REQUEST_LOGGER) == "WARN"
    raw.create("t")
    raw.produce("t", b"v")
    assert records("request_completed") == []


def test_each_request_is_logged_at_debug(broker: Broker, raw: Raw, records: Records) -> None:
    """Those that C answers, and those that Python does."""
    set_level(REQUEST_LOGGER, "DEBUG")
    raw.create("t")
    raw.produce("t", b"v")
    wait_for(lambda: of("Produce", records("request_completed")), "both are logged")
    (made,) = of("CreateTopics", records("request_completed"))
    (sent,) = of("Produce", records("request_completed"))
    for row in (made, sent):
        assert row["client"] == "raw" and row["principal"] == "User:ANONYMOUS"
        assert row["listener"] == node_of(broker).advertised[0].name
        host, port = raw.socket.getsockname()
        assert row["peer"] == f"{host}:{port}"
        phases = ("request_queue", "local", "remote", "response_queue", "send")
        together = sum(row[f"{phase}_time_ms"] for phase in phases)
        assert 0 < row["total_time_ms"] == pytest.approx(together, abs=0.01)
    assert sent["version"] == 9 and sent["correlation_id"] > made["correlation_id"]
    set_level(REQUEST_LOGGER, "WARN")
    count = len(records("request_completed"))
    raw.produce("t", b"v")
    raw.produce("t", b"v")
    assert len(records("request_completed")) <= count + 1  # one may have been on its way


def test_a_broker_that_restarts_goes_on_with_its_log(
    make_broker: MakeBroker, records: Records
) -> None:
    broker = make_broker()
    set_level(REQUEST_LOGGER, "DEBUG")
    broker.restart({})
    with Raw(broker.bootstrap_servers) as raw:
        raw.call(apis.METADATA, topics=[])
        wait_for(lambda: of("Metadata", records("request_completed")), "it is logged")
    broker.close()
    set_level(REQUEST_LOGGER, "TRACE")  # nobody listens any more


def test_a_request_without_an_answer_is_logged(raw: Raw, records: Records) -> None:
    raw.create("t")
    set_level(REQUEST_LOGGER, "DEBUG")
    raw.produce("t", b"v", acks=0)
    raw.call(apis.METADATA, topics=[])
    wait_for(lambda: of("Produce", records("request_completed")), "it is logged")


def test_the_principal_is_that_of_its_connection(tmp_path: Path, records: Records) -> None:
    set_level(REQUEST_LOGGER, "DEBUG")
    with (
        Broker(tmp_path / "d", config=sasl.settings()) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        assert not sasl.authenticate(raw, "alice").error_code
        raw.call(apis.METADATA, topics=[])
        wait_for(lambda: of("Metadata", records("request_completed")), "it is logged")
    (found,) = of("Metadata", records("request_completed"))
    assert found["principal"] == "User:alice"
    assert of("SaslHandshake", records("request_completed"))[0]["principal"] == "None"


def test_a_request_never_has_the_name_of_another_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line may be written when its connection is gone, and its number is another's."""
    monkeypatch.setattr("kafkalog.server.admission.NUMBERS_KEPT", 0)
    with Broker(tmp_path / "d", config=sasl.settings()) as broker:
        reactor, admission = node_of(broker).reactor, node_of(broker).admission
        reactor.report_finished(0)
        with Raw(broker.bootstrap_servers) as raw:
            assert not sasl.authenticate(raw, "alice").error_code
            raw.call(apis.METADATA, topics=[])
            number = admission.number_of(Principal("User", "alice"), "/127.0.0.1")
        wait_for(lambda: number in reactor.unheld(FIRST, number + 1), "nobody has it")
        with Raw(broker.bootstrap_servers) as raw:
            assert not sasl.authenticate(raw, "bob").error_code
            raw.call(apis.METADATA, topics=[])
            assert admission.number_of(Principal("User", "bob"), "/127.0.0.1") == number
        reactor.report_finished(None)
        found = list(iter(lambda: reactor.finished(0), None))
        log = RequestLog(reactor, admission, ["SASL"], "x")
        names = [log._principal(one.principal, one.tenure) for one in found if one.principal >= 0]
        calls = [one.api_key for one in found if one.principal >= 0]
        assert calls.count(apis.METADATA.key) == 2
        half = names.index("User:bob")
        assert half > 0 and set(names[:half]) == {"unknown"} and set(names[half:]) == {"User:bob"}


@pytest.mark.parametrize(("own_ms", "event"), [(9, "request_completed"), (10, "request_slow")])
def test_a_request_is_slow_without_the_waits_that_it_asked_for(
    broker: Broker, records: Records, own_ms: int, event: str
) -> None:
    node = node_of(broker)
    log = RequestLog(node.reactor, node.admission, ["PLAINTEXT"], "x")
    levels.logger_of(REQUEST_LOGGER).setLevel(logging.DEBUG)
    log.apply(ServerConfig.of({SETTING: "10"}))
    spent = 1_000_000, 2_000_000, 30_000_000, 0, 0, 33_000_000
    log._log(
        Finished(apis.FETCH.key, 11, 7, "c\n", "10.0.0.1:9", 0, 0, 0, spent, own_ms * 10**6, 5, 0)
    )
    node.reactor.report_finished(None)
    assert [one for one in records(event) if one["peer"] == "10.0.0.1:9"] == [{
        "api": "Fetch", "version": 11, "client": "c\n", "principal": "User:ANONYMOUS",
        "peer": "10.0.0.1:9", "listener": "PLAINTEXT", "correlation_id": 7, "total_time_ms": 33.0,
        "request_queue_time_ms": 1.0, "local_time_ms": 2.0, "remote_time_ms": 30.0,
        "response_queue_time_ms": 0.0, "send_time_ms": 0.0, "throttle_time_ms": 5,
    }]  # fmt: skip


def test_the_wait_that_a_fetch_asks_for_is_not_its_own(broker: Broker, raw: Raw) -> None:
    reactor = node_of(broker).reactor
    raw.create("t")
    reactor.report_finished(0)
    raw.fetch("t", 0, max_wait_ms=20)
    raw.fetch("t", 0, max_wait_ms=20)
    found = reactor.finished(10_000)
    assert found is not None and found.api_key == apis.FETCH.key
    queue, local, remote, response, send, total = found.spent_ns
    assert found.own_ns == total - remote == queue + local + response + send
    assert remote >= 15_000_000
    reactor.report_finished(None)


def test_requests_without_room_are_counted(broker: Broker, raw: Raw) -> None:
    reactor = node_of(broker).reactor
    raw.create("t")
    reactor.report_finished(0)
    for _ in range(601):  # the last one ends some time after its answer
        raw.fetch("t", 0)
    reactor.report_finished(None)
    raw.fetch("t", 0)
    found = [reactor.finished(0) for _ in range(513)]
    assert found[512] is None
    taken = [one for one in found if one is not None]
    assert len(taken) == 512
    raw.fetch("t", 0)
    reactor.report_finished(0)
    raw.fetch("t", 0)
    raw.fetch("t", 0)
    after = reactor.finished(10_000)
    assert after is not None
    assert sum(one.lost for one in (*taken, after)) in (600 - 512, 601 - 512)


def test_the_setting_changes_while_a_broker_runs(make_broker: MakeBroker, records: Records) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        raw.alter(4, "1", **{SETTING.replace(".", "_"): "1"})
        answer = raw.call(apis.CREATE_TOPICS, topics=[
            {"name": f"t{n}", "num_partitions": 20, "replication_factor": 1, "assignments": [],
             "configs": []} for n in range(20)
        ], timeout_ms=60_000, validate_only=False)  # fmt: skip
        assert not any(one.error_code for one in answer.topics)
        wait_for(lambda: of("CreateTopics", records("request_slow")), "it took over 1 ms")
        (found,) = of("CreateTopics", records("request_slow"))
        assert found["total_time_ms"] >= 1
        raw.alter(4, "1", **{SETTING.replace(".", "_"): None})


def test_lines_that_were_asked_for_have_no_limit(caplog: pytest.LogCaptureFixture) -> None:
    logger = levels.logger_of(REQUEST_LOGGER)
    with caplog.at_level(logging.DEBUG, logger.name):
        for _ in range(100):
            logger.debug("x")
    assert caplog.messages == ["x"] * 100
