"""What is done once in each of Spark's Python workers."""

from __future__ import annotations

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def settle() -> None:
    """Leave what is imported out of later garbage collections.

    A worker that is kept for the next task makes a full one after each, before it takes the next:
    over the modules of PySpark, Arrow and pandas that costs 50 to 90 ms, more than a small task.
    Call it when all of them are imported.  Outside of a worker it does nothing.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        gc.freeze()
