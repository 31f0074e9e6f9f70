"""A node of a simulated cluster: its metadata, replicas, session and controller."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog.cluster.node.state import (
    MemberState,
    registered,
    stop_replica,
    update_metadata,
)
from kafkalog.errors import KafkalogError
from kafkalog.metadata.image import empty_image
from kafkalog.replication.roles import Drop
from kafkalog.simulate.around import Judge, Setup
from kafkalog.simulate.controller import LISTENER, SimulatedController
from kafkalog.simulate.ensemble import Ensemble, Link
from kafkalog.simulate.network import Connection, Network, Place
from kafkalog.simulate.replica import Ends, Fetch, Produce, Produced, Replica, Row, Where
from kafkalog.simulate.rules import Rules
from kafkalog.testing import power
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kafkalog.wire.tables.internal import ALTER_PARTITION
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create, Life

if TYPE_CHECKING:
    from kafkalog.replication.isr import Isr

__all__ = ["Node"]

REGISTER_AGAIN_MS, PROPOSE_AGAIN_MS = 100.0, 50.0
HAND_OVER_MS, CAUGHT_UP_MS = 2_000.0, 5.0
"""How long a shutdown waits for followers, and how often it looks."""
LET_GO_TIMES, LET_GO_AGAIN_MS = 4, 100.0
ALTER_VERSION = CONTROLLED_SHUTDOWN_VERSION = 3


class Node(Place):
    """A node; it is down until `start`."""

    def __init__(
        self, number: int, folder: Path, network: Network, ensemble: Ensemble, setup: Setup,
        rules: Rules, checks: Judge,
    ) -> None:  # fmt: skip
        super().__init__(number, network, up=False)
        self.stopping = False
        self.folder, self.setup, self.rules, self.checks = folder, setup, rules, checks
        self.standing = self._nothing()
        self.replicas: dict[TopicPartition, Replica] = {}
        self.on_disk: dict[TopicPartition, int] = {}
        """For each log, the offset below which everything survives a power cut, as the last life
        left it."""
        self.folder_ids: dict[TopicPartition, UUID] = {}
        """The topic's id in each folder's partition.metadata."""
        self.disk_factor = 1.0
        self.skew_ms = 0.0
        """How far its wall clock is off."""
        self.link: Link
        self.controller: SimulatedController
        self._ensemble = ensemble
        self._proposing = False
        self._waiting: list[Callable[[], None]] = []

    def _nothing(self) -> MemberState:
        return MemberState(self.number, -1, -1, 0, empty_image("simulated", self.number), {})

    # ---- time and words ---------------------------------------------------------------------

    def now_ms(self) -> float:
        """The clock of its timers."""
        return self.world.now_ms

    def wall_ms(self) -> float:
        """Its wall clock, in ms since 1970."""
        return 1_700_000_000_000 + self.world.now_ms + self.skew_ms

    def after(self, ms: float, call: Callable[[], None]) -> None:
        """Call it after that time, if this life of the node lasts until then."""
        self.world.later(ms, call, self)

    def after_disk(self, call: Callable[[], None]) -> None:
        """Call it once the disk gets to it."""
        usual_ms = self.setup.disk_ms * self.disk_factor
        self.after(self.world.rng.expovariate(1 / usual_ms), call)

    def note(self, *words: object) -> None:
        """Note what happened."""
        self.world.note(*words)

    # ---- lives --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life: only what is on disk is known."""
        self.life += 1
        self.up, self.paused_until_ms = True, 0.0
        self.stopping = False
        self.note(f"node {self.number} starts")
        self.standing = self._nothing()
        self._proposing = False
        self._waiting = []
        self.controller = SimulatedController(self)
        self.link = Link(self._network, self, self._ensemble, self._told)
        self.after(self.setup.lag_ms / 2, self._look)

    def kill(self, power_cut: bool = False, emptied: bool = False) -> None:
        """End it.  `power_cut`: what was not synced is lost; `emptied`: everything is."""
        what = "loses power" if power_cut else "is killed"
        self.note(f"node {self.number} {what}{', and its disk' if emptied else ''}")
        for tp, one in self.replicas.items():
            self.on_disk[tp] = one.on_disk
            one.end()
        self.replicas.clear()
        self._connections.clear()
        self.life += 1
        self.up = False
        if power_cut:
            folders = {self._folder(tp): offset for tp, offset in self.on_disk.items()}
            power.cut({str(folder): offset for folder, offset in folders.items()})
        if emptied:
            self.on_disk.clear()
            shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self, ended: Callable[[], None]) -> None:
        """Shut down in order, as kafkalog.server.broker does; `ended` is called at the end, if it
        gets there."""
        self.note(f"node {self.number} stops")
        self.stopping = True
        for one in self.replicas.values():
            one.hand_over()
        self._catch_up(self.now_ms() + HAND_OVER_MS, ended)

    def _catch_up(self, end_ms: float, ended: Callable[[], None]) -> None:
        waits = self.rules.catches_up
        late = [one for one in self.replicas.values() if not one.caught_up] if waits else []
        if late and self.now_ms() < end_ms:
            self.after(CAUGHT_UP_MS, lambda: self._catch_up(end_ms, ended))
            return
        for one in self.replicas.values():
            one.promised = one.leads and one not in late
        self._let_go(LET_GO_TIMES, ended)

    def _let_go(self, times: int, ended: Callable[[], None]) -> None:
        """As Member.let_go."""
        if not times:
            self._ended(ended)
            return
        body = {"broker_id": self.number, "broker_epoch": self.standing.epoch}
        data = CONTROLLED_SHUTDOWN.encode_request(CONTROLLED_SHUTDOWN_VERSION, body)

        def again() -> None:
            self.after(LET_GO_AGAIN_MS, lambda: self._let_go(times - 1, ended))

        def answered(found: bytes | None) -> None:
            response = found and CONTROLLED_SHUTDOWN.decode_response(
                CONTROLLED_SHUTDOWN_VERSION, found
            )
            if response and not response.error_code and not response.remaining_partitions:
                self._ended(ended)
            else:
                again()

        self.ask(
            self.standing.controller, (CONTROLLED_SHUTDOWN, CONTROLLED_SHUTDOWN_VERSION, data),
            answered, again, self.setup.answer_ms, "let go",
        )  # fmt: skip

    def _ended(self, ended: Callable[[], None]) -> None:
        for one in self.replicas.values():
            one.end_leading()
            one.handle.flush()
        self._ensemble.expire(self.link.session)
        self.kill()
        ended()

    def close(self) -> None:
        """Close the logs, at the end of a run."""
        for one in self.replicas.values():
            one.end()
        self.replicas.clear()

    # ---- the network ----------------------------------------------------------------------------

    def serve(self, connection: Connection, request: Any, reply: Callable[[Any], None]) -> None:
        """Answer a request."""
        if isinstance(request, Fetch | Produce | Ends):
            found = self.replicas.get(request.tp)
            if found is not None:
                serving: Any = {Fetch: found.fetch, Produce: found.produce, Ends: found.ends}
                serving[type(request)](request, reply)
            elif isinstance(request, Fetch):
                reply(Row(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif isinstance(request, Produce):
                reply(Produced("NotLeaderOrFollower"))
            else:
                reply((ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1))
        elif isinstance(request, Where):
            topic = self.standing.image.topics.get(request.tp.topic)
            one = None if topic is None else topic.partitions.get(request.tp.partition)
            reply((-1, -1) if one is None else (one.leader, one.leader_epoch))
        else:
            api, version, data = request
            if api in (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA):
                self._commanded(lambda: reply(self._obey(api, version, data)))
            else:
                self.controller.request(api, data, version, reply)

    # ---- the controller's requests ------------------------------------------------------------

    def _commanded(self, obey: Callable[[], None]) -> None:
        """Requests that arrive while this node registers wait, as they do for Member's lock."""
        if self.standing.epoch < 0:
            self._waiting.append(obey)
        else:
            obey()

    def _obey(self, api: Any, version: int, data: bytes) -> bytes:
        request = api.decode_request(version, data)
        effects: list[Any] = []
        if api is UPDATE_METADATA:
            self.standing, _, answer = update_metadata(self.standing, request)
            self._brokers_known()
        elif api is LEADER_AND_ISR:
            self.standing, effects, answer = self.rules.leader_and_isr(self.standing, request)
        else:
            self.standing, effects, answer = stop_replica(self.standing, request)
        for effect in effects:
            try:
                self._carry_out(effect)
            except KafkalogError as problem:
                self.note(f"node {self.number}: {effect.partition}: {problem}")
        return bytes(api.encode_response(version, answer))

    def _folder(self, tp: TopicPartition) -> Path:
        return self.folder / f"{tp.topic}-{tp.partition}"

    def _carry_out(self, effect: Any) -> None:
        tp = effect.partition
        found = self.replicas.get(tp)
        folder = self._folder(tp)
        if isinstance(effect, Drop):
            if found is not None:
                self.on_disk[tp] = found.on_disk
                found.end()
                del self.replicas[tp]
            if effect.delete and self.rules.drops:
                self.on_disk.pop(tp, None)
                shutil.rmtree(folder, ignore_errors=True)
            if effect.delete:
                self.folder_ids.pop(tp, None)
            return
        if found is None:
            self.folder.mkdir(exist_ok=True)
            self._claim(tp, folder, effect.held.topic_id)
            found = self.replicas[tp] = Replica(self, tp, folder, effect.held.topic_id)
        state = effect.held.state
        verb = "leads" if state.leader == self.number else f"follows {state.leader} in"
        self.note(
            f"node {self.number} {verb} {tp.topic}-{tp.partition}, epoch {state.leader_epoch}."
            f"{state.partition_epoch}, isr {state.isr}, has {found.copy.now()}"
        )
        found.hold(effect)

    def _claim(self, tp: TopicPartition, folder: Path, topic_id: UUID) -> None:
        """As in kafkalog.directory.folders and kafkalog.server.replica_manager: a folder of another
        topic of that name is set aside."""
        if folder.exists() and self.folder_ids.get(tp, topic_id) != topic_id:
            self.note(f"node {self.number}: {folder.name} is of an earlier topic")
            self.on_disk.pop(tp, None)
            shutil.rmtree(folder)
        self.folder_ids[tp] = topic_id

    def _brokers_known(self) -> None:
        """A follower's epoch may have changed."""
        for one in self.replicas.values():
            if one.isr is not None:
                one.tell()
                one.moved()

    def epochs(self) -> dict[int, int]:
        """Epochs of registered brokers, as this node knows them."""
        return {one.id: one.epoch for one in self.standing.image.brokers.values()}

    # ---- ISRs -----------------------------------------------------------------------------------

    def _look(self) -> None:
        for one in list(self.replicas.values()):
            one.look()
        self.after(self.setup.lag_ms / 2, self._look)

    def propose(self) -> None:
        """Ask the controller for the ISRs that are due; one request at a time."""
        due = {one: one.isr for one in self.replicas.values() if one.isr and one.isr.due}
        if self._proposing or not due:
            return
        self._proposing = True
        rows: dict[Any, list[dict[str, Any]]] = {}
        for one, isr in due.items():
            proposal = isr.proposal
            assert proposal is not None
            pairs = zip(proposal.isr, proposal.epochs, strict=True)
            rows.setdefault(self.standing.held[one.tp].topic_id, []).append({
                "partition_index": one.tp.partition, "leader_epoch": isr.leader_epoch,
                "new_isr": list(proposal.isr),
                "new_isr_with_epochs": [{"broker_id": b, "broker_epoch": e} for b, e in pairs],
                "leader_recovery_state": 0, "partition_epoch": isr.partition_epoch,
            })  # fmt: skip
        body = {
            "broker_id": self.number,
            "broker_epoch": self.standing.epoch,
            "topics": [{"topic_id": key, "partitions": each} for key, each in rows.items()],
        }
        data = ALTER_PARTITION.encode_request(ALTER_VERSION, body)
        self.ask(
            self.standing.controller, (ALTER_PARTITION, ALTER_VERSION, data),
            lambda found: self._proposed(due, found), self._proposed_again,
            self.setup.answer_ms, "alter",
        )  # fmt: skip

    def _proposed(self, due: Any, data: bytes | None) -> None:
        if data is not None:
            answer = ALTER_PARTITION.decode_response(ALTER_VERSION, data)
            sent: dict[Any, tuple[Replica, Isr]] = {
                (self.standing.held[one.tp].topic_id, one.tp.partition): (one, isr)
                for one, isr in due.items()
                if one.tp in self.standing.held
            }
            for topic in answer.topics:
                for row in topic.partitions:
                    one, isr = sent.get((topic.topic_id, row.partition_index), (None, None))
                    if one is not None and isr is not None and self.replicas.get(one.tp) is one:
                        one.answered(isr, row)
        self._proposed_again()

    def _proposed_again(self) -> None:
        self._proposing = False
        self.after(PROPOSE_AGAIN_MS, self.propose)

    # ---- ZooKeeper ------------------------------------------------------------------------------

    def _told(self, what: Any) -> None:
        if what is Life.CONNECTED:
            self._register()
        elif what in (Life.AWAY, Life.EXPIRED):
            self.controller.away()
        else:
            self.controller.seen(what)

    def _register(self) -> None:
        """As in kafkalog.zookeeper.registering: wait for an earlier session's end."""
        path, link = tree.broker_path(self.number), self.link
        endpoint = tree.Endpoint(LISTENER, f"host{self.number}", 9092, "PLAINTEXT")
        data = tree.write_broker(tree.BrokerNode((endpoint,), None, 0, {}))
        create = Create(path, data, ephemeral=True)
        session = link.session

        def found(znode: Any) -> None:
            if link.session != session:
                return
            if znode is None or znode.owner != session:
                self.after(REGISTER_AGAIN_MS, again)
            else:
                if self.standing.epoch != znode.created:
                    self.note(f"node {self.number} registers, epoch {znode.created}")
                self.standing = registered(self.standing, znode.created)
                waiting, self._waiting = self._waiting, []
                for obey in waiting:
                    obey()
                self.controller.stand()

        def again() -> None:
            if link.session == session and link.connected:
                link.ask(
                    lambda there, me: (there.commit([create], me), there.read(path))[1],
                    found,
                    lambda: None,
                )

        again()
