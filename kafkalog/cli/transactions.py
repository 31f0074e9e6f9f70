"""`kafkalog transactions`: list and describe transactions, find hanging ones and end them."""

import argparse
import time
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import CommandError, UsageError, agreed, count_argument, repeated
from kafkalog.cli.remote import (
    action_of,
    add_actions,
    add_bootstrap,
    names_of,
    open_admin,
    partitions_of,
    say,
)
from kafkalog.cli.rows import MINUTE_MS, show_rows

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.transactions import ProducerInfo, TransactionInfo
    from kafkalog.types import TopicPartition

EXAMPLES = """\
example:
  kafkalog transactions --bootstrap-server localhost:9092
  kafkalog transactions describe billing-1 --bootstrap-server localhost:9092
  kafkalog transactions find-hanging --broker-id 1 --bootstrap-server localhost:9092
  kafkalog transactions abort --topic access --partition 0 --start-offset 1207 \\
      --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "list the transactional ids (the default action)",
    "describe": "show what the coordinator knows of a transactional id",
    "describe-producers": "show the producers that a partition remembers, and where their "
    "transactions began",
    "find-hanging": "find transactions that are open in a partition but unknown to every "
    "coordinator",
    "abort": "end a transaction in one partition, whatever its coordinator knows; asks first",
    "force-terminate": "fence the producer of a transactional id, and abort its open "
    "transaction; asks first",
}

OPTIONS = {
    "transactional_id": ("describe", "force-terminate"),
    "duration_filter": ("list",),
    "transactional_id_pattern": ("list",),
    "broker_id": ("find-hanging", "describe-producers"),
    "max_transaction_timeout": ("find-hanging",),
    "topic": ("find-hanging", "abort", "describe-producers"),
    "partition": ("find-hanging", "abort", "describe-producers"),
    "start_offset": ("abort",),
    "producer_id": ("abort",),
    "producer_epoch": ("abort",),
    "coordinator_epoch": ("abort",),
    "yes": ("abort", "force-terminate"),
    "json": ("list", "describe", "find-hanging", "describe-producers"),
}
"""The options that belong to some actions only."""
DEFAULT = "list"
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states in which a transaction is open."""
LARGEST = {"producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "coordinator_epoch": 2**31 - 1}
"""The fields that identify a transaction to abort, with the protocol's largest values."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_bootstrap(parser)
    add_actions(parser, ACTIONS, "TRANSACTIONAL-ID")
    repeated(parser, "--transactional-id", metavar="NAME", help="the same as the positional name")
    parser.add_argument(
        "--duration-filter", type=count_argument, metavar="MS",
        help="list: only ids whose transaction began longer ago than this, or that had none",
    )  # fmt: skip
    parser.add_argument(
        "--transactional-id-pattern",
        metavar="PATTERN",
        help="list: only ids that match this regular expression as a whole",
    )
    parser.add_argument(
        "--broker-id", type=int, metavar="N",
        help="find-hanging: in the partitions of this broker; describe-producers: ask this "
             "broker, not the leader",
    )  # fmt: skip
    parser.add_argument(
        "--max-transaction-timeout", type=count_argument, default=15, metavar="MINUTES",
        help="find-hanging: minimum time since their last write (default 15), as the brokers' "
             "transaction.max.timeout.ms",
    )  # fmt: skip
    parser.add_argument("--topic", metavar="TOPIC", help="the partition's topic")
    parser.add_argument("--partition", type=int, metavar="N", help="the partition's number")
    parser.add_argument(
        "--start-offset", type=int, metavar="OFFSET",
        help="abort: the transaction that begins there, as find-hanging shows it",
    )  # fmt: skip
    parser.add_argument(
        "--producer-id", type=int, metavar="ID",
        help="abort: the transaction of this producer, instead of --start-offset",
    )  # fmt: skip
    parser.add_argument("--producer-epoch", type=int, metavar="N", help="abort: with --producer-id")
    parser.add_argument(
        "--coordinator-epoch", type=int, metavar="N", help="abort: with --producer-id"
    )
    parser.add_argument("--yes", action="store_true", help="abort, force-terminate: do not ask")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(options: argparse.Namespace) -> int:
    """Do one action."""
    action, words = action_of(options, ACTIONS, DEFAULT)
    names = names_of(words, *options.transactional_id)
    if action in NAMED and not names:
        raise UsageError(f"{action}: which transactional id? give its name")
    if action not in NAMED and names:
        raise UsageError(f"{action} takes no name, not {names[0]!r}")
    with open_admin(options) as admin:
        if action in NAMED:
            NAMED[action](admin, options, names)
        else:
            DO[action](admin, options)
    return 0


def _list(admin: "Admin", options: argparse.Namespace) -> None:
    pattern = options.transactional_id_pattern
    found = admin.list_transactions(longer_ms=options.duration_filter, pattern=pattern)
    rows = [
        {
            "transactional_id": one.name,
            "coordinator": one.coordinator,
            "producer_id": one.producer_id,
            "state": one.state,
        }
        for one in found
    ]
    fields = ["transactional_id", "coordinator", "producer_id", "state"]
    show_rows(rows, fields, as_json=options.json, none="no transactional id")


def _describe(admin: "Admin", options: argparse.Namespace, names: list[str]) -> None:
    now_ms = time.time_ns() // 1_000_000
    rows = [_described(one, now_ms) for one in _known(admin, names)]
    show_rows(rows, list(rows[0]), as_json=options.json, none="")


def _known(admin: "Admin", names: list[str]) -> "list[TransactionInfo]":
    """The coordinators' description of each.  Raises: CommandError if there is none."""
    from kafkalog.wire.error_codes import ErrorCode

    found = admin.describe_transactions(names)
    for name, problem in found.errors.items():
        if problem.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise CommandError(f"no transactional id {name!r}")
    found.check()
    return [found[name] for name in names]


def _described(one: "TransactionInfo", now_ms: int) -> dict[str, Any]:
    # After a transaction's end, its coordinator still reports when it began.
    started = one.start_ms >= 0 and one.state in OPEN
    return {
        "transactional_id": one.name,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms if started else None,
        "open_ms": now_ms - one.start_ms if started else None,
        "partitions": [f"{tp.topic}-{tp.partition}" for tp in one.partitions],
    }


# ---- producers in partitions ---------------------------------------------------------------


def _describe_producers(admin: "Admin", options: argparse.Namespace) -> None:
    if options.topic is None or options.partition is None:
        raise UsageError("describe-producers: where? give --topic and --partition")
    tp = _partition(admin, options)
    rows = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp_ms": one.last_timestamp_ms,
            "start_offset": one.start_offset if one.start_offset >= 0 else None,
        }
        for one in admin.describe_producers([tp], node=options.broker_id)[tp]
    ]
    where = f"{tp.topic}-{tp.partition}"
    show_rows(rows, list(rows[0]) if rows else (), as_json=options.json,
              none=f"no producer is remembered in {where}")  # fmt: skip


def _find_hanging(admin: "Admin", options: argparse.Namespace) -> None:
    age_ms = options.max_transaction_timeout * MINUTE_MS
    found = admin.find_hanging_transactions(
        _searched(admin, options), age_ms=age_ms, node=options.broker_id
    )
    rows = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "producer_id": one.producer.producer_id,
            "producer_epoch": one.producer.epoch,
            "coordinator_epoch": one.producer.coordinator_epoch,
            "start_offset": one.producer.start_offset,
            "last_timestamp_ms": one.producer.last_timestamp_ms,
            "age_ms": one.age_ms,
        }
        for one in found
    ]
    show_rows(
        rows, list(rows[0]) if rows else (), as_json=options.json, none="no hanging transaction"
    )


def _searched(admin: "Admin", options: argparse.Namespace) -> "list[TopicPartition]":
    """The partitions to search.  Raises: UsageError, UnknownTopicOrPartition."""
    if options.topic is not None and options.partition is not None:
        found = [_partition(admin, options)]
    elif options.topic is not None:
        found = partitions_of(admin, options.topic)
    elif options.partition is not None:
        raise UsageError("find-hanging: --partition: of which topic? give --topic")
    elif options.broker_id is None:
        raise UsageError("find-hanging: where? give --broker-id, or --topic")
    else:
        found = [tp for topic in admin.list_topics(True) for tp in partitions_of(admin, topic)]
    node = options.broker_id
    if node is None:
        return found
    nodes = sorted(one.node for one in admin.describe_cluster().nodes)
    if node not in nodes:
        known = ", ".join(map(str, nodes))
        raise UsageError(f"--broker-id: found {node}, wanted one of {known}")
    topics = admin.describe_topics(sorted({tp.topic for tp in found})).check()
    return [tp for tp in found if node in topics[tp.topic].partitions[tp.partition].replicas]


def _partition(admin: "Admin", options: argparse.Namespace) -> "TopicPartition":
    if options.partition < 0:
        raise UsageError(f"--partition: found {options.partition}, wanted 0 or more")
    return partitions_of(admin, f"{options.topic}:{options.partition}")[0]


# ---- abort ---------------------------------------------------------------------------------


def _abort(admin: "Admin", options: argparse.Namespace) -> None:
    _check_abort(options)
    tp = _partition(admin, options)
    where = f"{tp.topic}-{tp.partition}"
    if options.start_offset is not None:
        one = _beginning_at(admin, tp, options.start_offset)
        producer_id, epoch, of_coordinator = one.producer_id, one.epoch, one.coordinator_epoch
    else:
        producer_id, epoch = options.producer_id, options.producer_epoch
        of_coordinator = options.coordinator_epoch
    what = f"the transaction of producer {producer_id}, epoch {epoch}, in {where}"
    if not options.yes and not agreed(f"{what[0].upper()}{what[1:]} is aborted."):
        raise UsageError(f"abort: {what}: nothing was written; add --yes")
    admin.abort_transaction(tp, producer_id, epoch, of_coordinator)
    say(f"aborted {what}")


def _check_abort(options: argparse.Namespace) -> None:
    """Raises: UsageError for options that do not name one transaction."""
    if options.topic is None or options.partition is None:
        raise UsageError("abort: where? give --topic and --partition")
    words = [f"--{name.replace('_', '-')}" for name in LARGEST]
    given = []
    for word, (name, largest) in zip(words, LARGEST.items(), strict=True):
        value = getattr(options, name)
        least = -1 if name == "coordinator_epoch" else 0  # -1: it has ended nothing there yet
        if value is not None and not least <= value <= largest:
            raise UsageError(f"{word}: found {value}, wanted {least} to {largest}")
        if value is not None:
            given.append(word)
    if options.start_offset is not None:
        if given:
            raise UsageError(f"abort takes --start-offset or {given[0]}, not both")
    elif len(given) < len(words):
        found = " and ".join(given) or "neither"
        wanted = f"{', '.join(words[:-1])} and {words[-1]}"
        raise UsageError(f"abort: found {found}, wanted --start-offset, or {wanted}")


def _beginning_at(admin: "Admin", tp: "TopicPartition", offset: int) -> "ProducerInfo":
    """The producer of the transaction that is open from this offset on.  Raises: CommandError."""
    producers = admin.describe_producers([tp])[tp]
    started = {one.start_offset: one for one in producers if one.start_offset >= 0}
    if offset not in started:
        at = ", ".join(map(str, sorted(started)[:10]))
        there = f"those that are open begin at {at}" if started else "none is open there"
        raise CommandError(
            f"{tp.topic}-{tp.partition}: no open transaction begins at offset {offset}: {there}"
        )
    return started[offset]


# ---- force-terminate -----------------------------------------------------------------------


def _terminate(admin: "Admin", options: argparse.Namespace, names: list[str]) -> None:
    for one in _known(admin, names):  # fencing a missing one would create it
        what = f"the producer of the transactional id {one.name}"
        question = f"{what[0].upper()}{what[1:]} is fenced; its transaction is {one.state}."
        if not options.yes and not agreed(question):
            raise UsageError(f"force-terminate: {one.name}: nothing was done; add --yes")
        fenced = admin.fence_producers([one.name])[one.name]
        say(f"fenced {what}: producer {fenced.producer_id} has epoch {fenced.epoch} now")


NAMED = {"describe": _describe, "force-terminate": _terminate}
"""The actions that take transactional ids."""
DO = {
    "list": _list,
    "describe-producers": _describe_producers,
    "find-hanging": _find_hanging,
    "abort": _abort,
}
