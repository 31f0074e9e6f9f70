"""Checks that a single node may lead the metadata that it found, before it writes anything."""

from collections.abc import Callable

from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import MetaProperties
from kafkalog.errors import ArgumentError
from kafkalog.kraft import directory
from kafkalog.kraft.first_voter import voters_in
from kafkalog.kraft.loading import Loaded, known_epoch
from kafkalog.log.log import Log
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage

__all__ = ["check_leadable"]


def check_leadable(
    manager: Manager, log: Log, loaded: Loaded, meta: MetaProperties,
    check: Callable[[MetadataImage], None],
) -> None:  # fmt: skip
    """Refuse metadata that this node cannot lead, or that `check` refuses.

    Raises: ArgumentError (unknown records, or a cluster of several nodes); errors of `check`.
    """
    image = loaded.replay.image
    others = [one.key.id for one in voters_in(loaded) if one.key.id != meta.node_id]
    if others:
        raise ArgumentError(
            f"{log.path}: found voters {others} besides {meta.node_id}, wanted a directory of a "
            "single node: remove them with kafkalog quorum remove-controller"
        )
    loaded.check_known(log.path)
    directory.check_alone(image, meta)
    known_epoch(log, image, meta.node_id)
    if METADATA_VERSION not in image.features:
        check(directory.first_image(manager, meta))
    check(image)
