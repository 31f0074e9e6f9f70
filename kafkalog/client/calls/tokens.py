"""Delegation tokens (KIP-48)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import check_code
from kafkalog.security.principal import Principal
from kafkalog.wire import apis
from kafkalog.wire.api import Api

__all__ = ["DelegationToken", "create", "describe", "expire", "renew"]


class DelegationToken(NamedTuple):
    """A token: log in with `token_id` and `password` by SCRAM, and the option `tokenauth=true`."""

    token_id: str
    hmac: bytes
    """The secret; `password` is the same as text."""
    owner: str
    """A principal, such as `User:alice`."""
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    """It cannot be renewed beyond this time."""

    @property
    def password(self) -> str:
        """The SCRAM password."""
        return base64.b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, hidden, owner={self.owner!r})"


def create(
    cluster: Cluster, owner: Principal | None, renewers: Sequence[Principal], lifetime_ms: int
) -> DelegationToken:
    """A new token.  If an answer is lost, another attempt creates another one, and the first
    expires.

    Raises: what a broker answers.
    """
    kind, name = (None, None) if owner is None else owner[:2]
    row: Any = _call(
        cluster,
        apis.CREATE_DELEGATION_TOKEN,
        {
            "owner_principal_type": kind, "owner_principal_name": name,
            "renewers": list(map(_fields, renewers)), "max_lifetime_ms": lifetime_ms,
        },
    )  # fmt: skip
    return _token(row, tuple(map(str, renewers)), row.issue_timestamp_ms, row.expiry_timestamp_ms,
                  row.max_timestamp_ms)  # fmt: skip


def renew(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Let a token expire later; returns when, in milliseconds since 1970."""
    body = {"hmac": hmac, "renew_period_ms": period_ms}
    return int(_call(cluster, apis.RENEW_DELEGATION_TOKEN, body).expiry_timestamp_ms)


def expire(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Let a token expire earlier, less than 0: at once; returns when."""
    body = {"hmac": hmac, "expiry_time_period_ms": period_ms}
    return int(_call(cluster, apis.EXPIRE_DELEGATION_TOKEN, body).expiry_timestamp_ms)


def describe(cluster: Cluster, owners: Sequence[Principal] | None) -> list[DelegationToken]:
    """The tokens of these owners that the caller may see, None: of all; sorted by expiry."""
    body = {"owners": None if owners is None else list(map(_fields, owners))}
    found = [
        _token(
            row, tuple(f"{one.principal_type}:{one.principal_name}" for one in row.renewers),
            row.issue_timestamp, row.expiry_timestamp, row.max_timestamp,
        )
        for row in _call(cluster, apis.DESCRIBE_DELEGATION_TOKEN, body).tokens
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.expiry_ms, one.token_id))


def _call(cluster: Cluster, api: Api, body: dict[str, Any]) -> Any:
    def step() -> Any:
        connection = cluster.any()
        version = connection.version_of(api)
        answer = connection.call(api, body, version)
        check_code(answer.error_code, api.name, None, api)
        return answer

    return cluster.retrying(step)


def _fields(one: Principal) -> dict[str, str]:
    return {"principal_type": one.type, "principal_name": one.name}


def _token(
    row: Any, renewers: tuple[str, ...], issue_ms: int, expiry_ms: int, max_ms: int
) -> DelegationToken:
    owner = f"{row.principal_type}:{row.principal_name}"
    asked = f"{row.token_requester_principal_type}:{row.token_requester_principal_name}"
    requester = asked if asked != ":" else owner  # versions before 3 do not say
    return DelegationToken(
        row.token_id, bytes(row.hmac), owner, requester, renewers, issue_ms, expiry_ms, max_ms
    )
