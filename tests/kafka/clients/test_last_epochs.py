"""Producers of version 2 whose transactions use up the epochs of their producer id: they continue
with another id, and nothing is lost or duplicated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.transactions.records import status_record
from kafkalog.coordinator.transactions.transaction import EPOCH_MAX, Status
from tests.kafka.clients.agent import Agent, Record
from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.kafka.clients.test_transactions import COUNT, read, values
from tests.support.waiting import wait_for

CLIENTS = ("java", "franz-go")
WAIT_S = 60.0
LOG = "__transaction_state"
LEFT = 5
"""Epochs left of the producer id: fewer than a transform has transactions."""

Wait = Callable[..., None]
pytestmark = [pytest.mark.java, pytest.mark.long]


def identity(bootstrap: str, name: str) -> tuple[int, int]:
    """Producer id and epoch of a transactional id, once it has no ongoing transaction."""
    with kafkalog.Admin(bootstrap) as admin:

        def over() -> bool:
            found.append(admin.describe_transactions([name])[name])
            return found[-1].state.startswith(("Complete", "Empty"))

        found: list[kafkalog.client.calls.transactions.TransactionInfo] = []
        wait_for(over, f"{name}: its end", WAIT_S)
        return found[-1].producer_id, found[-1].epoch


def leave_few_epochs(directory: Path, name: str, producer_id: int) -> None:
    """Write a high epoch into the journal of a stopped broker."""
    partition = partition_for(name, 2)
    status = Status(producer_id, EPOCH_MAX - LEFT, 60_000, version=2)
    ((key, value),) = [status_record(name, status, 2)]
    with kafkalog.Log(directory / f"{LOG}-{partition}") as log:
        log.append(value, key=key)


def test_transactions_go_on_behind_the_last_epoch(
    own_broker: Server, new_agent: Callable[..., Agent], wait_until: Wait
) -> None:
    wait_until(own_broker.answers, "the broker takes connections", WAIT_S)
    admin = Admin(own_broker.bootstrap)
    admin.until_ready()
    sent = [Record(None, value) for value in values()]
    agents = {name: new_agent(name, own_broker.bootstrap) for name in CLIENTS}
    for name, agent in agents.items():
        admin.create(f"{name}-in", 1, {})
        admin.create(f"{name}-out", 1, {})
        agent.produce(f"{name}-in", sent)
        # One transaction, so that there is an id.
        agent.ask("transform", source=f"{name}-in", target=f"{name}-out", group=name, count=1)
    before = {name: identity(own_broker.bootstrap, name) for name in CLIENTS}
    own_broker.stop()
    for name, (producer_id, _) in before.items():
        leave_few_epochs(own_broker.directory, name, producer_id)
    own_broker.start()
    wait_until(own_broker.answers, "the broker is back", WAIT_S)
    Admin(own_broker.bootstrap).until_ready()
    for name, agent in agents.items():
        rest = {"source": f"{name}-in", "target": f"{name}-out", "count": COUNT - 10}
        assert agent.ask("transform", group=name, **rest)["tries"] > LEFT
        assert read(own_broker.bootstrap, f"{name}-out", "read_committed", COUNT) == values()
        producer_id, epoch = identity(own_broker.bootstrap, name)
        assert producer_id != before[name][0] and epoch < 20
