"""docs/compatibility.md: which APIs and versions are served, and which of them clients use."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog.wire.api import Api
from kafkalog.wire.apis import BY_KEY

__all__ = ["CLIENTS", "LATEST", "render_markdown"]

CLIENTS: dict[str, dict[int, int]] = {
    "librdkafka 2.16": {
        0: 10, 1: 16, 2: 7, 3: 13, 8: 9, 9: 9, 10: 2, 11: 5, 12: 3, 13: 1, 14: 3, 15: 5,
        16: 5, 18: 3, 19: 4, 20: 4, 21: 2, 22: 4, 24: 0, 25: 0, 26: 1, 28: 3, 32: 1, 33: 2,
        37: 2, 42: 2, 44: 1,
    },
    "kafka-python 3.0": {
        0: 9, 1: 12, 2: 11, 3: 13, 8: 8, 9: 8, 10: 6, 11: 7, 13: 5, 14: 5, 15: 6, 16: 5,
        18: 4, 20: 6, 21: 2, 22: 4, 24: 3, 25: 3, 26: 3, 28: 3, 32: 4, 35: 5, 42: 2, 44: 1,
        46: 0, 60: 2,
    },
    "aiokafka 0.14": {
        0: 7, 1: 11, 2: 3, 3: 5, 8: 3, 9: 3, 10: 1, 11: 5, 13: 1, 14: 3, 15: 3, 16: 1,
        18: 0, 19: 3, 20: 3, 21: 2, 22: 0, 24: 0, 25: 0, 26: 0, 28: 0, 32: 2, 37: 1,
    },
    "kafkajs 2.2": {
        0: 7, 1: 11, 2: 3, 3: 6, 8: 5, 9: 4, 10: 2, 11: 5, 12: 3, 13: 3, 14: 3, 15: 2,
        16: 2, 18: 2, 19: 3, 20: 1, 21: 1, 22: 1, 24: 1, 25: 1, 26: 1, 28: 1, 32: 2, 33: 1,
        37: 1, 42: 1,
    },
    "Java 3.9": {
        0: 11, 1: 17, 2: 9, 3: 12, 8: 9, 9: 9, 10: 6, 11: 9, 13: 5, 14: 5, 15: 5, 16: 5,
        18: 4, 19: 7, 20: 6, 21: 2, 22: 5, 32: 4, 35: 4, 37: 3, 42: 2, 43: 2, 44: 1, 46:
        0, 60: 1, 61: 0, 75: 0,
    },
    "Java 4.3": {
        0: 13, 1: 18, 2: 11, 3: 13, 8: 10, 9: 10, 10: 6, 11: 9, 13: 5, 14: 5, 15: 6, 16:
        5, 18: 4, 19: 7, 20: 6, 21: 2, 22: 5, 26: 5, 28: 5, 32: 4, 35: 5, 37: 3, 42: 2,
        43: 2, 44: 1, 46: 0, 60: 2, 61: 0, 75: 0,
    },
    "sarama 1.50": {
        0: 10, 1: 12, 2: 6, 3: 11, 8: 8, 9: 8, 10: 3, 11: 8, 12: 4, 13: 5, 14: 5, 15: 5,
        16: 5, 18: 4, 19: 7, 20: 6, 21: 2, 22: 4, 23: 4, 24: 3, 25: 3, 26: 3, 28: 3, 32: 4,
        33: 2, 35: 4, 37: 3, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 47: 0, 60: 2, 61: 0,
    },
}  # fmt: skip
"""The highest version of each API that a client sent to a broker that knew all of them; with ours
it uses the lower one.  Of sarama what its source knows."""

SUITES = (
    ("librdkafka 2.15.1", "its tests against a broker, quick mode, also of share consumers; some "
     "again by SASL_SSL and by TLS, those with groups again with `group.protocol=consumer` *",
     "166 of 170",
     "three brokers (2); how it reports a refused certificate (0097) and which member joins first "
     "(0118), by its own timing, now and then; the others need no broker (0133), or curl (0126), "
     "or skip themselves"),
    ("librdkafka 1.8.2", "26 of its tests of consumers, groups, events, idempotence", "all", ""),
    ("kafka-python 3.0.12", "`test/integration`, with SASL, TLS and an authorizer *", "66 of 66",
     "1 skipped"),
    ("kafka-python 2.3.3", "`test/integration`", "35 of 40",
     "ACLs; 2 of transactions, which were not supported then; 2 skipped"),
    ("kafka-python 2.2.21", "`test/integration`", "35 of 40",
     "ACLs; 2 of transactions, which were not supported then; 2 skipped"),
    ("kafka-python 2.1.6", "tests of groups, consumers, producers, admin calls", "32 of 38",
     "4 fail with Kafka too (ACLs, a broker with id 0, an old error code); what it guesses from "
     "DescribeAcls; 1 skipped"),
    ("kafka-python 2.0.2", "the same", "31 of 37",
     "as with 2.1.6"),
    ("kafka-python 2.0, 2.1, 2.3, 3.0", "a walk of ours with each `api_version` from 0.11 on",
     "all", "older ones have no version of Produce in common with Kafka 4 either"),
    ("confluent-kafka 2.16.1", "a walk of ours through its API, 158 outcomes", "as Kafka",
     "wording of errors; SCRAM and ACLs in `tests/kafka/clients`"),
    ("confluent-kafka 2.15.0", "its integration tests of admin calls and transactions, with SCRAM "
     "and ACLs; its package lacks them", "12 of 13",
     "the other one lists the settings of a topic that are not the defaults, with two of our test "
     "broker's"),
    ("confluent-kafka 2.16.1", "the integration tests of 2.15.0 of consumers, producers and admin "
     "calls with `group.protocol=consumer`, and of share consumers", "169 of 177",
     "a schema registry (6), a cluster of its own; a poll that takes more records than "
     "`share.partition.max.record.locks` allows, with Kafka, too; 5 skipped"),
    ("aiokafka 0.10, 0.12, 0.14", "a walk of ours through its API, 52 outcomes each", "as Kafka",
     ""),
    ("aiokafka 0.14.0", "its tests of transactions", "20 of 20", ""),
    ("franz-go 1.22.3", "`pkg/kgo`, 50,000 records, with groups of both protocols and share "
     "groups *", "154 of 154", "2 skipped"),
    ("sarama 1.61.1", "functional tests, on one broker behind toxiproxy", "50 of 56",
     "they stop, start or read the log of brokers in containers (3), want more brokers (2); "
     "quotas; 1 skipped"),
    ("kafka-go 0.4.51", "its tests, with SASL, ACLs and quotas *", "121 of 123",
     "a null pointer of its own, and metadata of deleted topics (docs/decisions.md), both with "
     "Kafka, too; 4 skipped"),
    ("rdkafka 0.39 (Rust)", "its tests, with node.id=0", "45 of 46",
     "the one wants another message.max.bytes"),
    ("rskafka 0.6.0", "its tests", "58 of 59", "-"),
    ("kafka 0.10.0 (Rust)", "its integration tests", "4 of 12",
     "its versions of Produce, Fetch and commits are those that Kafka 4 gave up"),
    ("kafkajs 2.2.4", "a walk of ours through its API, 69 outcomes", "as Kafka",
     "its own time limit now and then, with Kafka too; TLS, SASL and ACLs in "
     "`tests/kafka/clients`"),
    ("kafkajs 2.2.4", "its tests, with its TLS and SASL_SSL listeners, PLAIN and SCRAM; its "
     "package lacks them", "1,190 of 1,236",
     "44 fail with Kafka, too: three brokers, commands in containers; a member with a rebalance "
     "timeout of 0, by timing, as others of these with Kafka; one passed when it ran again; "
     "8 skipped"),
    ("Kafka's tools 4.1.1", "a walk of ours through their options, 247 commands", "as Kafka",
     "as far as was compared: long outputs in part; wording of errors; quotas, ACLs, settings "
     "of groups end with an error that names the API"),
    ("Kafka 4.3.0", "its tests of the requests of groups of every kind, and of quotas, with our "
     "broker instead of its own *", "124 of 134",
     "the order of rows, and of topics that do not exist (4); a deprecated setting, ignored here "
     "(2); what Kafka 4.4.0 answers as we do (2); the words of an error; Kafka's own objects; 2 "
     "skipped, which want several brokers"),
    ("Kafka's TransactionalMessageCopier 4.4.0", "copies through kills of the broker and of it, "
     "as its system tests have it", "as Kafka", "it is in `tests/kafka/clients`"),
)  # fmt: skip
"""Client and version, what was run, how much of it passed, and why the rest does not apply."""

_METADATA_LOG = "Not by a node of a cluster on ZooKeeper, as by Kafka 3.9."
NOTES = {
    78: "Dead letters (KIP-1191) need `share.version` 2. A copy that the dead-letter topic's "
    "`max.message.bytes` does not allow is written without key and value; Kafka writes none. "
    "A wait ends at once when the client half-closes its connection; Kafka's ends in its time.",
    0: "0 to 2 are announced and refused: without them older librdkafka takes a broker for one "
    "that cannot compress (KAFKA-18659).",
    1: "18 is for followers.",
    2: "10 and 11 ask about remote storage: there is none.",
    18: "A version that is not known is answered in version 0, so that the client asks again.",
    22: "6 (KIP-939) is not stable in Kafka 4.4, whose brokers do not announce it either.",
    27: "For administrators: `kafkalog transactions abort`, Kafka's own tool.",
    66: "Patterns as RE2's, without flags, word boundaries and Unicode classes.",
    43: "One node leads everything: the answer says so.",
    45: "One node holds everything: the answer says so.",
    46: "One node holds everything: the answer says so.",
    55: _METADATA_LOG,
    60: "No broker is ever fenced here.",
    64: _METADATA_LOG,
    71: "Not by a node of a cluster on ZooKeeper, nor with kafkalog.client.metrics.enable=false.",
    72: "As GetTelemetrySubscriptions.",
    94: _METADATA_LOG,
}

LATEST = {
    0: 13, 1: 18, 2: 11, 3: 13, 8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5,
    17: 1, 18: 5, 19: 7, 20: 6, 21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 5, 27: 2, 28: 6, 29: 3,
    30: 3, 31: 3, 32: 4, 33: 2, 34: 2, 35: 5, 36: 2, 37: 3, 38: 3, 39: 2, 40: 2, 41: 3, 42: 3,
    43: 2, 44: 1, 45: 1, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0, 55: 2, 57: 2, 60: 2, 61: 0,
    64: 0, 65: 0, 66: 2, 68: 1, 69: 1, 71: 0, 72: 0, 74: 1, 75: 0, 76: 1, 77: 1, 78: 2, 79: 2,
    80: 1, 81: 0, 83: 0, 84: 0, 85: 1, 86: 0, 87: 1, 88: 1, 89: 1, 90: 1, 91: 0, 92: 0, 93: 0,
    94: 0,
}  # fmt: skip
"""The highest version of each API that a broker of Apache Kafka 4.4 announces.  Those that are not
here are for controllers."""
HEAD = """\
# Compatibility

Rendered from the tables in `kafkalog/wire/tables` and from `kafkalog/wire/compatibility.py` by
`make docs`; do not edit.

A client asks for the versions of each API (ApiVersions) and uses the highest that both sides
know, so what counts is that the ranges meet. The Apache Kafka that judges is 4.4.0: each served
version is tested against its declarations and its codec:
`tests/unit/wire/test_declared.py::test_an_api_is_as_kafka_declares_it`,
`tests/kafka/referee/test_codec.py::test_kafka_reads_and_writes_the_same`.
"""


def render_markdown() -> str:
    """The whole document."""
    return "\n".join([HEAD, *_served(), *_clients(), *_suites(), *_coded(), *_records(), ""])


def _span(versions: range) -> str:
    last = versions.stop - 1
    return str(last) if versions.start == last else f"{versions.start} to {last}"


def _served() -> Iterator[str]:
    yield "## Served\n"
    yield "What the broker announces. Flexible: the first version with compact types and tagged"
    yield "fields (KIP-482). Missing: versions that a broker of Apache Kafka 4.4 announces, too.\n"
    yield "| key | API | versions | missing | flexible | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for api in BY_KEY.values():
        if api.served is not None:
            missing = range(api.served.stop, LATEST[api.key] + 1)
            yield (
                f"| {api.key} | {api.name} | {_span(api.served)} "
                f"| {_span(missing) if missing else ''} | {_flexible(api)} "
                f"| {NOTES.get(api.key, '')} |"
            )


def _flexible(api: Api) -> str:
    return f"{api.first_flexible}+" if api.first_flexible in api.versions else "none"


def _clients() -> Iterator[str]:
    yield "\n## What clients use\n"
    yield "The version that each client uses with this broker: the lower of ours and the highest"
    yield "that it was seen to send (of sarama, that its source knows); empty: it was not seen to"
    yield "use this API. kcat, confluent-kafka and the bindings for .NET, Rust and Node.js are"
    yield "librdkafka; franz-go uses the highest of everything. `tests/kafka/clients` runs them."
    yield "The ranges begin where those of Kafka 4 do (KIP-896), so clients as old as Java 2.1,"
    yield "librdkafka 1.8.2 and kafka-python 2 have versions in common with it. librdkafka 1.7 and"
    yield "older produce, but find the ends of a log only by version 0 of ListOffsets, so that with"
    yield "us as with Kafka 4 they cannot consume from there.\n"
    yield f"| API | {' | '.join(CLIENTS)} |"
    yield f"| --- |{' --- |' * len(CLIENTS)}"
    for api in BY_KEY.values():
        if api.served is not None:
            used = [_used(api.served, known.get(api.key)) for known in CLIENTS.values()]
            yield f"| {api.name} | {' | '.join(used)} |"


def _used(served: range, known: int | None) -> str:
    return "" if known is None else str(min(known, served.stop - 1))


def _suites() -> Iterator[str]:
    yield "\n## Other clients' own tests\n"
    yield "The tests that clients ship, with their broker replaced by `kafkalog serve`. Those with"
    yield "a * are fetched, built and run by `make suites` (`python -m tests.kafka.suites --side"
    yield "kafka` asks Apache Kafka); the others were run by hand, all but sarama's and aiokafka's"
    yield "before transactions were there; those of librdkafka, kafka-python, aiokafka, kafkajs,"
    yield "Java, franz-go and sarama run in `tests/kafka/clients`, too."
    yield "Where a client ships no tests that need a broker, the same calls went to both and the"
    yield "outcomes were compared. What was found has tests in `tests/kafka/clients` and"
    yield "`tests/unit/server`.\n"
    yield "| client | what was run | passed | the rest |"
    yield "| --- | --- | --- | --- |"
    for row in SUITES:
        yield f"| {' | '.join(row)} |"


def _coded() -> Iterator[str]:
    yield "\n## Known, not served\n"
    yield "The codec has all of Kafka's APIs, for the client's side and for what comes later."
    yield "A broker that lists one must do what it says, so these are not listed. A broker of"
    yield "Apache Kafka 4.4 announces the versions up to those in the third column; the others"
    yield "are for controllers. Our controllers, and brokers of a KRaft cluster, list and serve"
    yield "80 and 81; our controllers also those marked so.\n"
    yield "| key | API | Kafka 4.4 | versions that can be coded |"
    yield "| --- | --- | --- | --- |"
    for api in BY_KEY.values():
        if api.served is None:
            yield (
                f"| {api.key} | {api.name} | {LATEST.get(api.key, 'controllers')} "
                f"| {_span(api.versions)} |"
            )


def _records() -> Iterator[str]:
    from kafkalog.wire import records

    yield "\n## Internal records\n"
    yield "What Kafka writes to its own topics, and up to which version it is read here. With a"
    yield "kind or version of `__cluster_metadata` that is not known the directory is only read; of"
    yield "the other topics it is left alone.\n"
    yield "| where | records |"
    yield "| --- | --- |"
    metadata = (f"{m.title} {_span(m.versions)}" for m in records.METADATA.kinds.values())
    yield f"| `__cluster_metadata` | {', '.join(metadata)} |"
    for keyed in (records.OFFSETS, records.TRANSACTIONS, records.SHARE_STATE):
        kinds = (
            f"{value.title.removesuffix('Value')} {_span(value.versions)}"
            for _, value in keyed.kinds.values()
        )
        yield f"| `{keyed.topic}` | {', '.join(kinds)} |"
    control = (f"{name} {_span(m.versions)}" for name, m in records.CONTROL.kinds.values())
    yield f"| control batches | {', '.join(control)} |"
