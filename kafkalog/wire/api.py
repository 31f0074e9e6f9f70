"""An API of the table: its key, its versions, its request and response."""

from __future__ import annotations

from typing import Any

from kafkalog.wire.message import Message
from kafkalog.wire.notation import parse_versions
from kafkalog.wire.values import Struct

__all__ = ["Api"]

API_VERSIONS_KEY = 18
REQUEST_MEMORY_BYTES_MAX = 128 << 20
"""Approximate memory that a decoded request may take; any client can send one."""
REQUEST_NAMES_MAX = 100_000
"""How many of each kind (topics, partitions, groups, settings ...) a request may name in total.
The data plane has the same limit for Produce and Fetch (KL_REQUEST_PARTITIONS_MAX)."""


class Api:
    """One kind of request and its response.

    Fields are attributes of decoded and keys of encoded messages, by Kafka's names in
    snake_case; arrays are lists, null is None, bytes and records are bytes, ids are uuid.UUID.
    """

    def __init__(
        self, key: int, name: str, versions: str, *,
        request: str, response: str, flexible: int | None = None, served: str | None = None,
    ) -> None:  # fmt: skip
        self.key = key
        """Kafka's number for it."""
        self.name = name
        """Kafka's name: "FindCoordinator"."""
        self.request = Message(f"{name} request", versions, flexible, request)
        self.response = Message(f"{name} response", versions, flexible, response)
        self.versions = self.request.versions
        """The versions that can be coded, here and in the client."""
        self.served = parse_versions(served) if served else None
        """The versions that our broker announces; None if it does not serve this API."""
        self.first_flexible = self.request.first_flexible

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} {self.min_version}-{self.max_version}>"

    @property
    def min_version(self) -> int:
        """The lowest version that our broker serves, or the lowest known one if it serves none."""
        return (self.served or self.versions).start

    @property
    def max_version(self) -> int:
        """The highest version that our broker serves, or the highest known one if it serves
        none."""
        return (self.served or self.versions).stop - 1

    def request_header_version(self, version: int) -> int:
        """1, or 2 if the request is flexible."""
        return 2 if version >= self.first_flexible else 1

    def response_header_version(self, version: int) -> int:
        """0, or 1 if the response is flexible; for ApiVersions always 0, since the client does
        not know the broker yet (KIP-511)."""
        return int(version >= self.first_flexible and self.key != API_VERSIONS_KEY)

    def decode_request(self, version: int, data: Any, pos: int = 0) -> Struct:
        """The request's body at `pos` of any bytes-like data.

        Raises: InvalidRequest, also for one that would take more memory than a request may, or
        names more than REQUEST_NAMES_MAX; UnsupportedVersion.
        """
        return self.measured_request(version, data, pos)[0]

    def measured_request(self, version: int, data: Any, pos: int = 0) -> tuple[Struct, int]:
        """As `decode_request`, with approximately how many bytes of memory the request takes."""
        limits = REQUEST_MEMORY_BYTES_MAX, REQUEST_NAMES_MAX
        body, _, bytes_ = self.request.decode_measured(version, data, pos, *limits)
        return body, bytes_

    def encode_request(self, version: int, fields: dict[str, Any] | Struct) -> bytes:
        """A request's body.

        Raises: TypeError, ArgumentError, UnsupportedVersion.
        """
        return self.request.encode(version, fields)

    def encode_request_parts(
        self, version: int, fields: dict[str, Any] | Struct
    ) -> list[memoryview]:
        """As `encode_request`, in parts: large values are not copied, and must not change."""
        return self.request.encode_parts(version, fields)

    def decode_response(self, version: int, data: Any, pos: int = 0) -> Struct:
        """The response's body at `pos` of any bytes-like data.

        Raises: InvalidRequest, UnsupportedVersion.
        """
        return self.response.decode(version, data, pos)[0]

    def encode_response(self, version: int, fields: dict[str, Any] | Struct) -> bytes:
        """A response's body.

        Raises: TypeError, ArgumentError, UnsupportedVersion.
        """
        return self.response.encode(version, fields)
