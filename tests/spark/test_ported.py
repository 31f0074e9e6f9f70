"""The tables of Spark's Kafka source and sink are complete, and the tests that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark_kafkalog.option_table import IGNORED, OURS, REFUSED
from pyspark_kafkalog.ported import PORTED, PORTED_SINK

OWN = {
    "path", "maxBytesPerPartition", "maxBytesPerTrigger", "isolation.level", "columns",
    "clientConfigFile",
    "onlyFlushed", "retentionHold", "retentionHoldMaxBytes", "retentionHoldMaxAge",
}  # fmt: skip


def test_every_option_is_there():
    assert {*OURS, *IGNORED, *REFUSED} - OWN == {*PORTED} - {
        "kafka.isolation.level",
        "kafka.group.id",
    }


@pytest.mark.parametrize("one", [*PORTED.values(), *PORTED_SINK.values()], ids=str)
def test_its_test_is_there(one):
    file, function = one.test.split("::")
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    assert re.search(rf"^def {function}\(", text, re.MULTILINE)
