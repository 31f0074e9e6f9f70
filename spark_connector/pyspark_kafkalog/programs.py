"""The programs at the beginning of docs/spark.md, run by tests/spark/test_document_session.py."""

from __future__ import annotations

PROGRAMS = '''
A topic as a table:

```python
import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.getOrCreate()
data = os.path.abspath("data")  # the processes of Spark have other working directories


def parsed(rows):
    """Flights, of records with the carrier as the key and JSON as the value."""
    fields = f.from_json(f.col("value").cast("string"), "delay double")
    return rows.select(
        f.col("key").cast("string").alias("carrier"), fields.delay.alias("delay"), "timestamp"
    )


flights = parsed(spark.read.format("kafkalog").option("subscribe", "flights").load(data))
flights.groupBy("carrier").agg(f.count("*"), f.avg("delay")).show()
```

A stream with a window and a watermark, into a topic. Each window is written exactly once, when it
is over, whichever process dies and however often the program is started:

```python
def flights_as_they_come():
    rows = spark.readStream.format("kafkalog").option("subscribe", "flights")
    return parsed(rows.option("startingOffsets", "earliest").load(data))


hours = (
    flights_as_they_come()
    .withWatermark("timestamp", "10 minutes")
    .groupBy("carrier", f.window("timestamp", "1 hour").alias("hour"))
    .agg(f.count("*").alias("flights"), f.avg("delay").alias("delay"))
    .select(
        f.col("carrier").alias("key"),
        f.to_json(f.struct("hour.start", "flights", "delay")).alias("value"),
    )
)
query = (
    hours.writeStream.format("kafkalog")
    .option("topic", "hours")
    .option("checkpointLocation", os.path.abspath("checkpoints/hours"))
    .trigger(availableNow=True)  # what is there now; without this line the query runs on
    .start(data)
)
query.awaitTermination()
```

`foreachBatch` into two topics. `sinkId` and `batchId` make each write happen once:

```python
def route(rows, batch):
    for topic, which in (("good", "delay < 15"), ("late", "delay >= 15")):
        some = rows.where(which).selectExpr("carrier key", "string(delay) value")
        write = some.write.format("kafkalog").mode("append").option("topic", topic)
        write.option("sinkId", "route").option("batchId", batch).save(data)


query = (
    flights_as_they_come()
    .writeStream.foreachBatch(route)
    .option("checkpointLocation", os.path.abspath("checkpoints/route"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
```

A report needs no Spark, but `pip install duckdb polars` for these lines. It does not wait for the
sink: a read by path takes no lock. Of each
partition it sees whole micro-batches, since columns are of committed records;
`isolation="read_uncommitted"` shows also what is not decided yet, and what was aborted:

```python
import duckdb
import polars

import kafkalog

late = kafkalog.polars.scan(data, "late").group_by(polars.col("key").cast(polars.String)).len()
print(late.sort("key").collect())

with kafkalog.Log(os.path.join(data, "late-0"), mode="r") as log:
    rows = log.scan(columns=["key"], isolation="read_committed")
    counted = duckdb.sql("select decode(key), count(*) from rows group by 1 order by 1").fetchall()
```
'''
