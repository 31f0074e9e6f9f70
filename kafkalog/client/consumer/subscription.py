"""A consumer's subscription, and the listeners for its assignments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kafkalog import errors
from kafkalog.arguments import called, text, things
from kafkalog.client.link.cluster import Cluster
from kafkalog.types import TopicPartition

__all__ = ["AWAITS", "Listener", "Subscription"]

Listener = Callable[[list[TopicPartition]], object]
AWAITS = "kafkalog.aio.Consumer"
"""The class that takes async listeners and callbacks."""


class Subscription:
    """Topics by name or by pattern; false without either."""

    def __init__(
        self,
        topics: str | Iterable[str] | None = None,
        pattern: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Raises: ArgumentError for both, for invalid names, for an invalid pattern."""
        names = [topics] if isinstance(topics, str) else things("topics", topics or ())
        if names and pattern is not None:
            raise errors.ArgumentError("subscribe takes topics or a pattern, not both")
        for name in names:
            if not text("topics", name):
                raise errors.ArgumentError("topics: a name is empty")
        if pattern is not None and not isinstance(pattern, str):
            raise errors.ArgumentError(f"pattern: found {pattern!r}, wanted a regular expression")
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as problem:
            raise errors.ArgumentError(f"pattern {pattern!r}: {problem}") from None
        listeners = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        for word, listener in listeners.items():
            called(word, listener, AWAITS)
        self.topics = set(names)
        """With a pattern: those that `look` has found."""
        self._listeners = {
            "assigned": on_assigned,
            "revoked": on_revoked,
            "lost": on_revoked if on_lost is None else on_lost,
        }

    @property
    def pattern(self) -> bool:
        """True if its topics come from a pattern."""
        return self._pattern is not None

    @property
    def expression(self) -> str | None:
        """The pattern, as it was given."""
        return None if self._pattern is None else self._pattern.pattern

    def __bool__(self) -> bool:
        return bool(self.topics) or self._pattern is not None

    def wants(self, topic: str) -> bool:
        """True if it names the topic, or its pattern matches it."""
        if self._pattern is not None:
            return self._pattern.fullmatch(topic) is not None
        return topic in self.topics

    def look(self, cluster: Cluster, no_internal: bool) -> bool:
        """Look up the topics that match the pattern; returns whether they have changed."""
        if self._pattern is None:
            return False
        cluster.refresh(None)
        found = {
            name
            for name, info in cluster.topics.items()
            if self._pattern.fullmatch(name) and not (no_internal and info.internal)
        }
        changed, self.topics = found != self.topics, found
        return changed

    def tell(self, what: str, partitions: list[TopicPartition]) -> None:
        """Call a listener, if there is one: these partitions are read from now on (assigned; there
        may be no new ones), will be another member's (revoked), or may be already (lost)."""
        listener = self._listeners[what]
        if listener is not None:
            listener(partitions)
