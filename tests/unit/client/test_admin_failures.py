"""Each item of an `Admin` call fails on its own, with the broker's message if it sends one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import (
    AclBinding,
    AclBindingFilter,
    Admin,
    UserScramCredentialDeletion,
    errors,
)
from kafkalog.client import calls
from kafkalog.client.link.failures import failure_class
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.notation import Field
from tests.support.scripted import CLOSE, Peer

QUICK = {"config": {"retry.backoff.ms": 1}}
WHY = "the broker says why"
REFUSED = {"error_code": int(ErrorCode.POLICY_VIOLATION), "error_message": WHY}
DONE = {"error_code": 0, "error_message": None}


def of_topics(key: str, rows: str, index: str) -> Any:
    """Part of an answer: partition 0 of topic `t` is refused, partition 1 succeeds."""
    parts = [{index: 0, **REFUSED}, {index: 1, **DONE}]
    return [{key: "t", rows: parts}]


def config(name: str) -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": name}


BOTH = [("t", 0), ("t", 1)]
MIXED: dict[Any, tuple[dict[str, Any], Callable[[Admin], Any]]] = {
    apis.CREATE_TOPICS: (
        {"topics": [{"name": "a", **REFUSED}, {"name": "b", **DONE}]},
        lambda admin: admin.create_topics(["a", "b"]),
    ),
    apis.DELETE_TOPICS: (
        {"responses": [{"name": "a", **REFUSED}, {"name": "b", **DONE}]},
        lambda admin: admin.delete_topics(["a", "b"]),
    ),
    apis.CREATE_PARTITIONS: (
        {"results": [{"name": "a", **REFUSED}, {"name": "b", **DONE}]},
        lambda admin: admin.create_partitions({"a": 2, "b": 2}),
    ),
    apis.DESCRIBE_CONFIGS: (
        {"results": [{**config("t"), **REFUSED}, {**config("u"), **DONE, "configs": []}]},
        lambda admin: admin.describe_configs([("topic", "t"), ("topic", "u")]),
    ),
    apis.INCREMENTAL_ALTER_CONFIGS: (
        {"responses": [{**config("t"), **REFUSED}, {**config("u"), **DONE}]},
        lambda admin: admin.alter_configs({("topic", "t"): {}, ("topic", "u"): {}}),
    ),
    apis.DESCRIBE_GROUPS: (
        {"groups": [{"group_id": "a", **REFUSED}, {"group_id": "b", **DONE}]},
        lambda admin: admin.describe_groups(["a", "b"]),
    ),
    apis.DELETE_GROUPS: (
        {"results": [{"group_id": "a", **REFUSED}, {"group_id": "b", **DONE}]},
        lambda admin: admin.delete_groups(["a", "b"]),
    ),
    apis.ALTER_SHARE_GROUP_OFFSETS: (
        {**DONE, "responses": of_topics("topic_name", "partitions", "partition_index")},
        lambda admin: admin.alter_share_group_offsets("g", dict.fromkeys(BOTH, 1)),
    ),
    apis.DELETE_SHARE_GROUP_OFFSETS: (
        {**DONE, "responses": [{"topic_name": "a", **REFUSED}, {"topic_name": "b", **DONE}]},
        lambda admin: admin.delete_share_group_offsets("g", ["a", "b"]),
    ),
    apis.DESCRIBE_PRODUCERS: (
        {"topics": of_topics("name", "partitions", "partition_index")},
        lambda admin: admin.describe_producers(BOTH),
    ),
    apis.ELECT_LEADERS: (
        {"error_code": 0,
         "replica_election_results": of_topics("topic", "partition_result", "partition_id")},
        lambda admin: admin.elect_leaders(BOTH),
    ),
    apis.ALTER_PARTITION_REASSIGNMENTS: (
        {**DONE, "responses": of_topics("name", "partitions", "partition_index")},
        lambda admin: admin.alter_partition_reassignments({tp: [1] for tp in BOTH}),
    ),
    apis.CREATE_ACLS: (
        {"results": [REFUSED, DONE]},
        lambda admin: admin.create_acls(
            [AclBinding("topic", name, "User:u", "read") for name in ("a", "b")]
        ),
    ),
    apis.DELETE_ACLS: (
        {"filter_results": [{**REFUSED, "matching_acls": []}, {**DONE, "matching_acls": []}]},
        lambda admin: admin.delete_acls([AclBindingFilter(name=name) for name in ("a", "b")]),
    ),
    apis.ALTER_CLIENT_QUOTAS: (
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "a"}], **REFUSED},
                     {"entity": [{"entity_type": "user", "entity_name": "b"}], **DONE}]},
        lambda admin: admin.alter_client_quotas(
            {(("user", name),): {"producer_byte_rate": 1.0} for name in ("a", "b")}
        ),
    ),
    apis.ALTER_USER_SCRAM_CREDENTIALS: (
        {"results": [{"user": "a", **REFUSED}, {"user": "b", **DONE}]},
        lambda admin: admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion(name, "SCRAM-SHA-256") for name in ("a", "b")]
        ),
    ),
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        {**DONE, "results": [{"user": "a", **REFUSED, "credential_infos": []},
                             {"user": "b", **DONE, "credential_infos": []}]},
        lambda admin: admin.describe_user_scram_credentials(["a", "b"]),
    ),
}  # fmt: skip


@pytest.fixture
def broker(peer: Peer) -> Peer:
    """A broker with topics t and u that coordinates every group."""
    peer.on(apis.METADATA, peer.metadata({"t": 2, "u": 1}))
    at = {"node_id": 1, "host": "127.0.0.1", "port": peer.port}
    peer.on(apis.FIND_COORDINATOR, lambda request, version: {
        "coordinators": [{"key": key, **at} for key in request.coordinator_keys]
    })  # fmt: skip
    return peer


@pytest.mark.parametrize("api", MIXED, ids=lambda api: str(api.name))
def test_one_things_failure_has_the_brokers_words_and_is_its_own(broker: Peer, api: Any) -> None:
    answer, ask = MIXED[api]
    broker.on(api, answer)
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        results = ask(admin)
    refused, done = results.errors, results.done
    assert len(refused) == len(done) == 1
    (problem,) = refused.values()
    assert problem.code == ErrorCode.POLICY_VIOLATION
    assert str(problem).endswith(f": POLICY_VIOLATION: {WHY}")


@pytest.mark.parametrize("first", [CLOSE, ErrorCode.REQUEST_TIMED_OUT, None])
def test_a_topic_that_an_attempt_without_an_answer_may_have_created(
    broker: Peer, first: object
) -> None:
    """The caller learns that it may be its own."""
    exists = {"topics": [{"name": "a", "error_code": ErrorCode.TOPIC_ALREADY_EXISTS}]}
    late = {"topics": [{"name": "a", "error_code": first}]}
    broker.on(apis.CREATE_TOPICS, *([] if first is None else [first if first is CLOSE else late]),
              exists)  # fmt: skip
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        problem = admin.create_topics(["a"]).errors["a"]
    assert isinstance(problem, errors.TopicExists)
    assert ("may have created it" in str(problem)) == (first is not None)


def worded(fields: Iterable[Field], within: bool = False) -> bool:
    """True if a list among the fields, at any depth, has an error message per item."""
    return any(
        (within and one.name == "error_message") or worded(one.fields, True) for one in fields
    )


def test_each_call_that_has_the_brokers_words_is_tried_here() -> None:
    text = "".join(path.read_text() for path in Path(calls.__path__[0]).glob("*.py"))
    used = {found for found in re.findall(r"\bapis\.(\w+)", text) if hasattr(apis, found)}
    asked = {api for name in used if isinstance(api := getattr(apis, name), Api)}
    found = {api.name for api in asked if worded(api.response.fields)}
    # The quorum is a single item, and so is a group's description of offsets.
    assert found - {"DescribeQuorum", "DescribeShareGroupOffsets"} == {
        api.name
        for api in (
            *MIXED, apis.UPDATE_FEATURES, apis.CONSUMER_GROUP_DESCRIBE, apis.SHARE_GROUP_DESCRIBE,
            apis.STREAMS_GROUP_DESCRIBE,
        )
    }  # fmt: skip


def test_a_group_of_the_newer_protocol_has_its_own_error(broker: Peer) -> None:
    """DescribeGroups says that it is no classic group; then the newer request says more."""
    missing = {"error_code": ErrorCode.GROUP_ID_NOT_FOUND}
    broker.on(apis.DESCRIBE_GROUPS, {
        "groups": [{"group_id": name, **missing} for name in ("a", "b", "c")],
    })  # fmt: skip
    broker.on(apis.CONSUMER_GROUP_DESCRIBE, {"groups": [
        {"group_id": "a", **REFUSED}, {"group_id": "b", **DONE, "group_state": "Empty"},
        {"group_id": "c", **missing},
    ]})  # fmt: skip
    for api in (apis.SHARE_GROUP_DESCRIBE, apis.STREAMS_GROUP_DESCRIBE):
        broker.on(api, {"groups": [{"group_id": "c", **missing}]})
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        results = admin.describe_groups(["a", "b", "c"])
    assert {name: one.state for name, one in results.done.items()} == {"b": "Empty", "c": "Dead"}
    assert str(results.errors["a"]) == f"group 'a': POLICY_VIOLATION: {WHY}"


def test_an_update_of_features_has_each_ones_error(broker: Peer) -> None:
    """Before Kafka 4, each feature has its own result, with any error."""
    broker.versions[apis.UPDATE_FEATURES] = (0, 1)
    broker.on(apis.UPDATE_FEATURES, {**DONE, "results": [
        {"feature": "a", **REFUSED}, {"feature": "b", **DONE},
    ]})  # fmt: skip
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        results = admin.update_features({"a": 1, "b": 2})
    assert results.done == {"b": None}
    assert isinstance(results.errors["a"], failure_class(ErrorCode.POLICY_VIOLATION))
    assert str(results.errors["a"]) == f"feature 'a': POLICY_VIOLATION: {WHY}"


def test_an_old_broker_refuses_topic_ids_and_takes_names(broker: Peer) -> None:
    broker.versions[apis.DELETE_TOPICS] = (1, 5)
    broker.on(apis.DELETE_TOPICS, {"responses": [{"name": "t", **DONE}]})
    some_id = UUID(int=7)
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        results = admin.delete_topics(["t", some_id])
    assert results.done == {"t": None}
    assert isinstance(results.errors[some_id], errors.UnsupportedVersion)
    assert broker.sent(apis.DELETE_TOPICS)[0].topic_names == ["t"]


def test_an_old_broker_finds_the_times_that_it_knows(broker: Peer) -> None:
    broker.versions[apis.LIST_OFFSETS] = (1, 6)
    found = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 5}
    broker.on(apis.LIST_OFFSETS, {"topics": [{"name": "t", "partitions": [found]}]})
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        results = admin.list_offsets({("t", 0): "latest", ("t", 1): "max_timestamp"})
    assert results["t", 0].offset == 5
    assert isinstance(results.errors["t", 1], errors.UnsupportedVersion)


def test_a_producer_that_was_fenced_is_so_whatever_the_next_one_meets(broker: Peer) -> None:
    """Each producer gets its own request; an answered one is not sent again."""
    fenced = {"error_code": 0, "producer_id": 7, "producer_epoch": 1}
    refused = {"error_code": int(ErrorCode.INVALID_REQUEST), "producer_id": -1,
               "producer_epoch": -1}  # fmt: skip
    broker.on(apis.INIT_PRODUCER_ID, fenced, CLOSE, refused)
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        results = admin.fence_producers(["a", "b"])
    assert results["a"].producer_id == 7
    assert results.errors["b"].code == ErrorCode.INVALID_REQUEST
    assert [one.transactional_id for one in broker.sent(apis.INIT_PRODUCER_ID)] == ["a", "b", "b"]


def test_an_acl_that_was_not_deleted_is_a_failure(broker: Peer) -> None:
    """Even if its filter was applied, and other ACLs were deleted."""
    acl = {"resource_type": 2, "resource_name": "t", "pattern_type": 3, "principal": "User:a",
           "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    matching = [{**acl, **DONE}, {**acl, "operation": 4, **REFUSED}]
    broker.on(apis.DELETE_ACLS, {"filter_results": [{**DONE, "matching_acls": matching}]})
    one = AclBindingFilter("topic", "t")
    with Admin(broker.servers, **QUICK) as admin:  # type: ignore[arg-type]
        results = admin.delete_acls([one])
    assert results.errors[one].code == ErrorCode.POLICY_VIOLATION
    assert WHY in str(results.errors[one])
