"""Requests that change what protects a cluster: ACLs, SCRAM credentials and quotas of clients.

A single node writes them into its metadata log, any node of a cluster into ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.controller import acls, users
from kafkalog.controller.client_quotas import IP, MUTATION_RATE, alter_client_quotas
from kafkalog.metadata import translation
from kafkalog.metadata.addresses import address_of
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.requests import Result
from kafkalog.metadata.source import Planned
from kafkalog.wire import apis

if TYPE_CHECKING:
    from kafkalog.server.request import Request

__all__ = ["ON_ZOOKEEPER", "PROTECTION", "Alter"]

Fields = Mapping[str, Any]
Alter = Callable[[Callable[[MetadataImage], Planned]], list[Result]]
"""Carries out a change that is planned on the image."""


def _alter_user_scram_credentials(alter: Alter, request: Request) -> Fields:
    """Add, replace and delete credentials: connections that authenticate afterwards use them."""
    body = request.body
    deletions = [users.Deletion(one.name, one.mechanism) for one in body.deletions]
    upsertions = [
        users.Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password)
        for one in body.upsertions
    ]
    return {
        "results": alter(
            lambda image: users.alter_user_scram_credentials(image, deletions, upsertions)
        )
    }


def _alter_client_quotas(
    alter: Alter, request: Request, unenforced: Collection[str] = ()
) -> Fields:
    """Change quotas; open connections obey them before the answer is sent."""
    asked = translation.quota_changes(request.body)
    # Names are resolved here, not while others wait for the metadata.
    names = {name for one in asked.changes for kind, name in one.entity if kind == IP and name}
    known = {name for name in names if address_of(name)}

    def planned(image: MetadataImage) -> Planned:
        return alter_client_quotas(image, asked, known.__contains__, unenforced)

    return {"entries": alter(planned)}


def _create_acls(alter: Alter, request: Request) -> Fields:
    """Requests obey the new ACLs from the answer on."""
    asked = translation.new_acls(request.body)
    return {"results": alter(lambda image: acls.create_acls(image, asked))}


def _delete_acls(alter: Alter, request: Request) -> Fields:
    asked = translation.acl_filters(request.body)
    return {"filter_results": alter(lambda image: acls.delete_acls(image, asked))}


PROTECTION: Mapping[int, Callable[[Alter, Request], Fields]] = {
    apis.ALTER_USER_SCRAM_CREDENTIALS.key: _alter_user_scram_credentials,
    apis.ALTER_CLIENT_QUOTAS.key: _alter_client_quotas,
    apis.CREATE_ACLS.key: _create_acls,
    apis.DELETE_ACLS.key: _delete_acls,
}
"""By API key."""
ON_ZOOKEEPER: Mapping[int, Callable[[Alter, Request], Fields]] = {
    **PROTECTION,
    apis.ALTER_CLIENT_QUOTAS.key: partial(_alter_client_quotas, unenforced=(MUTATION_RATE,)),
}
"""The same for a node on ZooKeeper, whose controller may be any broker's: none counts changes."""
