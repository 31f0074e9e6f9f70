"""A whole KRaft directory: its topics, its metadata log, and a folder to be deleted."""

import json

import pytest

import kafkalog
from kafkalog.directory.manager import Manager
from kafkalog.metadata.image import INTERNAL_TOPICS
from tests.support import batches, kafka_data

DIRECTORIES = [
    (case, directory)
    for case, directory in kafka_data.data_directories()
    if (directory / "__cluster_metadata-0").is_dir()
]
CASES = pytest.mark.parametrize("case, directory", DIRECTORIES, ids=[c for c, _ in DIRECTORIES])


def metadata(directory):
    return json.loads((directory.parent / "expected" / "metadata.json").read_text())


@CASES
def test_partitions_are_those_of_the_metadata(case, directory, writable):
    """And the log of the metadata itself; a folder that ends in -delete is no partition."""
    topics = metadata(directory)["topics"]
    expected = {(name, i) for name, topic in topics.items() for i in range(topic["partitions"])}
    expected.add(("__cluster_metadata", 0))
    untold = {*INTERNAL_TOPICS} - {*topics}
    with Manager(directory, mode="r") as manager:
        assert {tp for tp in manager.partitions() if tp.topic not in untold} == expected
    with Manager(writable(directory)) as manager:
        assert {tp for tp in manager.partitions() if tp.topic not in untold} == expected


@CASES
def test_ends_are_those_of_the_metadata(case, directory):
    for topic, ends in metadata(directory)["ends"].items():
        for number, (start, end) in enumerate(ends):
            with kafkalog.Log(directory / f"{topic}-{number}", mode="r") as log:
                assert (log.start_offset, log.end_offset) == (start, end)
                assert log.high_watermark == end


@CASES
def test_the_metadata_log_reads_as_a_log(case, directory):
    """Every data record of its batches, in order; control records are not shown."""
    path = directory / "__cluster_metadata-0"
    expected = []
    for file in sorted(path.glob("*.log")):
        for header in batches.headers(file.read_bytes()):
            if not header.attributes & batches.CONTROL:
                expected += range(header.base_offset, header.last_offset + 1)
    with kafkalog.Log(path, mode="r") as log:
        records = list(log.read())
        assert [r.offset for r in records] == expected
        assert all(r.key is None and r.value for r in records)
        assert log.verify().clean
