"""The difference between two images of the metadata."""

from __future__ import annotations

from kafkalog.metadata.image import Change, MetadataImage

__all__ = ["difference"]


def difference(old: MetadataImage, new: MetadataImage) -> Change:
    """The change between two images that no records connect."""
    changed = tuple(one for name, one in new.topics.items() if old.topics.get(name) != one)
    gone = tuple(one for one in old.topics.values() if one.id not in new.names)
    resources = [key for key in {**old.configs, **new.configs}
                 if old.config(*key) != new.config(*key)]  # fmt: skip
    return Change(old, new, changed, gone, tuple(resources))
