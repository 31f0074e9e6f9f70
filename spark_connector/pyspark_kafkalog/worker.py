"""Prepares each of Spark's Python workers, once."""

from __future__ import annotations

import gc
import sys

_settled = 0
"""How many modules were imported when this process was last settled."""


def settle() -> None:
    """Exclude the imported modules from later garbage collections.

    A worker that is reused for the next task, plan or commit runs a full collection after each,
    before it takes the next: over the modules of PySpark, Arrow and pandas that costs 50 to 90 ms,
    more than a small task.  Call it once all of them are imported; it does something where there
    are new ones.  Outside a worker it does nothing.
    """
    global _settled
    if len(sys.modules) > _settled and _is_worker():
        gc.freeze()
        _settled = len(sys.modules)


def _is_worker() -> bool:
    """True if this process runs Spark's tasks, or a driver's plans and commits."""
    from pyspark import TaskContext

    spec = sys.modules["__main__"].__spec__
    return TaskContext.get() is not None or (spec is not None and spec.name == "pyspark.daemon")
