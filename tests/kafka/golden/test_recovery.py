"""Recovery of a killed broker's directory gives the same result as Kafka's own recovery.

Each variant is damage to the same killed broker; expected/recovered.json is Kafka's result.  The
records are the first ones of those read from the undamaged files.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.directory.manager import Manager
from tests.support import batches, kafka_data, trees
from tests.support.answers import as_expected


class Recovered(NamedTuple):
    """Kafka's result for one partition of one variant."""

    partition: kafka_data.Partition
    answer: dict[str, Any]


@lru_cache(maxsize=1)
def recovered():
    found = []
    for case, directory in kafka_data.unclean_directories():
        answers = json.loads((directory.parent / "expected" / "recovered.json").read_text())
        for answer in answers:
            folder = f"{answer['topic']}-{answer['partition']}"
            found.append(Recovered(kafka_data.Partition(case, directory, folder), answer))
    return found


def undamaged(partition):
    """The expected records of this case's directory, killed but not damaged."""
    cases = partition.directory.parent.parent.iterdir()
    (whole,) = [case for case in cases if (case / "expected" / "records.jsonl").exists()]
    return partition._replace(directory=whole / partition.directory.name)


def read_until_failure(log, isolation):
    """The records up to the end or the first damaged batch, and that failure."""
    records = []
    try:
        records.extend(as_expected(record) for record in log.read(isolation=isolation))
    except kafkalog.errors.CorruptMessage as failure:
        return records, failure
    return records, None


def without_epoch(records):
    return [record._replace(leader_epoch=None) for record in records]


def valid_bytes(path):
    """The end of a .log's batches: a preallocated file continues with zeros."""
    data = path.read_bytes()
    end = 0
    for header in batches.headers(data):
        end = header.pos + header.batch_bytes
    return end


@pytest.fixture(scope="module")
def recover(tmp_path_factory):
    """From a data directory to (copy, each log's answers while its manager was open)."""
    done = {}

    def recover_once(directory):
        if directory not in done:
            copy = trees.copy_tree(directory, tmp_path_factory.mktemp("unclean") / "log")
            with Manager(copy) as manager:
                logs = {f"{tp.topic}-{tp.partition}": tp for tp in manager.partitions()}
                answers = {folder: _answers(manager.get(*tp)) for folder, tp in logs.items()}
            done[directory] = copy, answers
        return done[directory]

    return recover_once


def _answers(log):
    uncommitted, failure = read_until_failure(log, "read_uncommitted")
    committed, _ = read_until_failure(log, "read_committed")
    return {
        "log_start_offset": log.start_offset,
        "log_end_offset": log.end_offset,
        "last_stable_offset": log.last_stable_offset,
        "read_fails_at_offset": None if failure is None else damaged_offset(log, failure),
        "records": len(uncommitted),
        "last_record_offset": uncommitted[-1].offset if uncommitted else None,
        "records_read_committed": len(committed),
        "leader_epochs": [f"{e.epoch} {e.start_offset}" for e in log.epochs],
        "producers": [
            {
                "producer_id": p.producer_id,
                "producer_epoch": p.producer_epoch,
                "last_sequence": p.last_sequence,
                "txn_start_offset": None if p.txn_start_offset < 0 else p.txn_start_offset,
            }
            for p in log.producers
        ],
        "_uncommitted": uncommitted,
        "_committed": committed,
    }


def damaged_offset(log, failure):
    """The base offset of the first batch with a wrong CRC, which the failure names."""
    for path in sorted(Path(log.path).glob("*.log")):
        data = path.read_bytes()
        for header in batches.headers(data):
            if not batches.crc_is_right(data, header):
                named = (f"offset {header.base_offset}", f"byte {header.pos}")
                assert any(place in str(failure) for place in named), failure
                with pytest.raises(kafkalog.errors.CorruptMessage):
                    next(log.read(start=header.base_offset))
                return header.base_offset
    raise AssertionError(f"{failure} although every batch is right")


CASES = pytest.mark.parametrize(
    "case", recovered(), ids=[f"{c.partition.name}" for c in recovered()]
)


@CASES
def test_recovery_equals_kafkas(case, recover):
    copy, answers = recover(case.partition.directory)
    found = answers[case.partition.folder]
    expected = dict(case.answer)
    topic_and_number = expected.pop("topic"), expected.pop("partition")
    assert topic_and_number == (case.partition.topic, case.partition.number)
    expected["producers"] = sorted(expected["producers"], key=lambda p: p["producer_id"])
    log_bytes = expected.pop("log_bytes")
    assert {k: v for k, v in found.items() if not k.startswith("_")} == expected

    logs = sorted((copy / case.partition.folder).glob("*.log"))
    assert {path.name: valid_bytes(path) for path in logs} == log_bytes


@CASES
def test_the_records_are_the_first_that_were_written(case, recover):
    found = recover(case.partition.directory)[1][case.partition.folder]
    for committed in (False, True):
        records = found["_committed" if committed else "_uncommitted"]
        written = kafka_data.expected_records(undamaged(case.partition), committed)
        assert without_epoch(records) == without_epoch(written[: len(records)])


@CASES
def test_a_second_start_finds_nothing_to_repair(case, recover):
    """The directory was closed cleanly: the same answers, and no file is rewritten.

    Files that recovery dropped have the suffix .deleted, and are removed now.
    """
    copy, answers = recover(case.partition.directory)
    path = copy / case.partition.folder
    before = {n: f for n, f in trees.fingerprint(path).items() if not n.endswith(".deleted")}
    with kafkalog.Log(path) as log:
        again = _answers(log)
    assert again == answers[case.partition.folder]
    assert trees.fingerprint(path) == before


@CASES
def test_a_reader_of_the_killed_directory_writes_nothing(case):
    """mode="r" on the read-only folder: it never reads a record that recovery would drop."""
    found = case.answer
    with kafkalog.Log(case.partition.path, mode="r") as log:
        records, _ = read_until_failure(log, "read_uncommitted")
        assert log.start_offset == found["log_start_offset"]
        assert log.end_offset == found["log_end_offset"]
    written = kafka_data.expected_records(undamaged(case.partition))
    assert without_epoch(records) == without_epoch(written[: found["records"]])
