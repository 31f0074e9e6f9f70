"""Make cases like those in cases/: `python -m tests.kafka.golden.make FOLDER [CASE...]`.

Starts the Apache Kafka of the tests on FOLDER/CASE/log, writes to it through librdkafka, and saves
what Kafka answers and dumps: see cases/README.md.  Without names it makes all cases that it can;
KAFKALOG_SEED draws other records.  KAFKALOG_SHARED=TOP with FOLDER=TOP/data/kafka makes the tests
read them instead of the packed ones; `cases.pack` makes an archive of one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kafka.golden.maker import Making
from tests.kafka.golden.recipes import RECIPES


def main(words: list[str]) -> None:
    """Make the named cases, in folders that do not exist yet."""
    unknown = [name for name in words[1:] if name not in RECIPES]
    if not words or unknown:
        sys.exit(f"{__doc__}\nCASE: {', '.join(RECIPES)}" + f"; found {unknown}" * bool(unknown))
    seed = int(os.environ.get("KAFKALOG_SEED", "1"))
    for name in words[1:] or RECIPES:
        RECIPES[name](Making(Path(words[0]) / name, seed))
        print(f"made {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
