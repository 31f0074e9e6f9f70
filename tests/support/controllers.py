"""The active controller of a KRaft cluster, scripted: a metadata log that tests write,
registrations and heartbeats that it answers, and requests in envelopes."""

from __future__ import annotations

import ssl
import struct
import threading
from typing import Any
from uuid import UUID

from kafkalog.kraft.batches import LEADER_CHANGE, control_batch, data_batches, leader_change_value
from kafkalog.kraft.records import encode
from kafkalog.metadata.image import METADATA_VERSION, empty_image
from kafkalog.server.request import KNOWN
from kafkalog.wire import apis, headers
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.other_records import PRINCIPAL
from tests.support.scripted import Peer

__all__ = ["CLUSTER", "Controller"]

CLUSTER = "cluster-of-a-test-0000"
NODE = 1
LEVEL = 27
IMAGE = empty_image(CLUSTER, NODE)._replace(features={METADATA_VERSION: LEVEL})
WAIT_S = 0.05
"""How long a Fetch waits for records."""


class Controller(Peer):
    """Node 1, which leads the quorum.  A context manager.

    Each registration and each change of fencing is a record, as in Kafka.
    """

    def __init__(
        self, node: int = NODE, tls: ssl.SSLContext | None = None, login: str = ""
    ) -> None:
        """`tls`: as in Peer; `login`: the `user:password` that it accepts by PLAIN."""
        super().__init__(tls=tls)
        self.node = node
        self.logins: list[bool] = []
        """For each login: True if it was accepted."""
        self._login = login.encode().replace(b":", b"\0", 1)
        self.on(apis.SASL_HANDSHAKE, {"mechanisms": ["PLAIN"]})
        self.on(apis.SASL_AUTHENTICATE, self._authenticate)
        self.epoch = 1
        self.leads = node == NODE
        """False: it knows no leader of the quorum."""
        self.commits = True
        """False: records are written, and not committed."""
        self._committed = 0
        self.registration_code = 0
        self.heartbeat_code = 0
        self.answers: dict[int, Any] = {}
        """Responses to requests in envelopes, by API key."""
        self.enveloped: list[tuple[str, str, bytes]] = []
        """(API, principal, client's address) of each request in an envelope."""
        self._batches: list[tuple[int, bytes]] = []
        self._end = 0
        self._written = threading.Condition()
        self._fenced: dict[int, bool] = {}
        self._epochs: dict[int, int] = {}
        self.directories: dict[int, UUID] = {}
        """The log directory of each broker."""
        self._next_producer_id = 1000
        self.on(apis.FETCH, self._fetch)
        self.on(apis.DESCRIBE_CLUSTER, {"cluster_id": CLUSTER, "endpoint_type": 2, "brokers": []})
        self.on(apis.BROKER_REGISTRATION, self._register)
        self.on(apis.BROKER_HEARTBEAT, self._heartbeat)
        self.on(apis.ENVELOPE, self._envelope)
        self.on(apis.ALLOCATE_PRODUCER_IDS, self._allocate)
        self.on(apis.ASSIGN_REPLICAS_TO_DIRS, {"error_code": 0})
        with self._written:
            value = leader_change_value(NODE)
            self._append(control_batch([(LEADER_CHANGE, value)], 0, self.epoch, 1_000), 1)
        self.write(("FeatureLevelRecord", {"name": METADATA_VERSION, "feature_level": LEVEL}))

    def takes_over(self, other: Controller, known: int) -> None:
        """Lead the quorum in the next epoch, with the first `known` batches of another one."""
        with self._written:
            self._batches = other._batches[:known]
            self._end = other._batches[known][0] if known < len(other._batches) else other._end
            self.epoch, self.leads = other.epoch + 1, True
            value = leader_change_value(self.node)
            self._append(control_batch([(LEADER_CHANGE, value)], self._end, self.epoch, 1_000), 1)
            self._fenced, self._epochs = dict(other._fenced), dict(other._epochs)
            self.directories = dict(other.directories)

    @property
    def batches(self) -> int:
        """The number of batches in the metadata log."""
        with self._written:
            return len(self._batches)

    @property
    def settings(self) -> dict[str, object]:
        """The settings of a broker, apart from its number."""
        return {
            "process.roles": "broker", "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.servers,
            "auto.create.topics.enable": False, "broker.heartbeat.interval.ms": 50,
            "controlled.shutdown.retry.backoff.ms": 1000,
            "initial.broker.registration.timeout.ms": 10_000,
        }  # fmt: skip

    @property
    def log(self) -> bytes:
        """The metadata log."""
        with self._written:
            return b"".join(data for _, data in self._batches)

    def write(self, *records: tuple[str, dict[str, Any]]) -> int:
        """Write a batch of records, committed at once; returns its first offset."""
        values = [encode(name, fields, IMAGE) for name, fields in records]
        with self._written:
            first = self._end
            (data,) = data_batches(values, first, self.epoch, 1_000)
            self._append(data, len(records))
            return first

    def _append(self, data: bytes, count: int) -> None:
        self._batches.append((self._end, data))
        self._end += count
        if self.commits:
            self._committed = self._end
        self._written.notify_all()

    def topic(
        self, name: str, topic_id: UUID, *replicas: int, leader: int, partitions: int = 1
    ) -> None:
        """Create a topic whose replicas are all in sync."""
        rows = [
            ("PartitionRecord", {
                "partition_id": number, "topic_id": topic_id, "replicas": replicas,
                "isr": replicas, "removing_replicas": [], "adding_replicas": [], "leader": leader,
                "leader_epoch": 0, "partition_epoch": 0,
                "directories": [self.directories.get(one, UUID(int=0)) for one in replicas],
            })
            for number in range(partitions)
        ]  # fmt: skip
        self.write(("TopicRecord", {"name": name, "topic_id": topic_id}), *rows)

    # ---- answers -------------------------------------------------------------------------------

    def _authenticate(self, request: Any, version: int) -> Any:
        right = bytes(request.auth_bytes) == b"\0" + self._login
        self.logins.append(right)
        code = ErrorCode.NONE if right else ErrorCode.SASL_AUTHENTICATION_FAILED
        return {"error_code": code, "error_message": "" if right else "Authentication failed"}

    def _fetch(self, request: Any, version: int) -> Any:
        (asked,) = request.topics[0].partitions
        row = {"partition_index": 0, "high_watermark": -1,
               "current_leader": {"leader_id": self.node, "leader_epoch": self.epoch}}  # fmt: skip
        if request.cluster_id != CLUSTER:
            return {"error_code": ErrorCode.INCONSISTENT_CLUSTER_ID}
        if not self.leads:
            row["current_leader"] = {"leader_id": -1, "leader_epoch": 0}
            row["error_code"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.current_leader_epoch < self.epoch:
            row["error_code"] = ErrorCode.FENCED_LEADER_EPOCH
        elif (end := self._diverges(asked)) is not None:
            row["diverging_epoch"] = {"epoch": self.epoch - 1, "end_offset": end}
        else:
            with self._written:
                self._written.wait_for(lambda: self._end > asked.fetch_offset, WAIT_S)
                found = [data for at, data in self._batches if at >= asked.fetch_offset]
                row.update(records=b"".join(found), high_watermark=self._committed)
        return {
            "responses": [{"topic_id": UUID(int=1), "partitions": [row]}],
            "node_endpoints": [{"node_id": self.node, "host": "127.0.0.1", "port": self.port}],
        }

    def _diverges(self, asked: Any) -> int | None:
        """Where the epoch of the end of another log ended here; None: it goes on here."""
        with self._written:
            if asked.last_fetched_epoch in (0, self.epoch):
                return None
            ends = [
                at for at, data in self._batches if data[12:16] == self.epoch.to_bytes(4, "big")
            ]
            return ends[0] if ends and asked.fetch_offset > ends[0] else None

    def _register(self, request: Any, version: int) -> Any:
        if self.registration_code:
            return {"error_code": self.registration_code}
        fields = {
            "broker_id": request.broker_id, "incarnation_id": request.incarnation_id,
            "end_points": [dict(one) for one in request.listeners],
            "features": [dict(one) for one in request.features], "rack": request.rack,
            "fenced": True, "in_controlled_shutdown": False, "log_dirs": request.log_dirs,
        }  # fmt: skip
        epoch = self._end
        self.write(("RegisterBrokerRecord", {**fields, "broker_epoch": epoch}))
        self._fenced[request.broker_id] = True
        self._epochs[request.broker_id] = epoch
        (self.directories[request.broker_id],) = request.log_dirs
        return {"broker_epoch": epoch}

    def _heartbeat(self, request: Any, version: int) -> Any:
        number, epoch = request.broker_id, request.broker_epoch
        if self.heartbeat_code:
            return {"error_code": self.heartbeat_code}
        if epoch != self._epochs.get(number):
            return {"error_code": ErrorCode.STALE_BROKER_EPOCH}
        caught_up = request.current_metadata_offset >= epoch
        if self._fenced[number] and caught_up and not request.want_fence:
            self.fence(number, False)
        return {"is_caught_up": caught_up, "is_fenced": self._fenced[number],
                "should_shut_down": request.want_shut_down}  # fmt: skip

    def fence(self, number: int, fenced: bool) -> None:
        """Write whether a broker is fenced."""
        self._fenced[number] = fenced
        self.write(("BrokerRegistrationChangeRecord", {
            "broker_id": number, "broker_epoch": self._epochs[number],
            "fenced": 1 if fenced else -1,
        }))  # fmt: skip

    def _allocate(self, request: Any, version: int) -> Any:
        self._next_producer_id += 1000
        return {"producer_id_start": self._next_producer_id, "producer_id_len": 1000}

    def _envelope(self, request: Any, version: int) -> Any:
        data = bytes(request.request_data)
        header = headers.decode_request_header(data, KNOWN)
        api = KNOWN[header.key]
        api.decode_request(header.version, data, header.pos)
        raw = bytes(request.request_principal)
        (written,) = struct.unpack_from(">h", raw)
        principal = PRINCIPAL.decode(written, raw, 2)[0]
        self.enveloped.append(
            (api.name, f"{principal.type}:{principal.name}", bytes(request.client_host_address))
        )
        answer = self.answers[api.key]
        if isinstance(answer, ErrorCode):
            return {"error_code": answer}
        head = headers.encode_response_header(api, header.version, header.correlation_id)
        return {"response_data": head + api.encode_response(header.version, answer)}
