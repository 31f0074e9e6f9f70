"""Schemas and pruning, without a JVM."""

import pytest
from pyspark.sql import types as t
from pyspark_kafkalog.columns import NAMES, arrow_schema, chosen_columns, schema_of
from pyspark_kafkalog.errors import BadOption

from tests.spark.reading import sparks_arrow_schema

SPARK_KAFKA_SOURCE = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
)


def test_the_schema_is_that_of_sparks_kafka_source():
    schema = schema_of(NAMES)
    assert schema.simpleString() == SPARK_KAFKA_SOURCE
    assert all(field.nullable for field in schema)


@pytest.mark.parametrize("names", [NAMES, *((name,) for name in NAMES), NAMES[::-1]])
def test_our_arrow_schema_is_the_one_that_spark_wants(names):
    schema = schema_of(tuple(names))
    assert arrow_schema(schema).equals(sparks_arrow_schema(schema))


def test_a_users_schema_may_choose_order_case_and_not_null():
    schema = t.StructType(
        [
            t.StructField("OFFSET", t.LongType(), nullable=False),
            t.StructField("value", t.BinaryType()),
        ]
    )
    assert chosen_columns(schema) == ("offset", "value")
    assert arrow_schema(schema).equals(sparks_arrow_schema(schema))


def _bad_headers() -> t.ArrayType:
    names_only = t.StructType([t.StructField("key", t.StringType())])
    return t.ArrayType(names_only)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (t.StructField("size", t.LongType()), "found the column 'size', wanted some of key, value"),
        (t.StructField("value", t.StringType()), "'value': found string, wanted binary"),
        (t.StructField("offset", t.IntegerType()), "'offset': found int, wanted bigint"),
        (t.StructField("timestamp", t.TimestampNTZType()), "found timestamp_ntz, wanted timestamp"),
        (t.StructField("headers", _bad_headers()), "'headers': found array<struct<key:string>>"),
        (t.StructField("key", t.BinaryType(), nullable=False), "'key': found NOT NULL"),
        (t.StructField("Partition", t.IntegerType()), "twice"),
    ],
)
def test_foreign_columns_are_refused_by_name(field, words):
    schema = t.StructType([t.StructField("partition", t.IntegerType()), field])
    with pytest.raises(BadOption) as caught:
        chosen_columns(schema)
    assert words in str(caught.value)


def test_an_empty_schema_is_refused():
    with pytest.raises(BadOption, match="found no column"):
        chosen_columns(t.StructType([]))
