"""`kafkalog perf`: measures how fast a broker takes and gives records, and the latency across
it."""

import argparse
import os
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import (
    CODECS,
    CommandError,
    UsageError,
    count_argument,
    json_line,
    plural,
    show_bytes,
    warn,
)
from kafkalog.cli.histogram import percentiles, render_histogram, show_ms
from kafkalog.cli.produce import ACKS
from kafkalog.cli.progress import Progress
from kafkalog.cli.remote import (
    PRODUCER_PROPERTIES,
    add_bootstrap,
    add_sending,
    apply_properties,
    open_cluster,
    open_producer,
)

if TYPE_CHECKING:
    from kafkalog.client.buffer.delivery import Delivery
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.client.producer.producer import Producer

EXAMPLES = """\
example:
  kafkalog perf produce --topic bench --num-records 1000000 --record-size 100 \\
      --bootstrap-server localhost:9092
  kafkalog perf consume --topic bench --bootstrap-server localhost:9092
  kafkalog perf end-to-end --topic bench --num-records 2000 --acks all \\
      --bootstrap-server localhost:9092
"""

KINDS = ("produce", "consume", "end-to-end")
DEFAULTS = {"produce": 1_000_000, "end-to-end": 1_000}
BODIES = 64
SEED = 20_110_111
INTERRUPTED = 130
TOLD = ("text", "histogram", "interrupted")
"""Unknown figures."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "kind",
        choices=KINDS,
        help="produce: as fast as possible, with latencies of batches; consume: from the "
        "start, in whole batches, with latencies of answers (one is requested ahead); "
        "end-to-end: one record at a time, from the send until it is read",
    )
    add_bootstrap(parser)
    parser.add_argument("--topic", required=True, help="topic; produce fills it with random data")
    parser.add_argument(
        "--num-records",
        "--messages",
        type=count_argument,
        metavar="N",
        help="how many records (produce: 1000000, end-to-end: 1000, consume: all)",
    )
    parser.add_argument(
        "--record-size", type=count_argument, default=100, metavar="BYTES",
        help="the size of a value (default 100)",
    )  # fmt: skip
    parser.add_argument(
        "--throughput",
        type=int,
        default=-1,
        metavar="N",
        help="produce: records a second (default -1: no limit)",
    )
    parser.add_argument("--partition", type=int, metavar="P", help="only this one")
    parser.add_argument(
        "--acks",
        choices=tuple(ACKS),
        default="all",
        help="which replicas must have a record (default all)",
    )
    parser.add_argument(
        "--compression", choices=CODECS, default="none", help="the codec of the batches"
    )
    add_sending(parser)
    parser.add_argument(
        "--producer-property",
        "--producer-props",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help=f"these options by Kafka's names: {', '.join(PRODUCER_PROPERTIES)}",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Measure, and print the figures."""
    apply_properties(options, "--producer-property", options.producer_property, PRODUCER_PROPERTIES)
    if options.throughput == 0 or options.throughput < -1:
        raise UsageError(f"--throughput: found {options.throughput}, wanted -1 or at least 1")
    with open_cluster(options) as cluster:
        measure = {"produce": _produce, "consume": _consume, "end-to-end": _end_to_end}
        figures = measure[options.kind](cluster, options)
    if options.json:
        print(json_line({k: v for k, v in figures.items() if k not in TOLD}))
    else:
        print("\n".join(filter(None, (figures["text"], figures["histogram"]))))
    return INTERRUPTED if figures["interrupted"] else 0


def _figures(
    kind: str,
    records: int,
    wanted: int,
    size: int,
    seconds: float,
    latencies: list[tuple[float, int]],
) -> dict[str, Any]:
    """Print what was measured up to a Ctrl-C; `latencies`: seconds, and of how many records."""
    text = (
        f"{plural(records, 'record')}, {show_bytes(size)} in {seconds:.2f} s: "
        f"{records / seconds:,.0f} records/s, {show_bytes(size / seconds)}/s"
    )
    figures: dict[str, Any] = {
        "kind": kind,
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 6),
        "records_per_s": round(records / seconds, 1),
        "bytes_per_s": round(size / seconds, 1),
    }
    if latencies:
        ranks = percentiles(latencies)
        figures["latency_ms"] = {name: round(1000 * s, 4) for name, s in ranks.items()}
        text += "\nlatency: " + ", ".join(f"{name} {show_ms(s)}" for name, s in ranks.items())
    return {
        **figures,
        "text": text,
        "histogram": render_histogram(latencies) if latencies else "",
        "interrupted": records < wanted,
    }


def _bodies(size: int) -> list[bytes]:
    """Values that compress like text: random letters, with a fixed seed."""
    letters = random.Random(SEED)
    alphabet = b"abcdefghijklmnopqrstuvwxyz     "
    return [bytes(letters.choices(alphabet, k=size)) for _ in range(BODIES)]


# ---- produce -----------------------------------------------------------------------------


def _produce(cluster: "Cluster", options: argparse.Namespace) -> dict[str, Any]:
    wanted = options.num_records or DEFAULTS["produce"]
    latencies: list[tuple[float, int]] = []
    sent = [0, 0]

    def done(delivery: "Delivery") -> None:
        latencies.append((delivery.latency_ms / 1000, delivery.count))
        sent[0] += delivery.count
        sent[1] += delivery.record_bytes
        progress.update(sent[0], sent[1])

    bodies = _bodies(options.record_size)
    progress = Progress(wanted * options.record_size)
    try:
        with open_producer(options, done) as producer:
            producer.partitions(options.topic)
            progress.started = time.monotonic()
            for i in _paced(wanted, options.throughput, producer):
                producer.send(options.topic, bodies[i % BODIES], partition=options.partition)
    except KeyboardInterrupt:
        progress.clear()
        warn(f"interrupted: these are {sent[0]:,} of {plural(wanted, 'record')}")
        if not sent[0]:
            raise
    seconds = progress.seconds()
    progress.clear()
    if not sent[0]:
        raise CommandError("no record was acknowledged")
    return _figures("produce", sent[0], wanted, sent[1], seconds, latencies)


def _paced(wanted: int, a_second: int, producer: "Producer") -> Iterator[int]:
    """Numbers from 0 on, at most `a_second` of them per second; -1: without a limit."""
    if a_second < 0:
        yield from range(wanted)
        return
    started = time.monotonic()
    for i in range(wanted):
        while (ahead_s := i / a_second - (time.monotonic() - started)) > 0:
            producer.flush()
            if (ahead_s := i / a_second - (time.monotonic() - started)) > 0:
                time.sleep(min(ahead_s, 0.05))
        yield i


# ---- consume -----------------------------------------------------------------------------


def _consume(cluster: "Cluster", options: argparse.Namespace) -> dict[str, Any]:
    from kafkalog.client.calls.offsets import EARLIEST, LATEST, all_partitions, list_offsets
    from kafkalog.client.fetch.fetcher import Fetcher

    chosen = [
        tp
        for tp in all_partitions(cluster, options.topic)
        if options.partition in (None, tp.partition)
    ]
    starts = list_offsets(cluster, dict.fromkeys(chosen, EARLIEST))
    ends = {
        tp: at.offset for tp, at in list_offsets(cluster, dict.fromkeys(chosen, LATEST)).items()
    }
    positions = {tp: starts[tp].offset for tp in chosen if starts[tp].offset < ends[tp]}
    if not positions:
        raise CommandError(f"{options.topic!r} has no records there: `kafkalog perf produce` first")
    fetcher = Fetcher(cluster, positions)
    records = size = 0
    interrupted = False
    latencies: list[tuple[float, int]] = []
    limit = options.num_records or 1 << 62
    progress = Progress(0)
    try:
        while records < limit and fetcher.positions:
            asked_s, before = time.perf_counter(), records
            for block in fetcher.poll():
                records += block.record_count()
                size += len(block.data)
                if block.next_offset >= ends[block.tp]:
                    fetcher.positions.pop(block.tp)
            if records > before:
                latencies.append((time.perf_counter() - asked_s, records - before))
            progress.update(records, size)
    except KeyboardInterrupt:
        progress.clear()
        interrupted = True
        warn(f"interrupted after {plural(records, 'record')}")
    finally:
        seconds = progress.seconds()
        progress.clear()
        fetcher.close()
    return _figures("consume", records, records + interrupted, size, seconds, latencies)


# ---- end to end --------------------------------------------------------------------------


def _end_to_end(cluster: "Cluster", options: argparse.Namespace) -> dict[str, Any]:
    """One record in flight at a time: sent, and fetched by a waiting consumer."""
    from kafkalog.client.calls.offsets import LATEST, list_offsets
    from kafkalog.client.fetch.fetcher import Fetcher
    from kafkalog.types import TopicPartition

    wanted = options.num_records or DEFAULTS["end-to-end"]
    tp = TopicPartition(options.topic, options.partition or 0)
    latencies: list[tuple[float, int]] = []
    progress = Progress(wanted * options.record_size)
    try:
        with open_producer(options) as producer:
            producer.partitions(options.topic)
            fetcher = Fetcher(cluster, {tp: list_offsets(cluster, {tp: LATEST})[tp].offset})
            fetcher.poll(0)  # its request waits in the broker
            for _ in range(wanted):
                mark = os.urandom(8)
                started = time.perf_counter()
                value = mark.ljust(options.record_size, b".")
                producer.send(tp.topic, value, partition=tp.partition).result()
                _await(fetcher, mark)
                latencies.append((time.perf_counter() - started, 1))
                progress.update(len(latencies), len(latencies) * options.record_size)
            fetcher.close()
    except KeyboardInterrupt:
        progress.clear()
        warn(f"interrupted: these are {len(latencies):,} of {plural(wanted, 'record')}")
        if not latencies:
            raise
    seconds = progress.seconds()
    progress.clear()
    if not latencies:
        raise CommandError("no record was read")
    done = len(latencies)
    return _figures("end-to-end", done, wanted, done * options.record_size, seconds, latencies)


def _await(fetcher: Any, mark: bytes) -> None:
    while True:
        for block in fetcher.poll():
            if any((record.value or b"").startswith(mark) for record in block.records()):
                return
