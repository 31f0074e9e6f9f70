"""Applies metadata records, one after another, to an image.

Nothing here reads a file or a clock.  The records' meaning is that of Kafka's `*Delta.replay` and
`*ControlManager.replay`; each sets a value, so that a record may be applied twice.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkalog.errors import CorruptLog
from kafkalog.metadata.image import TOPIC, Broker, Change, MetadataImage, Partition, Topic
from kafkalog.security.acls import Acl
from kafkalog.security.principal import parse_principal
from kafkalog.security.scram import Credential
from kafkalog.security.tokens import Token

__all__ = [
    "APPLY",
    "NOTHING_TO_KEEP",
    "Changes",
    "Entry",
    "Replay",
    "acl_fields",
    "acl_of",
    "broker_fields",
    "partition_fields",
    "snapshot_entries",
    "token_fields",
    "token_of",
]

_ACL_FIELDS = (
    "resource_type", "resource_name", "pattern_type", "principal", "host", "operation",
    "permission_type",
)  # fmt: skip
"""AccessControlEntryRecord's, in the order of Acl's."""
NO_CHANGE = -2  # PartitionChangeRecord.leader


class Entry(NamedTuple):
    """A metadata record: its schema's name, version and fields."""

    name: str
    version: int
    fields: Any
    """Either kafkalog.wire's decoded record (attributes), or a mapping to encode."""


class Changes:
    """A copy of an image that records change; `image` finishes it.  One thread only."""

    def __init__(self, image: MetadataImage) -> None:
        """Start from `image`, which does not change."""
        self._base = image
        # Copied at the first change: a write changes one or two of them.
        self._copies: dict[str, dict[Any, Any]] = {}
        self._next_producer_id = image.next_producer_id
        self._partitions: set[str] = set()  # topics whose partitions were copied
        self._resources: set[tuple[int, str]] = set()  # likewise, settings
        self.touched: dict[str, None] = {}
        """Names of topics that records changed, in order."""
        self.resources: dict[tuple[int, str], None] = {}
        """Resources whose settings records changed, in order."""

    def _of(self, part: str) -> dict[Any, Any]:
        found = self._copies.get(part)
        if found is None:
            found = self._copies[part] = dict(getattr(self._base, part))
        return found

    def image(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The changed image; its last record is the one at `offset`."""
        copies: dict[str, Any] = self._copies
        return self._base._replace(
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            next_producer_id=self._next_producer_id,
            **copies,
        )

    def apply(self, entry: Entry) -> None:
        """Apply a record.

        A record about a missing thing is counted in `foreign` if an unknown record came before,
        which may have created the thing.

        Raises: CorruptLog if it names a topic, partition or broker that does not exist.
        """
        if entry.name in NOTHING_TO_KEEP:
            return
        try:
            APPLY[entry.name](self, entry.fields)
        except CorruptLog:
            if not self._of("foreign"):
                raise
            self.keep(entry.name)

    def keep(self, kind: str) -> None:
        """Count an unknown record."""
        foreign = self._of("foreign")
        foreign[kind] = foreign.get(kind, 0) + 1

    # ---- topics ----------------------------------------------------------------------------

    def _topic(self, topic_id: uuid.UUID, what: str) -> tuple[Topic, dict[int, Partition]]:
        """The topic, with partitions that may be modified."""
        topics = self._of("topics")
        name = self._of("names").get(topic_id)
        if name is None:
            raise CorruptLog(f"{what}: found topic id {topic_id}, which no TopicRecord created")
        self.touched[name] = None
        topic: Topic = topics[name]
        if name not in self._partitions:
            topic = topics[name] = topic._replace(partitions=dict(topic.partitions))
            self._partitions.add(name)
        partitions = topic.partitions
        assert isinstance(partitions, dict)
        return topic, partitions

    def _add_topic(self, record: Any) -> None:
        other = self._of("topics").get(record.name)
        if other is not None and other.id != record.topic_id:
            raise CorruptLog(
                f"TopicRecord: found {record.name} with id {record.topic_id}, and it is there "
                f"with {other.id}"
            )
        if self._of("names").get(record.topic_id, record.name) != record.name:
            raise CorruptLog(f"TopicRecord: found id {record.topic_id} for a second name")
        self._of("topics")[record.name] = Topic(record.name, record.topic_id, {})
        self._of("names")[record.topic_id] = record.name
        self._partitions.add(record.name)
        self.touched[record.name] = None

    def _add_partition(self, record: Any) -> None:
        _, partitions = self._topic(record.topic_id, "PartitionRecord")
        partitions[record.partition_id] = Partition(
            partition=record.partition_id,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories or ()),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def _change_partition(self, record: Any) -> None:
        topic, partitions = self._topic(record.topic_id, "PartitionChangeRecord")
        old = partitions.get(record.partition_id)
        if old is None:
            raise CorruptLog(
                f"PartitionChangeRecord: found partition {record.partition_id} of {topic.name}, "
                "which no PartitionRecord created"
            )
        new: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
        for field in (
            "isr", "replicas", "removing_replicas", "adding_replicas", "directories",
            "eligible_leader_replicas", "last_known_elr",
        ):  # fmt: skip
            value = getattr(record, field)
            if value is not None:
                new[field] = tuple(value)
        if record.leader != NO_CHANGE:
            new.update(leader=record.leader, leader_epoch=old.leader_epoch + 1)
        if record.leader_recovery_state != -1:
            new["leader_recovery_state"] = record.leader_recovery_state
        partitions[record.partition_id] = old._replace(**new)

    def _remove_topic(self, record: Any) -> None:
        topic, _ = self._topic(record.topic_id, "RemoveTopicRecord")
        del self._of("topics")[topic.name], self._of("names")[topic.id]
        self._partitions.discard(topic.name)
        if (TOPIC, topic.name) in (self._copies.get("configs") or self._base.configs):
            del self._of("configs")[TOPIC, topic.name]
            self.resources[TOPIC, topic.name] = None
        self._resources.discard((TOPIC, topic.name))

    def _clear_elr(self, record: Any) -> None:
        topics = self._of("topics")
        for topic in list(topics.values()):
            if record.topic_name in ("", topic.name):
                _, partitions = self._topic(topic.id, "ClearElrRecord")
                for number, one in partitions.items():
                    if one.eligible_leader_replicas or one.last_known_elr:
                        partitions[number] = one._replace(
                            eligible_leader_replicas=(), last_known_elr=(),
                            partition_epoch=one.partition_epoch + 1,
                        )  # fmt: skip

    # ---- settings, features, producer ids ------------------------------------------------------

    def _config(self, record: Any) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._of("configs")
        self.resources[resource] = None
        if resource not in self._resources:
            configs[resource] = dict(configs.get(resource, {}))
            self._resources.add(resource)
        if record.value is None:
            configs[resource].pop(record.name, None)
        else:
            configs[resource][record.name] = record.value
        if not configs[resource]:
            del configs[resource]
            self._resources.discard(resource)

    def _feature(self, record: Any) -> None:
        if record.feature_level:
            self._of("features")[record.name] = record.feature_level
        else:
            self._of("features").pop(record.name, None)

    def _producer_ids(self, record: Any) -> None:
        self._next_producer_id = record.next_producer_id

    # ---- brokers and controllers -----------------------------------------------------------

    def _register_broker(self, record: Any) -> None:
        self._of("brokers")[record.broker_id] = Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple((e.name, e.host, e.port, e.security_protocol)
                            for e in record.end_points),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version)
                           for f in record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs or ()),
            cordoned=tuple(record.cordoned_log_dirs or ()),
        )  # fmt: skip

    def _change_broker(self, record: Any) -> None:
        new: dict[str, Any] = {}
        if record.fenced:  # -1: cleared, 0: unchanged, 1: set
            new["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            new["in_controlled_shutdown"] = True
        if record.log_dirs:
            new["directories"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            new["cordoned"] = tuple(record.cordoned_log_dirs)
        self._replace_broker(record.broker_id, new)

    def _replace_broker(self, broker_id: int, new: Mapping[str, Any]) -> None:
        brokers = self._of("brokers")
        if broker_id not in brokers:
            raise CorruptLog(f"found a change of broker {broker_id}, which never registered")
        brokers[broker_id] = brokers[broker_id]._replace(**new)

    # ---- what the settings of security and quotas keep -----------------------------------------

    def _quota(self, record: Any) -> None:
        entity = tuple(sorted((e.entity_type, e.entity_name) for e in record.entity))
        quotas = self._of("quotas")
        values = dict(quotas.pop(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            quotas[entity] = values

    def _token(self, record: Any) -> None:
        self._set("tokens", record.token_id, token_of(dict(record)))

    def _credential(self, record: Any) -> None:
        credential = Credential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        self._set("scram", (record.name, record.mechanism), credential)

    def _acl(self, record: Any) -> None:
        self._set("acls", record.id, Acl(*(getattr(record, name) for name in _ACL_FIELDS)))

    def _set(self, part: str, key: Any, record: Any) -> None:
        self._of(part)[key] = record

    def _drop(self, part: str, key: Any) -> None:
        self._of(part).pop(key, None)


APPLY: dict[str, Callable[[Changes, Any], None]] = {
    "RegisterBrokerRecord": Changes._register_broker,
    "UnregisterBrokerRecord": lambda c, r: c._drop("brokers", r.broker_id),
    "FenceBrokerRecord": lambda c, r: c._replace_broker(r.id, {"fenced": True}),
    "UnfenceBrokerRecord": lambda c, r: c._replace_broker(r.id, {"fenced": False}),
    "BrokerRegistrationChangeRecord": Changes._change_broker,
    "RegisterControllerRecord": lambda c, r: c._set("controllers", r.controller_id, r),
    "UnregisterControllerRecord": lambda c, r: c._drop("controllers", r.controller_id),
    "TopicRecord": Changes._add_topic,
    "PartitionRecord": Changes._add_partition,
    "PartitionChangeRecord": Changes._change_partition,
    "RemoveTopicRecord": Changes._remove_topic,
    "ClearElrRecord": Changes._clear_elr,
    "ConfigRecord": Changes._config,
    "FeatureLevelRecord": Changes._feature,
    "ProducerIdsRecord": Changes._producer_ids,
    "AccessControlEntryRecord": Changes._acl,
    "RemoveAccessControlEntryRecord": lambda c, r: c._drop("acls", r.id),
    "UserScramCredentialRecord": Changes._credential,
    "RemoveUserScramCredentialRecord": lambda c, r: c._drop("scram", (r.name, r.mechanism)),
    "DelegationTokenRecord": Changes._token,
    "RemoveDelegationTokenRecord": lambda c, r: c._drop("tokens", r.token_id),
    "ClientQuotaRecord": Changes._quota,
}

# Their effect passes with time, not in the image; migration from ZooKeeper ended with Kafka 4.
NOTHING_TO_KEEP = {
    "NoOpRecord", "BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord",
    "ZkMigrationStateRecord",
}  # fmt: skip


class Replay:
    """Applies records in the order of the log: those between a Begin and its End take effect
    together.

    One thread only.
    """

    def __init__(self, image: MetadataImage) -> None:
        """Continue from `image`."""
        self.image = image
        """The image after the last complete record or transaction."""
        self._changes = Changes(image)
        self._open: list[Entry | str] | None = None
        self._touched: dict[str, None] = {}  # since the last announced change
        self._resources: dict[tuple[int, str], None] = {}

    @property
    def in_transaction(self) -> bool:
        """True if a transaction has begun, and neither ended nor aborted."""
        return self._open is not None

    def feed(self, entry: Entry | str) -> None:
        """Apply the next record; a text is the kind of a record that could not be decoded.

        Raises: CorruptLog.
        """
        name = entry if isinstance(entry, str) else entry.name
        if name == "BeginTransactionRecord":
            if self._open is not None:
                raise CorruptLog("found BeginTransactionRecord inside of a transaction")
            self._open = []
        elif name in ("EndTransactionRecord", "AbortTransactionRecord"):
            if self._open is None:
                raise CorruptLog(f"found {name} outside of a transaction")
            entries, self._open = self._open, None
            if name == "EndTransactionRecord":
                for one in entries:
                    self._apply(one)
        elif self._open is not None:
            self._open.append(entry)
        else:
            self._apply(entry)

    def _apply(self, entry: Entry | str) -> None:
        if isinstance(entry, str):
            self._changes.keep(entry)
        else:
            self._changes.apply(entry)

    def settle(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The image after all complete transactions, when the last record fed is at `offset`."""
        self.image = self._changes.image(offset, epoch, timestamp_ms)
        self._touched |= self._changes.touched
        self._resources |= self._changes.resources
        self._changes = Changes(self.image)
        return self.image

    def change(self, old: MetadataImage) -> Change:
        """The difference from `old`, which is no older than the image at the last call.

        Only what records changed is compared: a thousand changes of a thousand topics are many.
        """
        new = self.image
        before, now = old.topics.get, new.topics.get
        names = [name for name in self._touched if before(name) is not now(name)]
        changed = tuple(topic for name in names if (topic := now(name)) is not None)
        away = [topic for name in names if (topic := before(name)) is not None]
        gone = tuple(topic for topic in away if topic.id not in new.names)
        resources = tuple(r for r in self._resources if old.config(*r) != new.config(*r))
        self._touched, self._resources = {}, {}
        return Change(old, new, changed, gone, resources)


# ---- an image as records ---------------------------------------------------------------------


def partition_fields(partition: Partition, topic_id: uuid.UUID) -> dict[str, Any]:
    """The fields of the PartitionRecord for `partition`."""
    return {
        "partition_id": partition.partition,
        "topic_id": topic_id,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "removing_replicas": list(partition.removing_replicas),
        "adding_replicas": list(partition.adding_replicas),
        "leader": partition.leader,
        "leader_recovery_state": partition.leader_recovery_state,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "directories": list(partition.directories),
        "eligible_leader_replicas": list(partition.eligible_leader_replicas) or None,
        "last_known_elr": list(partition.last_known_elr) or None,
    }


def broker_fields(broker: Broker) -> dict[str, Any]:
    """The fields of the RegisterBrokerRecord for `broker`."""
    return {
        "broker_id": broker.id,
        "incarnation_id": broker.incarnation_id,
        "broker_epoch": broker.epoch,
        "end_points": [
            {"name": name, "host": host, "port": port, "security_protocol": protocol}
            for name, host, port, protocol in broker.endpoints
        ],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, low, high in broker.features
        ],
        "rack": broker.rack,
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "log_dirs": list(broker.directories),
        "cordoned_log_dirs": list(broker.cordoned) or None,
    }


def acl_fields(acl_id: uuid.UUID, acl: Acl) -> dict[str, Any]:
    """An AccessControlEntryRecord."""
    return {"id": acl_id, **dict(zip(_ACL_FIELDS, acl, strict=True))}


def acl_of(fields: Mapping[str, Any]) -> Acl:
    """The ACL of an AccessControlEntryRecord, the reverse of `acl_fields`."""
    return Acl(*(fields[name] for name in _ACL_FIELDS))


def token_fields(token: Token) -> dict[str, Any]:
    """The fields of the DelegationTokenRecord for `token`."""
    return {
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(one) for one in token.renewers],
        "issue_timestamp": token.issued_ms,
        "max_timestamp": token.max_ms,
        "expiration_timestamp": token.expires_ms,
        "token_id": token.id,
    }


def token_of(fields: Mapping[str, Any]) -> Token:
    """The token of a DelegationTokenRecord, the reverse of `token_fields`."""
    times = (fields[name] for name in ("issue_timestamp", "max_timestamp", "expiration_timestamp"))
    return Token(
        fields["token_id"], parse_principal(fields["owner"]), parse_principal(fields["requester"]),
        tuple(map(parse_principal, fields["renewers"])), *times,
    )  # fmt: skip


def snapshot_entries(image: MetadataImage) -> Iterator[tuple[str, Any]]:
    """The records (name, fields) that build `image` from nothing, in Kafka's order."""
    features = sorted(image.features, key=lambda name: (name != "metadata.version", name))
    for name in features:  # metadata.version first: it says how to read what follows
        yield "FeatureLevelRecord", {"name": name, "feature_level": image.features[name]}
    for broker in image.brokers.values():
        yield "RegisterBrokerRecord", broker_fields(broker)
    for controller in image.controllers.values():
        yield "RegisterControllerRecord", controller
    for topic in image.topics.values():
        yield "TopicRecord", {"name": topic.name, "topic_id": topic.id}
        for partition in topic.partitions.values():
            yield "PartitionRecord", partition_fields(partition, topic.id)
    for (kind, resource), values in image.configs.items():
        for name, value in values.items():
            yield (
                "ConfigRecord",
                {"resource_type": kind, "resource_name": resource, "name": name, "value": value},
            )
    for entity, quota in image.quotas.items():
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
        for key, number in quota.items():
            yield "ClientQuotaRecord", {"entity": named, "key": key, "value": number}
    if image.next_producer_id:
        yield (
            "ProducerIdsRecord",
            {"broker_id": -1, "broker_epoch": -1, "next_producer_id": image.next_producer_id},
        )
    for (user, mechanism), credential in image.scram.items():
        fields = {"name": user, "mechanism": mechanism, **credential._asdict()}
        yield "UserScramCredentialRecord", fields
    for acl_id, acl in image.acls.items():
        yield "AccessControlEntryRecord", acl_fields(acl_id, acl)
    for token in image.tokens.values():
        yield "DelegationTokenRecord", token_fields(token)
