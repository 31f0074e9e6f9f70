"""`kafkalog adopt`: take over a directory whose topics no metadata names."""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, add_dir, json_line, table

if TYPE_CHECKING:
    from kafkalog.kraft.kraftlog import MetadataLog

EXAMPLES = """\
example:
  kafkalog adopt --dir /var/lib/zookeeper-era-kafka --node-id 1
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_dir(parser, topic=False)
    parser.add_argument(
        "--node-id",
        type=int,
        metavar="N",
        help="the node's id, if meta.properties has none (then the default is 1)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the topics that would be adopted"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per topic")


def run(options: argparse.Namespace) -> int:
    """Write metadata for the topics in the directory."""
    import os

    from kafkalog.directory.identity import node_number
    from kafkalog.directory.manager import Manager
    from kafkalog.kraft import directory
    from kafkalog.kraft.kraftlog import MetadataLog

    try:
        os.scandir(options.dir).close()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{options.dir}: no such directory") from None
    if options.dry_run:
        return _preview(options.dir, options.json)
    with Manager(options.dir, mode="r") as reader:
        number = node_number(options.dir, reader.meta, options.node_id, clustered=False)
    with Manager(options.dir, adopt=True, node_id=None) as manager:
        check = partial(directory.check_adoptable, manager)
        try:
            metadata = MetadataLog.open(manager, adopt=True, number=number, check=check)
        except BaseException:
            manager.abandon()  # an orderly end would write, too
            raise
        with metadata:
            _print(metadata, options.dir, options.json)
    return 0


def _preview(directory: str, as_json: bool) -> int:
    from kafkalog.directory.manager import Manager
    from kafkalog.disk.layout import METADATA_TOPIC
    from kafkalog.errors import NotFound
    from kafkalog.kraft.kraftlog import MetadataLog

    with Manager(directory, mode="r") as manager:
        try:
            known = set(MetadataLog.open(manager).image.topics)
        except NotFound:
            known = set()
        found = [topic for topic in manager.topics() if topic not in {METADATA_TOPIC, *known}]
        counts = {topic: len(manager.partitions(topic)) for topic in found}
    if as_json:
        for topic, count in counts.items():
            print(json_line({"topic": topic, "folders": count}))
        return 0
    rows = [[topic, str(count)] for topic, count in counts.items()]
    print(table(["topic", "folders"], rows) if rows else f"{directory}: nothing to adopt")
    return 0


def _print(metadata: "MetadataLog", directory: str, as_json: bool) -> None:
    if as_json:
        for name, topic in sorted(metadata.image.topics.items()):
            if name in metadata.adopted:
                settings = dict(metadata.image.config(2, name))
                count = len(topic.partitions)
                print(json_line({"topic": name, "partitions": count, "settings": settings}))
        return
    rows = [
        [topic.name, str(len(topic.partitions)), ",".join(
            f"{name}={value}"
            for name, value in sorted(metadata.image.config(2, topic.name).items())
        )]
        for name, topic in sorted(metadata.image.topics.items())
        if name in metadata.adopted
    ]  # fmt: skip
    if not rows:
        print(f"{directory}: nothing to adopt")
        return
    print(table(["topic", "partitions", "settings"], rows, left=frozenset({0, 2})))
    print("Their records are kept until you set retention or cleanup.policy: kafkalog configs")
