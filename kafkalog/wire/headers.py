"""The headers of requests and responses.

Source: KIP-482, and KIP-511 for ApiVersions.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.errors import ArgumentError, InvalidRequest
from kafkalog.wire.api import Api
from kafkalog.wire.apis import BY_KEY
from kafkalog.wire.runtime import Malformed, skip_tags, uvarint

__all__ = [
    "RequestHeader",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
]

_HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, and the length of the client id after it; -1: there is none."""


class RequestHeader(NamedTuple):
    """A request's header."""

    key: int
    """The API, which is known."""
    version: int
    """As requested: it is not yet checked that it is known."""
    correlation_id: int
    client_id: str | None
    pos: int
    """Where the body begins."""


def decode_request_header(frame: bytes, known: Mapping[int, Api] = BY_KEY) -> RequestHeader:
    """The header at the start of a frame, after its size.  `known`: APIs by key.

    Raises: InvalidRequest if it is incomplete, or names an API that does not exist.
    """
    if len(frame) < _HEADER.size:
        raise InvalidRequest(f"request header: found {len(frame)} bytes, wanted {_HEADER.size}")
    key, version, correlation_id, length = _HEADER.unpack_from(frame)
    api = known.get(key)
    if api is None:
        raise InvalidRequest(f"request header: api_key: found {key}, wanted one of Kafka's")
    where = f"{api.name} request v{version}: header"
    pos = _HEADER.size
    client_id = None
    if length >= 0:
        if length > len(frame) - pos:
            raise InvalidRequest(
                f"{where}: client_id: found length {length}, "
                f"wanted at most the {len(frame) - pos} bytes that are left"
            )
        raw = bytes(frame[pos : pos + length])
        pos += length
        try:
            client_id = raw.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"{where}: client_id: found bytes {raw[:20]!r}, wanted UTF-8"
            ) from None
    if api.request_header_version(version) == 2:
        pos = _skip_tags(frame, pos, where)
    return RequestHeader(key, version, correlation_id, client_id, pos)


def encode_request_header(
    api: Api, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The header of a request, to put between the frame's size and the body."""
    raw = None if client_id is None else client_id.encode()
    try:
        fixed = _HEADER.pack(api.key, version, correlation_id, -1 if raw is None else len(raw))
    except struct.error as error:
        raise ArgumentError(f"{api.name} request v{version}: header: {error}") from None
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    return fixed + (raw or b"") + tags


def decode_response_header(api: Api, version: int, frame: bytes | bytearray) -> tuple[int, int]:
    """The correlation id of a response, and where its body begins.

    Raises: InvalidRequest.
    """
    where = f"{api.name} response v{version}: header"
    if len(frame) < 4:
        raise InvalidRequest(f"{where}: correlation_id: found {len(frame)} bytes, wanted 4")
    pos = 4
    if api.response_header_version(version):
        pos = _skip_tags(frame, pos, where)
    return int.from_bytes(frame[:4], "big", signed=True), pos


def encode_response_header(api: Api, version: int, correlation_id: int) -> bytes:
    """The header of a response, to put between the frame's size and the body."""
    tags = b"\0" if api.response_header_version(version) else b""
    return correlation_id.to_bytes(4, "big", signed=True) + tags


def _skip_tags(frame: bytes | bytearray, pos: int, where: str) -> int:
    """The position after a header's tagged fields, of which Kafka knows none."""
    try:
        count, pos = uvarint(frame, pos)
        return skip_tags(frame, pos, len(frame), count)
    except IndexError:
        found, wanted = "no bytes", "tagged fields"
    except Malformed as error:
        found, wanted = error.found, error.wanted
    raise InvalidRequest(f"{where}: tagged fields: found {found}, wanted {wanted}")
