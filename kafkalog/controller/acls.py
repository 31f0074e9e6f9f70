"""Access control lists: CreateAcls, DeleteAcls, DescribeAcls.

Pure.  Source: Kafka's AclControlManager, AclApis, DescribeAclsResponse.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkalog.controller.ordered import ordered
from kafkalog.disk.layout import random_topic_id
from kafkalog.errors import InvalidRequest, UnsupportedVersion
from kafkalog.metadata.changes import acl_fields
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage
from kafkalog.metadata.requests import Result
from kafkalog.security.acls import Acl, AclFilter, check_acl, check_filter
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["CHANGES_MAX", "create_acls", "delete_acls", "describe_acls"]

CHANGES_MAX = 10_000
"""ACLs that one request may add or remove: Kafka's MAX_RECORDS_PER_USER_OP."""
MASKS_SINCE = 32
"""The first metadata.version with masks as hosts: 4.4-IV1."""
Record = tuple[str, Any]


def create_acls(
    image: MetadataImage, acls: Sequence[Acl], new_id: Callable[[], uuid.UUID] = random_topic_id
) -> tuple[list[Record], list[Result]]:
    """The records to write, and one result per ACL, for the response's `results`; one that exists
    already is a success."""
    masks = image.features.get(METADATA_VERSION, 0) >= MASKS_SINCE
    known = set(image.acls.values())
    records: list[Record] = []
    results: list[Result] = []
    for acl in acls:
        try:
            check_acl(acl, masks)
        except UnsupportedVersion as problem:
            results.append(_error(ErrorCode.UNSUPPORTED_VERSION, problem))
            continue
        except InvalidRequest as problem:
            results.append(_error(ErrorCode.INVALID_REQUEST, problem))
            continue
        results.append({"error_code": 0, "error_message": None})
        if acl not in known:
            known.add(acl)
            records.append(("AccessControlEntryRecord", acl_fields(new_id(), acl)))
    if len(records) > CHANGES_MAX:
        message = f"A request may add {CHANGES_MAX} ACLs at most, and this one has {len(records)}."
        refused = {"error_code": ErrorCode.POLICY_VIOLATION, "error_message": message}
        return [], [dict(refused) for _ in acls]
    return records, results


def delete_acls(
    image: MetadataImage, filters: Sequence[AclFilter]
) -> tuple[list[Record], list[Result]]:
    """The records to write, and one result per filter, for the response's `filter_results`."""
    gone: dict[uuid.UUID, None] = {}
    results: list[Result] = []
    for one in filters:
        try:
            check_filter(one)
        except InvalidRequest as problem:
            results.append({**_error(ErrorCode.INVALID_REQUEST, problem), "matching_acls": []})
            continue
        found = {acl_id: acl for acl_id, acl in image.acls.items() if one.matches(acl)}
        if len(gone.keys() | found.keys()) > CHANGES_MAX:
            results.append({
                "error_code": ErrorCode.UNKNOWN_SERVER_ERROR,
                "error_message": f"Cannot remove more than {CHANGES_MAX} acls in a single delete "
                "operation.",
                "matching_acls": [],
            })  # fmt: skip
            continue
        gone.update(dict.fromkeys(found))
        matching = [{"error_code": 0, "error_message": None, **_named(acl), **_entry(acl)}
                    for acl in found.values()]  # fmt: skip
        results.append({"error_code": 0, "error_message": None, "matching_acls": matching})
    return [("RemoveAccessControlEntryRecord", {"id": acl_id}) for acl_id in gone], results


def describe_acls(image: MetadataImage, one: AclFilter) -> list[Result]:
    """The ACLs that a filter selects by their resource, for the response's `resources`.

    Raises: InvalidRequest: the filter has an unknown number.
    """
    check_filter(one)
    found: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in ordered(filter(one.matches, image.acls.values())):
        found.setdefault((acl.kind, acl.name, acl.pattern), []).append(acl)
    return [{**_named(acls[0]), "acls": _entries(acls)} for acls in found.values()]


def _named(acl: Acl) -> Result:
    return {"resource_type": acl.kind, "resource_name": acl.name, "pattern_type": acl.pattern}


def _entry(acl: Acl) -> Result:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _entries(acls: Iterable[Acl]) -> list[Result]:
    return [_entry(acl) for acl in acls]


def _error(code: ErrorCode, problem: Exception) -> Result:
    return {"error_code": code, "error_message": str(problem)}
