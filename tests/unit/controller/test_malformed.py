"""A znode that cannot be read harms nothing but what it describes."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest

from kafkalog.controller import answers
from kafkalog.controller.events import BrokerResponse, ClientRequest, Clock, Send, Tick
from kafkalog.errors import BadZnode
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
)
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from kafkalog.zookeeper import entities, tree
from kafkalog.zookeeper.documents import DENIED
from kafkalog.zookeeper.events import Commit, Read, Seen, WatchesLost
from kafkalog.zookeeper.session import Committed, Create, Delete, Set
from kafkalog.zookeeper.watches import WATCHES
from tests.unit.controller.driven import Driven, broker_epoch, topic

pytestmark = pytest.mark.slow

STATE = '{"version":1,"leader":1,"leader_epoch":%s,"controller_epoch":1,"isr":%s}'
BROKER = (
    '{"version":5,"host":"h","port":1,"endpoints":%s,"rack":%s,"timestamp":"0",'
    '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
)
PLACE = '["PLAINTEXT://h:1"]'


ANY = ["", "{", "[]", '{"version":99}', "[" * 100_000]
TOPIC = '{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAGA","partitions":'
TOPICS = [
    *(f"{TOPIC}{partitions}}}" for partitions in (
        '{"0":[]}', '{"0":[1,1]}', '{"0":[-1]}', '{"0":[1],"00":[2]}', '{"x":[1]}', '{"-1":[1]}',
        '{"0":1}', '{"0":["x"]}', '{"0":[1.5]}', '{"0":[99999999999]}', "[]", '{"0":[1],"1":[]}',
    )),
    TOPIC + 'null}',
    TOPIC.replace("AAAA", "?") + '{"0":[1]}}',
    TOPIC + '{"0":[1]},"adding_replicas":{"5":[2]}}',
    TOPIC + '{"0":[1]},"removing_replicas":{"0":[1]}}',
]  # fmt: skip
STATES = [
    STATE % (-1, "[1]"), STATE % (2**31, "[1]"), STATE % (1, "[1,1]"), STATE % (1, "[-1]"),
    STATE % (1, '"1"'), STATE % ("null", "[1]"),
]  # fmt: skip
BROKERS = [
    BROKER % ("[]", "5"), BROKER % ('["?"]', "null"), BROKER % ('["PLAINTEXT://h:99999"]', "null"),
    BROKER % (PLACE, '"\\ud800"'), BROKER % (PLACE, f'"{"r" * 40_000}"'),
    BROKER % (f'["PLAINTEXT://{"h" * 40_000}:1"]', "null"),
]  # fmt: skip
ROWS = [f'{{"version":1,"partitions":{rows}}}' for rows in (
    "{}", "[1]", '[{"topic":1,"partition":0}]', '[{"topic":"t","partition":"x"}]',
    '[{"topic":"t"}]', '[{"topic":"?","partition":0}]',
    '[{"topic":"t","partition":0,"replicas":[1,1]}]', '[{"topic":"t","partition":0,"replicas":[]}]',
    '[{"topic":"t","partition":9,"replicas":[1]}]',
)]  # fmt: skip
KINDS = {
    f"{tree.TOPICS}/bad": [*ANY, *TOPICS],
    tree.partition_path("bad", 0): [*ANY, *STATES],
    f"{tree.BROKERS}/7": [*ANY, *BROKERS],
    f"{tree.BROKERS}/x": ["{}"],
    f"{tree.DELETE_TOPICS}/none": ["{"],
    tree.REASSIGNMENT: [*ANY, *ROWS],
    tree.ELECTION: [*ANY, *ROWS],
    f"{tree.ISR_CHANGE}0000000001": [*ANY, *ROWS],
    f"{tree.LOG_DIR_EVENT}0000000001": [*ANY, '{"version":1,"broker":99,"event":1}'],
    f"{entities.CHANGE}0000000001": [*ANY, '{"version":2,"entity_path":"topics"}',
                                     '{"version":2,"entity_path":"topics/bad"}'],
    entities.config_path(("topics", "bad")): [*ANY, '{"version":1,"config":{"a":1}}',
                                              '{"version":1,"config":{"a":"\\ud800"}}'],
    tree.PRODUCER_IDS: [*ANY[1:], '{"version":1,"broker":1,"block_start":"9","block_end":"1"}'],
    tree.CONTROLLER: ANY,
}  # fmt: skip
APIS = [
    ALTER_PARTITION, CONTROLLED_SHUTDOWN, ALLOCATE_PRODUCER_IDS, apis.CREATE_TOPICS,
    apis.DELETE_TOPICS, apis.CREATE_PARTITIONS, apis.ALTER_CONFIGS,
    apis.INCREMENTAL_ALTER_CONFIGS, apis.UPDATE_FEATURES, apis.ELECT_LEADERS,
    apis.ALTER_PARTITION_REASSIGNMENTS, apis.LIST_PARTITION_REASSIGNMENTS,
]  # fmt: skip
WITH_PARTITION = (tree.partition_path("bad", 0), entities.config_path(("topics", "bad")))


@pytest.fixture(scope="module", autouse=True)
def nothing_of_other_tests() -> None:
    """Their objects are finalized now, and not where a document is nested too deeply for that."""
    gc.collect()


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize("found", [True, False], ids=["found at the election", "written later"])
def test_an_unreadable_znode(path: str, found: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A broker dies, topics are created and deleted, partitions are moved: all as usual."""
    caplog.set_level(logging.WARNING)
    for data in KINDS[path]:
        of = Driven()
        of.register(1, 2, 3)
        topic(of, {0: (1, 2, 3)})
        if path in WITH_PARTITION:
            topic(of, {0: (1, 2), 1: (1, 3)}, "bad")
        if found:
            write(of, path, data)
        of.elect()
        write(of, path, data)
        of.run()
        caplog.clear()
        works(of)
        if path == tree.partition_path("bad", 0):
            assert of.state("bad", 1) == (3, 1, (3,)), "the topic's other partition"
            assert of.znodes[path].data == data.encode(), "nobody writes over it"
        assert of.controller.problems == [], data
        assert len(caplog.records) <= 1, "it is logged once"


def write(of: Driven, path: str, data: str) -> None:
    """Write a znode, whatever it was before."""
    of.make(path.rpartition("/")[0])
    if path in of.znodes:
        assert of.commit([Set(path, data.encode())]).done
    else:
        assert of.commit([Create(path, data.encode())]).done


def works(of: Driven) -> None:
    """Everything that a controller does, about topic t and others."""
    of.events += [WatchesLost(), Tick(Clock.BALANCE), Tick(Clock.RETRY)]
    of.run()
    assert of.state("t", 0) == (1, 0, (1, 2, 3))
    of.die(1)
    of.run()
    assert of.state("t", 0) == (2, 1, (2, 3))
    row = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [],
           "configs": []}  # fmt: skip
    answer = of.ask("create", apis.CREATE_TOPICS, 7, topics=[row], timeout_ms=0)
    assert answer.topics[0].error_code == 0
    assert of.state("new", 0) is not None
    move = {"partition_index": 0, "replicas": [3, 2]}
    answer = of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0,
                    topics=[{"name": "t", "partitions": [move]}])  # fmt: skip
    assert answer.responses[0].partitions[0].error_code == 0
    answer = of.ask("delete", apis.DELETE_TOPICS, 4, topic_names=["new"], timeout_ms=0)
    assert answer.responses[0].error_code == 0
    answer = of.ask("ids", ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=broker_epoch(of, 2))
    assert answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert of.controller.is_active and not of.resigned


def test_an_unreadable_state_that_is_repaired() -> None:
    """The partition is led again, in an epoch that its leader does not know."""
    of = Driven()
    of.register(1, 2, 3)
    topic(of, {0: (1, 2, 3)})
    path = tree.partition_path("t", 0)
    write(of, path, "{")
    of.elect()
    assert of.ask("elect", apis.ELECT_LEADERS, 2, election_type=1, timeout_ms=0,
                  topic_partitions=[{"topic": "t", "partitions": [0]}])  # fmt: skip
    move = {"partition_index": 0, "replicas": [3]}
    answer = of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0,
                    topics=[{"name": "t", "partitions": [move]}])  # fmt: skip
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    told = [one.body["topic_states"] for one in of.sent]
    assert not any(told), "no broker is to lead, follow or drop anything"
    write(of, path, STATE % (5, "[1,2]"))
    assert of.timers[-1].clock is Clock.RETRY
    of.events.append(Tick(Clock.RETRY))
    of.run()
    assert of.state("t", 0) == (1, 6, (1, 2))
    assert LEADER_AND_ISR in {one.api for one in of.sent}


def test_a_topic_that_vanishes_between_a_decision_and_its_write() -> None:
    """Somebody deletes its znodes: its partitions are read again once, not without end."""
    of = Driven()
    of.register(1, 2, 3)
    of.elect()
    topic(of, {0: (1, 2, 3)})

    def vanish(_: Commit) -> None:
        of.before = lambda _: None
        for path in sorted(of.znodes, reverse=True):
            if path.startswith(tree.topic_path("t")):
                assert of.commit([Delete(path)]).done

    of.before = vanish
    of.die(1)
    of.run()
    active = of.controller.active
    assert active is not None and active.context.stale == active.context.unreadable == set()
    assert not active.context.partitions and of.controller.is_active


# ---- exceptions ------------------------------------------------------------------------------


class Garbled(Driven):
    """Some reads return what no ZooKeeper does, so that the decision raises."""

    garbled = ""

    def _read(self, one: Read) -> Any:
        found = super()._read(one)
        return 5 if one.path == self.garbled else found


@pytest.mark.parametrize("path", [*WATCHES, f"{tree.TOPICS}/t"])
def test_an_exception_in_a_step(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """Other steps go on; it is logged once by name, and retried later."""
    of = Garbled()
    of.register(1, 2, 3)
    topic(of, {0: (1, 2, 3)})
    of.elect()
    of.garbled = path
    of.events += [Seen(path, True), Seen(path, True)]
    of.run()
    for _ in range(3):
        of.events.append(Tick(Clock.RETRY))
        of.run()
    waits_ms = [one.at_ms for one in of.timers if one.clock is Clock.RETRY]
    assert waits_ms == [1_000, 2_000, 4_000, 8_000]
    (said,) = [one for one in caplog.records if one.exc_info]
    assert path in said.message
    assert [path in one for one in of.controller.problems] == [True]
    of.garbled = ""
    of.timers.clear()
    of.events.append(Tick(Clock.RETRY))
    of.run()
    assert of.timers == [], "nothing is left to retry"
    works(of)


@pytest.mark.parametrize("key", answers.ANSWERS)
def test_an_exception_in_the_answer_to_a_request(
    key: int, of: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    """The request fails with it; others are answered."""
    (api,) = [one for one in APIS if one.key == key]
    for token in ("first", "second"):
        of.events.append(ClientRequest(token, api, object(), api.max_version))
    of.run()
    assert all(isinstance(of.replies[token], Exception) for token in ("first", "second"))
    (said,) = [one for one in caplog.records if one.exc_info]
    assert api.name in said.message
    works(of)


@pytest.mark.parametrize("api", [LEADER_AND_ISR, STOP_REPLICA], ids=lambda one: one.name)
def test_an_exception_after_an_answer(
    api: Api, of: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    send = Send(2, api, {"broker_epoch": broker_epoch(of, 2), "topic_states": []})
    of.events.append(BrokerResponse(send, None))
    of.run()
    (said,) = [one for one in caplog.records if one.exc_info]
    assert said.message == f"the controller could not handle: broker 2's answer to {api.name}"
    works(of)


def test_an_exception_in_one_partitions_decision(caplog: pytest.LogCaptureFixture) -> None:
    """Its leader epoch cannot rise.  The other partitions of its topic and broker get leaders, by
    each kind of decision."""
    of = Driven()
    of.register(1, 2, 3)
    topic(of, {0: (1, 2, 3)})
    topic(of, {0: (1, 2), 1: (1, 3)}, "bad")
    path = tree.partition_path("bad", 0)
    write(of, path, STATE % (2**31 - 1, "[1,2]"))
    of.elect()
    of.events.append(Tick(Clock.BALANCE))
    of.run()
    move = [{"partition_index": number, "replicas": [3]} for number in (0, 1)]
    answer = of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0,
                    topics=[{"name": "bad", "partitions": move}])  # fmt: skip
    assert [row.error_code for row in answer.responses[0].partitions] == [
        ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE,
    ]  # fmt: skip
    answer = of.ask("end", CONTROLLED_SHUTDOWN, 3, broker_id=1, broker_epoch=broker_epoch(of, 1))
    assert [(row.topic_name, row.partition_index) for row in answer.remaining_partitions] == [
        ("bad", 0)
    ]
    of.die(1)
    of.run()
    assert of.state("bad", 0) == (1, 2**31 - 1, (1, 2))
    for key, leader in ((("bad", 1), 3), (("t", 0), 2)):
        state = of.state(*key)
        assert state is not None and state[0] == leader
    assert {one.message for one in caplog.records if one.exc_info} == {
        "bad-0: the controller cannot decide about it"
    }
    assert [one.partition(":")[0] for one in of.controller.problems] == ["bad-0"]
    assert of.controller.is_active


def test_a_state_that_may_not_be_read_harms_only_its_partition(of: Driven) -> None:
    """Its ACL keeps this node out; once it may be read, the partition is elected like others."""
    topic(of, {0: (1, 2, 3), 1: (1, 2, 3)})
    path = tree.partition_path("t", 0)
    kept = of.znodes[path]
    of.znodes[path] = kept._replace(data=DENIED)
    of.elect()
    of.die(1)
    of.run()
    assert of.state("t", 1) == (2, 1, (2, 3))
    assert of.znodes[path].version == kept.version, "nothing is written over it"
    assert not of.resigned
    of.znodes[path] = kept
    of.events.append(Tick(Clock.RETRY))
    of.run()
    assert of.state("t", 0) == (2, 1, (2, 3))


def test_a_folder_that_may_not_be_listed_ends_only_the_steps_that_ask(
    of: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = of._read

    def denied(one: Read) -> Any:
        return BadZnode(f"{one.path}: as said") if one.path == tree.ISR_CHANGES else read(one)

    monkeypatch.setattr(of, "_read", denied)
    of.events.append(Seen(tree.ISR_CHANGES, True))
    of.die(1)
    of.run()
    assert of.state("t", 0) == (2, 1, (2, 3))
    assert not of.resigned and len(of.controller.problems) == 1
    monkeypatch.setattr(of, "_read", read)
    of.make(f"{tree.ISR_CHANGE}1", tree.write_isr_change((("t", 0),)))
    assert Clock.RETRY in [one.clock for one in of.timers]
    of.events.append(Tick(Clock.RETRY))
    of.run()
    assert f"{tree.ISR_CHANGE}1" not in of.znodes, "the step is retried"


def test_producer_ids_that_may_not_be_written_hold_up_nothing(
    of: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try is refused; the request fails, and the next one is handled."""
    commit = of.commit

    def refused(operations: Any) -> Any:
        paths = [one.path for one in operations]
        if tree.PRODUCER_IDS in paths:
            return Committed(False, paths.index(tree.PRODUCER_IDS), "NoAuth")
        return commit(operations)

    monkeypatch.setattr(of, "commit", refused)
    fields = {"broker_id": 1, "broker_epoch": broker_epoch(of, 1)}
    said = of.ask("ids", ALLOCATE_PRODUCER_IDS, 0, **fields)
    assert said.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.setattr(of, "commit", commit)
    assert of.ask("again", ALLOCATE_PRODUCER_IDS, 0, **fields).error_code == ErrorCode.NONE
