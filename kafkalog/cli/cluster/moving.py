"""Shows, executes, watches and cancels a plan: what `drain` and `reassign` share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkalog.cli.cluster.elect import elect
from kafkalog.cli.cluster.looking import Look, look, sizes
from kafkalog.cli.cluster.plan import Move
from kafkalog.cli.common import CommandError, UsageError, plural, show_bytes, table, warn
from kafkalog.cli.progress import Progress
from kafkalog.cli.remote import say
from kafkalog.client.calls.configs import ConfigChange, ConfigResource, alter_configs
from kafkalog.client.calls.replicas import Reassignment, list_reassignments, reassign_partitions
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.client.link.cluster import Cluster

__all__ = ["cancel", "carry_out", "check_options", "not_moving", "show", "unthrottle", "watch"]

Moves = Mapping[TopicPartition, Move]
SHOWN_MAX = 50
LOOK_S = 0.5
"""How often to ask the controller about the progress."""
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Broker settings: how fast it sends and fetches replicas that catch up."""
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic settings: the replicas that this applies to, as partition:node."""
LEFT = "watch it: kafkalog cluster reassign --watch; cancel it: kafkalog cluster reassign --cancel"


def check_options(options: argparse.Namespace) -> None:
    """Raises: UsageError for what only goes with --execute."""
    if not options.execute:
        for name, given in (("throttle", options.throttle), ("no-wait", options.no_wait)):
            if given:
                raise UsageError(f"--{name}: needs --execute")


# ---- before --------------------------------------------------------------------------------


def not_moving(cluster: Cluster, some: Iterable[TopicPartition]) -> None:
    """Refuse a second plan: it would be made from a half-finished one.  Raises: CommandError."""
    moving = list_reassignments(cluster)
    busy = [tp for tp in some if tp in moving]
    if busy:
        raise CommandError(
            f"{plural(len(busy), 'partition')} moving already, as {busy[0].topic}-"
            f"{busy[0].partition}: wait (kafkalog cluster reassign --watch) or cancel it "
            "(kafkalog cluster reassign --cancel)"
        )


def show(found: Look, held: dict[int, dict[TopicPartition, int]], moves: Moves) -> None:
    """Print the plan and how much it copies."""
    heads = ["topic", "part", "now", "then", "copies"]
    cells = [
        [
            tp.topic,
            str(tp.partition),
            ",".join(map(str, move.now)),
            ",".join(map(str, move.then)),
            show_bytes(_cost(found, held, tp, move)) if move.adding else "-",
        ]
        for tp, move in list(moves.items())[:SHOWN_MAX]
    ]
    print(table(heads, cells, left=frozenset({0, 2, 3})))
    if len(moves) > SHOWN_MAX:
        print(f"... {plural(len(moves) - SHOWN_MAX, 'partition')} more")
    copies = sum(len(move.adding) for move in moves.values())
    whole = sum(_cost(found, held, tp, move) for tp, move in moves.items())
    heads_ = sum(move.now[:1] != move.then[:1] for move in moves.values())
    say(
        f"{plural(len(moves), 'partition')}: {plural(copies, 'replica')} to copy, "
        f"{show_bytes(whole)}; {plural(heads_, 'partition')} led by another node"
    )


def _cost(
    found: Look, held: dict[int, dict[TopicPartition, int]], tp: TopicPartition, move: Move
) -> int:
    leader = found.partitions[tp].leader
    return len(move.adding) * held.get(leader, {}).get(tp, 0)


# ---- doing ---------------------------------------------------------------------------------


def carry_out(cluster: Cluster, options: argparse.Namespace, found: Look, moves: Moves) -> int:
    """Start the plan and, without --no-wait, watch it until it is done; returns 1 if parts failed.

    Ctrl-C stops watching: what was started continues.
    """
    not_moving(cluster, moves)
    if options.throttle:
        _throttle(cluster, found, moves, options.throttle)
    wanted = {tp: move.then for tp, move in moves.items()}
    results = reassign_partitions(cluster, wanted, cluster.options.request_timeout_ms)
    for tp, problem in results.errors.items():
        warn(f"{tp.topic}-{tp.partition}: {problem}")
    started = {tp: moves[tp] for tp in results.done}
    if options.no_wait:
        say(f"{plural(len(started), 'partition')} started; {LEFT}")
        return 1 if results.errors else 0
    wait(cluster, started)
    if options.throttle:
        unthrottle(cluster, found, {tp.topic for tp in moves})
    failed = _lead(cluster, started)
    say(f"{plural(len(started), 'partition')} moved")
    return 1 if results.errors or failed else 0


def _lead(cluster: Cluster, moves: Moves) -> bool:
    """Let the new first replicas lead; returns whether some could not."""
    now = look(cluster)
    wanted = [
        tp
        for tp, move in moves.items()
        if tp in now.partitions and now.partitions[tp].leader != move.then[0]
    ]
    failed = elect(cluster, "preferred", wanted) if wanted else {}
    for tp, why in failed.items():
        warn(f"{tp.topic}-{tp.partition}: node {moves[tp].then[0]} does not lead: {why}")
    return bool(failed)


def wait(cluster: Cluster, moves: Moves) -> None:
    """Show a bar until nothing of it is moving.  Raises: KeyboardInterrupt, with a hint."""
    progress: Progress | None = None
    try:
        while True:
            moving = list_reassignments(cluster, list(moves)) if moves else {}
            now = look(cluster)
            held = sizes(cluster, now)
            whole = sum(
                _cost(now, held, tp, move) for tp, move in moves.items() if tp in now.partitions
            )
            done = sum(
                _copied(now, held, tp, move) for tp, move in moves.items() if tp in now.partitions
            )
            if progress is None:
                progress = Progress(whole, "partition")
            progress.total_bytes = max(whole, progress.total_bytes)
            progress.update(len(moves) - len(moving), done, force=True)
            if not moving:
                return
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        if progress is not None:
            progress.clear()
        warn(f"what was started continues; {LEFT}")
        raise
    finally:
        if progress is not None:
            progress.clear()


def _copied(
    found: Look, held: dict[int, dict[TopicPartition, int]], tp: TopicPartition, move: Move
) -> int:
    whole = held.get(found.partitions[tp].leader, {}).get(tp, 0)
    isr = found.partitions[tp].isr
    return sum(
        whole if node in isr else min(held.get(node, {}).get(tp, 0), whole) for node in move.adding
    )


# ---- what is under way ---------------------------------------------------------------------


def watch(cluster: Cluster, some: set[TopicPartition]) -> int:
    """Watch all running moves, whatever started them, and remove their throttle."""
    moving = {tp: one for tp, one in list_reassignments(cluster).items() if tp in some}
    if not moving:
        say("nothing is moving")
        return 0
    moves = {tp: _as_move(one) for tp, one in moving.items()}
    wait(cluster, moves)
    found = look(cluster)
    unthrottle(cluster, found, {tp.topic for tp in moves})
    say(f"{plural(len(moves), 'partition')} moved; let the first replicas lead: "
        "kafkalog cluster elect")  # fmt: skip
    return 0


def _as_move(one: Reassignment) -> Move:
    now = tuple(node for node in one.replicas if node not in one.adding)
    return Move(now, tuple(node for node in one.replicas if node not in one.removing))


def cancel(cluster: Cluster, some: set[TopicPartition]) -> int:
    """Cancel all moves: replicas stay where they were; returns 1 if some could not be cancelled."""
    moving = [tp for tp in list_reassignments(cluster) if tp in some]
    if not moving:
        say("nothing is moving")
        return 0
    results = reassign_partitions(
        cluster, dict.fromkeys(moving), cluster.options.request_timeout_ms
    )
    for tp, problem in results.errors.items():
        warn(f"{tp.topic}-{tp.partition}: {problem}")
    unthrottle(cluster, look(cluster), {tp.topic for tp in moving})
    say(f"{plural(len(results.done), 'partition')} cancelled: replicas stay where they were")
    return 1 if results.errors else 0


# ---- throttle ------------------------------------------------------------------------------

Throttles = dict[ConfigResource, dict[str, ConfigChange]]


def _throttle(cluster: Cluster, found: Look, moves: Moves, rate: int) -> None:
    """As Kafka's kafka-reassign-partitions.sh --throttle.

    Raises: CommandError: a node refuses it; then none is left set.
    """
    nodes = {n for move in moves.values() if move.adding for n in (*move.now, *move.adding)}
    rates = {name: ConfigChange("set", str(rate)) for name in RATES}
    brokers: Throttles = {
        ConfigResource("broker", str(node)): rates for node in sorted(nodes & found.nodes.keys())
    }
    topics: Throttles = {}
    for tp, move in ((tp, move) for tp, move in moves.items() if move.adding):
        topic = topics.setdefault(ConfigResource("topic", tp.topic), {})
        for name, some in zip(THROTTLED, (move.now, move.adding), strict=True):
            listed = ",".join(f"{tp.partition}:{node}" for node in some)
            before = f"{topic[name].value}," if name in topic else ""
            topic[name] = ConfigChange("set", before + listed)
    patience_ms = cluster.options.request_timeout_ms
    for changes in (brokers, topics):
        results = alter_configs(cluster, changes, timeout_ms=patience_ms)
        for one, problem in results.errors.items():
            gone = dict.fromkeys(RATES, ConfigChange("delete", None))
            set_ = dict.fromkeys(brokers.keys() - results.errors.keys(), gone)
            alter_configs(cluster, set_, timeout_ms=patience_ms)
            raise CommandError(f"{one.kind} {one.name} refuses a throttle, and nothing was moved; "
                               f"do it without --throttle ({problem})")  # fmt: skip


def unthrottle(cluster: Cluster, found: Look, topics: Iterable[str]) -> None:
    """Remove the throttle of these topics and, if nothing else is moving, of all nodes."""
    gone = ConfigChange("delete", None)
    there = {tp.topic for tp in found.partitions}
    changes: Throttles = {
        ConfigResource("topic", name): dict.fromkeys(THROTTLED, gone)
        for name in sorted(topics)
        if name in there
    }
    if not list_reassignments(cluster):
        for node in found.nodes:
            changes[ConfigResource("broker", str(node))] = dict.fromkeys(RATES, gone)
    results = alter_configs(cluster, changes, timeout_ms=cluster.options.request_timeout_ms)
    for one, problem in results.errors.items():
        warn(f"the throttle of {one.kind} {one.name} is still there: {problem}")
