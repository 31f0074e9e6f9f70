"""A broker's registration with the controllers, and its heartbeats.

Pure: a state and an answer in, the next state out.  A registered broker is fenced until it has the
metadata up to its own registration; it is fenced again if its heartbeats fail to arrive for
broker.session.timeout.ms, and serves again with the first one that does.  A broker that wants to
stop says so in its heartbeats until the controller has moved its leaderships (KIP-500, KIP-631).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Life", "Registration", "Stage", "amends", "failed", "heartbeat_answered", "heartbeat_body",
    "leaving", "pause_ms", "ready", "registered", "registration_body",
]  # fmt: skip

NO_EPOCH = -1
FINAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""A registration that is refused so is refused again."""
GONE = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
"""The controllers do not know this registration any more."""
SOON_MS = 10
"""How soon the next heartbeat follows while its answer is waited for, as in Kafka."""
RETRY_MS = 100


class Stage(Enum):
    """The next step of a broker."""

    REGISTERING = "registers"
    CATCHING_UP = "reads the metadata up to its registration"
    FENCED = "is ready, and waits to be unfenced"
    SERVING = "serves"
    LEAVING = "lets others lead its partitions"
    LEFT = "may stop"


class Registration(NamedTuple):
    """The contents of a registration."""

    node: int
    cluster_id: str
    incarnation_id: UUID
    """A new one for each start of the process."""
    listeners: Sequence[tuple[str, str, int, int]]
    """(listener's name, host, port, Kafka's number of the security protocol)."""
    features: Sequence[tuple[str, int, int]]
    """(name, lowest level, highest level)."""
    rack: str | None
    directory_id: UUID
    previous_epoch: int = NO_EPOCH
    """That of its last life, if that closed its directory in order (KIP-966)."""


class Life(NamedTuple):
    """The state."""

    stage: Stage = Stage.REGISTERING
    epoch: int = NO_EPOCH
    """The epoch of the registration."""
    caught_up: bool = False
    fenced: bool = True
    """As the controller said last."""
    refused: str = ""
    """Why the controllers do not take this broker; empty: they may."""
    failures: int = 0
    """Requests in a row that were refused for now, or not answered."""
    problem: str = ""
    """Why the last of these was."""
    offline: tuple[UUID, ...] = ()
    """Log directories that failed."""


def pause_ms(life: Life, interval_ms: int) -> int:
    """How long to wait before the next request."""
    if life.failures:
        return min(RETRY_MS * life.failures, interval_ms)
    if life.stage is Stage.REGISTERING:
        return 0
    if life.stage in (Stage.CATCHING_UP, Stage.FENCED):
        return min(SOON_MS, interval_ms)
    return min(RETRY_MS, interval_ms) if life.stage is Stage.LEAVING else interval_ms


def registration_body(what: Registration) -> dict[str, Any]:
    """The BrokerRegistration request."""
    return {
        "broker_id": what.node,
        "cluster_id": what.cluster_id,
        "incarnation_id": what.incarnation_id,
        "listeners": [
            {"name": name, "host": host, "port": port, "security_protocol": protocol}
            for name, host, port, protocol in what.listeners
        ],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, low, high in what.features
        ],
        "rack": what.rack,
        "is_migrating_zk_broker": False,
        "log_dirs": [what.directory_id],
        "previous_broker_epoch": what.previous_epoch,
    }


def registered(life: Life, code: int, epoch: int) -> Life:
    """After the answer to a registration."""
    if not code and epoch == life.epoch:  # amended
        stage: Stage = Stage.SERVING if life.stage is Stage.REGISTERING else life.stage
        return life._replace(stage=stage, failures=0, problem="")
    if not code:
        ends = life.stage in (Stage.LEAVING, Stage.LEFT)
        stage = life.stage if ends else Stage.CATCHING_UP
        return life._replace(
            stage=stage, epoch=epoch, caught_up=False, fenced=True, failures=0, problem=""
        )
    name = _name(code)
    if code in FINAL and life.epoch == NO_EPOCH:
        return life._replace(refused=name)
    return failed(life, name)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def failed(life: Life, problem: str) -> Life:
    """After a request that was refused for now, or not answered."""
    return life._replace(failures=life.failures + 1, problem=problem)


def heartbeat_body(
    life: Life, node: int, metadata_offset: int, cordoned: Sequence[UUID] | None = None
) -> dict[str, Any]:
    """The BrokerHeartbeat request.  `metadata_offset`: of the last record in the image; `cordoned`:
    directories that get no new partitions, None: the cluster has no such thing."""
    return {
        "broker_id": node,
        "broker_epoch": life.epoch,
        "current_metadata_offset": metadata_offset,
        "want_fence": life.stage is Stage.CATCHING_UP,
        "want_shut_down": life.stage is Stage.LEAVING,
        "offline_log_dirs": list(life.offline),
        "cordoned_log_dirs": None if cordoned is None else list(cordoned),
    }


def heartbeat_answered(life: Life, answer: Any) -> Life:
    """After the answer to a heartbeat."""
    if answer.error_code in GONE:
        # There is nothing to hand over; otherwise it registers again, as the same incarnation.
        leaves = life.stage is Stage.LEAVING
        return life._replace(stage=Stage.LEFT if leaves else Stage.REGISTERING, fenced=True)
    if answer.error_code:  # for now
        return failed(life, _name(answer.error_code))
    after = life._replace(
        caught_up=life.caught_up or bool(answer.is_caught_up),
        fenced=bool(answer.is_fenced),
        failures=0,
    )
    if life.stage is Stage.FENCED and not after.fenced:
        return after._replace(stage=Stage.SERVING)
    if life.stage is Stage.LEAVING and answer.should_shut_down:
        return after._replace(stage=Stage.LEFT)
    return after


def amends(life: Life) -> Life:
    """The controllers need to know more of this broker than when it registered: it registers again,
    as the same incarnation, and keeps its epoch."""
    return life._replace(stage=Stage.REGISTERING) if life.stage is Stage.SERVING else life


def ready(life: Life) -> Life:
    """The broker has carried out the metadata up to its registration: it may be unfenced."""
    if life.stage is Stage.CATCHING_UP and life.caught_up:
        return life._replace(stage=Stage.FENCED)
    return life


def leaving(life: Life) -> Life:
    """The broker wants to stop."""
    never = life.stage is Stage.REGISTERING and life.epoch == NO_EPOCH
    if never or life.stage is Stage.LEFT:
        return life._replace(stage=Stage.LEFT)
    return life._replace(stage=Stage.LEAVING)
