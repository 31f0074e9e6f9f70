"""Quotas of clients (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkalog import errors
from kafkalog.client.calls.results import Results, each
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, outcome
from kafkalog.wire import apis

__all__ = ["QuotaEntity", "alter_client_quotas", "describe_client_quotas"]

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The clients that a quota is for: pairs of a type (user, client-id, ip) and a name, sorted; None:
all without a quota of their own."""
EXACT, DEFAULT, ANY = 0, 1, 2
"""How a filter matches names."""


def describe_client_quotas(
    cluster: Cluster, entity: Mapping[str, str | None], types: Sequence[str], strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of matching entities, sorted.  Raises: InvalidRequest; what a broker answers."""
    components = [
        {"entity_type": kind, "match_type": DEFAULT if name is None else EXACT, "match": name}
        for kind, name in entity.items()
    ]
    components += [{"entity_type": kind, "match_type": ANY, "match": None} for kind in types]

    def step() -> Any:
        connection = cluster.controller()
        version = connection.version_of(apis.DESCRIBE_CLIENT_QUOTAS)
        body = {"components": components, "strict": strict}
        answer = connection.call(apis.DESCRIBE_CLIENT_QUOTAS, body, version)
        check_code(answer.error_code, "DescribeClientQuotas", answer.error_message)
        return answer.entries

    found = {
        _entity(one.entity): {value.key: value.value for value in sorted(one.values, key=_key)}
        for one in cluster.retrying(step)
    }
    return dict(sorted(found.items(), key=repr))


def _key(value: Any) -> str:
    return str(value.key)


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    return tuple(sorted((part.entity_type, part.entity_name) for part in parts))


def alter_client_quotas(
    cluster: Cluster,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    validate_only: bool,
) -> Results[QuotaEntity, None]:
    """Set quotas, and remove those that are None; the result of each entity.

    Failures: InvalidRequest; what a broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, entities: list[QuotaEntity], wait_ms: int
    ) -> Iterable[tuple[QuotaEntity, errors.KafkalogError | None]]:
        version = connection.version_of(apis.ALTER_CLIENT_QUOTAS)
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "ops": [
                    {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                    for key, value in changes[entity].items()
                ],
            }
            for entity in entities
        ]
        body = {"entries": entries, "validate_only": validate_only}
        answer = connection.call(apis.ALTER_CLIENT_QUOTAS, body, version, wait_ms)
        for one in answer.entries:
            entity = _entity(one.entity)
            yield entity, outcome(one.error_code, f"quotas of {shown(entity)}", one.error_message)

    return each(cluster, list(changes), lambda entity: cluster.controller_node(), ask)


def shown(entity: QuotaEntity) -> str:
    """An entity in words."""
    words = (f"{kind} {'(default)' if name is None else repr(name)}" for kind, name in entity)
    return ", ".join(words)
