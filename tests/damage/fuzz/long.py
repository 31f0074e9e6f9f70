"""The long form, as `make fuzz` runs it: `python -m tests.damage.fuzz.long [TARGET ...]`.

The targets share KAFKALOG_FUZZ_MINUTES (10).  Inputs with new coverage are kept in
build/fuzz/corpus for the next run; executions are added to the ledger, one line a run.

With --corpora each target reads only the inputs that the checkout keeps and those made of its
golden files: the same each time.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.damage.fuzz import corpus, engine, seeds

LEDGER = Path(os.environ.get("KAFKALOG_LEDGER", engine.HERE / "ledger.jsonl"))


def commit() -> str:
    """The fuzzed commit, as git names it."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=engine.ROOT)
    return done.stdout.strip() or "unknown"


def note(target: engine.Target, result: engine.Result, seconds: float) -> None:
    line = {
        "day": datetime.date.today().isoformat(),
        "commit": commit(),
        "target": target.name,
        "seconds": round(seconds),
        "executions": result.executions,
        "coverage": result.coverage,
        "found": bool(result.crash),
    }
    with LEDGER.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main(names: list[str]) -> int:
    """Run every target, as many at once as there are processors; 1 if one found something."""
    only_kept = "--corpora" in names
    names = [name for name in names if name != "--corpora"]
    unknown = set(names) - set(engine.TARGETS)
    if unknown:
        print(
            f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(engine.TARGETS)}"
        )
        return 2
    if engine.compiler() is None:
        print("no clang with libFuzzer (Debian: clang-14 and libclang-rt-14-dev)")
        return 2
    targets = [engine.TARGETS[name] for name in names or engine.TARGETS]
    programs = engine.build(targets)
    committed = corpus.unpacked(engine.BUILD)
    workers = os.cpu_count() or 1
    minutes = float(os.environ.get("KAFKALOG_FUZZ_MINUTES", "10"))
    seconds = max(1.0, minutes * 60 * workers / len(targets))

    def kept_inputs(target: engine.Target) -> engine.Result:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as real:
            seeds.write(target, Path(real))
            corpora = [f for f in (Path(real), committed / target.name) if f.is_dir()]
            return engine.run(target, programs[target.name], corpora)

    def searched(target: engine.Target) -> engine.Result:
        kept, real = (engine.BUILD / kind / target.name for kind in ("corpus", "real"))
        for folder in (kept, real):
            folder.mkdir(parents=True, exist_ok=True)
        seeds.write(target, real, 500)
        corpora = [kept, real, committed / target.name]
        corpora = [folder for folder in corpora if folder.is_dir()]
        seed = int.from_bytes(os.urandom(3), "big")
        result = engine.run(target, programs[target.name], corpora, seed, seconds=seconds)
        note(target, result, seconds)
        return result

    def one(target: engine.Target) -> bool:
        result = kept_inputs(target) if only_kept else searched(target)
        print(f"{target.name:10} {result.executions:>12,} executions, coverage {result.coverage}")
        if result.crash:
            print(f"FOUND: {result.crash}\n{result.report}", flush=True)
        return result.crash is not None

    with ThreadPoolExecutor(workers) as pool:
        return int(any(list(pool.map(one, targets))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
