"""Records and the image that they produce: any sequence, any bytes."""

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptLog
from kafkalog.kraft.batches import data_batches, records_in
from kafkalog.kraft.loading import Loaded
from kafkalog.kraft.records import decode, encode, record_version
from kafkalog.kraft.snapshots import read_snapshot, render_snapshot
from kafkalog.metadata.changes import APPLY, NOTHING_TO_KEEP, Entry, Replay, snapshot_entries
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.wire.records import METADATA
from tests.unit.metadata.conftest import DIRECTORY, applied

IDS = [uuid.UUID(int=1000 + n) for n in range(3)]
NAMES = st.sampled_from("abc")
ID = st.sampled_from(IDS)
NODES = st.lists(st.integers(0, 3), max_size=3)


EPOCH = st.integers(0, 9)


def record(kind: str, /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(kind), st.fixed_dictionaries(fields))


RECORDS = st.one_of(
    record("TopicRecord", name=NAMES, topic_id=ID),
    record("RemoveTopicRecord", topic_id=ID),
    record(
        "PartitionRecord", partition_id=st.integers(0, 2), topic_id=ID, replicas=NODES, isr=NODES,
        leader=st.integers(-1, 2), leader_epoch=EPOCH, partition_epoch=EPOCH,
        directories=st.just([DIRECTORY]), eligible_leader_replicas=st.none() | NODES,
        last_known_elr=st.none() | NODES, leader_recovery_state=st.integers(0, 1),
    ),
    record(
        "PartitionChangeRecord", partition_id=st.integers(0, 2), topic_id=ID,
        isr=st.none() | NODES, leader=st.integers(-2, 2), replicas=st.none() | NODES,
    ),
    record(
        "ConfigRecord", resource_type=st.sampled_from([2, 4]), resource_name=NAMES,
        name=st.sampled_from(["x", "y"]), value=st.none() | st.text(max_size=3),
    ),
    record("FeatureLevelRecord", name=st.sampled_from(["f", "g"]), feature_level=st.integers(0, 3)),
    record(
        "ClientQuotaRecord",
        entity=st.lists(
            st.fixed_dictionaries(
                {"entity_type": st.sampled_from(["user", "ip"]), "entity_name": st.none() | NAMES}
            ),
            min_size=1, max_size=2, unique_by=lambda one: one["entity_type"],
        ),
        key=st.sampled_from(["rate", "share"]), value=st.floats(0, 9), remove=st.booleans(),
    ),
    record("ProducerIdsRecord", broker_id=st.just(1), next_producer_id=st.integers(0, 10**6)),
    record(
        "AccessControlEntryRecord", id=ID, resource_type=st.just(2), resource_name=NAMES,
        pattern_type=st.just(3), principal=NAMES, host=st.just("*"), operation=st.just(2),
        permission_type=st.just(3),
    ),
    record("RemoveAccessControlEntryRecord", id=ID),
    record("ClearElrRecord", topic_name=st.sampled_from(["", "a"])),
    record("NoOpRecord"), record("BeginTransactionRecord"), record("EndTransactionRecord"),
    record("AbortTransactionRecord"),
)  # fmt: skip


def without_time(image: MetadataImage) -> MetadataImage:
    return image._replace(offset=0, epoch=0, timestamp_ms=0)


@given(st.lists(RECORDS, max_size=40))
def test_a_snapshot_equals_its_records(records: list[tuple[str, Any]]) -> None:
    """A record that does not fit is refused, and changes nothing."""
    base = empty_image("cluster", 1)
    replay = Replay(base)
    for name, fields in records:
        before = replay.settle(0, 0, 0)
        entry = decode(encode(name, fields, base))
        assert isinstance(entry, Entry)
        try:
            replay.feed(entry)
        except CorruptLog:
            assert name != "NoOpRecord"
            assert replay.settle(0, 0, 0) == before or name == "EndTransactionRecord"
    image = replay.settle(0, 0, 0)
    assert {topic.id: name for name, topic in image.topics.items()} == dict(image.names)
    again = applied(base, snapshot_entries(image))
    # A snapshot has no settings of deleted topics.
    assert without_time(again) == without_time(image)


@given(st.lists(st.lists(RECORDS, max_size=12), max_size=5))
def test_a_change_equals_a_full_comparison(rounds: list[list[tuple[str, Any]]]) -> None:
    """Also for changes in several batches, and with records that were refused in between."""
    replay = Replay(empty_image("cluster", 1))
    old = replay.image
    for records in rounds:
        for number, (name, fields) in enumerate(records):
            entry = decode(encode(name, fields, old))
            assert isinstance(entry, Entry)
            with contextlib.suppress(CorruptLog):
                replay.feed(entry)
            if number % 3 == 2:
                replay.settle(0, 0, 0)
        new = replay.settle(0, 0, 0)
        change = replay.change(old)
        assert (change.old, change.new) == (old, new)
        before, now = old.topics, new.topics
        others = {name for name in {*before, *now} if before.get(name) is not now.get(name)}
        assert {topic.name: topic for topic in change.changed} == {
            name: now[name] for name in others if name in now
        }
        assert {topic.id for topic in change.gone} == set(old.names) - set(new.names)
        assert set(change.resources) == {
            one
            for one in {*old.configs, *new.configs}
            if old.configs.get(one) != new.configs.get(one)
        }
        old = new


@given(st.lists(RECORDS, max_size=20), st.integers(60, 400))
def test_batches_bring_records_unchanged(records: list[tuple[str, Any]], batch_bytes: int) -> None:
    base = empty_image("cluster", 1)
    values = [encode(name, fields, base) for name, fields in records]
    batches = data_batches(values, 100, 7, 123, batch_bytes) if values else []
    raws = list(records_in(b"".join(batches)))
    assert [raw.value for raw in raws] == values
    assert [raw.offset for raw in raws] == list(range(100, 100 + len(values)))
    assert {(raw.epoch, raw.control) for raw in raws} <= {(7, None)}


@given(st.lists(st.binary(max_size=60) | RECORDS, max_size=8), st.data())
def test_any_bytes_are_a_record_or_refused(items: list[Any], data: st.DataObject) -> None:
    base = empty_image("cluster", 1)
    values = []
    for item in items:
        value = item if isinstance(item, bytes) else encode(item[0], item[1], base)
        if value and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(value) - 1))
            value = value[:at] + bytes([data.draw(st.integers(0, 255))]) + value[at + 1 :]
        values.append(value)
    if values:
        with contextlib.suppress(CorruptLog):
            loaded = Loaded("cluster", 1)
            loaded.take(records_in(b"".join(data_batches(values, 0, 0, 0))))
            list(snapshot_entries(loaded.replay.image))


@given(st.binary(max_size=300), st.integers(0, 10**9))
def test_a_snapshot_with_a_changed_byte_is_refused(
    tmp_path_factory: pytest.TempPathFactory, more: bytes, where: int
) -> None:
    path = tmp_path_factory.mktemp("snapshot") / "s.checkpoint"
    values = [encode("TopicRecord", {"name": "a", "topic_id": IDS[0]}, empty_image("c", 1))]
    data = bytearray(render_snapshot(values, 1, (5, 6)))
    path.write_bytes(data)
    assert [raw.value for raw in read_snapshot(str(path)) if raw.control is None] == values
    at = where % len(data)
    data[at] ^= 1
    path.write_bytes(bytes(data) + more)
    with contextlib.suppress(CorruptLog):
        found = [raw.value for raw in read_snapshot(str(path)) if raw.control is None]
        assert found == values  # the byte is of a base offset or an epoch, which have no checksum


def test_versions_follow_the_level_of_the_directory() -> None:
    """Kafka of that level can read the versions."""
    levels = {
        7: (1, 1, 0, 0),
        8: (2, 1, 0, 0),
        17: (3, 2, 1, 1),
        21: (3, 2, 1, 1),
        27: (3, 2, 2, 2),
        29: (3, 2, 2, 2),
        30: (4, 3, 2, 2),
        33: (4, 3, 2, 2),
    }
    names = (
        "RegisterBrokerRecord", "BrokerRegistrationChangeRecord", "PartitionRecord",
        "PartitionChangeRecord",
    )  # fmt: skip
    for level, versions in levels.items():
        assert tuple(record_version(name, level) for name in names) == versions
        image = empty_image("c", 1)._replace(features={"metadata.version": level})
        fields = {"partition_id": 0, "topic_id": IDS[0], "directories": [DIRECTORY], "isr": [1]}
        entry = decode(encode("PartitionRecord", fields, image))
        assert isinstance(entry, Entry)
        assert entry.version == versions[2]
        assert entry.fields.directories == ([DIRECTORY] if level >= 17 else [])
    assert record_version("TopicRecord", 7) == 0


def test_every_record_that_is_read_is_kept_or_said_to_say_nothing() -> None:
    for kind in METADATA.kinds.values():
        assert (kind.title in APPLY) != (kind.title in NOTHING_TO_KEEP), kind.title


def test_our_snapshots_keep_registrations_of_kafka_4_4() -> None:
    """Cordoned log directories (KIP-1066) and unregistered controllers (KIP-1208)."""
    level = {"name": "metadata.version", "feature_level": 33}
    base = applied(empty_image("c", 1), [("FeatureLevelRecord", level)])
    broker = {"broker_id": 1, "broker_epoch": 5, "log_dirs": IDS[:2], "cordoned_log_dirs": IDS[:1]}
    controllers = [("RegisterControllerRecord", {"controller_id": n}) for n in (1, 2)]
    change = "BrokerRegistrationChangeRecord"
    for more, cordoned in (
        ({"fenced": -1}, (IDS[0],)),
        ({"cordoned_log_dirs": IDS[1:2]}, (IDS[1],)),
        ({"cordoned_log_dirs": []}, ()),
    ):
        records = [
            ("RegisterBrokerRecord", broker), (change, {"broker_id": 1, **more}), *controllers,
            ("UnregisterControllerRecord", {"controller_id": 2}),
        ]  # fmt: skip
        image = applied(base, records)
        assert image.brokers[1].cordoned == cordoned
        assert list(image.controllers) == [1]
        again = applied(base, snapshot_entries(image))
        assert without_time(again) == without_time(image)


def test_a_transaction_shows_when_it_has_ended() -> None:
    base = empty_image("c", 1)
    replay = Replay(base)

    def feed(kind: str, /, **fields: Any) -> MetadataImage:
        entry = decode(encode(kind, fields, base))
        replay.feed(entry)
        return replay.settle(0, 0, 0)

    assert not feed("BeginTransactionRecord").topics
    assert not feed("TopicRecord", name="a", topic_id=IDS[0]).topics
    assert replay.in_transaction
    assert list(feed("EndTransactionRecord").topics) == ["a"]
    assert not replay.in_transaction
    feed("BeginTransactionRecord")
    feed("RemoveTopicRecord", topic_id=IDS[0])
    assert list(feed("AbortTransactionRecord").topics) == ["a"]
    for name in ("EndTransactionRecord", "AbortTransactionRecord"):
        with pytest.raises(CorruptLog, match="outside"):
            feed(name)
    feed("BeginTransactionRecord")
    with pytest.raises(CorruptLog, match="inside"):
        feed("BeginTransactionRecord")
