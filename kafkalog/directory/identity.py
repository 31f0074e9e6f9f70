"""Whose a data directory is, and whether who writes into it agrees with its settings."""

from collections.abc import Mapping

from kafkalog.config.topic import TopicConfig
from kafkalog.directory.folders import Folders
from kafkalog.disk import layout
from kafkalog.errors import ArgumentError

__all__ = ["check_agrees", "identify"]


def identify(
    folders: Folders, mode: str, adopt: bool, node_id: int
) -> layout.MetaProperties | None:
    """What meta.properties says; in mode "w" it is made, with `node_id`, where there is none.

    Raises: CorruptLog; ArgumentError for partition folders without it, unless `adopt`.
    """
    directory = folders.directory
    data = directory.read(layout.META_PROPERTIES, 1 << 16)
    if data is not None:
        return layout.parse_meta_properties(data)
    if mode == "r":
        return None
    found = folders.partitions()
    if found and not adopt:
        name = folders.name(found[0])
        raise ArgumentError(
            f"{directory.path}: holds partition folders ({name}, ...) but no "
            f"{layout.META_PROPERTIES}; open it with mode='r', or take it over: "
            f"kafkalog adopt --dir {directory.path}"
        )
    meta = layout.new_meta_properties(node_id)
    directory.replace(layout.META_PROPERTIES, layout.render_meta_properties(meta))
    return meta


def check_agrees(path: str, config: Mapping[str, object] | None, known: TopicConfig) -> None:
    """Refuse settings that are others than those in effect for everybody who writes.

    Raises: ArgumentError; UnknownSetting, InvalidSetting.
    """
    asked = TopicConfig.of(config, known)
    for name in asked if asked != known else ():
        if asked[name] != known[name]:
            raise ArgumentError(
                f"{path}: {name}: found {asked[name]!r}, wanted {known[name]!r}, as the topic has "
                "it for everybody who writes"
            )
