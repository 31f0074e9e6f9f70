"""Records about partitions: elections of leaders, and the effects of a broker that comes or goes.

Pure: every function reads one image, and returns records that are written together.  The rules are
those of Apache Kafka's ReplicationControlManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import InvalidSetting
from kafkalog.metadata.image import (
    BROKER,
    ELIGIBLE_REPLICAS,
    METADATA_VERSION,
    NO_LEADER,
    TOPIC,
    Broker,
    MetadataImage,
    Partition,
    Topic,
)
from kafkalog.metadata.levels import LEVEL_MIN
from kafkalog.quorum.partition_changes import MIGRATING, Election, Rules, Wanted, change, wanted
from kafkalog.quorum.sessions import State, state_of
from kafkalog.quorum.writing import MetadataRecord

__all__ = ["LOST", "UNASSIGNED", "Deciding", "keeps_eligible", "placed_at"]

UNASSIGNED, LOST = uuid.UUID(int=1), uuid.UUID(int=2)
"""Directories of replicas: not chosen yet, and offline; MIGRATING: unknown (KIP-858)."""
MIN_INSYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
ELIGIBLE_SINCE = 23
"""The first metadata.version that has eligible leader replicas: 4.0-IV1."""
Row = tuple[Topic, Partition]


def keeps_eligible(image: MetadataImage) -> bool:
    """True if the cluster keeps eligible leader replicas (KIP-966)."""
    return bool(image.features.get(ELIGIBLE_REPLICAS)) and level_of(image) >= ELIGIBLE_SINCE


def level_of(image: MetadataImage) -> int:
    """Its metadata.version."""
    return image.features.get(METADATA_VERSION, LEVEL_MIN)


def placed_at(broker: Broker | None) -> uuid.UUID:
    """Where a broker puts a new replica: known beforehand only if it has one directory."""
    if broker is None:
        return UNASSIGNED
    if not broker.directories:
        return MIGRATING
    usable = [one for one in broker.directories if one not in broker.cordoned]
    return usable[0] if len(usable) == 1 else UNASSIGNED


class Deciding:
    """Decisions about the partitions of one image."""

    def __init__(
        self, image: MetadataImage, config: BrokerConfig, up: Collection[int] = (),
        down: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`config`: the settings of the controller's node; `up`, `down`: brokers whose state
        changes by records that are written together with these."""
        self.image = image
        self._config = config
        self.active = {
            number for number, one in image.brokers.items()
            if number not in down and (number in up or state_of(one) is State.UNFENCED)
        }  # fmt: skip
        self._level, self._eligible = level_of(image), keeps_eligible(image)
        self._settings: dict[tuple[str, str], Any] = {}

    # ---- one partition ------------------------------------------------------------------------

    def record(self, row: Row, asked: Wanted, eligible: bool = True) -> list[MetadataRecord]:
        """The record that changes a partition; none if nothing changes.  `eligible`: False for a
        decision that drops eligible leader replicas."""
        topic, one = row
        rules = Rules(
            self._acceptable(one), lambda broker: placed_at(self.image.brokers.get(broker)),
            self._least(topic), eligible and self._eligible, self._level,
        )  # fmt: skip
        fields = change(one, asked, rules)
        ids = {"topic_id": topic.id, "partition_id": one.partition}
        return [("PartitionChangeRecord", {**fields, **ids})] if fields else []

    def election(self, topic: Topic) -> Election:
        """The kind of election if a partition of a topic loses its leader."""
        return Election.UNCLEAN if self.unclean(topic.name) else Election.ONLINE

    def unclean(self, topic: str) -> bool:
        """unclean.leader.election.enable of a topic."""
        return bool(self._setting(topic, UNCLEAN))

    def _least(self, topic: Topic) -> int:
        first = topic.partitions.get(0)
        count = len(first.replicas) if first is not None else 1
        return min(int(self._setting(topic.name, MIN_INSYNC)), count)

    def _setting(self, topic: str, name: str) -> Any:
        if (topic, name) not in self._settings:
            self._settings[topic, name] = self._resolved(topic, name)
        return self._settings[topic, name]

    def _resolved(self, topic: str, name: str) -> Any:
        image, setting = self.image, TopicConfig.table[name]
        for kind, resource, key in (
            (TOPIC, topic, name), (BROKER, str(image.node_id), setting.synonym),
            (BROKER, "", setting.synonym),
        ):  # fmt: skip
            text = image.config(kind, resource).get(key)
            if text is not None:
                try:
                    return setting.checked(text)
                except InvalidSetting:
                    continue  # another controller accepted it
        return self._config.topic[name]

    def _acceptable(self, one: Partition) -> Callable[[int], bool]:
        def acceptable(number: int) -> bool:
            if number not in self.active:
                return False
            registered = self.image.brokers[number].directories
            place = dict(zip(one.replicas, one.directories, strict=False)).get(number, UNASSIGNED)
            if place in (UNASSIGNED, MIGRATING):
                return True
            return place != LOST and (not registered or place in registered)

        return acceptable

    # ---- many partitions ----------------------------------------------------------------------

    def without(
        self, rows: Iterable[Row], gone: Collection[int] = (), lost: Collection[int] = ()
    ) -> list[MetadataRecord]:
        """Partitions whose brokers changed: `gone` leave the ISR, `lost` have lost records and
        leave the eligible leader replicas, too; leaders are elected where there is none."""
        away = {*gone, *lost}
        found: list[MetadataRecord] = []
        for row in rows:
            topic, one = row
            isr = tuple(each for each in one.isr if each not in away)
            asked = wanted(one, self.election(topic))._replace(isr=isr, lost=lost)
            found += self.record(row, asked)
        return found

    def in_sync(self, brokers: Collection[int]) -> Iterator[Row]:
        """The partitions that have one of these brokers in the ISR."""
        return (row for row in self.image.partitions() if not set(row[1].isr).isdisjoint(brokers))

    def eligible_at(self, broker: int) -> Iterator[Row]:
        """The partitions that have a broker among the eligible leader replicas."""
        return (row for row in self.image.partitions()
                if broker in row[1].eligible_leader_replicas)  # fmt: skip

    def leaderless(self) -> Iterator[Row]:
        """The partitions without a leader."""
        return (row for row in self.image.partitions() if row[1].leader == NO_LEADER)
