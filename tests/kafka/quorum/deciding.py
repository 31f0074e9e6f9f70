"""The same requests for an active controller of Apache Kafka, and for ours on a log in memory.

Both write the same records, apart from the ids and epochs that each chooses.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from pprint import pformat
from typing import Any, Protocol

from kafkalog.config.server import ServerConfig
from kafkalog.kraft.batches import records_in
from kafkalog.kraft.records import decode, encode
from kafkalog.metadata.changes import Entry, Replay
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage, empty_image
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.internal import ALTER_PARTITION
from kafkalog.wire.tables.later.quorum import (
    ASSIGN_REPLICAS_TO_DIRS,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
)
from kafkalog.wire.values import Struct
from tests.kafka.quorum.nodes import Quorum
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.quorum.driven import SESSION_MS, Driven

SETTINGS = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
metadata.max.idle.interval.ms=0
broker.session.timeout.ms=6000
unclean.leader.election.interval.ms=600000
controller.performance.sample.period.ms=600000
"""
FEATURES = {METADATA_VERSION: (7, 33), "group.version": (0, 1), "transaction.version": (0, 2),
            "eligible.leader.replicas.version": (0, 1), "share.version": (0, 2),
            "streams.version": (0, 1), "kraft.version": (0, 1)}  # fmt: skip


DUPLICATE = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class Side(Protocol):
    """One of the two controllers."""

    def ask(self, api: Api, fields: Mapping[str, Any]) -> Any:
        """Its answer."""

    def written(self) -> Sequence[Entry]:
        """The records that it has written."""

    @property
    def image(self) -> MetadataImage:
        """The metadata that these make."""

    @property
    def end(self) -> int:
        """The offset of the last record."""


class Theirs:
    """Kafka's: its log is read from the disk.  Brokers that are not fenced stay so."""

    def __init__(self, quorum: Quorum) -> None:
        self.cluster = quorum.cluster
        self._folder: Path = quorum.controller.metadata
        self._raw = Raw(quorum.controller.address)
        self._lock = threading.Lock()  # guards the connection
        self._ends = threading.Event()
        self._beats = threading.Thread(target=self._beat)
        self.written()

    def __enter__(self) -> Theirs:
        self._beats.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._beats.join()

    def _beat(self) -> None:
        while not self._ends.wait(0.5):
            with self._lock:
                for number, one in self.image.brokers.items():
                    if not one.fenced and not one.in_controlled_shutdown:
                        step = beat(number)
                        self._call(step.api, step.fields(self))

    def ask(self, api: Api, fields: Mapping[str, Any]) -> Any:
        """Another life of a broker waits for the end of the last one's session."""

        def answer() -> Any:
            with self._lock:
                found = self._call(api, fields)
                self.written()
            refused = api is BROKER_REGISTRATION and found.error_code == DUPLICATE
            return None if refused else found

        return wait_for(answer, "the session of the last life ends", 60, pause_s=0.3)

    def _call(self, api: Api, fields: Mapping[str, Any]) -> Any:
        return self._raw.call(api, api.versions.stop - 1, **fields)

    def written(self) -> Sequence[Entry]:
        data = b"".join(path.read_bytes() for path in sorted(self._folder.glob("*.log")))
        found: list[Entry] = []
        replay, end = Replay(empty_image(self.cluster, 1)), -1
        for raw in records_in(data):
            if raw.control is None:
                entry = decode(raw.value)
                assert isinstance(entry, Entry), entry
                replay.feed(entry)
                if entry.name != "RegisterControllerRecord":  # its own, once it has started
                    found.append(entry)
            end = raw.offset
        self.end, self.image = end, replay.settle(end, 1, 0)
        return found


class Ours:
    """Ours: `bootstrap` begins its log."""

    def __init__(self, cluster: str, bootstrap: Sequence[Entry]) -> None:
        records = [(one.name, dict(one.fields)) for one in bootstrap]
        self._driven = Driven(0, config=ServerConfig({}), bootstrap=records, cluster=cluster)

    def ask(self, api: Api, fields: Mapping[str, Any]) -> Any:
        if api is BROKER_REGISTRATION:
            self._driven.now_ms += SESSION_MS
        return self._driven.ask(api, **fields)

    @property
    def image(self) -> MetadataImage:
        return self._driven.image

    @property
    def end(self) -> int:
        return self._driven.image.offset

    def written(self) -> Sequence[Entry]:
        found = []
        for name, fields in self._driven.log:
            entry = decode(encode(name, fields, self.image))
            assert isinstance(entry, Entry)
            found.append(entry)
        return found


# ---- requests ----------------------------------------------------------------------------------


def directory(broker: int, number: int = 0) -> uuid.UUID:
    """A log directory of a broker."""
    return uuid.UUID(int=1000 + 10 * broker + number)


def register(number: int, life: int, previous: Callable[[Side], int] = lambda _: -1, *,
             directories: int = 1) -> Step:  # fmt: skip
    """A broker begins a life."""

    def fields(side: Side) -> dict[str, Any]:
        listener = {"name": "PLAINTEXT", "host": f"host{number}", "port": 9092,
                    "security_protocol": 0}  # fmt: skip
        features = [{"name": name, "min_supported_version": low, "max_supported_version": high}
                    for name, (low, high) in FEATURES.items()]  # fmt: skip
        return {
            "broker_id": number, "cluster_id": side.image.cluster_id, "listeners": [listener],
            "incarnation_id": uuid.UUID(int=100 * number + life), "features": features,
            "rack": None, "log_dirs": [directory(number, one) for one in range(directories)],
            "previous_broker_epoch": previous(side),
        }  # fmt: skip

    return Step(BROKER_REGISTRATION, fields)


def beat(number: int, **other: Any) -> Step:
    """A heartbeat of a broker that has read everything."""

    def fields(side: Side) -> dict[str, Any]:
        return {
            "broker_id": number, "broker_epoch": epoch(side, number),
            "current_metadata_offset": side.end, "want_fence": False, "want_shut_down": False,
            **other,
        }  # fmt: skip

    return Step(BROKER_HEARTBEAT, fields)


def epoch(side: Side, number: int) -> int:
    """The epoch of a broker."""
    return side.image.brokers[number].epoch


def alter_isr(topic: str, *isr: int, partition: int = 0, recovering: int = 0) -> Step:
    """The leader of a partition asks for an ISR."""

    def fields(side: Side) -> dict[str, Any]:
        one = side.image.partition(topic, partition)
        assert one is not None
        members = [{"broker_id": each, "broker_epoch": epoch(side, each)} for each in isr]
        row = {
            "partition_index": partition, "leader_epoch": one.leader_epoch,
            "leader_recovery_state": recovering, "partition_epoch": one.partition_epoch,
            "new_isr_with_epochs": members,
        }  # fmt: skip
        topics = [{"topic_id": side.image.topics[topic].id, "partitions": [row]}]
        return {"broker_id": one.leader, "broker_epoch": epoch(side, one.leader), "topics": topics}

    return Step(ALTER_PARTITION, fields)


def create(topic: str, *replicas: Sequence[int], **configs: str) -> Step:
    """Create a topic, a partition for each of these."""
    rows = [{"partition_index": number, "broker_ids": list(one)}
            for number, one in enumerate(replicas)]  # fmt: skip
    settings = [{"name": name.replace("_", "."), "value": value}
                for name, value in configs.items()]  # fmt: skip
    row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows,
           "configs": settings}  # fmt: skip
    fields = {"topics": [row], "timeout_ms": 5000, "validate_only": False}
    return Step(apis.CREATE_TOPICS, lambda _: fields)


def move(topic: str, replicas: Sequence[int] | None, partition: int = 0) -> Step:
    """Move a partition; None: cancel that."""
    row = {"partition_index": partition, "replicas": replicas}
    fields = {"timeout_ms": 5000, "allow_replication_factor_change": True,
              "topics": [{"name": topic, "partitions": [row]}]}  # fmt: skip
    return Step(apis.ALTER_PARTITION_REASSIGNMENTS, lambda _: fields)


def elect(kind: int, *keys: tuple[str, int]) -> Step:
    """Elect leaders: 0: the preferred ones, 1: any."""
    topics = [{"topic": topic, "partitions": [number]} for topic, number in keys]
    fields = {"election_type": kind, "topic_partitions": topics, "timeout_ms": 5000}
    return Step(apis.ELECT_LEADERS, lambda _: fields)


def configure(kind: int, name: str, **changes: str | None) -> Step:
    """Set settings; None: remove one."""
    configs = [{"name": key.replace("_", "."), "config_operation": int(value is None),
                "value": value} for key, value in changes.items()]  # fmt: skip
    row = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [row], "validate_only": False}
    return Step(apis.INCREMENTAL_ALTER_CONFIGS, lambda _: fields)


def replace(kind: int, name: str, **configs: str) -> Step:
    """Set all settings of a resource."""
    rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    row = {"resource_type": kind, "resource_name": name, "configs": rows}
    return Step(apis.ALTER_CONFIGS, lambda _: {"resources": [row], "validate_only": False})


def scram(user: str, mechanism: int, iterations: int | None) -> Step:
    """Set a credential; None: delete it."""
    more = [] if iterations is None else [
        {"name": user, "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
         "salted_password": b"p" * 32}
    ]  # fmt: skip
    less = [] if more else [{"name": user, "mechanism": mechanism}]
    fields = {"deletions": less, "upsertions": more}
    return Step(apis.ALTER_USER_SCRAM_CREDENTIALS, lambda _: fields)


def quota(user: str, **values: float | None) -> Step:
    """Set quotas of a user; None: remove one."""
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}
           for key, value in values.items()]  # fmt: skip
    entity = [{"entity_type": "user", "entity_name": user}]
    fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    return Step(apis.ALTER_CLIENT_QUOTAS, lambda _: fields)


def acl(principal: str, topic: str) -> Step:
    """Let a user read a topic."""
    row = {"resource_type": 2, "resource_name": topic, "resource_pattern_type": 3,
           "principal": principal, "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    return Step(apis.CREATE_ACLS, lambda _: {"creations": [row]})


def without_acls(principal: str) -> Step:
    """Delete a user's ACLs."""
    row = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
           "principal_filter": principal, "host_filter": None, "operation": 1,
           "permission_type": 1}  # fmt: skip
    return Step(apis.DELETE_ACLS, lambda _: {"filters": [row]})


def feature(name: str, level: int, kind: int) -> Step:
    """Change a feature: 1: upgrade, 2: safe downgrade."""
    row = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    fields = {"feature_updates": [row], "validate_only": False, "timeout_ms": 5000}
    return Step(apis.UPDATE_FEATURES, lambda _: fields)


def assign(broker: int, number: int, topic: str, *partitions: int) -> Step:
    """A broker put replicas into a directory."""

    def fields(side: Side) -> dict[str, Any]:
        rows = [{"partition_index": one} for one in partitions]
        topics = [{"topic_id": side.image.topics[topic].id, "partitions": rows}]
        return {"broker_id": broker, "broker_epoch": epoch(side, broker),
                "directories": [{"id": directory(broker, number), "topics": topics}]}  # fmt: skip

    return Step(ASSIGN_REPLICAS_TO_DIRS, fields)


def more(topic: str, count: int, replicas: Sequence[Sequence[int]]) -> Step:
    """Enlarge a topic."""
    rows = [{"broker_ids": list(one)} for one in replicas]
    row = {"name": topic, "count": count, "assignments": rows}
    fields = {"topics": [row], "timeout_ms": 5000, "validate_only": False}
    return Step(apis.CREATE_PARTITIONS, lambda _: fields)


def delete(*topics: str) -> Step:
    """Delete topics."""
    rows = [{"name": name} for name in topics]
    return Step(apis.DELETE_TOPICS, lambda _: {"topics": rows, "timeout_ms": 5000})


class Step:
    """A request, which may depend on what a side has."""

    def __init__(self, api: Api, fields: Callable[[Side], Mapping[str, Any]]) -> None:
        self.api, self.fields = api, fields


# ---- the comparison ----------------------------------------------------------------------------


def taken(side: Side, step: Step) -> tuple[Any, list[Any]]:
    """The answer to a request, and the records that it wrote, both without what each side
    chooses."""
    before = len(side.written())
    names = dict(side.image.names)
    fenced = {number for number, one in side.image.brokers.items() if one.fenced}
    answer = side.ask(step.api, step.fields(side))
    found = list(side.written())[before:]
    names |= side.image.names
    # Kafka fences fenced brokers again when their sessions end.
    found = [one for one in found if not (one.name == "BrokerRegistrationChangeRecord"
                                          and one.fields.fenced > 0
                                          and one.fields.broker_id in fenced)]  # fmt: skip
    return _plain(answer, names), _ordered([_shown(one, names) for one in found])


OWN = {"broker_epoch", "id", "throttle_time_ms", "salt", "stored_key", "server_key",
       "error_message", "producer_id_start", "configs"}  # fmt: skip
"""Fields that each side chooses; a new topic's settings, of which Kafka has some more."""


def _shown(entry: Entry, names: Mapping[uuid.UUID, str]) -> Any:
    return [entry.name, entry.version, _plain(entry.fields, names)]


def _plain(value: Any, names: Mapping[uuid.UUID, str]) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(one, names) for name, one in value if name not in OWN}
    if isinstance(value, list):
        return [_plain(one, names) for one in value]
    if isinstance(value, uuid.UUID):
        return names.get(value, str(value))
    return value


def _ordered(records: list[Any]) -> list[Any]:
    """Records of one kind in a row, in any order."""
    found: list[Any] = []
    for one in records:
        if found and found[-1][0][0] == one[0]:
            found[-1].append(one)
        else:
            found.append([one])
    return [one for rows in found for one in sorted(rows, key=str)]


def difference(name: str, theirs: Any, ours: Any) -> str:
    """The differences, for a person to read."""
    one, other = (pformat(each, width=100, compact=True).splitlines() for each in (theirs, ours))
    return "\n".join(unified_diff(one, other, f"{name}, kafka", f"{name}, ours", "", "", 1, ""))
