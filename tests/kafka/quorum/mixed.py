"""Quorums with voters of both kinds: who leads, and whether all have the same log."""

from __future__ import annotations

import contextlib

from kafkalog.errors import KafkalogError
from kafkalog.wire import apis
from tests.kafka.quorum.nodes import Node, Quorum, until
from tests.support import apache
from tests.support.copies import batches_in

__all__ = ["all_logs_equal", "leader", "led_by"]


def leader(quorum: Quorum) -> Node:
    """The controller that leads, as the others say."""

    def named() -> int:
        for one in quorum.controllers.values():
            if one.lives:
                with contextlib.suppress(OSError, KafkalogError), one.connection() as made:
                    body = {"include_cluster_authorized_operations": False, "endpoint_type": 2}
                    found = int(made.call(apis.DESCRIBE_CLUSTER, body, 1).controller_id)
                    if found in quorum.controllers and quorum.controllers[found].lives:
                        return found
        return 0

    return quorum.controllers[until(named, "a controller leads")]


def led_by(quorum: Quorum, kind: str) -> Node:
    """Let one of a kind win: it asks for votes while the others start."""
    for _ in range(10):
        one = leader(quorum)
        if one.kind == kind:
            return one
        others = [each for each in quorum.controllers.values() if each.kind != kind]
        for each in [*(each for each in others if each is not one), one]:
            each.stop()
        for each in others:
            each.begin()
            until(each.answers, "it is back")
    raise AssertionError(f"no controller of kind {kind} was elected")


def all_logs_equal(quorum: Quorum, least: int) -> None:
    """Stop everything: the metadata logs, of at least so many bytes, are equal byte for byte, as
    far as each goes, and Kafka's tool reads those of the controllers."""
    for node in (*quorum.nodes.values(), *quorum.controllers.values()):
        node.stop()
    everybody = {**quorum.controllers, **quorum.nodes}
    logs = {number: b"".join(batches_in(one.metadata)) for number, one in everybody.items()}
    whole = max(logs.values(), key=len)
    assert len(whole) > least
    for number, found in logs.items():
        assert whole.startswith(found), f"the metadata log of {number}"
        assert len(found) > len(whole) // 2
    for number, one in quorum.controllers.items():
        files = ",".join(str(path) for path in sorted(one.metadata.glob("*.log")))
        shown = apache.ask(
            "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", files
        )
        assert "LeaderChange" in shown and "REGISTER_BROKER_RECORD" in shown, number
