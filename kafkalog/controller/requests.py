"""Requests to brokers: gathered while an event is decided, then one of each kind per broker.

First the live brokers, to brokers that may not know them yet: a broker follows only brokers that it
knows, and is not asked twice.  Then leadership to a partition's replicas, and metadata to all
brokers.  Kafka sends them in this order: a leader must know that it leads before clients do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kafkalog.controller.context import NEVER_LED, Context
from kafkalog.controller.records import TopicPartition
from kafkalog.metadata.image import Broker
from kafkalog.wire.api import Api
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA

__all__ = ["DURING_DELETE", "Fields", "RequestBatch", "Send", "encodable", "unencodable"]

DURING_DELETE = -2
"""The leader of a partition that is being deleted; for its replicas also the leader epoch."""
Fields = dict[str, Any]


class Send(NamedTuple):
    """A request to one broker."""

    broker: int
    api: Api
    body: Fields
    """By the names of kafkalog.wire."""


def unencodable(send: Send) -> Exception | None:
    """Why a request cannot be encoded; None: it can."""
    try:
        send.api.encode_request(send.api.versions.stop - 1, send.body)
    except Exception as problem:
        return problem
    return None


def encodable(send: Send) -> tuple[Send | None, dict[str, Exception]]:
    """The request without the parts that cannot be encoded, None if nothing of it can; and these
    parts with the reasons: partitions, and brokers."""
    left_out: dict[str, Exception] = {}
    kept: Fields = {name: [] for name in LISTS if name in send.body}
    for name in kept:
        for row in send.body[name]:
            for part, label in _parts(row):
                one = send._replace(body={**send.body, **dict.fromkeys(kept, ()), name: [part]})
                if (why := unencodable(one)) is None:
                    kept[name].append(part)
                else:
                    left_out[label] = why
    found = send._replace(body=send.body | kept)
    if (why := unencodable(found)) is not None:
        return None, {f"all of it, for broker {send.broker}": why}
    return found, left_out


LISTS = ("topic_states", "live_brokers", "live_leaders")


def _parts(row: Fields) -> Iterator[tuple[Fields, str]]:
    """A row of one of the lists, partition by partition, with names for errors."""
    if "partition_states" not in row:
        yield row, f"broker {row.get('id', row.get('broker_id'))}"
    for one in row.get("partition_states", ()):
        label = f"{row['topic_name']}-{one['partition_index']}"
        yield row | {"partition_states": [one]}, label


class RequestBatch:
    """The requests that follow from one event."""

    def __init__(self, context: Context, listener: str) -> None:
        """`listener`: the one by which brokers reach each other."""
        self._context = context
        self._listener = listener
        self._first: list[Send] = []
        self._expedited: list[Send] = []
        self._leads: defaultdict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._stops: defaultdict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._known: defaultdict[int, dict[TopicPartition, None]] = defaultdict(dict)

    def leader_and_isr(
        self, brokers: Iterable[int], key: TopicPartition, *, new: bool = False
    ) -> None:
        """Send brokers the leader and ISR of a partition; `new`: it has no data anywhere.

        A broker that has dropped it, since its topic is deleted, is skipped: it would recreate it.
        """
        dropped = self._context.dropped.get(key[0], ())
        for broker in brokers:
            if (key[1], broker) not in dropped:
                asked = self._leads[broker]
                asked[key] = asked.get(key, False) or new

    def stop_replica(self, broker: int, key: TopicPartition, *, delete: bool) -> None:
        """Have a broker stop following; `delete`: and drop its copy."""
        asked = self._stops[broker]
        asked[key] = asked.get(key, False) or delete

    def update_metadata(
        self, keys: Iterable[TopicPartition] = (), to: Iterable[int] | None = None
    ) -> None:
        """Send brokers (`to`: None: all) the state of these partitions and the live brokers."""
        known = dict.fromkeys(keys)
        for broker in self._context.brokers if to is None else to:
            self._known[broker].update(known)

    def update_metadata_first(
        self, keys: Iterable[TopicPartition] = (), to: Iterable[int] | None = None
    ) -> None:
        """Like `update_metadata`, but with the current state, and before everything else: a broker
        follows no partition that is led by a broker it does not know."""
        known = dict.fromkeys(keys)
        brokers = dict.fromkeys(self._context.brokers if to is None else to, known)
        self._first += self._to_each(brokers, UPDATE_METADATA, self._update_metadata)

    def expedite(self) -> None:
        """Send what was gathered, with the current state, before the next write."""
        self._expedited = self.sends()

    def expedited(self) -> list[Send]:
        """The requests that must not wait for the next write."""
        found, self._expedited = self._expedited, []
        return found

    def sends(self) -> list[Send]:
        """The announced requests; then one of each kind to each live broker, with the current
        state.

        A broker that must stop a partition is not asked to follow it.
        """
        for broker, keys in self._stops.items():
            for key in keys:
                self._leads[broker].pop(key, None)
        leads = {broker: keys for broker, keys in self._leads.items() if keys}
        found = [
            *self.expedited(),
            *self._first,
            *self._to_each(leads, LEADER_AND_ISR, self._leader_and_isr),
            *self._to_each(self._known, UPDATE_METADATA, self._update_metadata),
            *self._to_each(self._stops, STOP_REPLICA, self._stop_replica),
        ]
        self._first = []
        for gathered in (self._leads, self._known, self._stops):
            gathered.clear()
        return found

    def _to_each(self, gathered: Any, api: Api, body: Any) -> Iterator[Send]:
        claim = self._context.claim
        for broker, keys in gathered.items():
            registered = self._context.brokers.get(broker)
            if registered is not None:  # a broker that is gone gets everything when it comes back
                head = {"controller_id": claim.broker, "controller_epoch": claim.epoch,
                        "broker_epoch": registered.epoch}  # fmt: skip
                yield Send(broker, api, head | body(keys))

    # ---- bodies ---------------------------------------------------------------------------

    def _leader_and_isr(self, keys: dict[TopicPartition, bool]) -> Fields:
        partitions = self._context.partitions
        brokers = self._context.brokers
        leaders = {partitions[key].leader for key in keys if key in partitions}
        live = (brokers[one] for one in sorted(leaders) if one in brokers)
        topics = self._topics(keys, lambda key: self._leads_fields(key, keys[key]))
        return {"type": 0, "topic_states": topics, "live_leaders": list(self._reached(live))}

    def _reached(self, brokers: Iterable[Broker]) -> Iterator[Fields]:
        for one in brokers:
            for listener, host, port, _ in one.endpoints:
                if listener == self._listener:
                    yield {"broker_id": one.id, "host_name": host, "port": port}

    def _common(self, key: TopicPartition) -> Fields:
        one = self._context.partitions[key]
        return {
            "partition_index": key[1],
            "controller_epoch": self._context.written_by.get(key, self._context.claim.epoch),
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "isr": list(one.isr),
            "replicas": list(one.replicas),
        }

    def _leads_fields(self, key: TopicPartition, new: bool) -> Fields:
        one = self._context.partitions[key]
        return self._common(key) | {
            "partition_epoch": one.partition_epoch,
            "adding_replicas": list(one.adding_replicas),
            "removing_replicas": list(one.removing_replicas),
            "is_new": new,
            "leader_recovery_state": one.leader_recovery_state,
        }

    def _update_metadata(self, keys: dict[TopicPartition, None]) -> Fields:
        brokers = [
            {
                "id": one.id,
                "endpoints": [
                    {"port": port, "host": host, "listener": name, "security_protocol": protocol}
                    for name, host, port, protocol in one.endpoints
                ],
                "rack": one.rack,
            }
            for _, one in sorted(self._context.brokers.items())
        ]
        return {"topic_states": self._topics(keys, self._known_fields), "live_brokers": brokers}

    def _known_fields(self, key: TopicPartition) -> Fields:
        fields = self._common(key) | {
            "zk_version": self._context.partitions[key].partition_epoch,
            "offline_replicas": list(self._context.offline_replicas(key)),
        }
        if key[0] in self._context.deleted:
            fields["leader"] = DURING_DELETE
        return fields

    def _topics(self, keys: Iterable[TopicPartition], fields: Any) -> list[Fields]:
        """Partitions by topic, without those that are gone or were never led."""
        found: dict[str, list[Fields]] = {}
        for key in sorted(keys):
            one = self._context.partitions.get(key)
            if one is not None and one.leader_epoch != NEVER_LED:
                found.setdefault(key[0], []).append(fields(key))
        ids = self._context.ids
        return [{"topic_name": name, "topic_id": ids[name], "partition_states": rows}
                for name, rows in found.items()]  # fmt: skip

    def _stop_replica(self, keys: dict[TopicPartition, bool]) -> Fields:
        found: dict[str, list[Fields]] = {}
        for key in sorted(keys):
            one = self._context.partitions.get(key)
            epoch = -1 if one is None else one.leader_epoch
            row = {
                "partition_index": key[1],
                "leader_epoch": DURING_DELETE if key[0] in self._context.deleted else epoch,
                "delete_partition": keys[key],
            }
            found.setdefault(key[0], []).append(row)
        return {"topic_states": [{"topic_name": name, "partition_states": rows}
                                 for name, rows in found.items()]}  # fmt: skip
