"""Requests that change what protects a cluster: ACLs, SCRAM credentials and quotas of clients.

A single node writes them into its metadata log, any node of a cluster into ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.controller import protection
from kafkalog.metadata.addresses import address_of
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.requests import Result
from kafkalog.metadata.source import Planned
from kafkalog.wire import apis

if TYPE_CHECKING:
    from kafkalog.server.request import Request

__all__ = ["PROTECTION", "Alter", "quotas_asked"]

Fields = Mapping[str, Any]
Alter = Callable[[Callable[[MetadataImage], Planned]], list[Result]]
"""Carries out a change that is planned on the image."""


def _alter(convert: Callable[[Any], protection.Asked], alter: Alter, request: Request) -> Fields:
    field, plan = convert(request.body)
    return {field: alter(plan)}


def _alter_client_quotas(alter: Alter, request: Request) -> Fields:
    """Change quotas; open connections obey them before the answer is sent."""
    return _alter(quotas_asked, alter, request)


def quotas_asked(body: Any) -> protection.Asked:
    """The change of quotas that a request asks for; names of hosts are looked up now, in the
    caller's thread."""
    return protection.client_quotas(body, lambda name: bool(address_of(name)))


PROTECTION: Mapping[int, Callable[[Alter, Request], Fields]] = {
    **{key: partial(_alter, convert) for key, convert in protection.PROTECTION.items()},
    apis.ALTER_CLIENT_QUOTAS.key: _alter_client_quotas,
}
"""By API key."""
