"""Dead letters of share groups: the same requests to Apache Kafka and to our broker, the same
answers and the same records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import apache
from tests.support.dead_letter_script import DEAD_SETTINGS, DeadLetterScript
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

LINES = "".join(f"{name}={value}\n" for name, value in DEAD_SETTINGS.items())


def test_kafka_answers_and_writes_the_same(tmp_path: Path, kafka_jars: Path) -> None:
    with (
        Broker(tmp_path / "ours", config=DEAD_SETTINGS) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        levels = (("metadata.version", 31), ("share.version", 2))
        updates = [{"feature": name, "max_version_level": level, "upgrade_type": 1}
                   for name, level in levels]  # fmt: skip
        assert not raw.call(apis.UPDATE_FEATURES, 2, feature_updates=updates).error_code
        ours = DeadLetterScript(raw, raw)
        ours.prepare()
        ours.run()
    with (
        apache.Broker(tmp_path / "kafkas", LINES) as kafka,
        Raw(kafka.bootstrap_servers) as raw,
    ):
        theirs = DeadLetterScript(raw, raw)
        theirs.prepare()
        theirs.run()
    for number, (mine, kafkas) in enumerate(zip(ours.transcript, theirs.transcript, strict=True)):
        assert mine == kafkas, f"answer {number}"
