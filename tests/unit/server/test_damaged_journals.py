"""Damage in `__consumer_offsets` and `__transaction_state` is reported; nothing is thrown away."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.coordinator.partitions import partition_for
from kafkalog.inspect.verify.files import verify
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import Client

OK = ErrorCode.NONE
TWO = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
NAMES = {n: [f"n{i}" for i in range(40) if partition_for(f"n{i}", 2) == n][:3] for n in (0, 1)}
"""Names by the partition that each belongs to."""
FIRST = f"{0:020d}.log"


def commit(raw: Raw, group: str) -> int:
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    found = raw.call(apis.OFFSET_COMMIT, 8, group_id=group,
                     topics=[{"name": "t", "partitions": [partition]}])  # fmt: skip
    return int(found.topics[0].partitions[0].error_code)


def filled(make_broker: MakeBroker) -> Path:
    """The directory of a closed broker, with groups and transactional ids in all partitions."""
    broker = make_broker(**TWO)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        raw.call(apis.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        for name in (*NAMES[0], *NAMES[1]):
            wait_for(lambda name=name: commit(raw, name) == OK, "a commit")
            Client(raw, name)
    broker.close()
    return Path(broker.path)


def damage(log: Path) -> tuple[int, int, str]:
    """Flip a bit in a middle batch's body; returns its offset, position, and the file's hash."""
    data = bytearray(log.read_bytes())
    headers = list(batches.headers(bytes(data)))
    batch = headers[len(headers) // 2]
    data[batch.pos + 75] ^= 1
    log.write_bytes(data)
    return batch.base_offset, batch.pos, hashlib.sha256(data).hexdigest()


KINDS = {
    "groups": ("__consumer_offsets-1", apis.LIST_GROUPS, "groups", "group_id"),
    "transactions": ("__transaction_state-1", apis.LIST_TRANSACTIONS, "transaction_states",
                     "transactional_id"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_and_nothing_is_lost(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    folder, api, field, name = KINDS[kind]
    directory = filled(make_broker)
    log = directory / folder / FIRST
    offset, pos, found = damage(log)
    report = verify([str(directory)])
    assert not report.clean
    assert any(one.file.startswith(str(log)) and one.position == pos for one in report.findings)
    broker = make_broker(**TWO)
    with Raw(broker.bootstrap_servers) as raw:
        gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
        wait_for(lambda: raw.call(api).error_code == gone, "the error is reported")
        listed = {getattr(one, name) for one in getattr(raw.call(api), field)}
        assert listed == set(NAMES[0]), "the other partition goes on"
        refused, served = _one(raw, kind, NAMES[1][0]), _one(raw, kind, NAMES[0][0])
        assert (refused, served) == (ErrorCode.NOT_COORDINATOR, OK)
    broker.close()
    lines = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(lines) == 1 and not lines[0].exc_info
    told = lines[0].getMessage()
    assert all(part in told for part in (str(log.parent), FIRST, f"offset {offset}",
               f"byte {pos}", "kafkalog verify", "kafkalog repair"))  # fmt: skip
    assert hashlib.sha256(log.read_bytes()).hexdigest() == found


def _one(raw: Raw, kind: str, name: str) -> int:
    if kind == "groups":
        return int(raw.call(apis.DESCRIBE_GROUPS, 5, groups=[name]).groups[0].error_code)
    asked = raw.call(apis.DESCRIBE_TRANSACTIONS, transactional_ids=[name])
    return int(asked.transaction_states[0].error_code)


def test_repaired_journals_are_served_again(
    make_broker: MakeBroker, kafkalog_repair: Callable[[Path], None]
) -> None:
    directory = filled(make_broker)
    damage(directory / "__consumer_offsets-1" / FIRST)
    kafkalog_repair(directory)
    assert verify([str(directory)]).clean
    broker: Broker = make_broker(**TWO)
    with Raw(broker.bootstrap_servers) as raw:
        wait_for(lambda: raw.call(apis.LIST_GROUPS).error_code == OK, "all is read")
        listed = {one.group_id for one in raw.call(apis.LIST_GROUPS).groups}
        assert set(NAMES[0]) < listed, "what is whole of the other one is there"


@pytest.fixture
def kafkalog_repair() -> Callable[[Path], None]:
    def repair(directory: Path) -> None:
        from kafkalog.cli import main

        assert main(["repair", str(directory), "--execute", "--yes"]) == 0

    return repair
