"""Requests by hand: one socket, the tables of kafkalog.wire, nothing hidden."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from kafkalog.wire import apis, headers
from tests.support import batches
from tests.support.waiting import LIMIT_S

TIMEOUT_S = LIMIT_S


class Raw:
    """One connection to a broker."""

    def __init__(self, address: str, client_id: str | None = "raw") -> None:
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(TIMEOUT_S)
            self.socket.connect(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            self.socket = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S)
        self.address = address
        self.client_id = client_id
        self._correlation_id = 0

    def send(self, api: Any, version: int, body: dict[str, Any]) -> int:
        """Send a request; its correlation id."""
        data = api.encode_request(version, body)
        return self.send_bytes(api, version, data)

    def send_bytes(self, api: Any, version: int, data: bytes) -> int:
        """Send a request with a body that is already encoded, or is nonsense."""
        self._correlation_id += 1
        frame = headers.encode_request_header(api, version, self._correlation_id, self.client_id)
        self.socket.sendall(struct.pack(">i", len(frame) + len(data)) + frame + data)
        return self._correlation_id

    def receive_frame(self) -> bytes:
        """The next frame, without its size.  Raises: ConnectionError, if the broker closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError(f"closed by the broker after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def receive(self, api: Any, version: int) -> Any:
        """The response to the request that was sent first."""
        frame = self.receive_frame()
        _, pos = headers.decode_response_header(api, version, frame)
        return api.decode_response(version, frame, pos)

    def call(self, api: Any, version: int | None = None, **body: Any) -> Any:
        """Send a request and wait for its response; version None: the highest served."""
        version = api.max_version if version is None else version
        self.send(api, version, body)
        return self.receive(api, version)

    # ---- common requests ---------------------------------------------------------------------

    def create(self, topic: str, partitions: int = 1, **config: str) -> Any:
        """Create a topic; settings with underscores for dots.  Its entry in the response."""
        settings = [{"name": k.replace("_", "."), "value": v} for k, v in config.items()]
        entry = {"name": topic, "num_partitions": partitions, "replication_factor": 1,
                 "configs": settings}  # fmt: skip
        return self.call(apis.CREATE_TOPICS, topics=[entry], timeout_ms=30_000).topics[0]

    def alter(self, kind: int, name: str, **config: str | None) -> Any:
        """Set (or with None delete) settings; the resource's entry in the response."""
        ops = [
            {"name": key.replace("_", "."), "config_operation": 0 if value is not None else 1,
             "value": value}
            for key, value in config.items()
        ]  # fmt: skip
        resource = {"resource_type": kind, "resource_name": name, "configs": ops}
        return self.call(apis.INCREMENTAL_ALTER_CONFIGS, resources=[resource]).responses[0]

    def describe(self, kind: int, name: str) -> dict[str, Any]:
        """DescribeConfigs of one resource; its settings by name."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        found = self.call(apis.DESCRIBE_CONFIGS, resources=[resource], include_synonyms=True)
        return {entry.name: entry for entry in found.results[0].configs}

    def produce(
        self, topic: str, *values: bytes | None, partition: int = 0, acks: int = -1,
        codec: str = "none", key: bytes | None = b"k", timestamp_ms: int = 0, version: int = 9,
        timeout_ms: int = 30_000,
    ) -> Any:  # fmt: skip
        """Produce one batch; the partition's entry in the response (acks=0: None)."""
        rows = [batches.Row(value, key, timestamp_ms) for value in values]
        return self.produce_batch(
            topic, batches.batch(rows, codec=codec), partition, acks, version, timeout_ms
        )

    def produce_batch(
        self, topic: str, data: bytes, partition: int = 0, acks: int = -1, version: int = 9,
        timeout_ms: int = 30_000,
    ) -> Any:  # fmt: skip
        """Produce a batch as it is; the partition's entry in the response (acks=0: None)."""
        entry = {"name": topic, "partition_data": [{"index": partition, "records": data}]}
        body = {"acks": acks, "timeout_ms": timeout_ms, "topic_data": [entry]}
        if acks == 0:
            self.send(apis.PRODUCE, version, body)
            return None
        found = self.call(apis.PRODUCE, version, **body)
        return found.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, offset: int = 0, partition: int = 0, version: int = 11,
        max_wait_ms: int = 0, **more: Any,
    ) -> Any:  # fmt: skip
        """Fetch from one partition by name; its entry in the response."""
        part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        found = self.call(
            apis.FETCH, version, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 24,
            topics=[{"topic": topic, "partitions": [part]}], **more,
        )  # fmt: skip
        return found.responses[0].partitions[0]

    def offsets(self, topic: str, timestamp: int, partition: int = 0, **more: Any) -> Any:
        """ListOffsets of one partition; its entry in the response."""
        part = {"partition_index": partition, "timestamp": timestamp}
        found = self.call(
            apis.LIST_OFFSETS, replica_id=-1, topics=[{"name": topic, "partitions": [part]}], **more
        )
        return found.topics[0].partitions[0]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
