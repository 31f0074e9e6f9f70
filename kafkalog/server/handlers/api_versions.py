"""ApiVersions: what is served here.  The same bytes for everybody, made once for each version."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from kafkalog.metadata.kraft.records import LEVEL_MIN
from kafkalog.server.handlers.common import Handler
from kafkalog.server.node import Node
from kafkalog.server.threads.requests import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["HANDLERS", "refusal"]

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""KIP-511: names and versions of client software."""
ANNOUNCED = ("metadata.version",)
"""Features that clients are told.  The metadata also have levels of transaction.version and
group.version, as Kafka writes them: told, clients would use protocols that are not there yet."""


def api_versions(node: Node, request: Request) -> None:
    """Every API with its versions, and the levels of features."""
    body = request.body
    if request.version >= 3 and not (
        SOFTWARE.fullmatch(body.client_software_name)
        and SOFTWARE.fullmatch(body.client_software_version)
    ):
        request.answer({"error_code": ErrorCode.INVALID_REQUEST})
        return
    features = node.image.features
    levels = tuple((name, features[name]) for name in ANNOUNCED if name in features)
    data = _encoded(request.version, levels, node.image.offset)
    request.answer_bytes(data, 0)  # always header version 0: who asks knows no version yet


@cache
def _keys() -> tuple[Mapping[str, int], ...]:
    from kafkalog.server.handlers import HANDLERS

    return tuple(
        {"api_key": key, "min_version": versions.start, "max_version": versions.stop - 1}
        for key, versions in sorted(apis.SERVED.items())
        if key in HANDLERS
    )


_cache: dict[int, tuple[Any, bytes]] = {}


def _encoded(version: int, levels: tuple[tuple[str, int], ...], epoch: int) -> bytes:
    kept, data = _cache.get(version, (None, b""))
    if kept != levels:
        # A feature whose lowest level is 0 must not be told to old clients (KAFKA-17492).
        shown = [(name, level) for name, level in levels if level > 0]
        data = apis.API_VERSIONS.encode_response(
            version,
            {
                "api_keys": _keys(),
                "supported_features": [
                    {"name": name, "min_version": LEVEL_MIN, "max_version": level}
                    for name, level in shown
                ],
                "finalized_features_epoch": epoch,
                "finalized_features": [
                    {"name": name, "max_version_level": level, "min_version_level": level}
                    for name, level in shown
                ],
            },
        )
        _cache[version] = (levels, data)
    return data


def refusal() -> tuple[bytes, int]:
    """The answer to a version that is not served, and its header's version.

    In version 0, with the range of versions of ApiVersions itself, so that clients come again.
    """
    api = apis.API_VERSIONS
    own = {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
    response = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [own]}
    return api.encode_response(0, response), 0


HANDLERS: dict[int, Handler] = {apis.API_VERSIONS.key: api_versions}
