"""A stream that fails is released by its consumer while the exception is still propagating."""

import os

import pyarrow as pa
import pytest

from tests.support import batches


def test_a_loop_over_a_failing_stream_ends_with_its_reason(writer):
    """Only the loop holds the reader, so it is released during the unwinding."""
    for first in (0, 10):
        writer.batch([batches.Row(b"value", timestamp_ms=i) for i in range(first, first + 10)])
    with open(os.path.join(writer.log.path, "0" * 20 + ".log"), "r+b") as file:
        second = list(batches.headers(file.read()))[1]
        file.seek(second.pos + 65)
        file.write(b"\xff\xff")
    rows = 0
    with pytest.raises(OSError, match="CorruptMessage: "):
        for batch in pa.RecordBatchReader.from_stream(writer.log.scan()):
            rows += batch.num_rows
    assert rows == 10
