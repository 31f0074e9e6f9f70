"""The calls of `kafkalog.Admin` about quotas of clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkalog import arguments
from kafkalog.client.calls import quotas
from kafkalog.client.calls.results import Results
from kafkalog.client.link.locked_cluster import Locked
from kafkalog.errors import ArgumentError

__all__ = ["AdminQuotas"]


class AdminQuotas(Locked):
    """A part of Admin."""

    def describe_client_quotas(
        self,
        entity: Mapping[str, str | None] | None = None,
        *,
        types: Iterable[str] = (),
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[quotas.QuotaEntity, dict[str, float]]:
        """Quotas by entity: pairs of a type (user, client-id, ip) and a name, None for the default.

        `entity`: only those with these names; `types`: and those with any name of these types;
        `strict`: only those without other types.

        Raises: InvalidRequest, ...
        """
        named = {
            arguments.text("entity", kind): None if name is None else arguments.text("entity", name)
            for kind, name in arguments.mapping("entity", entity or {}).items()
        }
        any_of = arguments.texts("types", types)
        only = arguments.flag("strict", strict)
        return self._ask(quotas.describe_client_quotas, named, any_of, only, timeout_ms=timeout_ms)

    def alter_client_quotas(
        self,
        changes: Mapping[Any, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[quotas.QuotaEntity, None]:
        """Set quotas such as producer_byte_rate, by entity: `((type, name),)`, or two pairs for a
        user's client id; a value of None removes a quota.

        Failures: InvalidRequest (an unknown quota or value), ...
        """
        wanted = {
            _entity(entity): {
                arguments.text("changes", key): None if value is None else _number(key, value)
                for key, value in arguments.mapping("changes", values).items()
            }
            for entity, values in arguments.mapping("changes", changes).items()
        }
        only_look = arguments.flag("validate_only", validate_only)
        return self._ask(quotas.alter_client_quotas, wanted, only_look, timeout_ms=timeout_ms)


def _entity(value: Any) -> quotas.QuotaEntity:
    try:
        pairs = [(kind, name) for kind, name in value]
    except (TypeError, ValueError):
        pairs = []
    if not pairs or isinstance(value, str):
        raise ArgumentError(f"changes: found {value!r}, wanted pairs of a type and a name or None")
    return tuple(sorted(
        (arguments.text("changes", kind),
         None if name is None else arguments.text("changes", name))
        for kind, name in pairs
    ))  # fmt: skip


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentError(f"{key}: found {value!r}, wanted a number")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{key}: found a number too large for a float") from None
