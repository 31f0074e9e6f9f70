"""Files of a target are removed during a delivery: the delivery fails and names the file, so the
batch is not remembered and runs again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog.sink import delivery
from pyspark_kafkalog.sink.rows import SinkError

from tests.spark.test_sink_memory import written
from tests.spark.writing import values

SOON = {"kafka.delivery.timeout.ms": "500", "kafka.request.timeout.ms": "500",
        "kafka.max.block.ms": "30000"}  # fmt: skip
"""How long the failure takes: a producer's retries, and then its abort's."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("removed", "why"),
    [
        ("*", r"/data/\S+ (the file was removed|cannot open)"),
        ("t-0", r"/t-0/0{20}\.log: the file was removed"),
    ],
)
def test_a_topic_removed_during_a_delivery(
    micro: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: str, why: str
) -> None:
    """Alone, or with everything that `rm -r data/*` removes: `.lock` stays."""

    def deliver(number: int, row: str, **given: str) -> None:
        writer, messages = micro(number, values(row), **given)
        writer.commit(messages, number)

    def remove_and_send(*given: Any) -> None:
        for path in (tmp_path / "data").glob(removed):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        send(*given)

    send = delivery._send_all
    deliver(0, "a")
    monkeypatch.setattr(delivery, "_send_all", remove_and_send)
    with pytest.raises(SinkError, match=why):
        deliver(1, "b", **SOON)
    monkeypatch.undo()
    deliver(1, "b")
    assert written(tmp_path / "data") == {"t": ["b"]}
