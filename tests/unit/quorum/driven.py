"""A controller on a metadata log in memory, and its brokers, as a test says."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafkalog.config.broker import BrokerConfig
from kafkalog.controller.active import NotActive
from kafkalog.controller.context import Claim
from kafkalog.controller.core import Controller
from kafkalog.controller.events import (
    Caller,
    ClientRequest,
    Clock,
    Elected,
    Options,
    Reply,
    Resign,
    Send,
    StoreResult,
    Tick,
    Timer,
)
from kafkalog.errors import InvalidRequest, MessageTooLarge
from kafkalog.kraft.records import decode, encode
from kafkalog.metadata.changes import Replay
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage, Partition, empty_image
from kafkalog.metadata.levels import LEVEL, SUPPORTED
from kafkalog.quorum.sessions import Sessions
from kafkalog.quorum.store import QuorumStore, SessionsDue, Snapshot
from kafkalog.quorum.writing import OWN_OFFSET, Append, ChangeKraftVersion, MetadataRecord
from kafkalog.wire.api import Api
from kafkalog.wire.tables.later.quorum import BROKER_HEARTBEAT, BROKER_REGISTRATION

US = 1
SESSION_MS = 9_000


def directory(broker: int) -> uuid.UUID:
    """The only log directory of a broker."""
    return uuid.UUID(int=1000 + broker)


class Driven:
    """Commits each append at once."""

    def __init__(
        self, brokers: int = 3, features: Mapping[str, int] | None = None,
        config: BrokerConfig | None = None, bootstrap: Sequence[MetadataRecord] = (),
        cluster: str = "cluster", begun: Sequence[MetadataRecord] = (),
    ) -> None:  # fmt: skip
        """`features`: levels besides that of metadata.version; `config`: the settings of the
        controller; `bootstrap`: the first records, instead of the features; `begun`: those of them
        that another controller wrote before it died."""
        self.replay = Replay(empty_image(cluster, US))
        self.config = config or BrokerConfig()
        self.caller: Caller | None = None
        self._bootstrap = bootstrap
        self.log: list[tuple[str, Mapping[str, Any]]] = []
        self.deposed = False
        self.failing = 0
        """The append that fails: 1: the next one."""
        self.too_large = ""
        """A kind of record that has too many bytes."""
        self.fitting = 0
        """How many records fit into one append, by their bytes; 0: any number."""
        self.replies: dict[Any, Any] = {}
        self.now_ms = 0
        self.lives = 0
        self.kraft_versions: list[int] = []
        if not bootstrap:
            for name, level in {METADATA_VERSION: LEVEL, **(features or {})}.items():
                self.append(("FeatureLevelRecord", {"name": name, "feature_level": level}))
        if begun:
            self.append(("BeginTransactionRecord", {"name": "Bootstrap records"}), *begun)
        self.elect()
        for number in range(1, brokers + 1):
            self.restart(number)

    # ---- the log -----------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self.replay.image

    def append(self, *records: tuple[str, Mapping[str, Any]]) -> MetadataImage:
        """Append records as bytes, and replay them."""
        for name, fields in records:
            found = {key: len(self.log) if value is OWN_OFFSET else value
                     for key, value in fields.items()}  # fmt: skip
            self.replay.feed(decode(encode(name, found, self.image)))
            self.log.append((name, found))
        return self.replay.settle(len(self.log) - 1, 1, self.now_ms)

    # ---- the controller ----------------------------------------------------------------------

    def elect(self) -> None:
        """Another controller, which knows what the log says."""
        self.timers: dict[Clock, int] = {}
        self.controller = Controller(self.options, lambda _, found: self._store(found))
        self.give(Elected(Claim(US, 1, 0), Snapshot(self.image, self.replay.in_transaction)))

    @property
    def options(self) -> Options:
        """The controller's settings."""
        return Options("PLAINTEXT", seed=7, config=self.config)

    def tick(self, clock: Clock) -> None:
        """The time of a timer comes."""
        self.now_ms = self.timers[clock]
        self.give(Tick(clock))

    def _store(self, found: object) -> QuorumStore:
        assert isinstance(found, Snapshot)
        self.sessions = Sessions(SESSION_MS, found.whole, self.now_ms)
        return QuorumStore(
            found, self.sessions, self._bootstrap, lambda now_ms: now_ms, self.options
        )

    def give(self, event: object) -> None:
        """Hand over an event, and carry out all that follows."""
        effects = self.controller.handle(event, self.now_ms)
        while effects:
            one = effects.pop(0)
            if isinstance(one, Append):
                result = self._carried_out(one)
                effects += self.controller.handle(StoreResult(one.number, [result]), self.now_ms)
            elif isinstance(one, Reply):
                self.replies[one.token] = one.body
            else:
                effects += self._other(one)

    def _carried_out(self, one: Append) -> MetadataImage | Exception:
        self.failing -= 1
        if self.failing == 0:
            return InvalidRequest("it cannot be written")
        many = self.fitting and len(one.records) > self.fitting
        if many or any(name == self.too_large for name, _ in one.records):
            return MessageTooLarge("too many bytes")
        return NotActive() if self.deposed else self.append(*one.records)

    def _other(self, one: object) -> list[Any]:
        if isinstance(one, ChangeKraftVersion):
            self.kraft_versions.append(one.level)
            return self.controller.handle(StoreResult(one.number, [(0, None)]), self.now_ms)
        assert not isinstance(one, Send), "brokers follow the log"
        assert isinstance(one, Timer | Resign)
        if isinstance(one, Timer):
            self.timers[one.clock] = one.at_ms
        return []

    def ask(self, api: Api, **fields: Any) -> Any:
        """A client's request; returns the answer as it travels."""
        version = api.versions.stop - 1
        request = api.decode_request(version, api.encode_request(version, fields))
        self.give(ClientRequest("asked", api, request, version, self.caller))
        body = self.replies.pop("asked")
        if isinstance(body, Exception):
            raise body
        return body and api.decode_response(version, api.encode_response(version, body))

    # ---- brokers -----------------------------------------------------------------------------

    def register(self, number: int, **other: Any) -> Any:
        """A broker begins a life; returns the answer to its registration."""
        listener = {"name": "PLAINTEXT", "host": f"host{number}", "port": 9092,
                    "security_protocol": 0}  # fmt: skip
        features = [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in SUPPORTED.items()
        ]
        self.lives += 1
        asked = {
            "broker_id": number, "cluster_id": "cluster", "listeners": [listener],
            "incarnation_id": uuid.UUID(int=self.lives), "features": features, "rack": None,
            "log_dirs": [directory(number)],
        }  # fmt: skip
        return self.ask(BROKER_REGISTRATION, **{**asked, **other})

    def beat(self, number: int, **other: Any) -> Any:
        """A heartbeat of a broker that has read everything; returns the answer."""
        asked = {
            "broker_id": number, "broker_epoch": self.image.brokers[number].epoch,
            "current_metadata_offset": self.image.offset, "want_fence": False,
            "want_shut_down": False,
        }  # fmt: skip
        return self.ask(BROKER_HEARTBEAT, **{**asked, **other})

    def restart(self, number: int) -> None:
        """A broker registers, and catches up."""
        assert self.register(number).error_code == 0
        assert not self.beat(number).is_fenced

    def fence(self, *numbers: int) -> None:
        """Brokers die: their sessions end."""
        self.now_ms += SESSION_MS // 2
        for number, one in self.image.brokers.items():
            if number not in numbers and not one.fenced:
                self.beat(number)
        self.now_ms += SESSION_MS // 2
        self.give(SessionsDue())
        assert all(self.image.brokers[number].fenced for number in numbers)

    def unfence(self, *numbers: int) -> None:
        """They were only slow."""
        for number in numbers:
            assert not self.beat(number).is_fenced

    # ---- what there is -----------------------------------------------------------------------

    def partition(self, topic: str, number: int = 0) -> Partition:
        """As the log has it, which is what the controller knows."""
        found = self.image.partition(topic, number)
        active = self.controller.active
        assert found is not None
        assert active is not None
        assert active.store.image.partition(topic, number) == found
        return found
