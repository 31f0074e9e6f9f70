"""Our broker answers as Apache Kafka 4.4.0 did, to the same requests of the same principals."""

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import authorization

LISTENER = "SASL_PLAINTEXT://127.0.0.1:0"


@pytest.mark.slow
def test_no_answer_differs_from_kafkas(tmp_path):
    """Operations one at a time, literal and prefixed, allowed and denied: the same codes, the same
    names, the same authorized operations."""
    config = {**authorization.settings(), "listeners": LISTENER, "node.id": 1}
    with Broker(tmp_path / "data", config=config) as broker:
        ours = authorization.answers(broker.bootstrap_servers, apis.SERVED)
    assert authorization.differences(ours, authorization.recorded()) == []
