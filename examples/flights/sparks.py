"""One small Spark session for all steps that use it: to start one takes seconds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "pipeline"))


def why_none() -> str | None:
    """Why Spark cannot run here; None when it can."""
    java = shutil.which("java")
    if java is None:
        return "there is no Java (17 or newer) on this machine"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'"(\d+)', said)
    if version is None or int(version[1]) < 17:
        return f"Spark needs Java 17 or newer, {java} is {said.splitlines()[0] if said else '?'}"
    return None


@contextmanager
def session() -> Iterator[Any]:
    """The session of `examples/pipeline`, stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-spark-") as folder:
        with quiet():
            spark = import_module("query").session(Path(folder))
            spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what Spark and Java write to standard error, and show it only on failure."""
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(shown, kept.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)
