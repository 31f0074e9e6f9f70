"""Permissions that are lost on the way, and requests that try to get around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import authorization, batches
from tests.support.authorization_requests import (
    ALLOW,
    DESCRIBE,
    GROUP,
    LITERAL,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from tests.support.raw import Raw
from tests.support.waiting import wait_for

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
USER = "nothing"
SIMPLE = {"generation_id_or_member_epoch": -1, "member_id": ""}
OFFSET = {"partitions": [{"partition_index": 0, "committed_offset": 1}]}

Change = Callable[[int, str, int], None]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker whose users have no permissions, with the topics `t` and `secret`."""
    config = {**authorization.settings(), "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
              "group.initial.rebalance.delay.ms": 300}  # fmt: skip
    with Broker(tmp_path / "data", config=config) as broker:
        with authorization.connect(broker.bootstrap_servers, authorization.ADMIN) as admin:
            assert admin.create("t").error_code == admin.create("secret").error_code == 0
        yield broker.bootstrap_servers


@pytest.fixture
def admin(address: str) -> Iterator[Raw]:
    with authorization.connect(address, authorization.ADMIN) as connection:
        yield connection


@pytest.fixture
def user(address: str) -> Iterator[Raw]:
    with authorization.connect(address, USER) as connection:
        yield connection


@pytest.fixture
def grant(admin: Raw) -> Change:
    def change(kind: int, name: str, operation: int) -> None:
        one = {"resource_type": kind, "resource_name": name, "resource_pattern_type": LITERAL,
               "principal": f"User:{USER}", "host": "*", "operation": operation,
               "permission_type": ALLOW}  # fmt: skip
        assert admin.call(apis.CREATE_ACLS, 3, creations=[one]).results[0].error_code == 0

    return change


@pytest.fixture
def revoke(admin: Raw) -> Change:
    def change(kind: int, name: str, operation: int) -> None:
        one = {"resource_type_filter": kind, "resource_name_filter": name,
               "pattern_type_filter": LITERAL, "principal_filter": f"User:{USER}",
               "host_filter": None, "operation": operation, "permission_type": ALLOW}  # fmt: skip
        (found,) = admin.call(apis.DELETE_ACLS, 3, filters=[one]).filter_results
        assert len(found.matching_acls) == 1

    return change


def await_coordinator(raw: Raw, kind: int, key: str) -> None:
    def ready() -> bool:
        found = raw.call(apis.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key])
        if found.coordinators[0].error_code or kind:
            return not found.coordinators[0].error_code
        described: Any = raw.call(
            apis.DESCRIBE_GROUPS, 5, groups=[key], include_authorized_operations=False
        )
        return described.groups[0].error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    wait_for(ready, "the coordinator, which has read its partition")


def join(raw: Raw, member_id: str) -> int:
    return raw.send(apis.JOIN_GROUP, 9, {
        "group_id": "g", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
        "member_id": member_id, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}]})  # fmt: skip


def test_a_member_that_loses_its_group(
    user: Raw, admin: Raw, grant: Change, revoke: Change
) -> None:
    """A JoinGroup that is parked is still answered; the next request is refused."""
    await_coordinator(admin, 0, "g")
    grant(GROUP, "g", READ)
    join(user, "")
    member_id = user.receive(apis.JOIN_GROUP, 9).member_id
    join(user, member_id)

    def joins() -> bool:
        (found,) = admin.call(apis.DESCRIBE_GROUPS, 4, groups=["g"]).groups
        return bool(found.members)

    wait_for(joins, "the member joins")
    revoke(GROUP, "g", READ)
    joined = user.receive(apis.JOIN_GROUP, 9)
    assert joined.error_code == ErrorCode.NONE
    claim = {"group_id": "g", "generation_id": joined.generation_id, "member_id": member_id}
    synced = user.call(apis.SYNC_GROUP, 5, **claim, protocol_type="consumer", protocol_name="range")
    assert synced.error_code == GROUP_DENIED
    assert user.call(apis.HEARTBEAT, 4, **claim).error_code == GROUP_DENIED


def test_a_fetch_session_that_loses_a_topic(
    user: Raw, admin: Raw, grant: Change, revoke: Change
) -> None:
    """The session's next fetch refuses the topic."""
    assert admin.produce("t", b"v").error_code == 0
    grant(TOPIC, "t", READ)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000}
    first = user.call(apis.FETCH, 12, **body, session_id=0, session_epoch=0,
                      topics=[{"topic": "t", "partitions": [part]}])  # fmt: skip
    assert first.responses[0].partitions[0].error_code == 0
    assert first.session_id
    revoke(TOPIC, "t", READ)
    second = user.call(apis.FETCH, 12, **body, session_id=first.session_id, session_epoch=1)
    assert second.responses[0].partitions[0].error_code == TOPIC_DENIED
    assert not second.responses[0].partitions[0].records


def test_a_transaction_that_loses_its_rights(
    user: Raw, admin: Raw, grant: Change, revoke: Change
) -> None:
    """Each request of a transaction is checked, also once it is open."""
    for kind, name, operation in (
        (TRANSACTIONAL_ID, "id", WRITE), (TOPIC, "t", WRITE), (TOPIC, "t", READ), (GROUP, "g", READ)
    ):  # fmt: skip
        grant(kind, name, operation)
    await_coordinator(user, 1, "id")

    def begin() -> Any:
        """None while the coordinator loads its partition."""
        answer = user.call(
            apis.INIT_PRODUCER_ID, 4, transactional_id="id", transaction_timeout_ms=60_000
        )
        loads = answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return None if loads else answer

    found = wait_for(begin, "the coordinator has loaded")
    assert found.error_code == 0
    claim = {"transactional_id": "id", "producer_id": found.producer_id,
             "producer_epoch": found.producer_epoch}  # fmt: skip

    def add() -> int:
        answer = user.call(
            apis.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="id",
            v3_and_below_producer_id=found.producer_id,
            v3_and_below_producer_epoch=found.producer_epoch,
            v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )  # fmt: skip
        (topic,) = answer.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def produce(sequence: int) -> int:
        data = batches.batch(
            [batches.Row(b"v")], transactional=True, base_sequence=sequence,
            producer_id=found.producer_id, producer_epoch=found.producer_epoch,
        )  # fmt: skip
        entry = {"name": "t", "partition_data": [{"index": 0, "records": data}]}
        answer = user.call(apis.PRODUCE, 11, transactional_id="id", acks=-1, timeout_ms=30_000,
                           topic_data=[entry])  # fmt: skip
        return int(answer.responses[0].partition_responses[0].error_code)

    def commit_offset() -> int:
        answer = user.call(apis.TXN_OFFSET_COMMIT, 3, **claim, **SIMPLE, group_id="g",
                           topics=[{"name": "t", **OFFSET}])  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    assert (add(), produce(0)) == (0, 0)
    revoke(TOPIC, "t", WRITE)
    assert (add(), produce(1)) == (TOPIC_DENIED, TOPIC_DENIED)
    revoke(GROUP, "g", READ)
    assert commit_offset() == GROUP_DENIED
    assert user.call(apis.ADD_OFFSETS_TO_TXN, 3, **claim, group_id="g").error_code == GROUP_DENIED
    revoke(TRANSACTIONAL_ID, "id", WRITE)
    assert (add(), produce(1), commit_offset()) == (ID_DENIED, ID_DENIED, ID_DENIED)
    assert user.call(apis.END_TXN, 3, **claim, committed=True).error_code == ID_DENIED
    grant(TRANSACTIONAL_ID, "id", WRITE)
    assert user.call(apis.END_TXN, 3, **claim, committed=False).error_code == 0


@pytest.mark.parametrize("acks", [1, 0])
def test_batches_that_python_appends(user: Raw, admin: Raw, grant: Change, acks: int) -> None:
    """A topic with a codec of its own is written by Python: the other topic of the request is
    refused there, and with acks=0 the connection is closed."""
    assert admin.create("zipped", compression_type="gzip").error_code == 0
    grant(TOPIC, "zipped", WRITE)
    batch = batches.batch([batches.Row(b"v", b"k")])
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]}
            for name in ("secret", "zipped")]  # fmt: skip
    user.send(apis.PRODUCE, 9, {"acks": acks, "timeout_ms": 30_000, "topic_data": data})
    if acks:
        found = user.receive(apis.PRODUCE, 9)
        codes = {one.name: one.partition_responses[0].error_code for one in found.responses}
        assert codes == {"secret": TOPIC_DENIED, "zipped": 0}
    else:
        with pytest.raises(ConnectionError):
            user.receive_frame()
    assert admin.offsets("zipped", -1).offset == 1
    assert admin.offsets("secret", -1).offset == 0


def test_an_id_next_to_a_name(user: Raw, admin: Raw, grant: Change) -> None:
    """The name of a permitted topic does not let the id of another one pass."""
    grant(TOPIC, "t", DESCRIBE)
    topics = admin.call(apis.METADATA, 12, topics=None).topics
    ids = {one.name: one.topic_id for one in topics}
    asked = [{"name": "t", "topic_id": ids["secret"]}, {"name": "secret", "topic_id": ids["t"]}]
    refused, shown = sorted(
        user.call(apis.METADATA, 12, topics=asked).topics, key=lambda one: -one.error_code
    )
    assert (refused.error_code, refused.name, refused.topic_id) == (TOPIC_DENIED, None,
                                                                    ids["secret"])  # fmt: skip
    assert (shown.error_code, shown.name, shown.topic_id) == (0, "t", ids["t"])
    (found,) = user.call(
        apis.METADATA, 10, topics=[{"name": "secret", "topic_id": ids["t"]}]
    ).topics
    assert (found.error_code, found.partitions) == (TOPIC_DENIED, [])


def test_a_group_named_twice(user: Raw, admin: Raw, grant: Change) -> None:
    """Offsets of a topic that may not be described stay hidden, however often a group is named."""
    topics = [{"name": name, **OFFSET} for name in ("t", "secret")]
    await_coordinator(admin, 0, "g")
    done: Any = admin.call(apis.OFFSET_COMMIT, 9, group_id="g", topics=topics, **SIMPLE)
    assert [one.partitions[0].error_code for one in done.topics] == [0, 0]
    grant(GROUP, "g", DESCRIBE)
    grant(TOPIC, "t", DESCRIBE)
    for wanted in ([None, []], [[], None], [None, None]):
        groups = [{"group_id": "g", "topics": one, "member_epoch": -1} for one in wanted]
        found = user.call(apis.OFFSET_FETCH, 9, groups=groups).groups
        assert {topic.name for group in found for topic in group.topics} <= {"t"}
