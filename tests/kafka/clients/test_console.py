"""The console shows Apache Kafka, too."""

from __future__ import annotations

import json

import pytest

import kafkalog
from kafkalog.console.person import Place
from tests.support.console import Browser, console

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_every_page_of_apache_kafka(apache_kafka: str) -> None:
    with kafkalog.Admin(apache_kafka) as admin:
        admin.create_topic("console-orders", 3)
    with (
        kafkalog.Producer(apache_kafka, transactional_id="console-tx") as producer,
        producer.transaction(),
    ):
        for number in range(60):
            value = json.dumps({"n": number}).encode()
            producer.send("console-orders", value, key=b"k%d" % (number % 5), partition=number % 3)
    for protocol in ("classic", "consumer"):
        with kafkalog.Consumer(
            apache_kafka,
            "console-orders",
            group=f"console-{protocol}",
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            next(iter(consumer))
            consumer.commit()
    with console(Place(lambda: apache_kafka), write=True) as server:
        browser = Browser(server.url)
        browser.begin()
        (topic,) = browser.get("topics", q="console-")["topics"]
        assert (topic["name"], topic["partitions"]) == ("console-orders", 3)
        measured = browser.get("measures", names="console-orders")["console-orders"]
        assert measured["records"] == 63 and measured["bytes"] > 0  # with a marker in each
        rows = browser.get("partitions", name="console-orders")["rows"]
        assert [(row["start"], row["end"], len(row["bytes"])) for row in rows] == [(0, 21, 1)] * 3
        assert browser.get("layout", name="console-orders")["segments"] is None
        settings = {one["name"] for one in browser.get("configs", name="console-orders")}
        assert "retention.ms" in settings
        last = browser.get("records", topic="console-orders", committed=1, count=10)
        assert len(last["records"]) == 10 and last["end"]
        found = browser.get("records", topic="console-orders", key="k3")
        assert len(found["records"]) == 12
        groups = {one["name"]: one for one in browser.get("groups", q="console-")["groups"]}
        assert {one["kind"].lower() for one in groups.values()} == {"classic", "consumer"}
        for name in groups:
            group = browser.get("group", name=name)
            assert sum(row["offset"] + row["lag"] for row in group["partitions"]) == 21 * len(
                group["partitions"]
            )
        (open_,) = browser.get("transactions", q="console-tx")["transactions"]
        assert open_["state"] == "CompleteCommit"
        cluster = browser.get("cluster")
        assert cluster["hidden"] == {} and cluster["quorum"]["replicas"]
        sent = browser.post("produce", topic="console-orders", value="by hand", partition=2)
        assert sent.json == {"partition": 2, "offset": 21}
        moved = browser.post(
            "reset-offsets", group="console-classic", topic="console-orders", to="last"
        )
        assert moved.status == 200, moved
        gone = browser.post("delete-topic", name="console-orders", again="console-orders")
        assert gone.status == 200
