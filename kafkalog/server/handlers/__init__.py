"""The handlers of requests, one module per family of APIs.

A handler takes the node and a request with its decoded body; it returns the response's
fields, or None when it has answered or will.
"""

from typing import Any

from kafkalog.server.handlers import (
    api_versions,
    cluster,
    configs,
    epochs,
    fetch,
    groups,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producers,
    reassign,
    records,
    topics,
)
from kafkalog.server.handlers.common import Handler, by_key
from kafkalog.wire import apis

__all__ = ["HANDLERS", "served"]

_FAMILIES: tuple[dict[int, Handler], ...] = (
    api_versions.HANDLERS,
    cluster.HANDLERS,
    configs.HANDLERS,
    epochs.HANDLERS,
    fetch.HANDLERS,
    groups.HANDLERS,
    list_offsets.HANDLERS,
    log_dirs.HANDLERS,
    metadata.HANDLERS,
    produce.HANDLERS,
    producers.HANDLERS,
    reassign.HANDLERS,
    records.HANDLERS,
    topics.HANDLERS,
)

for _family in _FAMILIES:
    by_key.update(_family)
HANDLERS = by_key
"""By API key."""


def served(api: Any, version: int) -> bool:
    """Whether a request of this API and version is answered."""
    return api is not None and api.key in HANDLERS and version in apis.SERVED.get(api.key, ())
