"""Wrong arguments of every public method of the clients, generated from their signatures."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog import Broker, aio
from kafkalog.errors import ArgumentError, KafkalogError

ABSURD: list[Any] = [
    None, True, -1, 1.5, float("nan"), 1 << 70, "x", b"x", [], {}, object(), (1,), [None], "\ud800",
    {"x": object()}, {("t", 0): object()}, [("t", -1)], {None: None},
]  # fmt: skip
TP = ("t", 0)
RIGHT: dict[str, dict[str, Any]] = {
    "create_topics": {"topics": ["t"]},
    "delete_topics": {"topics": ["none"]},
    "describe_topics": {"names": ["t"]},
    "create_topic": {"name": "t"},
    "delete_topic": {"name": "none"},
    "create_partitions": {"counts": {"t": 1}},
    "delete_records": {"before": {TP: 0}},
    "list_offsets": {"times": {TP: "latest"}},
    "describe_configs": {"resources": [("topic", "t")]},
    "alter_configs": {"changes": {}},
    "list_group_offsets": {"group": "g"},
    "alter_group_offsets": {"group": "g", "offsets": {}},
    "delete_group_offsets": {"group": "g", "partitions": []},
    "list_share_group_offsets": {"group": "g"},
    "alter_share_group_offsets": {"group": "g", "offsets": {}},
    "delete_share_group_offsets": {"group": "g", "topics": []},
    "describe_streams_groups": {"groups": ["g"]},
    "remove_group_members": {"group": "g"},
    "abort_transaction": {"partition": TP, "producer_id": 1, "producer_epoch": 0},
    "unregister_broker": {"node": 7},
    "unregister_controller": {"node": 7},
    "add_raft_voter": {"node": 7, "directory_id": UUID(int=7), "endpoints": [("C", "h", 1)]},
    "remove_raft_voter": {"node": 7, "directory_id": UUID(int=7)},
    "update_features": {"levels": {}},
    "alter_client_quotas": {"changes": {}},
    "alter_user_scram_credentials": {"alterations": []},
    "create_acls": {"acls": []},
    "delete_acls": {"filters": []},
    "expire_delegation_token": {"hmac": b"h"},
    "renew_delegation_token": {"hmac": b"h"},
    "move_replicas": {"places": {}},
    "alter_partition_reassignments": {"places": {}},
}
NAMES = {"names": ["x"], "partitions": [TP]}
QUICK = {"request_timeout_ms": 2_000, "api_timeout_ms": 50, "config": {"retry.backoff.ms": 1}}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with Broker(tmp_path_factory.mktemp("absurd") / "data", listeners=(), config=config) as made:
        yield made


def methods() -> Iterator[tuple[str, list[inspect.Parameter]]]:
    """The public methods of an Admin and their parameters."""
    for name, method in inspect.getmembers(kafkalog.Admin, inspect.isfunction):
        if not name.startswith("_") and name != "close":
            yield name, list(inspect.signature(method).parameters.values())[1:]


@pytest.mark.parametrize(("name", "parameters"), list(methods()))
def test_wrong_arguments_of_an_admin_are_told_by_an_error_of_ours(
    broker: Broker, name: str, parameters: list[inspect.Parameter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call succeeds or raises a KafkalogError immediately, not after its timeout."""
    monkeypatch.setattr("kafkalog.client.link.cluster.UNKNOWN_TOPIC_MS", 1)
    raw = []
    with kafkalog.Admin(broker, **QUICK) as admin:
        for one in parameters:
            needed = {p.name: RIGHT.get(name, NAMES)[p.name]
                      for p in parameters if p.default is p.empty}  # fmt: skip
            for absurd in ABSURD:
                if name == "list_topics" and absurd is True:
                    continue
                try:
                    getattr(admin, name)(**{**needed, one.name: absurd})
                except KafkalogError:
                    continue
                except Exception as error:
                    raw.append(f"{name}({one.name}={absurd!r}): {type(error).__name__}: {error}")
    assert raw == []


SKIPPED = {"close", "flush", "transaction", "wakeup", "subscribe"}
"""Methods that end it, take no argument, or are tried with the constructor."""
ONE: dict[str, Any] = {
    "topic": "t", "value": b"v", "values": [b"v"], "tp": TP, "offset": 0, "partitions": [TP],
    "times_ms": {TP: 0}, "offsets": {TP: 0}, "group": "g", "batches": b"",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_wrong_arguments_of_a_producer_and_a_consumer(
    broker: Broker, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for an admin; the client still works afterwards."""
    monkeypatch.setattr("kafkalog.client.link.cluster.UNKNOWN_TOPIC_MS", 1)
    with kafkalog.Admin(broker) as admin:
        admin.create_topics(["t"])
    how = {"max_block_ms": 100} if kind == "Producer" else {"group": "g", "auto_commit": False}
    raw = []
    with getattr(kafkalog, kind)(broker, **how) as made:
        if kind == "Consumer":
            made.assign([TP])
        for name, method in inspect.getmembers(type(made), inspect.isfunction):
            if name.startswith("_") or name in SKIPPED:
                continue
            named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            every = list(inspect.signature(method).parameters.values())[1:]
            parameters = [one for one in every if one.kind in named]
            needed = {p.name: ONE[p.name] for p in parameters if p.default is p.empty}
            for one in parameters:
                for absurd in ABSURD:
                    if one.name == "timeout_ms" and absurd in (None, 1 << 70):
                        continue  # the test does not wait that long
                    try:
                        getattr(made, name)(**{**needed, one.name: absurd})
                    except KafkalogError:
                        continue
                    except Exception as error:
                        raw.append(
                            f"{name}({one.name}={absurd!r}): {type(error).__name__}: {error}"
                        )
            if kind == "Consumer":
                made.unsubscribe()
                made.assign([TP])
        if kind == "Producer":
            assert made.send("t", b"v").result(30).topic == "t"
        else:
            assert made.position(TP) >= 0
    assert raw == []


@pytest.mark.parametrize(
    ("name", "how", "told"),
    [
        ("create_topics", {"topics": "t"}, "topics: found 't' of type str, wanted a list"),
        ("create_topics", {"topics": [("t", "3")]}, "partitions: found '3' of type str"),
        ("create_partitions", {"counts": {"t": None}}, "counts: found None of type NoneType"),
        ("list_offsets", {"times": {TP: "last"}}, "times: found 'last', wanted one of earliest"),
        ("list_offsets", {"times": {"t": 0}}, "times: found 't' of type str, wanted (topic, part"),
        ("describe_configs", {"resources": [("table", "t")]}, "resources: found 'table', wanted"),
        ("create_acls", {"acls": [("topic",)]}, "acls: found ('topic',), wanted an AclBinding"),
        ("create_acls", {"acls": [([], "t", "User:u", "read")]}, "resource_type: found [], wanted"),
        ("describe_groups", {"names": [b"g"]}, "names: found b'g' of type bytes, wanted a str"),
        ("describe_log_dirs", {"brokers": [-1]}, "brokers: found -1, wanted 0 to 2147483647"),
        ("elect_leaders", {"partitions": [TP], "kind": "dirty"}, "kind: found 'dirty', wanted"),
        ("delete_groups", {"names": [], "timeout_ms": 0}, "timeout_ms: found 0, wanted 1 or more"),
    ],
)
def test_the_error_names_argument_found_and_wanted(
    broker: Broker, name: str, how: dict[str, Any], told: str
) -> None:
    with kafkalog.Admin(broker) as admin, pytest.raises(ArgumentError) as error:
        getattr(admin, name)(**how)
    assert str(error.value).startswith(told)


@pytest.mark.parametrize("kind", ["Admin", "Producer", "Consumer"])
def test_wrong_arguments_of_the_making(broker: Broker, kind: str) -> None:
    """Each constructor, also asyncio's, fails or returns a client that can be closed."""
    raw = []
    names = [
        one.name
        for one in inspect.signature(getattr(kafkalog, kind)).parameters.values()
        if one.name not in ("where", "clock", "topics", "interceptors", "on_delivery")
    ]
    for name in names:
        for absurd in ABSURD:
            try:
                getattr(kafkalog, kind)(broker, **{name: absurd}).close()
            except KafkalogError:
                continue
            except Exception as error:
                raw.append(f"{kind}({name}={absurd!r}): {type(error).__name__}: {error}")
    assert raw == []
    for where in (None, 1, b"x", [], ["x:y"], object(), "", "x:99999"):
        for module in (kafkalog, aio):
            with pytest.raises(KafkalogError):
                getattr(module, kind)(where)


@pytest.mark.parametrize("kind", ["Admin", "Producer", "Consumer"])
def test_handles_are_not_copied(broker: Broker, kind: str) -> None:
    with getattr(kafkalog, kind)(broker) as one:
        for how in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(KafkalogError, match=kind):
                how(one)
    twin = getattr(aio, kind)(broker)
    with pytest.raises(KafkalogError, match=kind):
        pickle.dumps(twin)
    asyncio.run(twin.close())
