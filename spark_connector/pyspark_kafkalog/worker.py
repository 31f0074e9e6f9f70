"""Prepares each of Spark's Python workers, once."""

from __future__ import annotations

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def settle() -> None:
    """Exclude the imported modules from later garbage collections.

    A reused worker runs a full collection after each task, before it takes the next: over the
    modules of PySpark, Arrow and pandas that costs 50 to 90 ms, more than a small task. Call it
    once all of them are imported.  Outside a worker it does nothing.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        gc.freeze()
