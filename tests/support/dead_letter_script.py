"""Dead letters of a share group, the same for Apache Kafka and our broker, and a transcript."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import kafkalog
from kafkalog.wire import apis
from tests.support import batches
from tests.support.share_script import FIRST, GROUP_KIND, SETTINGS, ShareScript
from tests.support.waiting import wait_for

__all__ = ["DEAD_SETTINGS", "DeadLetterScript"]

TOPIC, COPY = "errors_deadletterqueue_topic_name", "errors_deadletterqueue_copy_record_enable"
ENABLE = "errors_deadletterqueue_group_enable"
TOPIC_KIND = 2
DEAD_SETTINGS = {
    **SETTINGS, "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.delivery.count.limit": "2",
}  # fmt: skip
ACCEPT, RELEASE, REJECT = 1, 2, 3


class DeadLetterScript(ShareScript):
    """One broker, and its transcript."""

    def run(self) -> None:
        """All steps."""
        self.settings()
        self.rows()
        one = self.member(FIRST)
        self.some(one, "all records")
        self.say(one, 0, REJECT)  # without a topic of dead letters
        self.group(**{TOPIC: "dlq.plain"})
        self.raw.create("dlq.plain", 2)
        self.known("dlq.plain")
        self.say(one, 1, REJECT)  # the topic is not for dead letters
        self.archived(2)
        self.raw.alter(TOPIC_KIND, "dlq.plain", **{ENABLE: "true"})
        self.enabled("dlq.plain")
        self.say(one, 2, REJECT)
        self.show("rejected", "dlq.plain", 1)
        self.group(**{COPY: "true"})
        self.say(one, 3, REJECT)
        self.say(one, 4, REJECT)
        self.show("copied", "dlq.plain", 3)
        self.group(**{TOPIC: "dlq.made"})
        for _ in range(2):
            self.say(one, 5, RELEASE)
            one.fetch(max_wait_ms=5_000)
        self.show("delivered too often, in a topic that is created", "dlq.made", 1)
        made = self.raw.describe(TOPIC_KIND, "dlq.made")
        names = (ENABLE.replace("_", "."), "message.timestamp.type")
        self.transcript.append(("its settings", [(made[n].value, made[n].config_source)
                                                 for n in names]))  # fmt: skip

    # ---- steps ---------------------------------------------------------------------------------

    def group(self, **config: str | None) -> None:
        """Change the settings of the group."""
        found = self.raw.alter(GROUP_KIND, "g", **config)
        self.transcript.append((f"settings {config}", found.error_code))

    def settings(self) -> None:
        """The names that a group may have, and the settings of the broker."""
        for name in ("__dead", "dead", "dlq.bad name", "dlq.", "x" * 250, "..", "", "dlq.t"):
            self.group(**{TOPIC: name})
        self.group(**{COPY: "maybe"})
        self.group(**{TOPIC: None})
        found = self.raw.describe(GROUP_KIND, "g")
        names = (TOPIC.replace("_", "."), COPY.replace("_", "."))
        self.transcript.append(("described", [
            (found[n].value, found[n].config_type, found[n].config_source, found[n].read_only,
             len(found[n].synonyms)) for n in names if n in found]))  # fmt: skip
        self.transcript.append(("enabled", self.raw.create("u", 1, **{ENABLE: "2"}).error_code))
        broker = self.raw.describe(4, "1")
        for n in ("errors.deadletterqueue.auto.create.topics.enable",
                  "errors.deadletterqueue.topic.name.prefix"):  # fmt: skip
            self.transcript.append((n, (broker[n].value, broker[n].config_type,
                                        broker[n].read_only) if n in broker else None))  # fmt: skip

    def rows(self) -> None:
        """Records with and without keys, values and headers."""
        rows = [
            batches.Row(b"a", b"k", 0), batches.Row(b"b", b"k", 0), batches.Row(b"c", b"k", 0),
            batches.Row(b"d", b"k", 0, [("h", b"1"), ("h", None)]), batches.Row(None, None, 0),
            batches.Row(b"f", b"k", 0),
        ]  # fmt: skip
        assert not self.raw.produce_batch("t", batches.batch(rows)).error_code

    def say(self, one: Any, offset: int, kind: int) -> None:
        self.note(
            f"{offset}: {kind}", one.acknowledge({(self.topic, 0): [(offset, offset, [kind])]})
        )

    def archived(self, count: int) -> None:
        """Wait until so many of the six records are done."""

        def done() -> bool:
            topics = [{"topic_name": "t", "partitions": [0]}]
            found = self.raw.call(
                apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": "g", "topics": topics}]
            )
            return bool(found.groups[0].topics[0].partitions[0].lag == 6 - count)

        wait_for(done, f"{count} records", 60)

    def known(self, topic: str) -> None:
        def there() -> bool:
            (found,) = self.raw.call(apis.METADATA, 12, topics=[{"name": topic}]).topics
            return not found.error_code and found.topic_id != UUID(int=0)

        wait_for(there, topic, 60)

    def enabled(self, topic: str) -> None:
        name = ENABLE.replace("_", ".")
        wait_for(lambda: self.raw.describe(TOPIC_KIND, topic)[name].value == "true", "it", 60)

    def show(self, label: str, topic: str, count: int) -> None:
        """The dead letters so far."""
        with kafkalog.Consumer(self.raw.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            found: list[Any] = []

            def all_there() -> bool:
                found.extend(consumer.poll(200))
                return len(found) >= count

            wait_for(all_there, label, 60)
        self.transcript.append((label, [(one.key, one.value, tuple(one.headers)) for one in found]))
