"""Topics as pandas data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from kafkalog.errors import ArgumentError, MissingPackage
from kafkalog.frames import Where, scan_of

if TYPE_CHECKING:
    import pandas

__all__ = ["read"]


def read(
    where: Where,
    topic: str | None = None,
    *,
    dtype_backend: Literal["numpy", "pyarrow"] = "numpy",
    **options: Any,
) -> pandas.DataFrame:
    """A topic as a `pandas.DataFrame`, times in UTC.

    `where`: a Store, a Log, or the path of a directory, which may be written to at the same time.
    `dtype_backend`: "pyarrow" keeps the columns in Arrow's format, without an object for each
    value; it needs pyarrow.  `options`: as `Store.scan`.

    Raises: ArgumentError, MissingPackage, UnknownTopicOrPartition, NotFound, what a scan raises.
    """
    if dtype_backend not in ("numpy", "pyarrow"):
        raise ArgumentError(f"dtype_backend: found {dtype_backend!r}, wanted numpy or pyarrow")
    try:
        import pandas
    except ImportError as problem:
        raise MissingPackage("pandas: not installed; pip install pandas") from problem
    with scan_of(where, topic, **options) as rows:
        if dtype_backend == "numpy":
            return rows.to_pandas()
        frame: pandas.DataFrame = rows.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)
        return frame
