"""One small Spark session for all steps that use it.

Starting one takes seconds, so it starts in the background during the earlier steps.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "pipeline"))

WARM_UP = """
    SELECT id % 3 AS k, avg(row.n) AS mean
    FROM (SELECT id, from_json('{"n": 1}', 'n INT') AS row FROM range(9))
    GROUP BY k
"""
"""A first query: it loads the classes that every later one needs."""


def why_none() -> str | None:
    """Why Spark cannot run here; None if it can."""
    java = shutil.which("java")
    if java is None:
        return "there is no Java (17 or newer) on this machine"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'"(\d+)', said)
    if version is None or int(version[1]) < 17:
        return f"Spark needs Java 17 or newer, {java} is {said.splitlines()[0] if said else '?'}"
    return None


def _compiled_pyspark(folder: Path) -> None:
    """Let Spark's Python processes use the installed package.

    Spark puts its `pyspark.zip` in front, which has no compiled files: each process compiles
    what it imports, for more than a second.  So this makes a SPARK_HOME without that file.
    """
    spec = find_spec("pyspark")
    if "SPARK_HOME" in os.environ or spec is None or spec.origin is None:
        return
    for name in ("bin", "jars"):
        (folder / name).symlink_to(Path(spec.origin).with_name(name))
    os.environ["SPARK_HOME"] = str(folder)


class Session:
    """The session of `examples/pipeline`.  It starts in the background, and stops at the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kafkalog-spark-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this
        self._starter = ThreadPoolExecutor(1)
        self._started = self._starter.submit(self._start)

    def _start(self) -> Any:
        _compiled_pyspark(Path(self._folder.name))
        spark = import_module("query").session(Path(self._folder.name), self._log.fileno())
        spark.sparkContext.setLogLevel("ERROR")
        spark.sql(WARM_UP).collect()
        return spark

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._started.exception() is None:
                self._started.result().stop()
        finally:
            self._starter.shutdown()
            self._folder.cleanup()
            self._log.close()

    @contextmanager
    def use(self) -> Iterator[Any]:
        """The session, once it has started.  What Java writes is shown only on failure."""
        try:
            spark = self._started.result()
            import_module("pyspark_kafkalog").register(spark)  # another thread started it
            yield spark
        except BaseException:
            self._log.seek(0)
            sys.stderr.write(self._log.read().decode(errors="replace"))
            raise
