"""`kafkalog simulate`: runs a simulated cluster with faults drawn from a seed."""

import argparse
import logging
import random
import secrets
import sys
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, count_argument, json_line, plural, warn
from kafkalog.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.simulate.mutants import Mutant
    from kafkalog.simulate.quorum.mutants import Mutant as Planted
    from kafkalog.simulate.run import Result

EXAMPLES = """\
example:
  kafkalog simulate
  kafkalog simulate --seed 1000 --seeds 500 --events 3000
  kafkalog simulate --seed 17 --trace
  kafkalog simulate --mutant no-divergence --seeds 50
  kafkalog simulate --quorum --seeds 500
  kafkalog simulate --quorum --controllers --seeds 50
"""
WORDS = """\
The controller, the rules of nodes and of replication, and the logs are those of a broker; clock,
network, ZooKeeper and power cuts are simulated.  Nodes are killed, cut off, paused and shut down in
order, then all is healed: every acknowledged record must be there, in order, once, in every
replica.  If a seed fails, the command shows the fewest steps that still make it fail, and exits
with status 1.

With --quorum it is a KRaft quorum instead: Raft's decisions are real, its network, clocks and disks
are simulated; at most one leader per epoch, and nothing committed is lost.  With --controllers each
node also has a controller, which decides for three simulated brokers without data and a client that
creates topics."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.description = f"{parser.description}\n\n{WORDS}"
    parser.add_argument("--seed", type=int, help="the first seed (default: random)")
    parser.add_argument(
        "--seeds", type=count_argument, default=20, help="how many seeds (default: 20)"
    )
    parser.add_argument(
        "--nodes", type=count_argument, default=3, help="the cluster's nodes, 2 to 7 (default: 3)"
    )
    parser.add_argument(
        "--events", type=count_argument, default=3_000,
        help="events per seed, before the cluster is healed (default: 3000)",
    )  # fmt: skip
    parser.add_argument("--trace", action="store_true", help="print each event")
    parser.add_argument(
        "--mutant", metavar="NAME", help="plant a mistake, which must be found; `list` names them"
    )
    parser.add_argument(
        "--delete", action="store_true", help="also delete a topic and create it again"
    )
    parser.add_argument(
        "--quorum", action="store_true", help="simulate a KRaft quorum instead of a cluster"
    )
    parser.add_argument(
        "--controllers", action="store_true", help="with --quorum: simulate controllers over it"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per seed")


def run(options: argparse.Namespace) -> int:
    """Run it; the exit status."""
    if options.controllers and not options.quorum:
        raise UsageError("--controllers: found no --quorum, wanted both")
    mutants = _mutants(options)
    if options.mutant == "list":
        for name, one in mutants.items():
            print(f"{name:<24} {one.what}")
        return 0
    if options.mutant is not None and options.mutant not in mutants:
        raise UsageError(f"--mutant: found {options.mutant!r}, wanted one of {', '.join(mutants)}")
    if not 2 <= options.nodes <= 7:
        raise UsageError(f"--nodes: found {options.nodes}, wanted 2 to 7")
    mutant = mutants.get(options.mutant) if options.mutant else None
    first = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    logger = logging.getLogger("kafkalog")
    level = logger.level
    logger.setLevel(logging.ERROR)  # a controller warns why it resigns
    try:
        return _search(options, range(first, first + options.seeds), mutant)
    finally:
        logger.setLevel(level)


def _search(options: argparse.Namespace, seeds: range, mutant: "Mutant | Planted | None") -> int:
    events = acknowledged = 0
    failed = []
    progress = Progress(0)
    for seed in seeds:
        found = _one(seed, options, mutant)
        events, acknowledged = events + found.events, acknowledged + found.acknowledged
        if options.json:
            print(json_line({
                "seed": seed, "failure": found.failure, "events": found.events,
                "virtual_ms": round(found.ms), "acknowledged": found.acknowledged,
                "digest": found.digest,
            }))  # fmt: skip
        elif options.trace:
            print("\n".join(found.trace))
        progress.update(acknowledged, 0)
        if found.failure:
            failed.append(seed)
            progress.clear()
            if not options.json:
                _show(found, options, mutant)
    progress.clear()
    warn(
        f"{plural(len(seeds), 'seed')} from {seeds[0]}, {plural(events, 'event')} "
        f"({events / progress.seconds():,.0f}/s), {plural(acknowledged, 'record')} acknowledged; "
        f"{len(failed) or 'none'} failed{': ' if failed else ''}{', '.join(map(str, failed))}"
    )
    return 1 if failed else 0


def _mutants(options: argparse.Namespace) -> "Mapping[str, Mutant | Planted]":
    if options.controllers:
        from kafkalog.simulate.quorum.metadata_mutants import MUTANTS as OF_CONTROLLERS

        return OF_CONTROLLERS
    if options.quorum:
        from kafkalog.simulate.quorum.mutants import MUTANTS as PLANTED

        return PLANTED
    from kafkalog.simulate.mutants import MUTANTS

    return MUTANTS


def _one(
    seed: int, options: argparse.Namespace, mutant: "Mutant | Planted | None", **how: object
) -> "Result":
    if options.quorum:
        return _quorum(seed, options, mutant)
    from kafkalog.simulate import run as simulation
    from kafkalog.simulate.mutants import Mutant

    assert mutant is None or isinstance(mutant, Mutant)

    dice = random.Random(f"{seed}-setup")
    durable = None if mutant is None else mutant.durable
    return simulation.run(
        seed, events=options.events, nodes=options.nodes,
        rules=None if mutant is None else mutant.rules,
        setup=simulation.drawn_setup(dice, options.nodes, durable),
        deletes=options.delete, **how,  # type: ignore[arg-type]
    )  # fmt: skip


def _show(found: "Result", options: argparse.Namespace, mutant: "Mutant | Planted | None") -> None:
    from kafkalog.simulate.run import minimised

    least = minimised(found, lambda steps: _one(found.seed, options, mutant, steps=steps))
    sys.stdout.write(f"seed {found.seed}: {least.failure}\n")
    for step in least.steps:
        sys.stdout.write(f"  {step}\n")


def _quorum(seed: int, options: argparse.Namespace, mutant: "Mutant | Planted | None") -> "Result":
    from kafkalog.simulate.quorum import governed
    from kafkalog.simulate.quorum import run as simulation
    from kafkalog.simulate.quorum.mutants import Mutant as Planted
    from kafkalog.simulate.quorum.mutants import planted

    assert mutant is None or isinstance(mutant, Planted)
    run_one = governed.run if options.controllers else simulation.run
    with planted(mutant):
        return run_one(seed, options.events, mutant.given if mutant else None)
