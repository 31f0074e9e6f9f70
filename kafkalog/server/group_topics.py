"""Topics as the coordinator of groups sees them, lookups of patterns among them, and those that it
has created."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.config.consumer_group import in_effect
from kafkalog.coordinator.consumer_groups.patterns import Found, Lookup, look_up
from kafkalog.coordinator.consumer_groups.topics import Topic, Topics, topic_hash
from kafkalog.errors import for_clients
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import GROUP
from kafkalog.metadata.requests import NewSetting, NewTopic, NewTopics
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.coordinator.groups.core import GroupCoordinatorState
    from kafkalog.coordinator.streams_groups.outside import CreateTopics
    from kafkalog.coordinator.thread import Coordinator, Event
    from kafkalog.metadata.image import Change
    from kafkalog.metadata.image import Topic as TopicImage
    from kafkalog.metadata.source import Metadata

__all__ = ["GroupTopics", "create_internal"]

_logger = limited(__name__)
_FINE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
"""Outcomes after which a topic exists, or will."""


class GroupTopics:
    """The topics of the current metadata.  Safe to use from many threads."""

    def __init__(self, metadata: Metadata, config: ServerConfig) -> None:
        self._metadata, self._config = metadata, config
        self._hashes: dict[str, tuple[TopicImage, int]] = {}
        self._own: dict[str, tuple[Mapping[str, str], Mapping[str, Any]]] = {}
        """Own settings of groups as they are in the metadata, and in effect."""
        self._newest = metadata.image.offset
        """The offset of the last metadata that brought a topic."""

    @property
    def seen(self) -> Topics:
        """The topics, for the coordinator."""
        return Topics(
            self.topic, lambda topic_id: self._metadata.image.names.get(topic_id),
            lambda: self._metadata.image.offset, lambda: self._newest,
        )  # fmt: skip

    def topic(self, name: str) -> Topic | None:
        """A topic, with the hash of what groups know about it."""
        image = self._metadata.image
        topic = image.topics.get(name)
        if topic is None:
            return None
        known = self._hashes.get(name)
        if known is None or known[0] is not topic:
            racks = []
            for number in range(len(topic.partitions)):
                brokers = map(image.brokers.get, topic.partitions[number].replicas)
                racks.append([one.rack for one in brokers if one is not None and one.rack])
            known = self._hashes[name] = topic, topic_hash(name, topic.id, racks)
        return Topic(topic.id, len(topic.partitions), known[1])

    def own_settings(self, group_id: str) -> Mapping[str, Any]:
        """A group's own settings."""
        own = self._metadata.image.config(GROUP, group_id)
        if not own:
            return {}
        known = self._own.get(group_id)
        if known is None or known[0] is not own:
            known = self._own[group_id] = own, in_effect(own, self._config)
        return known[1]

    def follow(self, coordinator: Coordinator[GroupCoordinatorState]) -> None:
        """Report changes of topics to the coordinator."""

        def changed(change: Change) -> None:
            topics = (*change.changed, *change.gone)
            if any(topic.id not in change.old.names for topic in change.changed):
                self._newest = change.new.offset
            for topic in change.gone:
                self._hashes.pop(topic.name, None)
            for kind, name in change.resources:
                if kind == GROUP:
                    self._own.pop(name, None)
            if topics:
                names = frozenset(topic.name for topic in topics)
                coordinator.post(partial(coordinator.core.topics_changed, names))

        self._metadata.listen(changed)

    def look_up(self, coordinator: Coordinator[GroupCoordinatorState], lookup: Lookup) -> None:
        """Carry out a lookup, and report its outcome to the coordinator."""
        image = self._metadata.image
        try:
            found = look_up(lookup, image.topics, image.offset)
        except Exception:  # else all groups wait for its end
            _logger.exception("group %s: its patterns were not looked up", lookup.group_id)
            found = Found({}, image.offset)
        coordinator.post(partial(coordinator.core.looked_up, lookup, found))


def create_internal(
    create: Callable[[NewTopics], Mapping[str, ErrorCode]], effect: CreateTopics,
    post: Callable[[Event], None],
) -> None:  # fmt: skip
    """Create the internal topics of a streams group's application; `post` gets the event that takes
    the outcome."""
    asked = [
        NewTopic(
            one.name, one.partitions, one.replication_factor or -1,
            [NewSetting(name, value) for name, value in one.configs],
        )
        for one in effect.topics.values()
    ]  # fmt: skip
    try:
        found = create(NewTopics(asked))
        failed = {name: code.name for name, code in found.items() if code not in _FINE}
    except Exception as problem:  # the controller is away: a later heartbeat asks again
        failed = dict.fromkeys(effect.topics, for_clients(problem))
    for name, why in failed.items():
        _logger.warning("streams group %s: topic %s: %s", effect.group_id, name, why)
    post(partial(effect.done, failed))
