"""The options of a read, without Spark: which are understood, and which are refused and how."""

import pickle

import pytest
from pyspark_kafkalog.client_options import resolved
from pyspark_kafkalog.columns import NAMES
from pyspark_kafkalog.errors import BadOption
from pyspark_kafkalog.option_table import (
    BATCH,
    CLIENT,
    IGNORED,
    NO_MEANING,
    OF_BROKERS,
    OURS,
    REFUSED,
    STREAM,
    options_of,
)
from pyspark_kafkalog.options import (
    EARLIEST,
    LATEST,
    Limit,
    ReadOptions,
    Retries,
    Selection,
    StreamOptions,
    parse_batch,
    parse_stream,
)

from kafkalog.config.consumer import ConsumerConfig


def complete(options: dict[str, str]) -> dict[str, str]:
    """The options with a path and a topic where the test has none; `__` stands for a dot."""
    given = {name.replace("__", "."): text for name, text in options.items()}
    given.setdefault("path", "data")
    if not {"subscribe", "subscribePattern", "assign"} & set(given):
        given["subscribe"] = "orders"
    return {name.lower(): text for name, text in given.items()}


def read(**options: str) -> ReadOptions:
    return parse_batch(complete(options), NAMES)


def stream(**options: str) -> StreamOptions:
    return parse_stream(complete(options), NAMES)


def refusal(**options: str) -> str:
    with pytest.raises(BadOption) as caught:
        read(**options)
    return str(caught.value)


def test_defaults_are_those_of_a_batch_read_of_committed_records():
    assert read() == ReadOptions(
        path="data",
        selection=Selection(topics=("orders",)),
        start=Limit("startingOffsets", everywhere=EARLIEST),
        end=Limit("endingOffsets", everywhere=LATEST),
        start_without_match="error",
        fail_on_data_loss=True,
        min_partitions=None,
        max_records=None,
        max_bytes=128 << 20,
        isolation="read_committed",
        include_headers=False,
        columns=None,
        ignored=(),
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("data", "data"),
        (" /a/b ", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("C:x/y", "C:x/y"),
    ],
)
def test_a_path_is_local_or_a_file_url(text, path):
    assert read(path=text).path == path


@pytest.mark.parametrize("text", ["s3://bucket/data", "hdfs://host/data", "file://host/data"])
def test_a_path_elsewhere_is_refused(text):
    assert text in refusal(path=text)


def test_a_path_is_needed_and_only_one():
    assert "where to read: found neither, wanted either a path" in refusal(path=" ")
    both = refusal(kafka__bootstrap__servers="host:9092")
    assert "where to read: found both" in both and "kafka.bootstrap.servers" in both
    assert "found several" in refusal(paths='["a","b"]')


def test_no_options_at_all_are_met_with_spark_s_gap():
    with pytest.raises(BadOption, match=r"found no options at all.*CREATE TEMPORARY VIEW"):
        parse_batch({}, NAMES)


def test_topics_by_name_without_doubles_and_blanks():
    assert read(subscribe="b, a,,b").selection == Selection(topics=("b", "a"))
    assert "'subscribe'" in refusal(subscribe=" , ")


def test_topics_by_pattern():
    assert read(subscribePattern="or.*").selection == Selection(pattern="or.*")
    assert "'(' is no regular expression" in refusal(subscribePattern="(")
    assert "is empty" in refusal(subscribePattern=" ")


def test_partitions_by_assignment():
    selection = read(assign='{"a":[1,0,1],"b":[2]}').selection
    assert selection == Selection(assigned=(("a", 1), ("a", 0), ("b", 2)))


@pytest.mark.parametrize(
    "text",
    ["", "a-0", "[]", "{}", '{"a":[]}', '{"a":0}', '{"a":["0"]}', '{"a":[true]}', '{"a":[-1]}'],
)
def test_a_bad_assignment_shows_how_it_is_written(text):
    assert '{"orders":[0,1]}' in refusal(assign=text)


def test_exactly_one_way_to_choose_topics():
    assert "found subscribe, assign" in refusal(subscribe="a", assign='{"a":[0]}')
    with pytest.raises(BadOption, match="found none of them"):
        parse_batch({"path": "data"}, NAMES)


def test_offsets_by_word_and_by_partition():
    assert read(startingOffsets="Earliest").start.everywhere == EARLIEST
    assert read(endingOffsets="LATEST").end.everywhere == LATEST
    start = read(startingOffsets='{"a":{"0":23,"1":-2}}').start
    assert start.each == {("a", 0): 23, ("a", 1): EARLIEST}
    assert read(endingOffsets='{"a":{"0":-1}}').end.each == {("a", 0): LATEST}
    mixed = read(startingOffsets='{"a":{"0":23},"b":"Earliest"}').start
    assert (mixed.each, mixed.topics) == ({("a", 0): 23}, {"b": EARLIEST})
    assert stream(startingOffsets='{"a":"latest"}').start.topics == {"a": LATEST}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "wants 'earliest' here"),
        ({"endingOffsets": "earliest"}, "wants 'latest' here"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "found -1 for a-0"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "found -2 for a-0"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "offset -3 for a-0"),
        ({"startingOffsets": "5"}, "'5'"),
        ({"startingOffsets": '{"a":"latest"}'}, "found 'latest' for topic a, wanted 'earliest'"),
        ({"endingOffsets": '{"a":"earliest"}'}, "found 'earliest' for topic a, wanted 'latest'"),
        ({"endingOffsets": '{"a":"5"}'}, "found '5' for topic a, wanted 'latest'"),
        ({"startingOffsetsByTimestamp": '{"a":"earliest"}'}, "1735689600000"),
        ({"startingOffsets": '{"a":[0]}'}, '{"orders":{"0":23,"1":-2}}'),
        ({"startingOffsets": '{"a":{"x":0}}'}, '{"orders":{"0":23,"1":-2}}'),
        ({"endingOffsets": '{"a":{"0":"7"}}'}, '{"orders":{"0":23,"1":-2}}'),
        ({"endingOffsets": '{"a":{"0":99999999999999999999}}'}, "wanted"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingTimestamp": "-4"}, "milliseconds since 1970"),
        ({"startingTimestamp": "-12"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-4}}'}, "milliseconds since 1970"),
        ({"endingOffsetsByTimestamp": "12"}, "1735689600000"),
        ({"startingOffsetsByTimestampStrategy": "nearest"}, "wanted error or latest"),
    ],
)
def test_bad_limits_name_the_option_the_found_and_the_wanted(options, words):
    message = refusal(**options)
    assert words in message
    assert next(iter(options)) in message


def test_a_timestamp_goes_before_timestamps_by_partition_before_offsets():
    offsets = {"startingOffsets": '{"a":{"0":1}}'}
    by_partition = {"startingOffsetsByTimestamp": '{"a":{"0":2}}'}
    everywhere = {"startingTimestamp": "3"}
    assert read(**offsets).start.each == {("a", 0): 1}
    assert read(**offsets, **by_partition).start == Limit(
        "startingOffsetsByTimestamp", by_time=True, each={("a", 0): 2}
    )
    assert read(**offsets, **by_partition, **everywhere).start == Limit(
        "startingTimestamp", by_time=True, everywhere=3
    )


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64k", 64 << 10), ("128MB", 128 << 20), ("2 GiB", 2 << 30)]
)
def test_sizes_may_have_a_unit(text, size):
    assert read(maxBytesPerPartition=text).max_bytes == size


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_counts_are_whole_and_positive(option, text):
    assert f"{option!r}: found {text!r}" in refusal(**{option: text})


@pytest.mark.parametrize("text", ["0", "-1", "1.5m", "m", "1x"])
def test_bad_sizes_are_refused(text):
    assert "like 134217728 or 128m" in refusal(maxBytesPerPartition=text)


def test_words_are_checked():
    assert read(failOnDataLoss="FALSE").fail_on_data_loss is False
    assert read(includeHeaders="true").include_headers is True
    assert read(startingOffsetsByTimestampStrategy="latest").start_without_match == "latest"
    assert "wanted true or false" in refusal(failOnDataLoss="yes")
    assert "wanted read_committed or read_uncommitted" in refusal(isolation__level="serializable")


def test_the_isolation_level_may_have_kafkas_name():
    assert read(kafka__isolation__level="read_uncommitted").isolation == "read_uncommitted"
    assert read(isolation__level="read_uncommitted").isolation == "read_uncommitted"
    assert "but kafka.isolation.level is" in refusal(
        isolation__level="read_committed", kafka__isolation__level="read_uncommitted"
    )


def test_columns_in_the_order_asked_for():
    assert read(columns="offset, VALUE").columns == ("offset", "value")
    assert "found size" in refusal(columns="offset,size")
    assert "found nothing" in refusal(columns=" ")
    assert "twice" in refusal(columns="offset,Offset")


def test_options_of_kafkas_source_without_a_meaning_here_are_named():
    options = {name.lower(): "1" for name in IGNORED}
    options |= {name.lower(): "1" for name in OF_BROKERS}
    options |= {"kafka.fetch.max.bytes": "5", "path": "data", "subscribe": "a"}
    names = [*IGNORED, *OF_BROKERS, "kafka.fetch.max.bytes"]
    assert parse_batch(options, NAMES).ignored == tuple(sorted(names))


def test_the_patience_with_brokers():
    assert wire().retries == Retries(3, 120_000)
    given = {"fetchOffset__numRetries": "5", "kafkaConsumer__pollTimeoutMs": "7000"}
    options = wire(**given)
    assert (options.retries, options.ignored) == (Retries(5, 7000), ())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_consumer_settings_that_kafkas_source_refuses_are_refused(name):
    assert f"{name!r} is not supported: {REFUSED[name]}" in refusal(**{name: "x"})


@pytest.mark.parametrize("name", [name for name in options_of(BATCH) if "kafka" not in name])
def test_a_typing_mistake_is_met_with_the_nearest_name(name):
    assert f"did you mean {name!r}" in refusal(**{name[:-1] + "_" + name[-1]: "1"})


def test_a_table_brings_properties_that_are_no_options():
    catalog = {
        "provider": "kafkalog",
        "owner": "me",
        "location": "file:/d",
        "comment": "c",
        "a": "b",
    }
    table = {"path": "file:/d", "subscribe": "t", "option.subscribe": "t", **catalog}
    assert parse_batch(table, NAMES) == parse_batch({"path": "/d", "subscribe": "t"}, NAMES)
    with pytest.raises(BadOption, match="did you mean 'subscribe'"):
        parse_batch({**table, "subscribee": "t", "option.subscribee": "t"}, NAMES)


def test_an_unknown_option_lists_the_known_ones():
    assert ", ".join(options_of(BATCH)) in refusal(zzz="1")


@pytest.mark.parametrize("pattern", ["[a-z&&[^e]]", "[a--b]", "[[a]b]"])
def test_patterns_that_python_reads_otherwise_are_refused(pattern):
    """Nested sets are Java's; Python would look for the characters, and match nothing."""
    with pytest.raises(BadOption, match="is no regular expression of Python: Possible"):
        parse_batch({"path": "x", "subscribePattern": pattern}, NAMES)


# ---- streams


def test_a_stream_begins_at_the_end_and_has_none():
    assert stream() == StreamOptions(
        path="data",
        selection=Selection(topics=("orders",)),
        start=Limit("startingOffsets", everywhere=LATEST),
        end=Limit("endingOffsets", everywhere=LATEST),
        max_offsets=None,
        min_offsets=None,
        max_delay_ms=15 * 60_000,
        max_bytes=32 << 20,
    )


def test_a_stream_takes_both_words_as_its_start():
    assert stream(startingOffsets="earliest").start.everywhere == EARLIEST
    assert stream(startingOffsets="Latest").start.everywhere == LATEST
    each = stream(startingOffsets='{"a":{"0":-1,"1":-2,"2":3}}').start.each
    assert each == {("a", 0): LATEST, ("a", 1): EARLIEST, ("a", 2): 3}


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("15m", 900_000), ("90S", 90_000), ("250", 250), ("2 min", 120_000), ("1h", 3_600_000)],
)
def test_how_much_a_trigger_takes(text, delay_ms):
    options = stream(maxOffsetsPerTrigger="9", minOffsetsPerTrigger="9", maxTriggerDelay=text)
    assert (options.max_offsets, options.min_offsets, options.max_delay_ms) == (9, 9, delay_ms)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger': found '0', wanted a whole"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "found 5, wanted at most"),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay': found 'soon', wanted a time"),
        ({"minOffsets": "5"}, "unknown option 'minoffsets' for a stream read"),
    ],
)
def test_bad_triggers_are_refused(options, words):
    with pytest.raises(BadOption) as caught:
        stream(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", [name for name, one in OURS.items() if one.modes == (BATCH,)])
def test_a_stream_refuses_ending_options(name):
    with pytest.raises(BadOption, match=f"option '{name}' belongs to batch reads"):
        stream(**{name: "1"})


@pytest.mark.parametrize("name", [name for name, one in OURS.items() if one.modes == (STREAM,)])
def test_a_batch_ignores_stream_options(name):
    assert read(**{name: "x"}).ignored == (name,)


# ---- brokers


def wire(**options: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "one:9092, two", "subscribe": "a"}
    given |= {name.replace("__", "."): text for name, text in options.items()}
    return parse_batch({name.lower(): text for name, text in given.items()}, NAMES)


def test_settings_of_the_client_are_passed_on():
    options = wire(kafka__client__id="me", kafka__fetch__max__bytes=" 1000 ", includeHeaders="true")
    assert (options.path, options.servers) == (None, "one:9092, two")
    assert options.client == (("client.id", "me"), ("fetch.max.bytes", "1000"))
    assert wire(kafka__security__protocol="plaintext").client == (
        ("security.protocol", "plaintext"),
    )
    assert {*CLIENT} <= {*ConsumerConfig.table}


def test_settings_of_a_file_stay_in_it(tmp_path):
    """Neither what is pickled for tasks nor a repr has them; with options, only the latter."""
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "x required username=u password=hunter2;",
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    options = wire(clientConfigFile=str(file))
    assert resolved(dict(options.client)) == given
    assert b"hunter2" not in pickle.dumps(options)
    by_options = wire(**{f"kafka.{name}": value for name, value in given.items()})
    assert dict(by_options.client) == given
    assert "hunter2" not in repr(options) + repr(by_options)


def test_settings_that_change_nothing_are_ignored_by_name():
    ignored = {f"kafka__{name.replace('.', '__')}": "1" for name in NO_MEANING}
    assert wire(**ignored).ignored == tuple(sorted(f"kafka.{name}" for name in NO_MEANING))
    assert wire(kafka__isolation__level="read_uncommitted").isolation == "read_uncommitted"
    assert not {*CLIENT} & {*NO_MEANING}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka.fetch.max.byte": "1"}, "no such setting of a consumer; did you mean kafka.fetch."),
        ({"kafka.zzzzzz": "1"}, "known: check.crcs, client.id"),
        ({"kafka.fetch.max.bytes": "much"}, "fetch.max.bytes: found 'much', wanted an int"),
        ({"kafka.security.protocol": "TLS"}, "security.protocol: found 'TLS', wanted one of"),
        ({"kafka.ssl.provider": "hunter2"}, "'kafka.ssl.provider': no such setting"),
        ({"clientConfigFile": "/hunter"}, "'clientConfigFile': /hunter: No such file"),
        ({"kafka.auto.offset.reset": "none"}, "use startingOffsets"),
        ({"kafka.bootstrap.servers": "a b"}, "'kafka.bootstrap.servers': server 'a b': wanted"),
        ({"kafka.bootstrap.servers": " "}, "where to read: found neither"),
    ],
)
def test_other_settings_are_refused(options, words):
    with pytest.raises(BadOption) as caught:
        wire(**options)
    assert words in str(caught.value) and "hunter2" not in str(caught.value)
