"""The feature levels that are supported, and announced to clients."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import ELIGIBLE_REPLICAS, METADATA_VERSION, MetadataImage

__all__ = [
    "FIRST_LEVELS",
    "GROUP_VERSION",
    "KRAFT_VERSION",
    "KRAFT_VERSION_SINCE",
    "LETTERS_SINCE",
    "LEVEL",
    "LEVEL_MIN",
    "LEVEL_NEW",
    "MAX_LEVELS",
    "RELEASES",
    "SHARE_VERSION",
    "STREAMS_VERSION",
    "SUPPORTED",
    "check_features",
    "supported_features",
]

LEVEL = 33
"""4.4-IV2, the newest metadata.version that we know."""
LEVEL_NEW = 27
"""The level of a new directory, 4.1-IV1: Kafka 4.1 and later can open it."""
LEVEL_MIN = 7
"""3.3-IV3, the oldest level that Kafka 4 supports."""
GROUP_VERSION = "group.version"
"""1: consumer groups whose members heartbeat (KIP-848)."""
SHARE_VERSION = "share.version"
"""1: share groups (KIP-932); 2: their dead letters (KIP-1191)."""
LETTERS_SINCE = 2
"""The first share.version with dead letters."""
STREAMS_VERSION = "streams.version"
"""1: streams groups (KIP-1071)."""
KRAFT_VERSION = "kraft.version"
KRAFT_VERSION_SINCE = 21
"""The first metadata.version with kraft.version 1: 3.9-IV0."""
SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (LEVEL_MIN, LEVEL), ELIGIBLE_REPLICAS: (0, 1), KRAFT_VERSION: (0, 1),
    "transaction.version": (0, 2), GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 2), STREAMS_VERSION: (0, 1),
}  # fmt: skip
"""Features that are announced, and their levels."""
RELEASES = (
    "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0",
    "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2",
    "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0", "4.4-IV1",
    "4.4-IV2",
)  # fmt: skip
"""Kafka's names of the levels of metadata.version, from 1 on."""
_SINCE: Mapping[str, tuple[int, ...]] = {
    ELIGIBLE_REPLICAS: (26,), GROUP_VERSION: (22,), SHARE_VERSION: (28, 31),
    STREAMS_VERSION: (29,), "transaction.version": (24, 24),
}  # fmt: skip
"""For each level of a feature, the metadata.version from which a new cluster has it.  Source:
`kafka-storage version-mapping` of Kafka 4.4.0."""
MAX_LEVELS: Mapping[str, int] = {
    KRAFT_VERSION: 1, **{name: len(since) for name, since in _SINCE.items()},
}  # fmt: skip
"""The highest level of each feature of Kafka 4.4, except metadata.version."""
FIRST_LEVELS: Mapping[int, Mapping[str, int]] = {
    level: MappingProxyType({
        METADATA_VERSION: level,
        **{name: sum(level >= one for one in since) for name, since in _SINCE.items()},
    })
    for level in range(LEVEL_MIN, LEVEL + 1)
}  # fmt: skip
"""The levels of a new cluster, by its metadata.version."""


def check_features(image: MetadataImage) -> None:
    """Refuse the levels of features that are not supported.

    Raises: ArgumentError.
    """
    for name, level in image.features.items():
        low, high = SUPPORTED.get(name, (0, 0))
        if not low <= level <= high:
            wanted = f"{low} to {high}" if high else "none: kafkalog does not know this feature"
            raise ArgumentError(f"{name}: found {level} in the cluster, wanted {wanted}")


def supported_features(image: MetadataImage) -> tuple[tuple[str, int, int], ...]:
    """(name, lowest level, highest level) of each feature, for the registration."""
    return tuple((name, *levels) for name, levels in SUPPORTED.items())
