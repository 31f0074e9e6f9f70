"""A controller on a metadata log in memory, whose brokers register and die as a test says."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from kafkalog.controller.active import NotActive
from kafkalog.controller.context import Claim
from kafkalog.controller.core import Controller
from kafkalog.controller.events import (
    ClientRequest,
    Elected,
    Options,
    Reply,
    Resign,
    Send,
    StoreResult,
    Timer,
)
from kafkalog.kraft.records import decode, encode
from kafkalog.metadata.changes import Replay
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage, Partition, empty_image
from kafkalog.metadata.levels import LEVEL_NEW
from kafkalog.quorum.store import Append, BrokersChanged, QuorumStore, Snapshot
from kafkalog.wire.api import Api

US = 1


def directory(broker: int) -> uuid.UUID:
    """The only log directory of a broker."""
    return uuid.UUID(int=1000 + broker)


class Driven:
    """Commits each append at once."""

    def __init__(self, brokers: int = 3) -> None:
        self.replay = Replay(empty_image("cluster", US))
        self.log: list[tuple[str, Mapping[str, Any]]] = []
        self.deposed = False
        self.replies: dict[Any, Any] = {}
        self.now_ms = 0
        self.append(("FeatureLevelRecord", {"name": METADATA_VERSION, "feature_level": LEVEL_NEW}))
        for number in range(1, brokers + 1):
            self.append(self.registration(number))
        self.elect()

    # ---- the log -----------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self.replay.image

    def append(self, *records: tuple[str, Mapping[str, Any]]) -> MetadataImage:
        """Append records as bytes, and replay them."""
        for name, fields in records:
            entry = decode(encode(name, fields, self.image))
            self.replay.feed(entry)
            self.log.append((name, fields))
        return self.replay.settle(len(self.log) - 1, 1, self.now_ms)

    def registration(self, number: int, fenced: bool = False) -> tuple[str, Mapping[str, Any]]:
        listener = {"name": "PLAINTEXT", "host": f"host{number}", "port": 9092,
                    "security_protocol": 0}  # fmt: skip
        return "RegisterBrokerRecord", {
            "broker_id": number, "incarnation_id": uuid.UUID(int=len(self.log) + 1),
            "broker_epoch": len(self.log), "end_points": [listener], "features": [],
            "rack": None, "fenced": fenced, "log_dirs": [directory(number)],
        }  # fmt: skip

    # ---- the controller ----------------------------------------------------------------------

    def elect(self) -> None:
        """Another controller, which knows what the log says."""
        self.controller = Controller(
            Options("PLAINTEXT", rebalances=False, seed=7), lambda _, found: _store(found)
        )
        self.give(Elected(Claim(US, 1, 0), Snapshot(self.image)))

    def give(self, event: object) -> None:
        """Hand over an event, and carry out all that follows."""
        effects = self.controller.handle(event, self.now_ms)
        while effects:
            one = effects.pop(0)
            if isinstance(one, Append):
                results = [NotActive() if self.deposed else self.append(*one.records)]
                effects += self.controller.handle(StoreResult(one.number, results), self.now_ms)
            elif isinstance(one, Reply):
                self.replies[one.token] = one.body
            else:
                assert not isinstance(one, Send), "brokers follow the log"
                assert isinstance(one, Timer | Resign)

    def ask(self, api: Api, **fields: Any) -> Any:
        """A client's request; returns the answer as it travels."""
        version = api.versions.stop - 1
        request = api.decode_request(version, api.encode_request(version, fields))
        self.give(ClientRequest("asked", api, request, version))
        body = self.replies.pop("asked")
        return body and api.decode_response(version, api.encode_response(version, body))

    # ---- brokers -----------------------------------------------------------------------------

    def fence(self, *numbers: int) -> None:
        """Brokers die."""
        self.change(*numbers, fenced=1)

    def unfence(self, *numbers: int) -> None:
        """They are back."""
        self.change(*numbers, fenced=-1)

    def change(self, *numbers: int, **fields: Any) -> None:
        """Their registrations change."""
        for number in numbers:
            epoch = self.image.brokers[number].epoch
            record = {"broker_id": number, "broker_epoch": epoch, **fields}
            self.append(("BrokerRegistrationChangeRecord", record))
        self.give(BrokersChanged(self.image))

    def restart(self, number: int) -> None:
        """A broker registers again."""
        self.append(self.registration(number, fenced=True))
        self.give(BrokersChanged(self.image))
        self.unfence(number)

    # ---- what there is -----------------------------------------------------------------------

    def partition(self, topic: str, number: int = 0) -> Partition:
        """As the log has it, which is what the controller knows."""
        found = self.image.partition(topic, number)
        active = self.controller.active
        assert found is not None
        assert active is not None
        assert active.context.partitions[topic, number] == found
        return found


def _store(found: object) -> QuorumStore:
    assert isinstance(found, Snapshot)
    return QuorumStore(found)
