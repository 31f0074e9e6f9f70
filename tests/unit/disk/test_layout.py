"""Names in a data directory: what is a partition's folder, and what is not."""

import os
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.disk import layout
from kafkalog.disk.layout import Folder, MarkedFolder, MetaProperties
from kafkalog.errors import CorruptLog, InvalidTopic
from kafkalog.types import TopicPartition

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)
partitions = st.integers(0, 2**31 - 1)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "__consumer_offsets", "-", "...", "x" * 249])
def test_a_topic_name_of_kafkas_alphabet_is_taken(name):
    """Letters, digits, dot, underscore, hyphen; up to 249 characters."""
    assert layout.check_topic(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a\n", None, 5])
def test_every_other_topic_name_is_refused(name):
    """As in Kafka; the message says what was found."""
    with pytest.raises(InvalidTopic) as refused:
        layout.check_topic(name)
    assert repr(name) in str(refused.value)
    assert refused.value.code == 17


@given(topics, partitions)
def test_a_folders_name_splits_at_its_last_hyphen(topic, partition):
    """The topic's name may itself have hyphens and digits."""
    name = layout.partition_folder(topic, partition)
    assert layout.parse_folder(name) == Folder(name, topic, partition)
    assert layout.bare_folder(name) == Folder(name, topic, partition)


@pytest.mark.parametrize(
    "name",
    ["orders", "orders-", "-1", "orders-01", "orders-x", "or ders-1", "a-2147483648", "lost+found"],
)
def test_other_names_are_no_partitions(name):
    """No number, a number that Kafka would not write, characters that no topic has."""
    assert layout.parse_folder(name) is None


def test_a_bare_folder_without_a_number_is_partition_0_of_its_name():
    """A standalone log's folder need not be named as Kafka's are, but as a topic can be."""
    assert layout.bare_folder("events") == Folder("events", "events", 0)
    assert layout.bare_folder("2024-01") == Folder("2024-01", "2024-01", 0)
    with pytest.raises(InvalidTopic, match="topic="):
        layout.bare_folder("my events")


@given(topics, partitions, st.uuids())
def test_a_deleted_folders_name_is_recognised_and_never_too_long(topic, partition, unique):
    """A long topic name is truncated; the number stays."""
    name = layout.marked_name(topic, partition, unique)
    assert len(name) <= 255
    mark = layout.parse_marked(name)
    assert mark is not None
    assert (mark.partition, mark.kind) == (partition, "delete")
    assert topic.startswith(mark.topic)
    assert layout.parse_folder(name) is None


@pytest.mark.parametrize("kind", ["delete", "future", "stray"])
def test_the_folders_that_kafka_marks_are_told_apart(kind):
    """By the suffix of the name."""
    name = f"gone-s1-0.3b78c64cfac84fca8867828f39e99cbe-{kind}"
    assert layout.parse_marked(name) == MarkedFolder(name, "gone-s1", 0, kind)
    assert layout.parse_marked(name + "x") is None


def test_a_directory_is_listed_whatever_else_lies_in_it(tmp_path):
    """Files, foreign folders, marked ones; a log's folder without a number is listed."""
    for name in ("b-1", "b-0", "a-10", "lost+found", "remote-log-index-cache", "bare", "b",
                 "gone-0.3b78c64cfac84fca8867828f39e99cbe-delete", ".snapshot"):  # fmt: skip
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").write_bytes(b"")
    (tmp_path / "bare" / f"{0:020}.log").write_bytes(b"")
    (tmp_path / "b" / f"{0:020}.log").write_bytes(b"")  # b-0 is already that partition
    listing = layout.list_directory(str(tmp_path))
    assert listing.partitions == {
        TopicPartition("a", 10): "a-10",
        TopicPartition("b", 0): "b-0",
        TopicPartition("b", 1): "b-1",
        TopicPartition("bare", 0): "bare",
    }
    assert [mark.topic for mark in listing.marked] == ["gone"]
    assert listing.foreign == (".snapshot", "b", "lost+found", "remote-log-index-cache")


def test_the_shared_directories_list_as_kafka_sees_them(kafka_cases):
    """They have topics with dots and hyphens, a folder being deleted, the metadata log."""
    listing = layout.list_directory(str(kafka_cases / "kraft" / "log"))
    names = set(listing.partitions.values())
    assert {"plain.topic_-s1-0", "orders-s1-4", "__cluster_metadata-0"} <= names
    assert [(m.topic, m.kind) for m in listing.marked] == [("gone-s1", "delete")]
    assert listing.foreign == ()
    assert listing.partitions[TopicPartition("plain.topic_-s1", 0)] == "plain.topic_-s1-0"


# ---- identifiers -----------------------------------------------------------------------------


@given(st.uuids())
def test_a_uuid_survives_its_text(value):
    """22 characters, read back in base64url and in standard base64."""
    text = layout.uuid_text(value)
    assert len(text) == 22
    assert layout.parse_uuid(text) == value
    assert layout.parse_uuid(text.replace("-", "+").replace("_", "/") + "==") == value


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "é" * 22, "A" * 21 + "!"])
def test_invalid_uuids_are_refused(text):
    """Text that is not 22 characters of the alphabet."""
    with pytest.raises(ValueError, match="22 characters"):
        layout.parse_uuid(text)


def test_a_random_topic_id_is_one_that_kafka_would_draw():
    """Not a reserved id, and no leading hyphen in its text."""
    drawn = {layout.random_topic_id() for _ in range(300)}
    assert len(drawn) == 300
    assert not any(layout.uuid_text(value).startswith("-") for value in drawn)


def test_partition_metadata_is_kafkas(kafka_cases):
    """Read from a folder that Kafka created, and written back as the same bytes."""
    path = kafka_cases / "kraft" / "log" / "late-s1-0" / "partition.metadata"
    data = path.read_bytes()
    assert layout.render_partition_metadata(layout.parse_partition_metadata(data)) == data


@pytest.mark.parametrize(
    "data",
    [b"", b"version: 1\ntopic_id: L40ni1efQIC9EIFmD9q0Kg", b"version: 0\n", b"\xff\xfe",
     b"version: 0\ntopic_id: nonsense", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"],
)  # fmt: skip
def test_damaged_partition_metadata_is_refused_by_name(data):
    """Empty text, another version, no id, the zero id."""
    with pytest.raises(CorruptLog, match=r"^partition\.metadata: "):
        layout.parse_partition_metadata(data)
    with pytest.raises(CorruptLog, match=r"^/data/orders-0/partition\.metadata: "):
        layout.parse_partition_metadata(data, "/data/orders-0/partition.metadata")


# ---- meta.properties ----------------------------------------------------------------------------


def test_meta_properties_of_both_eras_are_read(kafka_cases):
    """KRaft's version 1 and ZooKeeper's version 0."""
    found = layout.parse_meta_properties(
        (kafka_cases / "kraft" / "log" / "meta.properties").read_bytes()
    )
    assert found == MetaProperties(
        1, 1, "MkU3OEVBNTcwNTJENDM2Qg", layout.parse_uuid("tJlAI98V2b8SL-l0vRRgGA")
    )
    old = next((kafka_cases / "oldformats").rglob("meta.properties"))
    found = layout.parse_meta_properties(old.read_bytes())
    assert found.version == 0
    assert found.directory_id is None


@given(st.integers(0, 1), st.integers(0, 2**31 - 1), st.uuids(), st.none() | st.uuids())
def test_meta_properties_survive_a_file(version, node_id, cluster, directory):
    """The file read is the same as written."""
    meta = MetaProperties(version, node_id, layout.uuid_text(cluster), directory)
    assert layout.parse_meta_properties(layout.render_meta_properties(meta)) == meta


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "version"),
        (b"version=2\nnode.id=1", "wanted 0 or 1"),
        (b"version=1\n", r"node\.id"),
        (b"version=1\nnode.id=x", r"node\.id: found 'x'"),
        (b"version=1\nnode.id=1\ndirectory.id=zzz", r"directory\.id"),
    ],
)
def test_damaged_meta_properties_are_refused_by_name(data, word):
    """The message names the key and what was found."""
    with pytest.raises(CorruptLog, match=word):
        layout.parse_meta_properties(data)
    with pytest.raises(CorruptLog, match=rf"^/data/meta\.properties: .*{word}"):
        layout.parse_meta_properties(data, "/data/meta.properties")


def test_a_new_directory_gets_ids_of_its_own():
    """Two directories never share one."""
    one, two = layout.new_meta_properties(7), layout.new_meta_properties(7)
    assert one.node_id == 7
    assert one.cluster_id != two.cluster_id
    assert isinstance(one.directory_id, uuid.UUID)
    assert one.directory_id != two.directory_id


def test_ten_thousand_folders_are_listed_without_a_look_inside(tmp_path, monkeypatch):
    """Only the directory itself is listed."""
    for number in range(10_000):
        os.mkdir(tmp_path / f"topic-{number}")
    looked: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(path) or scandir(path))
    assert len(layout.list_directory(str(tmp_path)).partitions) == 10_000
    assert looked == [str(tmp_path)]
