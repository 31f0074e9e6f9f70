"""ShareFetch and ShareAcknowledge: the same requests to Apache Kafka and to our broker, the same
answers."""

from __future__ import annotations

from pathlib import Path
from queue import Queue
from uuid import UUID

import pytest

from kafkalog.coordinator.share_state.persister import (
    UNINITIALIZED_OFFSET,
    InitializeState,
    StateChanged,
)
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache
from tests.support.raw import Raw
from tests.support.share_script import SETTINGS, ShareScript

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

LINES = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())


def test_kafka_answers_the_same(tmp_path: Path, kafka_jars: Path) -> None:
    """Each answer."""
    with (
        Broker(tmp_path / "ours", config=SETTINGS) as broker,
        Raw(broker.bootstrap_servers) as raw,
        Raw(broker.bootstrap_servers) as other,
    ):

        def initialize(group: str, topic: UUID) -> None:
            state = InitializeState(topic, 0, 1, UNINITIALIZED_OFFSET)
            found: Queue[StateChanged] = Queue()
            node_of(broker).persister.initialize(group, [state], lambda done: found.put(done[0]))
            assert found.get(timeout=60).error is ErrorCode.NONE

        ours = ShareScript(raw, other, initialize)
        ours.prepare()
        ours.run()
    with (
        apache.Broker(tmp_path / "kafkas", LINES) as kafka,
        Raw(kafka.bootstrap_servers) as raw,
        Raw(kafka.bootstrap_servers) as other,
    ):
        theirs = ShareScript(raw, other)
        theirs.prepare()
        theirs.run()
    for number, (mine, kafkas) in enumerate(zip(ours.transcript, theirs.transcript, strict=True)):
        assert mine == kafkas, f"answer {number}"
