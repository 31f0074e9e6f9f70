"""Damages a directory of its own in many ways, one at a time, and judges each.

    python -m tests.damage.sweep.worker FOLDER --seed 1 --part 0 --parts 2 --flips 1000 --others 100

Prints one JSON object.  It runs as a process, so that a crash, an endless loop (SIGALRM) and
unlimited memory (RLIMIT_AS) are noticed.  The last line of FOLDER/now names the damage that
caused them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tests.damage.sweep import damages, reference
from tests.damage.sweep.judge import Judge
from tests.support import batches

MEMORY_BYTES = 96 << 20
SECONDS = 20
RECORDS_EVERY = 16
PROBLEMS_MAX = 20


def limit_memory() -> None:
    """Let the process grow by at most MEMORY_BYTES from now on."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def places(name: str, data: bytes) -> Iterator[int]:
    """Each byte of a file; of records, which one checksum covers alike, each RECORDS_EVERYth."""
    end = 0
    for header in batches.headers(data) if name.endswith(".log") else ():
        yield from range(header.pos, header.pos + batches.HEADER_BYTES)
        end = header.pos + header.batch_bytes
        yield from range(header.pos + batches.HEADER_BYTES, end, RECORDS_EVERY)
    yield from range(end, len(data))


def flips_of_all(made: reference.Reference, rng: random.Random) -> Iterator[damages.Damage]:
    """A random bit of each of those bytes, in each file."""
    for name, data in sorted(made.files.items()):
        for position in places(name, data):
            yield damages.flip(made, name, 8 * position + rng.randrange(8))


def chosen(
    made: reference.Reference, rng: random.Random, options: argparse.Namespace
) -> Iterable[damages.Damage]:
    """The damages of this part: a sample, or with --all one for each byte and each other damage.

    The memory to make them is allocated here, before memory is limited.
    """
    others = [d for kind in damages.KINDS.values() for d in kind(made, random.Random(0))]
    if options.all:
        every = chain(flips_of_all(made, random.Random(options.seed)), others)
        return islice(every, options.part, None, options.parts)
    # Half of them anywhere, half of them in each file alike, since most bytes are records.
    files = damages.flips(made)
    half = options.flips // 2
    names = [
        *rng.choices(files, [bits for _, bits in files], k=half),
        *rng.choices(files, k=options.flips - half),
    ]
    flipped = [damages.flip(made, name, rng.randrange(bits)) for name, bits in names]
    return [*flipped, *rng.sample(others, min(options.others, len(others)))]


def sweep(made: reference.Reference, options: argparse.Namespace) -> dict[str, Any]:
    """Judge every damage of this part."""
    rng = random.Random(f"{options.seed}-{options.part}")
    judge = Judge(made, rng)
    told: Counter[str] = Counter()
    problems: list[str] = []
    count = 0
    now = os.open(made.path.parent / "now", os.O_WRONLY | os.O_CREAT, 0o600)
    work = chosen(made, rng, options)
    limit_memory()
    start = time.monotonic()
    for what, edits, covered in work:
        os.pwrite(now, f"{what:200}\n".encode(), 0)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        made.write(edits)
        try:
            verdict = judge.judge(edits, covered)
        except Exception as problem:
            problems.append(f"{what}: {problem!r}")
        else:
            told[f"{'covered' if covered else 'not covered'}: told {verdict.told}"] += 1
            problems += [f"{what}: {problem}" for problem in verdict.problems]
        made.undo(edits)
        count += 1
        if len(problems) >= PROBLEMS_MAX:
            break
    signal.setitimer(signal.ITIMER_REAL, 0)
    return {
        "count": count,
        "seconds": round(time.monotonic() - start, 1),
        "outcomes": judge.count,
        "told": told,
        "problems": problems,
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument("--others", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    made = reference.make(options.folder / "data")
    json.dump(sweep(made, options), sys.stdout)


if __name__ == "__main__":
    main()
