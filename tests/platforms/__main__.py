"""python -m tests.platforms [TARGET ...]"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

from tests.platforms import emulation
from tests.platforms.building import PLACE, Failed, build, call
from tests.platforms.targets import RESULTS, TARGETS, Target, emulated, render_markdown

RUN_S = 900
"""The most that the tests of one target may take: all targets end in 40 minutes on two cores."""
EMULATED_EFFORT = "0.1"
"""KAFKALOG_EFFORT under an emulator, where each round of a search is expensive."""
LEFT_OUT = "not slow and not long and not java and not spark and not explore"
NOT_EMULATED = (
    "test_the_kind_matches_the_machine",  # /proc/cpuinfo is the host's
    "test_another_process_is_named",  # its program is the emulator
)


def _run(target: Target, tree: Path) -> tuple[str, bool]:
    """The last line of pytest, and True if all tests passed.

    Raises: Failed.
    """
    log = PLACE / f"{target.name}-tests.log"
    python = str(emulation.interpreter()) if emulated(target) else sys.executable
    only = f"not ({' or '.join(NOT_EMULATED)})" if emulated(target) else ""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", LEFT_OUT, "-k", only]
    command += ["-n", "2", "--dist", "loadfile", "--timeout", "600"]
    command += [f"tests/{name}" for name in target.tests if (tree / "tests" / name).exists()]
    # The copy comes before an installed kafkalog in the processes that tests start, too.
    environment = {"PYTHONPATH": str(tree)}
    if emulated(target):
        environment["KAFKALOG_EFFORT"] = EMULATED_EFFORT
    fine = True
    try:
        call(log, command, tree, environment, RUN_S)
    except Failed:
        fine = False
    summary = log.read_text(encoding="utf-8").splitlines()[-1]
    if " passed" not in summary:
        raise Failed(summary)
    return re.sub(r", \d+ warnings?| in .*", "", summary), fine


def _try(target: Target, results: dict[str, dict[str, str]], only_build: bool) -> bool:
    """Build it and run its tests; the result is kept at once.  True if all went well."""
    found, fine = {"date": time.strftime("%Y-%m-%d", time.gmtime())}, True
    try:
        tree, found["built"] = build(target)
        print(f"platforms: {target.name}: built {found['built']}", flush=True)
        if target.tests and not only_build:
            found["ran"], fine = _run(target, tree)
            print(f"platforms: {target.name}: {found['ran']}", flush=True)
    except Failed as error:
        print(f"platforms: {target.name}: FAILED: {error}", flush=True)
        found["ran" if "built" in found else "built"] = "FAILED"
        fine = False
    results[target.name] = found
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return fine


def main() -> int:
    """Try the targets of the command line, or all; print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.platforms", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--build", action="store_true", help="run no tests")
    parser.add_argument("--list", action="store_true", help="only print the last results")
    arguments = parser.parse_args()
    if arguments.list:
        print(render_markdown())
        return 0
    known = {target.name: target for target in TARGETS}
    if unknown := set(arguments.names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: unknown; known are {', '.join(known)}")
    PLACE.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    wanted = [known[name] for name in arguments.names or known]
    fine = [_try(target, results, arguments.build) for target in wanted]
    print(render_markdown(results))
    print("`make docs` writes it to docs/platforms.md")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
