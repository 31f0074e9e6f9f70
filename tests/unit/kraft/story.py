"""The steps in the life of a metadata log that the crash tests interrupt."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from kafkalog.directory.manager import Manager
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.metadata.configs import incremental_alter_configs
from kafkalog.metadata.image import INTERNAL_TOPICS, MetadataImage
from kafkalog.wire import apis
from tests.unit.metadata.conftest import request

ENDPOINT = ("PLAINTEXT", "127.0.0.1", 9092, 0)
MANY = 15
Report = Callable[..., None]


def summary(image: MetadataImage) -> dict[str, Any]:
    """The metadata that steps change, without values that differ between runs."""
    found = {
        "topics": {name: len(topic.partitions) for name, topic in sorted(image.topics.items())},
        "configs": sorted([kind, name, dict(sorted(values.items()))]
                          for (kind, name), values in image.configs.items()),
        "next": image.next_producer_id,
    }  # fmt: skip
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again


def create(metadata: MetadataLog, name: str, count: int, **configs: str) -> None:
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    asked = {"name": name, "num_partitions": count, "replication_factor": 1, "configs": settings}
    done(metadata.create_topics(request(apis.CREATE_TOPICS, topics=[asked])))


def delete(metadata: MetadataLog, name: str) -> None:
    done(metadata.delete_topics(request(apis.DELETE_TOPICS, 5, topic_names=[name])))


def grow(metadata: MetadataLog, name: str, count: int) -> None:
    asked = {"name": name, "count": count, "assignments": None}
    done(metadata.create_partitions(request(apis.CREATE_PARTITIONS, topics=[asked])))


def configure(metadata: MetadataLog, kind: int, name: str, **configs: str | None) -> None:
    changes = [
        {"name": key.replace("_", "."), "config_operation": int(value is None), "value": value}
        for key, value in configs.items()
    ]
    asked = {"resource_type": kind, "resource_name": name, "configs": changes}
    body = request(apis.INCREMENTAL_ALTER_CONFIGS, resources=[asked])
    static = metadata.manager.config
    done(metadata.alter(partial(incremental_alter_configs, asked=body, static=static)))


class Failed(Exception):
    """The answer to a step was an error."""


def done(results: list[dict[str, Any]]) -> None:
    for result in results:
        if result["error_code"]:
            raise Failed(result)


STEPS: list[Callable[[MetadataLog], Any]] = [
    lambda m: create(m, "first", 2, retention_ms="5"),
    lambda m: create(m, "second", 1),
    lambda m: m.allocate_producer_ids(),
    lambda m: configure(m, 2, "first", retention_ms=None, flush_ms="9"),
    lambda m: create(m, "many", MANY, preallocate="true"),  # a transaction in several batches
    lambda m: configure(m, 4, "", log_retention_ms="77"),
    lambda m: grow(m, "first", 4),
    lambda m: m.take_snapshot(),
    lambda m: delete(m, "second"),
    lambda m: create(m, "second", 3),
    lambda m: delete(m, "many"),
    lambda m: m.allocate_producer_ids(),
    lambda m: m.take_snapshot(),
    lambda m: grow(m, "second", 5),
]


def opened(path: Path) -> tuple[ExitStack, Manager, MetadataLog]:
    """Open the directory as a broker does."""
    with ExitStack() as stack:
        config = {"metadata.max.retention.bytes": 2000, "log.initial.task.delay.ms": 600_000}
        manager = stack.enter_context(Manager(path, config))
        metadata = stack.enter_context(MetadataLog.open(manager))
        metadata.batch_bytes = 700
        metadata.register([ENDPOINT])
        return stack.pop_all(), manager, metadata
    raise AssertionError


def life(
    report: Report, path: str, failpoint: str | None = None, after: int = 0, begin: int = 0
) -> None:
    """Run every step from `begin` on, and report the metadata after each."""
    from kafkalog import _native

    if failpoint is not None:
        _native.lib.kl_failpoint_set(failpoint.encode(), _native.lib.KL_FP_KILL, 0, after)
    stack, _, metadata = opened(Path(path))
    with stack:
        report("step", begin, summary(metadata.image))
        for number, step in enumerate(STEPS[begin:], begin + 1):
            step(metadata)
            report("step", number, summary(metadata.image))
    lib, ffi = _native.lib, _native.ffi
    names = [lib.kl_failpoint_name(i) for i in range(lib.kl_failpoint_count())]
    hits = {ffi.string(name).decode(): lib.kl_failpoint_hits(name) for name in names}
    report("hits", {name: count for name, count in hits.items() if count})


def check_folders(manager: Manager, metadata: MetadataLog) -> None:
    """Every partition has a folder with its topic's id, and there are no other folders."""
    image = metadata.image
    here = {tp for tp in manager.partitions() if tp.topic != "__cluster_metadata"}
    assert here == {
        (topic.name, partition.partition)
        for topic, partition in image.partitions()
        if topic.name not in INTERNAL_TOPICS
    }
    for tp in here:
        assert manager.folders.partition_id(tp) == image.topics[tp.topic].id
    assert not metadata.problems


def expected(path: Path) -> Iterator[dict[str, Any]]:
    """The metadata after each step of an uninterrupted life."""
    stack, manager, metadata = opened(path)
    with stack:
        yield summary(metadata.image)
        for step in STEPS:
            step(metadata)
            check_folders(manager, metadata)
            yield summary(metadata.image)
