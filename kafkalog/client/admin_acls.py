"""The calls of `kafkalog.Admin` about access control lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from kafkalog import arguments
from kafkalog.client.calls import acls as acls_
from kafkalog.client.calls.results import Results
from kafkalog.client.link.locked_cluster import Locked
from kafkalog.errors import ArgumentError

__all__ = ["AdminAcls"]

T = TypeVar("T", bound=tuple[Any, ...])


class AdminAcls(Locked):
    """A part of Admin."""

    def describe_acls(
        self, wanted: acls_.AclBindingFilter | None = None, timeout_ms: int | None = None
    ) -> tuple[acls_.AclBinding, ...]:
        """The permissions that a filter selects, None: all; sorted.

        Raises: what a broker answers: without an authorizer it has none (SECURITY_DISABLED).
        """
        one = _made("wanted", acls_.AclBindingFilter, () if wanted is None else wanted)
        return self._ask(acls_.describe_acls, one.filter(), timeout_ms=timeout_ms)

    def create_acls(
        self, acls: Iterable[acls_.AclBinding], timeout_ms: int | None = None
    ) -> Results[acls_.AclBinding, None]:
        """Add permissions; one that exists already is a success.  Requests obey them from then on.

        Failures: InvalidRequest, ...
        """
        some = [_made("acls", acls_.AclBinding, one) for one in arguments.things("acls", acls)]
        return self._ask(
            acls_.create_acls, [(one, one.acl()) for one in some], timeout_ms=timeout_ms
        )

    def delete_acls(
        self, filters: Iterable[acls_.AclBindingFilter], timeout_ms: int | None = None
    ) -> Results[acls_.AclBindingFilter, tuple[acls_.AclBinding, ...]]:
        """Delete the permissions that filters select; returns those that each has deleted.

        Failures: InvalidRequest, ...
        """
        given = arguments.things("filters", filters)
        some = [_made("filters", acls_.AclBindingFilter, one) for one in given]
        return self._ask(
            acls_.delete_acls, [(one, one.filter()) for one in some], timeout_ms=timeout_ms
        )


def _made(name: str, kind: type[T], value: Any) -> T:
    """A named tuple from a plain one.  Raises: ArgumentError."""
    try:
        if isinstance(value, tuple):
            return kind(*value)
    except TypeError:  # too few or too many fields
        pass
    raise ArgumentError(f"{name}: found {value!r}, wanted an {kind.__name__} or its fields")
