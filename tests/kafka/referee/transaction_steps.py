"""Requests about transactions for test_server: each for its own transactional id, with answers in
numbers that are the same on every broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.raw import Raw
from tests.support.waiting import wait_for

__all__ = ["STEPS"]

STEPS: dict[str, Callable[[Raw], Any]] = {}
LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS,
)  # fmt: skip
WAIT_S = 60.0


def step(ask: Callable[[Raw], Any]) -> Callable[[Raw], Any]:
    STEPS[ask.__name__] = ask
    return ask


class Client:
    """A transactional producer; its answers are (error, the rise of its epoch)."""

    def __init__(self, raw: Raw, name: str) -> None:
        self.raw, self.name = raw, name
        raw.call(apis.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[name])
        self.producer_id, self.epoch = -1, -1
        self.sequence = 0

    @staticmethod
    def until(call: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
        """Retry, as clients do, while the coordinator loads or ends an earlier transaction."""
        found: list[Any] = []

        def over() -> bool:
            found[:] = [call()]
            return code_of(found[0]) not in LOADING

        wait_for(over, "an answer", WAIT_S)
        return found[0]

    def init(self, version: int = 4, timeout_ms: int = 60_000, **who: int) -> tuple[int, int, bool]:
        """(error, epoch, whether the producer id is another one)."""
        body = {"transactional_id": self.name, "transaction_timeout_ms": timeout_ms, **who}
        found = self.until(
            lambda: self.raw.call(apis.INIT_PRODUCER_ID, version, **body),
            lambda one: one.error_code,
        )
        other = found.producer_id != self.producer_id
        if not found.error_code:
            self.producer_id, self.epoch, self.sequence = found.producer_id, found.producer_epoch, 0
        return found.error_code, found.producer_epoch, other

    def who(self, epoch: int = 0, producer: int = 0, name: str | None = None) -> dict[str, Any]:
        """The producer itself, with its epoch and id changed by these differences."""
        return {
            "transactional_id": self.name if name is None else name,
            "producer_id": self.producer_id + producer, "producer_epoch": self.epoch + epoch,
        }  # fmt: skip

    def add(self, *partitions: int, version: int = 3, topic: str = "two", **off: Any) -> list[int]:
        who = {f"v3_and_below_{name}": value for name, value in self.who(**off).items()}
        topics = [{"name": topic, "partitions": list(partitions)}]
        found = self.until(
            lambda: self.raw.call(
                apis.ADD_PARTITIONS_TO_TXN, version, v3_and_below_topics=topics, **who
            ).results_by_topic_v3_and_below[0].results_by_partition,
            lambda one: one[0].partition_error_code,
        )  # fmt: skip
        told = {one.partition_index: one.partition_error_code for one in found}
        return [told[number] for number in partitions]

    def verify(self, *partitions: int, **off: Any) -> list[int]:
        topics = [{"name": "two", "partitions": list(partitions)}]
        asked = [{**self.who(**off), "verify_only": True, "topics": topics}]
        reply = self.raw.call(apis.ADD_PARTITIONS_TO_TXN, 5, transactions=asked)
        (found,) = reply.results_by_transaction
        rows = found.topic_results[0].results_by_partition
        told = {one.partition_index: one.partition_error_code for one in rows}
        return [told[number] for number in partitions]

    def offsets(self, version: int = 3, **off: Any) -> int:
        body = {**self.who(**off), "group_id": "of-transactions"}
        return int(self.until(
            lambda: self.raw.call(apis.ADD_OFFSETS_TO_TXN, version, **body),
            lambda one: one.error_code,
        ).error_code)  # fmt: skip

    def commit(self, version: int = 3, generation: int = -1, **off: Any) -> int:
        (found,) = self.commit_to("of-transactions", "two", 0, version=version,
                                  generation=generation, **off)  # fmt: skip
        return found

    def commit_to(
        self, group: str, topic: str, *partitions: int, version: int = 3, generation: int = -1,
        **off: Any,
    ) -> list[int]:  # fmt: skip
        parts = [{"partition_index": number, "committed_offset": 3, "committed_metadata": ""}
                 for number in partitions]  # fmt: skip
        topics = [{"name": topic, "partitions": parts}]
        body = {**self.who(**off), "group_id": group, "topics": topics,
                "generation_id_or_member_epoch": generation}  # fmt: skip

        def call() -> dict[int, int]:
            (found,) = self.raw.call(apis.TXN_OFFSET_COMMIT, version, **body).topics
            return {one.partition_index: one.error_code for one in found.partitions}

        told: dict[int, int] = self.until(call, lambda codes: codes[partitions[0]])
        return [told[number] for number in partitions]

    def write(self, version: int = 11, partition: int = 0, **off: Any) -> int:
        who = self.who(**off)
        data = batch(
            [Row(b"v", b"k")], producer_id=who["producer_id"], transactional=True,
            producer_epoch=who["producer_epoch"], base_sequence=self.sequence,
        )  # fmt: skip
        entry = {"name": "two", "partition_data": [{"index": partition, "records": data}]}
        body = {"transactional_id": who["transactional_id"], "acks": -1, "timeout_ms": 30_000,
                "topic_data": [entry]}  # fmt: skip

        def call() -> Any:
            return self.raw.call(apis.PRODUCE, version, **body).responses[0].partition_responses[0]

        # Kafka returns NOT_ENOUGH_REPLICAS to old producers until it knows.
        found = self.until(call, lambda one: 51 if one.error_code == 19 else one.error_code)
        self.sequence += not found.error_code
        return int(found.error_code)

    def end(self, commit: bool = True, version: int = 4, **off: Any) -> tuple[int, ...]:
        """(error, the rise of the epoch, the rise of the producer id); -1 each for none."""
        body = {**self.who(**off), "committed": commit}
        found = self.until(
            lambda: self.raw.call(apis.END_TXN, version, **body), lambda one: one.error_code
        )
        if version < 5:
            return (found.error_code,)
        given = found.producer_epoch >= 0
        return (
            found.error_code,
            found.producer_epoch - self.epoch if given else -1,
            found.producer_id - self.producer_id if given else -1,
        )

    def ended(self, commit: bool = True, version: int = 4) -> tuple[int, ...]:
        """`end`, and wait until all know of it; version 5 continues with its epoch."""
        found = self.end(commit, version)
        wait_for(lambda: self.state().startswith("Complete"), "its end", WAIT_S)
        if version >= 5 and not found[0]:
            self.epoch, self.sequence = self.epoch + found[1], 0
        return found

    def state(self) -> str:
        (found,) = self.raw.call(
            apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.name]
        ).transaction_states
        return str(found.transaction_state)


OFF: tuple[dict[str, Any], ...] = (
    {"epoch": 1}, {"epoch": -1}, {"producer": 7_000_000}, {"name": "of-nobody"}, {"name": ""},
)  # fmt: skip
"""Differences that make a producer another one than it claims to be."""


@step
def transactions_begin(raw: Raw) -> Any:
    client = Client(raw, "begin")
    found: list[Any] = [client.init(timeout_ms=ms) for ms in (0, -1, 900_001)]
    found += [client.init(producer_id=5), client.init(producer_epoch=5)]
    found += [Client(raw, "").init(), Client(raw, "new").init(producer_id=77, producer_epoch=3)]
    found += [client.init(), client.init(version=0)]
    mine = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    found += [client.init(**mine), client.init(**mine), client.init(), client.init(**mine)]
    found.append(client.init(version=3, **mine))
    return found


@step
def a_new_producer_raises_the_epoch_once(raw: Raw) -> Any:
    """Aborting an open transaction for it raises the epoch, too."""
    found = []
    for version in (3, 12):
        client = Client(raw, f"fence-{version}")
        client.init()
        if version == 3:
            found.append(client.add(0))
            found.append(client.write())
        else:
            found.append(client.write(12))
        found.append(client.init())
        client.write(12)
        found.append(client.init(producer_id=client.producer_id, producer_epoch=client.epoch))
        found.append(client.state())
    return found


@step
def partitions_join(raw: Raw) -> Any:
    client = Client(raw, "join")
    client.init()
    client.init()
    found: list[Any] = [client.add(0, version=v, **off) for off in OFF for v in (0, 1, 2, 3)]
    found += [client.add(0, 9), client.add(0, topic="missing"), client.state()]
    found += [client.add(0), client.add(0, 1), client.add(1), client.state()]
    found += [client.verify(0, 1), *(client.verify(0, **off) for off in OFF), client.verify(0, 9)]
    found += [client.ended(), client.verify(0)]
    return found


@step
def offsets_join(raw: Raw) -> Any:
    client = Client(raw, "offsets")
    client.init()
    client.init()
    found: list[Any] = [client.offsets(v, **off) for off in OFF for v in (0, 2, 3)]
    found += [client.commit(), client.offsets(), client.commit()]
    found.append(client.commit(generation=4))
    # Once a group's partition is open for a producer id, Kafka accepts commits under any name.
    found += [client.commit(v, **off) for off in OFF[:3] for v in (3, 5)]
    found += [client.ended(False), client.commit(), client.commit(5), client.state()]
    return [*found, client.ended()]


@step
def offsets_of_what_is_not_there(raw: Raw) -> Any:
    """No transaction begins for them."""
    client = Client(raw, "offsets-of-nothing")
    client.init()
    client.init()
    found: list[Any] = []
    for version in (3, 5):
        for group in ("", "of-nothing"):
            found += [client.commit_to(group, *where, version=version, **off)
                      for where in (("missing", 0), ("two", 9), ("missing", 0, 9))
                      for off in ({}, *OFF[:4])]  # fmt: skip
        found += [client.commit_to("", "two", 0, 9, version=version), client.state()]
        found += [client.commit_to("of-nothing", "two", 0, 9, version=version, **off)
                  for off in OFF[:4]]  # fmt: skip
    found += [client.commit_to("of-nothing", "two", 0, 9, version=5), client.state()]
    return [*found, client.ended(False)]


@step
def transactions_are_written(raw: Raw) -> Any:
    client = Client(raw, "write")
    client.init()
    client.init()
    found: list[Any] = [client.write(v) for v in (9, 10, 11)]
    found += [client.write(v, **off) for off in OFF for v in (10, 11, 12)]
    found += [client.write(12, partition=9), client.state()]
    found += [client.add(0), client.write(), client.write(12, partition=1), client.state()]
    found += [client.write(11, epoch=-1), client.write(11, epoch=1)]
    return [*found, client.ended()]


@step
def transactions_end(raw: Raw) -> Any:
    """Twice, with the other outcome, empty, and by other producers."""
    found: list[Any] = []
    for version in (1, 4, 5):
        client = Client(raw, f"end-{version}")
        client.init()
        client.init()
        found += [client.end(commit, version, **off) for off in OFF for commit in (True, False)]
        found.append(client.end(True, version))
        if version < 5:
            found.append(client.end(False, version))
        for commit in (True, False):
            client.write(12)
            found += [client.ended(commit, version), client.state()]
            late = {"epoch": -1} if version == 5 else {}
            found += [client.end(commit, version, **late), client.end(not commit, version, **late)]
            found += [client.end(commit, version, epoch=-2), client.end(commit, version, epoch=1)]
    return found


@step
def what_wrote_nothing_is_aborted(raw: Raw) -> Any:
    """Version 2 may abort an empty transaction, and gets the next epoch for that."""
    client = Client(raw, "nothing")
    client.init()
    found: list[Any] = [client.end(True, 5), client.ended(False, 5), client.state()]
    found += [client.end(False, 5, epoch=-1), client.end(True, 5, epoch=-1)]
    found += [client.ended(False, 5), client.end(True, 5), client.write(12), client.ended(True, 5)]
    return [*found, client.ended(False, 5), client.state(), client.init()]


@step
def markers_of_administrators(raw: Raw) -> Any:
    client = Client(raw, "marked")
    client.init()
    client.init()
    client.add(0)
    client.write()

    def mark(coordinator: int, partition: int = 0, epoch: int = 0, topic: str = "two") -> int:
        marker = {
            "producer_id": client.producer_id, "producer_epoch": client.epoch + epoch,
            "transaction_result": False, "coordinator_epoch": coordinator,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }  # fmt: skip
        (found,) = raw.call(apis.WRITE_TXN_MARKERS, 1, markers=[marker]).markers
        return int(found.topics[0].partitions[0].error_code)

    return [mark(9, 7), mark(9, topic="missing"), mark(9, epoch=-1), mark(9), mark(8), mark(9),
            mark(10, epoch=-1), mark(8, epoch=-1), client.write()]  # fmt: skip


@step
def transactions_are_told(raw: Raw) -> Any:
    client = Client(raw, "told")
    client.init(timeout_ms=50_000)
    client.add(1)

    def describe(name: str) -> Any:
        (one,) = raw.call(
            apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name]
        ).transaction_states
        topics = [(topic.topic, list(topic.partitions)) for topic in one.topics]
        return (one.error_code, one.transaction_state, one.transaction_timeout_ms,
                one.producer_epoch, topics)  # fmt: skip

    def names(version: int, **filters: Any) -> Any:
        found = raw.call(apis.LIST_TRANSACTIONS, version, **filters)
        ids = sorted(
            one.transactional_id for one in found.transaction_states
            if one.transactional_id == "told"
        )  # fmt: skip
        return found.error_code, ids, found.unknown_state_filters

    told: list[Any] = [describe(name) for name in ("told", "of-nobody", "")]
    told += [names(0, state_filters=["Ongoing", "Odd"]), names(1, duration_filter=900_000)]
    patterns = ("told", "to", "t.*d", "^(a|t)old$", "", "(", "[", "*a", r"t\w{3}")
    told += [names(2, transactional_id_pattern=one) for one in patterns]
    client.ended(False)
    return [*told, describe("told")]


@step
def levels_of_features(raw: Raw) -> Any:
    name = "transaction.version"

    def change(
        version: int, *levels: tuple[str, int, int], dry: bool = False
    ) -> tuple[int, str | None, list[Any]]:
        how = [
            {"feature": one, "max_version_level": level,
             **({"upgrade_type": kind} if version else {})}
            for one, level, kind in levels
        ]  # fmt: skip
        body = {"feature_updates": how, **({"validate_only": dry} if version else {})}
        found = raw.call(apis.UPDATE_FEATURES, version, **body)
        each = [(one.feature, one.error_code, one.error_message) for one in found.results or ()]
        return found.error_code, found.error_message, each

    return [
        change(2, (name, 3, 1)), change(2, (name, 1, 1)), change(2, (name, -1, 1)),
        change(2, (name, 1, 9)), change(2, ("none.such", 1, 1)), change(2, ("none.such", 0, 2)),
        change(2, ("metadata.version", 20, 1)), change(2, ("metadata.version", 99, 1)),
        change(1, (name, 3, 1)), change(0, (name, 3, 1)), change(1, (name, 1, 2), dry=True),
        change(2, (name, 1, 2), ("none.such", 1, 1)), change(2, (name, 1, 2), dry=True),
        change(2, (name, 1, 2)), change(1, (name, 1, 1)), change(2, (name, 2, 2)),
        change(2, (name, 0, 3)), change(2, (name, 2, 1)), change(2),
        change(2, ("eligible.leader.replicas.version", 0, 2), (name, 2, 1)),
        change(2, ("eligible.leader.replicas.version", 1, 1)),
    ]  # fmt: skip
