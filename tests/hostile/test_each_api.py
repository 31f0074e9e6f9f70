"""Each API with the worst requests that it allows, next to a client that behaves well."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest

from kafkalog.server.handlers import ROUTES
from kafkalog.wire import apis
from kafkalog.wire.api import REQUEST_NAMES_MAX, Api
from kafkalog.wire.error_codes import ErrorCode
from tests.hostile.attack import CLOSED, answer_of
from tests.hostile.victim import MIB, Victim
from tests.hostile.worst import TOPIC, WORST, Request, worst
from tests.support.effort import LONG
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.plane.peer import one

COUNT, MOST = 500, REQUEST_NAMES_MAX // 10
GROWS_BYTES, MOST_GROW_BYTES = 32 * MIB, 700 * MIB
TOPICS = 10_000 if LONG else 1_000
EVERYTHING_BYTES = (16 + TOPICS // 10) * MIB
PARTITIONS = 10
SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAAAw:0"
UNREAD = 2
ATTACKERS = 4
P99_MS = 5_000
"""Latency limit of a client that behaves well, on a machine that has other work, too."""


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """With everything open that requests name: logs, and both coordinators' journals."""
    made = Victim(
        tmp_path_factory.mktemp("victim"), transaction_state_log_num_partitions=1,
        share_coordinator_state_topic_num_partitions=1,
    )  # fmt: skip
    made.create(TOPIC, PARTITIONS)
    with contextlib.closing(made.peer()) as peer:
        peer.produce({(TOPIC, number): one() for number in range(PARTITIONS)})
        fields = {"transactional_id": "first", "transaction_timeout_ms": 60_000,
                  "producer_id": -1, "producer_epoch": -1}  # fmt: skip
        peer.ask(apis.FIND_COORDINATOR, 3, {"key": "first", "key_type": 1})
        state = {"group_id": "g", "topics": [{"topic_id": uuid.UUID(int=3), "partitions": [
            {"partition": 0, "leader_epoch": 0}]}]}  # fmt: skip
        peer.ask(apis.FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": [SHARE_KEY]})
        unready = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wait_for(
            lambda: peer.ask(apis.READ_SHARE_GROUP_STATE, 0, state).results[0].partitions[0]
            .error_code not in unready,
            "the coordinator of share groups' states has read its journal",
        )  # fmt: skip
        wait_for(
            lambda: peer.ask(apis.INIT_PRODUCER_ID, 3, fields).error_code == 0,
            "the coordinator of transactions has read its journal",
        )
    yield made
    made.close()


@pytest.fixture(scope="module")
def topic_id(victim: Victim) -> uuid.UUID:
    with contextlib.closing(victim.peer()) as peer:
        asked = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
        (topic,) = peer.ask(apis.METADATA, 12, asked).topics
    assert isinstance(topic.topic_id, uuid.UUID)
    return topic.topic_id


def test_every_api_is_attacked() -> None:
    """A new one needs a row in WORST."""
    assert {api.key for api in WORST} == set(ROUTES)


@pytest.mark.parametrize("api", WORST, ids=lambda api: api.name)
def test_the_worst_requests_of_an_api(victim: Victim, topic_id: uuid.UUID, api: Api) -> None:
    """They are answered, in bounded memory, also to a client that reads no answer, and others are
    served while they are in progress."""
    with victim.attacked(api.name, GROWS_BYTES, PARTITIONS), contextlib.ExitStack() as ends:
        requests = list(worst(api, api.max_version, COUNT, topic_id))
        for request in requests:
            never = ends.enter_context(contextlib.closing(victim.peer()))
            for _ in range(UNREAD):
                never.send_body(api, request.version, request.body)
        victim.witness.serves()
        reads = ends.enter_context(contextlib.closing(victim.peer()))
        for request in requests:
            reads.send_body(api, request.version, request.body)
            assert answer_of(reads.receive) != CLOSED, request.way


@pytest.fixture(scope="module")
def topics(victim: Victim) -> list[str]:
    """Thousands of topics."""
    names = [f"one-of-many-{number}" for number in range(TOPICS)]
    with contextlib.closing(victim.peer()) as peer:
        for first in range(0, TOPICS, 500):
            some = names[first : first + 500]
            rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in some]
            made = peer.ask(apis.CREATE_TOPICS, 5, {"topics": rows, "timeout_ms": 30_000})
            assert {topic.error_code for topic in made.topics} == {0}
    return names


def everything(names: list[str]) -> dict[Api, dict[str, Any]]:
    """The requests that ask for all that there is."""
    settings = [{"resource_type": 2, "resource_name": name, "configuration_keys": None}
                for name in names]  # fmt: skip
    offsets = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    return {
        apis.METADATA: {"topics": None, "include_topic_authorized_operations": True,
                        "allow_auto_topic_creation": False},
        apis.DESCRIBE_CONFIGS: {"resources": settings, "include_synonyms": True,
                                "include_documentation": True},
        apis.DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "response_partition_limit": 2_000,
                                         "cursor": None},
        apis.DESCRIBE_LOG_DIRS: {"topics": None},
        apis.LIST_OFFSETS: {"replica_id": -1, "isolation_level": 0,
                            "topics": [{"name": n, "partitions": offsets} for n in names]},
        apis.LIST_CONFIG_RESOURCES: {"resource_types": []},
    }  # fmt: skip


def test_everything_of_many_topics(victim: Victim, topics: list[str]) -> None:
    """A small request may have a large answer: some read it, some do not."""
    with victim.attacked("everything", EVERYTHING_BYTES), contextlib.ExitStack() as ends:
        never, reads = (ends.enter_context(contextlib.closing(victim.peer())) for _ in range(2))
        for api, fields in everything(topics).items():
            body = api.encode_request(api.max_version, fields)
            for _ in range(UNREAD):
                never.send_body(api, api.max_version, body)
            reads.send_body(api, api.max_version, body)
            assert answer_of(reads.receive) != CLOSED, api.name


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_largest_requests_of_all_apis(
    victim: Victim, topic_id: uuid.UUID, topics: list[str]
) -> None:
    """Several clients send them, each when it has the answer to the one before."""
    largest = (one for api in WORST for one in worst(api, api.max_version, MOST, topic_id))
    all_there_is = (
        Request("everything", api, api.max_version, api.encode_request(api.max_version, fields))
        for api, fields in everything(topics).items()
    )
    every = chain(largest, all_there_is)
    lock, begin_s, ways = threading.Lock(), time.monotonic(), Counter[str]()

    def attack() -> None:
        with contextlib.closing(victim.peer()) as peer:
            peer.socket.settimeout(10 * LIMIT_S)  # others' large requests have their turn first
            while True:
                with lock:
                    request = next(every, None)
                if request is None:
                    return
                peer.send_body(request.api, request.version, request.body)
                peer.receive_frame()
                peer.expects_nothing()
                ways[request.api.name] += 1

    many = ThreadPoolExecutor(ATTACKERS)
    with victim.attacked("all", MOST_GROW_BYTES, PARTITIONS), many as attackers:
        for attacker in [attackers.submit(attack) for _ in range(ATTACKERS)]:
            attacker.result()
    assert ways.keys() == {api.name for api in WORST}
    assert max(victim.p99_ms(begin_s).values()) < P99_MS
