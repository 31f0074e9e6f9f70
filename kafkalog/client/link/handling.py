"""A client's handling of each error code of each request: one table, also in
docs/client-failures.md.

A code is raised, or the request is sent again after a pause that grows from retry.backoff.ms to
retry.backoff.max.ms.  What is sent again is logged once per reason (see `Troubles`): at once, or,
for codes that are usual while leaders and coordinators change, when it has lasted.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from kafkalog import errors
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["AWAITED", "LASTING_S", "RULES", "Handling", "Rule", "Troubles", "handling"]

K = TypeVar("K", bound=Hashable)
LASTING_S = 5.0
"""How long a usual failure lasts before it is logged."""


class Handling(Enum):
    """The handling of an error code."""

    RAISE = "raised"
    RETRY = "sent again, logged at once"
    AWAIT = "sent again, logged once it has lasted"
    OWN = "has its own meaning"


class Rule(NamedTuple):
    """An error code of one request that is not handled as in other requests."""

    handling: Handling
    meaning: str
    """For the documentation."""


AWAITED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.REBOOTSTRAP_REQUIRED,
    }
)
"""Usual while topics, leaders and coordinators change: logged if they last."""

_NUMBERS = frozenset(int(code) for code in ErrorCode)
_SENT_AGAIN = frozenset(code for code in ErrorCode if code.retriable) | AWAITED
_MOVED = Rule(Handling.AWAIT, "metadata says whether it has moved or is gone")
_UNEXPECTED = Rule(Handling.RETRY, "as Java")
_GONE = Rule(Handling.RAISE, "there is no such topic")
_SESSION = Rule(Handling.AWAIT, "the fetch session is lost: a full request is sent at once")
_SHARES = Rule(
    Handling.AWAIT, "another share session is begun; acknowledgements of the last one have failed"
)
_REJOIN = Rule(Handling.OWN, "the member joins again")
_NEW_ID = Rule(
    Handling.OWN,
    "sent again under a new producer id unless it may be stored; raised in transactions",
)
_JOINING = {
    ErrorCode.UNKNOWN_MEMBER_ID: _REJOIN,
    ErrorCode.ILLEGAL_GENERATION: _REJOIN,
    ErrorCode.REBALANCE_IN_PROGRESS: _REJOIN,
}

RULES: Mapping[Api, Mapping[ErrorCode, Rule]] = MappingProxyType(
    {
        apis.FETCH: {
            ErrorCode.OFFSET_OUT_OF_RANGE: Rule(
                Handling.OWN,
                "auto.offset.reset, raised if that is none; from a preferred replica: its leader "
                "is asked",
            ),
            ErrorCode.CORRUPT_MESSAGE: Rule(
                Handling.RAISE, "the position stays before the damaged batch; `seek` skips it"
            ),
            ErrorCode.UNKNOWN_SERVER_ERROR: _UNEXPECTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _MOVED,
            ErrorCode.UNKNOWN_TOPIC_ID: _MOVED,
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _SESSION,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH: _SESSION,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _SESSION,
            ErrorCode.INCONSISTENT_TOPIC_ID: _SESSION,
        },
        apis.SHARE_FETCH: {
            ErrorCode.UNKNOWN_SERVER_ERROR: _UNEXPECTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _MOVED,
            ErrorCode.UNKNOWN_TOPIC_ID: _MOVED,
            ErrorCode.SHARE_SESSION_NOT_FOUND: _SHARES,
            ErrorCode.INVALID_SHARE_SESSION_EPOCH: _SHARES,
            ErrorCode.SHARE_SESSION_LIMIT_REACHED: _SHARES,
        },
        apis.SHARE_ACKNOWLEDGE: {
            code: Rule(Handling.OWN, "the acknowledgements have failed, and are not sent again")
            for code in (
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                ErrorCode.INVALID_RECORD_STATE,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.FENCED_LEADER_EPOCH,
            )
        },
        apis.OFFSET_FOR_LEADER_EPOCH: {
            ErrorCode.UNKNOWN_SERVER_ERROR: _UNEXPECTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _MOVED,
        },
        apis.LIST_OFFSETS: {
            ErrorCode.UNKNOWN_SERVER_ERROR: _UNEXPECTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _MOVED,
        },
        apis.METADATA: {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Rule(
                Handling.OWN, "the topic is missing, and looked for again while it is wanted"
            ),
        },
        apis.JOIN_GROUP: {
            **_JOINING,
            ErrorCode.MEMBER_ID_REQUIRED: Rule(Handling.OWN, "joins at once with the id it got"),
        },
        apis.SYNC_GROUP: _JOINING,
        apis.HEARTBEAT: _JOINING,
        apis.PRODUCE: {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _MOVED,
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Rule(Handling.OWN, "the batch is stored"),
            ErrorCode.MESSAGE_TOO_LARGE: Rule(
                Handling.OWN, "a batch of several records is split; raised for one record"
            ),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Rule(
                Handling.OWN, "sent again after the batches before it; raised without any"
            ),
            ErrorCode.UNKNOWN_PRODUCER_ID: _NEW_ID,
            ErrorCode.INVALID_PRODUCER_EPOCH: _NEW_ID,
        },
        apis.DELETE_RECORDS: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _MOVED},
        apis.ELECT_LEADERS: {
            ErrorCode.ELECTION_NOT_NEEDED: Rule(Handling.RAISE, "it is the answer")
        },
    }
)
"""By request, what differs from the rule for all requests."""


def handling(code: int, api: Api | None = None) -> Handling:
    """The handling of an error code in an answer to a request; None: in any."""
    if code not in _NUMBERS:
        return Handling.RAISE
    known = ErrorCode(code)
    rule = RULES.get(api, {}).get(known) if api is not None else None
    if rule is not None:
        return rule.handling
    if known == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Handling.RAISE  # `Cluster.topic` has waited for it
    if known not in _SENT_AGAIN:
        return Handling.RAISE
    return Handling.AWAIT if known in AWAITED else Handling.RETRY


class Troubles(Generic[K]):
    """Things that fail now and are tried again, and which of their reasons were logged.

    It only decides: no clock, no log.
    """

    def __init__(self) -> None:
        self._since: dict[K, tuple[float, set[str]]] = {}
        """By thing: since when it fails, and the logged reasons; '': the usual ones."""

    def failed(self, thing: K, problem: errors.KafkalogError, now_s: float) -> bool:
        """True if its failure must be logged: a new reason, or a usual one that has lasted."""
        since_s, logged = self._since.setdefault(thing, (now_s, set()))
        usual = problem.code in AWAITED or isinstance(problem, (errors.PeerGone, errors.Closed))
        reason = "" if usual else type(problem).__name__
        if reason in logged or (usual and now_s - since_s < LASTING_S):
            return False
        logged.add(reason)
        return True

    def ended(self, thing: K) -> None:
        """It has succeeded, or is not wanted any more."""
        if self._since:
            self._since.pop(thing, None)


def render_markdown() -> str:
    """The table, for docs/client-failures.md."""
    every = {
        one: ", ".join(f"`{code.name}`" for code in ErrorCode if code and handling(code) is one)
        for one in (Handling.RETRY, Handling.AWAIT)
    }
    rows = [
        "| request | error code | what the client does |",
        "|---|---|---|",
        f"| every | {every[Handling.RETRY]} | {Handling.RETRY.value} |",
        f"| every | {every[Handling.AWAIT]} | {Handling.AWAIT.value} ({LASTING_S:g} s) |",
        f"| every | all others, and unknown numbers | {Handling.RAISE.value} |",
    ]
    for api, rules in RULES.items():
        grouped: dict[Rule, list[str]] = {}
        for code, rule in rules.items():
            grouped.setdefault(rule, []).append(f"`{code.name}`")
        for rule, codes in grouped.items():
            own = "" if rule.handling is Handling.OWN else f"{rule.handling.value}: "
            rows.append(f"| {api.name} | {', '.join(codes)} | {own}{rule.meaning} |")
    return "\n".join(rows)
