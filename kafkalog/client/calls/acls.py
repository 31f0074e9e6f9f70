"""Access control lists: showing, creating and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.arguments import text as checked
from kafkalog.client.calls.results import Results, each
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure
from kafkalog.security.acls import ALL, ANY, Acl, AclFilter, Pattern, Permission
from kafkalog.security.permissions import Kind, Operation
from kafkalog.wire import apis

__all__ = ["AclBinding", "AclBindingFilter", "create_acls", "delete_acls", "describe_acls"]


def _names(numbers: Iterable[Any], **more: int) -> dict[str, int]:
    return {**{one.name.lower(): int(one) for one in numbers}, **more}


KINDS = _names(Kind)
OPERATIONS = _names(Operation, all=ALL)
PERMISSIONS = _names(Permission)
PATTERNS = {"literal": int(Pattern.LITERAL), "prefixed": int(Pattern.PREFIXED)}


def _number(what: str, known: Mapping[str, int], text: str, *more: str) -> int:
    """The number of a name, in any case, also with hyphens, as Kafka's tools have it."""
    name = text.replace("-", "_").lower() if isinstance(text, str) else ""
    if name == "any" and "any" in more:
        return ANY
    if name == "match" and "match" in more:
        return Pattern.MATCH
    if name in known:
        return known[name]
    for one, number in known.items():  # AlterConfigs, TransactionalId
        if one.replace("_", "") == name:
            return number
    wanted = ", ".join([*known, *more])
    raise errors.ArgumentError(f"{what}: found {text!r}, wanted one of {wanted}")


def _name(known: Mapping[str, int], number: int) -> str:
    return next((name for name, one in known.items() if one == number), str(number))


class AclBinding(NamedTuple):
    """One permission: who may, or may not, do what to which resources, from which host."""

    resource_type: str
    """topic, group, cluster, transactional_id, delegation_token, user."""
    name: str
    """`*`: all resources of the type; a cluster's: `kafka-cluster`."""
    principal: str
    """`User:alice`; `User:*`: everyone."""
    operation: str
    """read, write, create, delete, alter, describe, ..., all."""
    permission: str = "allow"
    """allow, deny."""
    host: str = "*"
    pattern: str = "literal"
    """literal; prefixed: all resources whose names begin with `name`."""

    def acl(self) -> Acl:
        """The same in Kafka's numbers.

        Raises: ArgumentError.
        """
        return Acl(
            _number("resource_type", KINDS, self.resource_type), checked("name", self.name),
            _number("pattern", PATTERNS, self.pattern), checked("principal", self.principal),
            checked("host", self.host), _number("operation", OPERATIONS, self.operation),
            _number("permission", PERMISSIONS, self.permission),
        )  # fmt: skip


class AclBindingFilter(NamedTuple):
    """Selects permissions; what is `any` or None restricts nothing."""

    resource_type: str = "any"
    name: str | None = None
    principal: str | None = None
    operation: str = "any"
    permission: str = "any"
    host: str | None = None
    pattern: str = "any"
    """any, literal, prefixed; match: those that apply to the resource `name`."""

    def filter(self) -> AclFilter:
        """The same in Kafka's numbers.

        Raises: ArgumentError.
        """
        name, principal, host = (
            None if found is None else checked(what, found)
            for what, found in (
                ("name", self.name), ("principal", self.principal), ("host", self.host),
            )
        )  # fmt: skip
        return AclFilter(
            _number("resource_type", KINDS, self.resource_type, "any"), name,
            _number("pattern", PATTERNS, self.pattern, "any", "match"), principal, host,
            _number("operation", OPERATIONS, self.operation, "any"),
            _number("permission", PERMISSIONS, self.permission, "any"),
        )  # fmt: skip


def _binding(resource: Any, entry: Any) -> AclBinding:
    return AclBinding(
        _name(KINDS, resource.resource_type), resource.resource_name, entry.principal,
        _name(OPERATIONS, entry.operation), _name(PERMISSIONS, entry.permission_type), entry.host,
        _name(PATTERNS, resource.pattern_type),
    )  # fmt: skip


def _filter_fields(one: AclFilter) -> dict[str, Any]:
    names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter",
             "principal_filter", "host_filter", "operation", "permission_type")  # fmt: skip
    return dict(zip(names, one, strict=True))


def describe_acls(cluster: Cluster, wanted: AclFilter) -> tuple[AclBinding, ...]:
    """The ACLs that a filter selects, sorted.

    Raises: what a broker answers, SecurityDisabled without an authorizer.
    """

    def step() -> Any:
        connection = cluster.controller()
        version = connection.version_of(apis.DESCRIBE_ACLS)
        answer = connection.call(apis.DESCRIBE_ACLS, _filter_fields(wanted), version)
        check_code(answer.error_code, "DescribeAcls", answer.error_message)
        return answer.resources

    found = (_binding(one, entry) for one in cluster.retrying(step) for entry in one.acls)
    return tuple(sorted(found))


def create_acls(
    cluster: Cluster, acls: Sequence[tuple[AclBinding, Acl]]
) -> Results[AclBinding, None]:
    """Create ACLs; one that exists already is a success.

    Failures: InvalidRequest; what a broker answers.
    Raises: as `each`.
    """
    numbers = dict(acls)
    names = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host",
             "operation", "permission_type")  # fmt: skip

    def ask(
        connection: Connection, some: list[AclBinding], wait_ms: int
    ) -> Iterable[tuple[AclBinding, errors.KafkalogError | None]]:
        version = connection.version_of(apis.CREATE_ACLS)
        rows = [dict(zip(names, numbers[one], strict=True)) for one in some]
        answer = connection.call(apis.CREATE_ACLS, {"creations": rows}, version, wait_ms)
        return [
            (one, failure(found.error_code, f"{one}", found.error_message)
             if found.error_code else None)
            for one, found in zip(some, answer.results, strict=False)
        ]  # fmt: skip

    return each(cluster, numbers, lambda one: cluster.controller_node(), ask)


def delete_acls(
    cluster: Cluster, filters: Sequence[tuple[AclBindingFilter, AclFilter]]
) -> Results[AclBindingFilter, tuple[AclBinding, ...]]:
    """Delete the ACLs that filters select; for each filter the deleted ones, sorted.

    Failures: InvalidRequest; what a broker answers.
    Raises: as `each`.
    """
    numbers = dict(filters)

    def ask(
        connection: Connection, some: list[AclBindingFilter], wait_ms: int
    ) -> Iterable[tuple[AclBindingFilter, tuple[AclBinding, ...] | errors.KafkalogError]]:
        version = connection.version_of(apis.DELETE_ACLS)
        rows = [_filter_fields(numbers[one]) for one in some]
        answer = connection.call(apis.DELETE_ACLS, {"filters": rows}, version, wait_ms)
        found: list[tuple[AclBindingFilter, tuple[AclBinding, ...] | errors.KafkalogError]] = []
        for one, result in zip(some, answer.filter_results, strict=False):
            # One that matches may have failed on its own.
            parts = [result, *result.matching_acls]
            failed = next((part for part in parts if part.error_code), None)
            if failed is not None:
                found.append((one, failure(failed.error_code, f"{one}", failed.error_message)))
            else:
                found.append((one, tuple(sorted(_binding(a, a) for a in result.matching_acls))))
        return found

    return each(cluster, numbers, lambda one: cluster.controller_node(), ask)
