"""The feature levels that are supported, and announced to clients."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.metadata.image import ELIGIBLE_REPLICAS, METADATA_VERSION

__all__ = ["GROUP_VERSION", "KRAFT_VERSION", "LEVEL", "LEVEL_MIN", "LEVEL_NEW", "SUPPORTED"]

LEVEL = 33
"""4.4-IV2, the newest metadata.version that we know."""
LEVEL_NEW = 27
"""The level of a new directory, 4.1-IV1: Kafka 4.1 and later can open it."""
LEVEL_MIN = 7
"""3.3-IV3, the oldest level that Kafka 4 supports."""
GROUP_VERSION = "group.version"
"""1: consumer groups whose members heartbeat (KIP-848)."""
KRAFT_VERSION = "kraft.version"
SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (LEVEL_MIN, LEVEL), ELIGIBLE_REPLICAS: (0, 1), KRAFT_VERSION: (0, 1),
    "transaction.version": (0, 2), GROUP_VERSION: (0, 1),
}  # fmt: skip
"""Features that are announced, and their levels."""
