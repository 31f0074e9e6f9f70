"""Columnar files by pyarrow: IPC and Parquet, by one thread, without memory maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

__all__ = ["read_ipc", "read_parquet", "write_ipc", "write_parquet"]

ROWS = 32_768
"""Rows of a batch or row group, as in a scan."""


def write_ipc(path: Path, table: Any, codec: str | None) -> None:
    """An IPC file whose bodies are compressed with `codec`: lz4, zstd or None."""
    options = ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=ROWS)


def read_ipc(path: Path) -> Any:
    """The whole file as a table."""
    with pa.OSFile(str(path)) as source:
        return ipc.open_file(source, options=ipc.IpcReadOptions(use_threads=False)).read_all()


def write_parquet(path: Path, table: Any, codec: str | None) -> None:
    """A Parquet file; with its defaults except for codec and row groups."""
    pq.write_table(table, str(path), compression=codec or "none", row_group_size=ROWS)


def read_parquet(path: Path) -> Any:
    """The whole file as a table."""
    return pq.read_table(str(path), memory_map=False, use_threads=False)
