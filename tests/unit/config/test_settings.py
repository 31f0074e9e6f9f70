"""Every setting: its default, its range, and the message when a value is refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.config.declare import FOREVER, Flag, Rate, Ratio, Setting, Whole, Word, Words
from kafkalog.config.document import render_markdown
from kafkalog.config.properties import parse_properties
from kafkalog.config.server import ServerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import InvalidSetting, UnknownSetting

ALL = [*TopicConfig.table.values(), *BrokerConfig.table.values()]
DEFAULTS = {
    "cleanup.policy": ("delete",),
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "delete.retention.ms": 86400000,
    "file.delete.delay.ms": 60000,
    "flush.messages": FOREVER,
    "flush.ms": FOREVER,
    "follower.replication.throttled.replicas": (),
    "leader.replication.throttled.replicas": (),
    "index.interval.bytes": 4096,
    "max.compaction.lag.ms": FOREVER,
    "min.compaction.lag.ms": 0,
    "max.message.bytes": 1048588,
    "max.decompressed.message.bytes": 2147483639,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
    "min.cleanable.dirty.ratio": 0.5,
    "min.insync.replicas": 1,
    "preallocate": False,
    "retention.bytes": -1,
    "retention.ms": -1,  # Kafka: 604800000; here nothing is deleted unless a setting says so
    "segment.bytes": 1073741824,
    "segment.index.bytes": 10485760,
    "segment.jitter.ms": 0,
    "segment.ms": 604800000,
    "unclean.leader.election.enable": False,
    "remote.storage.enable": False,
    "remote.log.copy.disable": False,
    "remote.log.delete.on.disable": False,
    "local.retention.ms": -2,
    "local.retention.bytes": -2,
    "remote.copy.lag.ms": 0,
    "remote.copy.lag.bytes": -1,
    "errors.deadletterqueue.group.enable": False,
    "kafkalog.durability": "fsync",
    "kafkalog.durability.interval.ms": 1000,
    "kafkalog.check.compressed": False,
    "kafkalog.max.decompressed.bytes": 268435456,
}


def settings_of(scope: Setting) -> type:
    return TopicConfig if scope.name in TopicConfig.table else BrokerConfig


def test_the_topic_settings_are_kafkas_with_kafkas_defaults():
    """Names and defaults are Kafka's, except for the retention."""
    assert dict(TopicConfig()) == DEFAULTS


@pytest.mark.parametrize("setting", ALL, ids=lambda s: s.name)
def test_every_setting_takes_its_own_default_as_text_and_as_value(setting):
    """The default's text parses to its value, and the value parses to itself."""
    of = settings_of(setting).of
    text = setting.show(setting.default).split(" ")[0]
    assert of({setting.name: text})[setting.name] == setting.default
    made = of({setting.name: setting.default})
    assert made[setting.name] == setting.default
    assert getattr(made, setting.name.replace(".", "_")) == setting.default
    assert made.explicit(setting.name)
    assert not of({}).explicit(setting.name)


def wrong_values(setting: Setting) -> list[object]:
    wrong: list[object] = [object(), b"1", 1.5]
    if isinstance(setting, Whole):
        low = -setting.highest - 1 if setting.low is None else setting.low
        high = setting.highest if setting.high is None else setting.high
        wrong += [
            "",
            "x",
            "1_0",
            "1.0",
            "٣",
            True,
            None.__class__,
            low - 1,
            high + 1,
            str(high + 1),
        ]
        wrong += list(setting.never)
    elif isinstance(setting, Flag):
        wrong += ["", "yes", "1", 1, 0]
    elif isinstance(setting, Ratio):
        wrong = [object(), b"1", "", "x", True, -0.01, 1.01, float("nan"), "inf"]
    elif isinstance(setting, Rate):
        wrong = [object(), b"1", "", "x", True, 0, -1.0, float("nan")]
    elif isinstance(setting, Words):
        wrong += ["nonsense", 7, ["delete", 7]]
    elif isinstance(setting, Word):
        wrong += [7, None.__class__] + (["nonsense", ""] if setting.choices else [])
    return wrong


@pytest.mark.parametrize("setting", ALL, ids=lambda s: s.name)
def test_a_wrong_value_is_refused_by_name_found_and_wanted(setting):
    """The message names the setting, what was found, and what was wanted."""
    for value in wrong_values(setting):
        with pytest.raises(InvalidSetting) as refused:
            settings_of(setting).of({setting.name: value})
        message = str(refused.value)
        assert message.startswith(f"{setting.name}: found {value!r}, wanted ")
        assert message.endswith(setting.wanted())
        assert refused.value.code == 40


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("segment.bytes", 14, 2**31 - 1),
        ("segment.ms", 1, FOREVER),
        ("segment.index.bytes", 4, 2**31 - 1),
        ("retention.ms", -1, FOREVER),
        ("flush.messages", 1, FOREVER),
        ("compression.gzip.level", -1, 9),
        ("compression.lz4.level", 1, 17),
        ("compression.zstd.level", -131072, 22),
        ("min.insync.replicas", 1, 2**31 - 1),
        ("local.retention.bytes", -2, FOREVER),
    ],
)
def test_the_ends_of_a_range_are_inside(name, low, high):
    """Kafka's bounds, both included."""
    for value in (low, high, f" {low} ", f"+{high}" if high >= 0 else str(high)):
        assert TopicConfig.of({name: value})[name] == int(value)
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidSetting):
            TopicConfig.of({name: value})


@pytest.mark.parametrize("found", ["consumer", "CONSUMER", "Consumer"])
def test_the_protocol_of_a_group_takes_any_case_as_in_java(found):
    assert ConsumerConfig.of({"group.protocol": found}).group_protocol == "consumer"


def test_lists_come_as_text_or_as_sequences():
    """Text with commas and blanks, a list, a tuple; empty text is the empty list; no duplicates."""
    for value in ("compact,delete", " compact , delete ", ["compact", "delete"]):
        assert TopicConfig.of({"cleanup.policy": value}).cleanup_policy == ("compact", "delete")
    assert TopicConfig.of({"cleanup.policy": ""}).cleanup_policy == ()
    with pytest.raises(InvalidSetting, match="each at most once"):
        TopicConfig.of({"cleanup.policy": "delete,delete"})
    name = "leader.replication.throttled.replicas"
    assert TopicConfig.of({name: "0:1,1:2"})[name] == ("0:1", "1:2")
    assert TopicConfig.of({name: "*"})[name] == ("*",)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("retention.msec", "retention.ms"),
        ("segment_bytes", "segment.bytes"),
        ("Segment.Bytes", "segment.bytes"),
        ("log.retention.hours", "broker's name of retention.ms"),
        ("log.segment.bytes", "broker's name of segment.bytes"),
        ("utterly-unlike-anything", "docs/settings.md"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong, near):
    """The message contains the name that was meant."""
    with pytest.raises(UnknownSetting, match=re.escape(near)) as refused:
        TopicConfig.of({wrong: 1})
    assert wrong in str(refused.value)


def test_a_broker_refuses_a_topic_setting_and_names_its_own():
    """The broker's name of segment.bytes is log.segment.bytes."""
    with pytest.raises(UnknownSetting, match=r"log\.segment\.bytes"):
        BrokerConfig.of({"segment.bytes": 100})
    with pytest.raises(UnknownSetting, match="text"):
        BrokerConfig.of({5: 100})


def test_brokers_names_give_the_topics_defaults():
    """Each synonym, then the coarser ones, in Kafka's order of precedence."""
    for setting in TopicConfig.table.values():
        if setting.synonym:
            broker = BrokerConfig.of({setting.synonym: setting.default})
            assert broker.topic.explicit(setting.name)
            assert broker.topic[setting.name] == setting.default
    assert BrokerConfig.of({"log.retention.hours": "2"}).topic.retention_ms == 7_200_000
    both = {"log.retention.minutes": 3, "log.retention.hours": 2}
    assert BrokerConfig.of(both).topic.retention_ms == 180_000
    assert BrokerConfig.of({**both, "log.retention.ms": 5}).topic.retention_ms == 5
    assert BrokerConfig.of({"log.retention.hours": -1}).topic.retention_ms == -1
    assert BrokerConfig.of({"log.roll.hours": 1}).topic.segment_ms == 3_600_000
    assert BrokerConfig.of({"log.roll.jitter.hours": 1}).topic.segment_jitter_ms == 3_600_000
    with pytest.raises(InvalidSetting, match=r"log\.roll\.hours: found '0'"):
        BrokerConfig.of({"log.roll.hours": "0"})


def test_the_flush_scheduler_interval_is_also_the_default_of_flush_ms():
    """As in Kafka; log.flush.interval.ms takes precedence."""
    broker = BrokerConfig.of({"log.flush.scheduler.interval.ms": 500})
    assert broker.log_flush_scheduler_interval_ms == broker.topic.flush_ms == 500
    broker = BrokerConfig.of({"log.flush.scheduler.interval.ms": 500, "log.flush.interval.ms": 900})
    assert broker.topic.flush_ms == 900


def test_topic_settings_override_defaults():
    """Settings that the topic does not have come from its defaults."""
    defaults = TopicConfig.of({"retention.ms": 5, "segment.bytes": 100})
    made = TopicConfig.of({"retention.ms": 7, "segment.ms": None}, defaults)
    assert (made.retention_ms, made.segment_bytes, made.segment_ms) == (7, 100, 604_800_000)
    assert made.explicit("segment.bytes")
    assert not made.explicit("segment.ms")
    assert TopicConfig.of(TopicConfig.of({"retention.ms": 9}), defaults).segment_bytes == 100


def test_settings_are_fixed_once_made():
    """A mapping that cannot be changed, equal and hashable by value."""
    made = TopicConfig.of({"retention.ms": 5})
    assert TopicConfig.of(made) is made
    with pytest.raises(AttributeError, match=r"retention\.ms"):
        made.retention_ms = 6
    with pytest.raises(TypeError):
        made["retention.ms"] = 6
    assert made == TopicConfig.of({"retention.ms": "5"})
    assert hash(made) == hash(TopicConfig.of({"retention.ms": "5"}))
    assert made != TopicConfig()
    assert repr(made) == "TopicConfig({'retention.ms': 5})"
    with pytest.raises(KeyError):
        made["nonsense"]
    with pytest.raises(UnknownSetting):
        made.explicit("nonsense")


def test_settings_that_contradict_each_other_are_refused():
    """min.compaction.lag.ms may not be above max.compaction.lag.ms."""
    with pytest.raises(InvalidSetting, match=r"min\.compaction\.lag\.ms: found 5, wanted at most"):
        TopicConfig.of({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4})


def test_something_that_is_no_mapping_is_refused():
    """A list of pairs, a string: the message says what was wanted."""
    for wrong in ("retention.ms=5", [("retention.ms", 5)], 5):
        with pytest.raises(InvalidSetting, match="wanted a mapping"):
            TopicConfig.of(wrong)


def test_the_rendered_document_names_every_setting_once():
    """docs/settings.md has a row for each, with type and default."""
    rows = [line for line in render_markdown().splitlines() if line.startswith("| `")]
    names = [row.split("`")[1] for row in rows]
    server = [one for one in ServerConfig.table.values() if one.name not in BrokerConfig.table]
    assert names == [setting.name for setting in (*ALL, *server)]
    for row, setting in zip(rows, (*ALL, *server), strict=True):
        assert setting.text in row
        assert f"| {setting.kind} |" in row


# ---- properties files ----------------------------------------------------------------------


def test_properties_are_read_as_java_reads_them():
    """Comments, the three separators, joined lines, escapes, the last value of a name."""
    text = (
        "#\n#Fri Nov 20 15:41:06 UTC 2026\n! also\nnode.id=1\n  a\\ b : c\\\n     d\n"
        "bare\nempty=\nversion 1\nk\\=ey=v=w\nu=\\u00e9\\\\\n\nnode.id=2\\\r\n3\nend=x"
    )
    assert parse_properties(text) == {
        "node.id": "23",
        "a b": "cd",
        "bare": "",
        "empty": "",
        "version": "1",
        "k=ey": "v=w",
        "u": "é\\",
        "end": "x",
    }


@given(st.dictionaries(st.text("abc.", min_size=1), st.text("xyz09:=", max_size=9), max_size=6))
def test_plain_properties_survive_the_way_through_a_file(values):
    """Keys without special characters, values with separators in them."""
    text = "".join(f"{name} = {value}\n" for name, value in values.items())
    assert parse_properties(text) == values


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text):
    """Any text gives names and values."""
    assert all(isinstance(k + v, str) for k, v in parse_properties(text).items())
