"""A broker's registration and heartbeats: real answers, as bytes, and no socket."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog.cluster.quorum.life import (
    Life,
    Registration,
    Stage,
    amends,
    failed,
    heartbeat_answered,
    heartbeat_body,
    leaving,
    pause_ms,
    ready,
    registered,
    registration_body,
)
from kafkalog.wire.apis import BROKER_HEARTBEAT, BROKER_REGISTRATION
from kafkalog.wire.error_codes import ErrorCode

INTERVAL_MS = 2000
REGISTERED = registered(Life(), 0, 12)


def beat(life: Life, code: int = 0, **fields: bool) -> Life:
    data = BROKER_HEARTBEAT.encode_response(2, {"error_code": code, **fields})
    return heartbeat_answered(life, BROKER_HEARTBEAT.decode_response(2, data))


def serving() -> Life:
    life = ready(beat(REGISTERED, is_caught_up=True, is_fenced=True))
    return beat(life, is_caught_up=True, is_fenced=False)


def test_a_broker_is_fenced_until_it_has_the_metadata_of_its_registration() -> None:
    assert REGISTERED.stage is Stage.CATCHING_UP
    behind = beat(REGISTERED, is_caught_up=False, is_fenced=True)
    assert ready(behind).stage is Stage.CATCHING_UP
    assert heartbeat_body(behind, 2, 11)["want_fence"]
    there = ready(beat(behind, is_caught_up=True, is_fenced=True))
    assert there.stage is Stage.FENCED
    assert not heartbeat_body(there, 2, 12)["want_fence"]
    assert beat(there, is_caught_up=True, is_fenced=True).stage is Stage.FENCED
    assert serving().stage is Stage.SERVING


def test_a_missed_session_fences_and_the_next_heartbeat_serves_again() -> None:
    """The registration stays: only a start makes a new one."""
    fenced = beat(serving(), is_caught_up=True, is_fenced=True)
    assert (fenced.stage, fenced.fenced, fenced.epoch) == (Stage.SERVING, True, 12)
    assert not heartbeat_body(fenced, 2, 20)["want_fence"]
    assert not beat(fenced, is_caught_up=True, is_fenced=False).fenced


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_lost_registration_is_made_again(code: ErrorCode) -> None:
    life = beat(serving(), code)
    assert life.stage is Stage.REGISTERING
    assert registered(life, 0, 40).epoch == 40


def test_a_registration_is_amended_without_a_pause_of_service() -> None:
    life = amends(serving())
    assert life.stage is Stage.REGISTERING
    assert registered(life, 0, 12).stage is Stage.SERVING
    assert registered(life, 0, 40).stage is Stage.CATCHING_UP, "it was another registration"
    assert amends(REGISTERED) == REGISTERED


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REGISTRATION,
    ],
)  # fmt: skip
def test_a_start_that_can_never_succeed_is_refused(code: ErrorCode) -> None:
    assert registered(Life(), code, -1).refused == code.name
    assert registered(serving(), code, -1).refused == "", "a broker that serves goes on"


def test_a_number_in_use_is_retried() -> None:
    """A broker that was killed is registered until its session ends."""
    life = registered(Life(), ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1)
    assert (life.stage, life.refused) == (Stage.REGISTERING, "")
    assert life.problem == "DUPLICATE_BROKER_REGISTRATION"


def test_pauses_grow_and_are_bounded() -> None:
    life = Life()
    pauses = []
    for _ in range(30):
        pauses.append(pause_ms(life, INTERVAL_MS))
        life = failed(life, "no controller")
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0, INTERVAL_MS)
    assert pause_ms(serving(), INTERVAL_MS) == INTERVAL_MS
    assert pause_ms(failed(serving(), "silence"), INTERVAL_MS) < INTERVAL_MS


def test_a_broker_stops_when_the_controller_has_moved_its_leaderships() -> None:
    life = leaving(serving())
    assert heartbeat_body(life, 2, 30)["want_shut_down"]
    life = beat(life, is_caught_up=True, is_fenced=False, should_shut_down=False)
    assert life.stage is Stage.LEAVING
    assert beat(life, is_caught_up=True, should_shut_down=True).stage is Stage.LEFT


@pytest.mark.parametrize("life", [Life(), beat(leaving(serving()), ErrorCode.STALE_BROKER_EPOCH)])
def test_a_broker_without_a_registration_stops_at_once(life: Life) -> None:
    assert leaving(life).stage is Stage.LEFT
    assert registered(leaving(life), 0, 40).stage is Stage.LEFT, "its answer was under way"


def test_a_broker_that_amends_its_registration_stops_in_order() -> None:
    """It leads partitions, and the controllers know it."""
    life = leaving(amends(serving()))
    assert life.stage is Stage.LEAVING
    assert registered(life, 0, 12).stage is Stage.LEAVING, "its answer was under way"
    assert beat(life, should_shut_down=True).stage is Stage.LEFT
    assert beat(life, ErrorCode.STALE_BROKER_EPOCH).stage is Stage.LEFT


@pytest.mark.parametrize("version", [0, 2, 4])
def test_a_registration_has_everything_that_its_version_knows(version: int) -> None:
    what = Registration(
        2, "cluster", UUID(int=5), [("PLAINTEXT", "here", 9092, 0)], [("metadata.version", 7, 33)],
        "east", UUID(int=6),
    )  # fmt: skip
    data = BROKER_REGISTRATION.encode_request(version, registration_body(what))
    asked: Any = BROKER_REGISTRATION.decode_request(version, data)
    (listener,), (feature,) = asked.listeners, asked.features
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "here", 9092)
    assert (feature.min_supported_version, feature.max_supported_version) == (7, 33)
    assert (asked.incarnation_id, asked.rack) == (UUID(int=5), "east")
    if version >= 2:
        assert asked.log_dirs == [UUID(int=6)]


def test_a_heartbeat_names_offline_directories() -> None:
    life = serving()._replace(offline=(UUID(int=6),))
    data = BROKER_HEARTBEAT.encode_request(2, heartbeat_body(life, 2, 30))
    asked: Any = BROKER_HEARTBEAT.decode_request(2, data)
    assert asked.offline_log_dirs == [UUID(int=6)]
    assert (asked.broker_epoch, asked.current_metadata_offset) == (12, 30)
