"""Retention: deletes expired segments, in logs that are open and in those that are not."""

from itertools import groupby

from kafkalog.config.topic import TopicConfig
from kafkalog.directory.jobs.place import Place, each
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.log.removal import apply_retention

__all__ = ["retain", "retains"]


def retains(config: TopicConfig) -> bool:
    """True if any setting lets segments be deleted."""
    limited = config.retention_ms >= 0 or config.retention_bytes >= 0
    return limited and "delete" in config.cleanup_policy


def retain(place: Place) -> None:
    """Delete expired segments in every log whose settings delete, open or not."""
    # Always in open logs: they may have segments below their log start.
    wanted = {log.tp for log in place.handles()}
    for topic, tps in groupby(place.partitions(), lambda tp: tp.topic):
        if topic != METADATA_TOPIC and retains(place.topic_config(topic)):
            wanted.update(tp for tp in tps if tp not in wanted and place.folders.written(tp))
    now_ms = place.clock.now_ms()
    each(place, sorted(wanted), lambda tp: apply_retention(place.handle(tp), now_ms))
