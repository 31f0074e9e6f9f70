"""Changes that the console makes, if it may."""

from __future__ import annotations

from typing import Any

from kafkalog.console.asked import Refused, text_of, whole_of
from kafkalog.console.person import Person
from kafkalog.types import TopicPartition

__all__ = ["create_topic", "delete_topic", "produce", "reset_offsets", "subject"]

VALUE_CHARS_MAX = 500_000
CONFIGS_MAX = 100
HEADERS_MAX = 100
PARTITIONS_MAX = 100_000
TO = ("first", "last", "offset", "time")

SUBJECT_CHARS_MAX = 300
_SUBJECTS = {"group": "group", "topic": "topic", "name": "topic"}

Body = dict[str, Any]


def subject(body: Body) -> str:
    """The things that a change is about, as its line in the log names them; nothing is checked."""
    found = []
    for field, kind in _SUBJECTS.items():
        name = body.get(field)
        if isinstance(name, str):
            found.append(f"{kind} {name[:SUBJECT_CHARS_MAX]!r}")
    return ", ".join(found) or "nothing"


def produce(person: Person, body: Body) -> dict[str, Any]:
    """Write a record: `topic`, `value` (null deletes the key), `key`, `partition`, `headers`."""
    topic = person.topic(text_of(body, "topic"))
    value = body.get("value")
    headers = body.get("headers") or {}
    if value is not None:
        value = text_of(body, "value", most=VALUE_CHARS_MAX)
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise Refused(400, f"headers: wanted an object of up to {HEADERS_MAX} texts")
    key = None if body.get("key") in (None, "") else text_of(body, "key").encode()
    number = None
    if body.get("partition") is not None:
        number = whole_of(body, "partition", 0, (1 << 31) - 1)
        if number not in topic.partitions:
            raise Refused(404, f"topic {topic.name!r} has no partition {number}")
    with person.producer() as producer:
        sent = producer.send(
            topic.name, None if value is None else value.encode(), key=key, partition=number,
            headers=[(name, text_of(headers, name).encode()) for name in headers],
        )  # fmt: skip
        producer.flush()
        done = sent.result()
    return {"partition": done.partition, "offset": done.offset}


def create_topic(person: Person, body: Body) -> dict[str, Any]:
    """Create a topic: `name`, `partitions` and `replication` (-1: the default), `config`."""
    config = body.get("config") or {}
    if not isinstance(config, dict) or len(config) > CONFIGS_MAX:
        raise Refused(400, f"config: wanted an object of up to {CONFIGS_MAX} texts")
    made = person.admin.create_topic(
        text_of(body, "name"), whole_of(body, "partitions", -1, PARTITIONS_MAX),
        whole_of(body, "replication", -1, 1_000), {name: text_of(config, name) for name in config},
    )  # fmt: skip
    person.topics(fresh=True)
    return {"name": made.name}


def delete_topic(person: Person, body: Body) -> dict[str, Any]:
    """Delete a topic: `name`, and the same as `again`, so that nobody does it by accident."""
    name = text_of(body, "name")
    if text_of(body, "again") != name:
        raise Refused(400, "again: wanted the topic's name once more")
    person.admin.delete_topic(name)
    person.topics(fresh=True)
    return {"name": name}


def reset_offsets(person: Person, body: Body) -> dict[str, Any]:
    """Move a group without members: `group`, `topic`, `to` first, last, offset or time, `at`."""
    group, topic = text_of(body, "group"), person.topic(text_of(body, "topic"))
    to = text_of(body, "to")
    if to not in TO:
        raise Refused(400, f"to: found {to[:40]!r}, wanted one of {', '.join(TO)}")
    tps = [TopicPartition(topic.name, number) for number in topic.partitions]
    at = whole_of(body, "at") if to in ("offset", "time") else 0
    first = person.admin.list_offsets(dict.fromkeys(tps, "earliest")).check()
    last = person.admin.list_offsets(dict.fromkeys(tps, "latest")).check()
    wanted = {tp: (last if to == "last" else first)[tp].offset for tp in tps}
    if to == "offset":
        wanted = {tp: min(max(at, first[tp].offset), last[tp].offset) for tp in tps}
    elif to == "time":
        found = person.admin.list_offsets(dict.fromkeys(tps, at)).check()
        wanted = {tp: one.offset if one.offset >= 0 else last[tp].offset
                  for tp, one in found.items()}  # fmt: skip
    person.admin.alter_group_offsets(group, wanted).check()
    return {"partitions": len(wanted)}
