"""Requests that change what protects a cluster, as plans: ACLs, SCRAM credentials and quotas.

Each function takes a decoded request, and returns the name of the response's list and the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkalog.controller import acls, users
from kafkalog.controller.client_quotas import IP, alter_client_quotas
from kafkalog.metadata import translation
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.source import Planned
from kafkalog.wire import apis

__all__ = ["PROTECTION", "Asked", "client_quotas"]


class Asked(NamedTuple):
    """A change, and the field of the response that gets its results."""

    field: str
    plan: Callable[[MetadataImage], Planned]


def _user_scram_credentials(body: Any) -> Asked:
    """Add, replace and delete credentials: connections that authenticate afterwards use them."""
    deletions = [users.Deletion(one.name, one.mechanism) for one in body.deletions]
    upsertions = [
        users.Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password)
        for one in body.upsertions
    ]
    return Asked(
        "results", lambda image: users.alter_user_scram_credentials(image, deletions, upsertions)
    )


def client_quotas(body: Any, is_address: Callable[[str], bool]) -> Asked:
    """Change quotas.  `is_address`: as in alter_client_quotas; it is asked now, not while others
    wait for the metadata."""
    asked = translation.quota_changes(body)
    names = {name for one in asked.changes for kind, name in one.entity if kind == IP and name}
    known = {name for name in names if is_address(name)}
    return Asked("entries", lambda image: alter_client_quotas(image, asked, known.__contains__))


def _create_acls(body: Any) -> Asked:
    """Requests obey the new ACLs from the answer on."""
    asked = translation.new_acls(body)
    return Asked("results", lambda image: acls.create_acls(image, asked))


def _delete_acls(body: Any) -> Asked:
    asked = translation.acl_filters(body)
    return Asked("filter_results", lambda image: acls.delete_acls(image, asked))


PROTECTION: Mapping[int, Callable[[Any], Asked]] = {
    apis.ALTER_USER_SCRAM_CREDENTIALS.key: _user_scram_credentials,
    apis.CREATE_ACLS.key: _create_acls,
    apis.DELETE_ACLS.key: _delete_acls,
}
"""By API key; quotas need to know addresses."""
