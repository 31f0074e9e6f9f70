"""One node's replica of the metadata log and, while it leads, the active controller.

Two threads: Raft's, and that of the state machine with the controller.  A decision of the
controller that takes long delays no vote and no fetch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkalog.client.link.transport import Address
from kafkalog.client.link.transport import Options as Connecting
from kafkalog.config.server import ServerConfig
from kafkalog.controller.events import ClientRequest
from kafkalog.controller.events import Options as ControllerOptions
from kafkalog.errors import KafkalogError, Timeout
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import METADATA_VERSION
from kafkalog.quorum.identity import Identity
from kafkalog.quorum.replica.answers import RAFT_APIS, Ask, Body, refusal
from kafkalog.quorum.replica.controller_thread import ControllerThread
from kafkalog.quorum.replica.disk import ReplicaDisk
from kafkalog.quorum.replica.followed import Followed
from kafkalog.quorum.replica.peers import Peers
from kafkalog.quorum.replica.places import Endpoint, Places, controllers_of, static_voters
from kafkalog.quorum.replica.raft_thread import RaftThread
from kafkalog.raft.replicas import ReplicaKey, Voter, find
from kafkalog.raft.roles import Follower
from kafkalog.raft.state import Options
from kafkalog.replication.membership import Standing
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.wire.api import Api

__all__ = ["MetadataReplica"]

_logger = limited(__name__)

ASKED_BYTES_MAX = 67_108_864
"""Limit for requests without an answer, each for those to Raft and to the controller; beyond it any
more must be sent again."""
REQUEST_BYTES = 2_000
"""Bytes of a request besides its decoded body."""
RESPONSE_BYTES_MAX = 64 << 20
"""A Fetch of the metadata log has 8 MiB, or one batch."""
Answer = Callable[[Body | Exception | None], None]
"""Takes the fields of a response; None: this node is not the active controller, or takes no part in
the quorum; an exception: the request failed with it."""


class MetadataReplica:
    """A voter or an observer.  Safe to use from many threads; ended by `stop`."""

    def __init__(
        self, manager: Manager, config: ServerConfig, identity: Identity,
        endpoints: Sequence[Endpoint], connecting: Connecting | None = None,
    ) -> None:  # fmt: skip
        """Read the disk; nothing starts, and nothing is sent.

        `endpoints`: this node's own listeners for controllers, as others reach them; none: it is a
        broker alone, and never votes; `connecting`:
        how it connects to other nodes of the quorum; None: in plain text.

        Raises: CorruptLog, IoFailed; ArgumentError: an address, or a record, that is not known.
        """
        self.identity, self._manager = identity, manager
        self._endpoints = tuple(endpoints)
        self._connecting = connecting or _connecting(identity.node, config)
        servers, static = controllers_of(config)
        listener = (config.controller_listener_names or ("",))[0]
        voters = static_voters(static, listener)
        places = Places(listener, servers, static, endpoints)
        me = ReplicaKey(identity.node, identity.directory_id)
        self._disk = ReplicaDisk(manager, config, voters)
        self._raft = RaftThread(
            me, _options(config, me, self._endpoints, places), self._disk, places, manager.clock,
            self._tell, self._turn,
        )  # fmt: skip
        self._controller = ControllerThread(
            manager, self._disk.log, identity, ControllerOptions.of(config),
            config.topic.unclean_leader_election_enable, config.broker_session_timeout_ms,
            self._disk.first_records(),
        )  # fmt: skip
        self._turning = threading.Lock()  # guards the next
        self._turned: list[Callable[[], None]] = []
        self._asking = threading.Lock()  # guards what follows
        self._asked_bytes = {True: 0, False: 0}  # True: of Raft, which no other may hold up
        self._takes = True
        self._started = False

    def start(self) -> None:
        """Take part in the quorum."""
        self._started = True
        self._controller.start(self._raft.put, self._raft.fail)
        self._raft.start(Peers(
            self.identity.node, self.identity.cluster_id, self._endpoints, self._connecting,
            self._raft.put,
        ))  # fmt: skip

    def stop(self) -> None:
        """End in order: resign if this node leads, and flush the log.  Idempotent."""
        if self._end(self._raft.stop):
            with suppress(KafkalogError):
                self._disk.flush()

    def abandon(self) -> None:
        """End as in a crash.  Idempotent."""
        self._end(self._raft.abandon)

    def _end(self, ends: Callable[[], None]) -> bool:
        with self._asking:
            if not self._takes:
                return False
            self._takes = False
        if self._started:
            ends()
            self._controller.stop()
        self._turn()
        return True

    # ---- what is known ---------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The committed metadata, as far as they are applied here."""
        return self._controller.image

    @property
    def epoch(self) -> int:
        """The epoch of the quorum."""
        state = self._raft.state
        return 0 if state is None else state.epoch

    @property
    def is_active(self) -> bool:
        """True if this node leads the quorum, and its controller decides."""
        return self._takes and self._controller.is_active

    @property
    def problem(self) -> Exception | None:
        """Why this node takes no part in the quorum now; None: it does."""
        return self._raft.problem

    @property
    def broken(self) -> Exception | None:
        """Why this node takes no part in the quorum until it is restarted; None: it does."""
        return self._raft.broken

    @property
    def unanswered(self) -> str:
        """Why the last requests to other nodes of the quorum failed; empty: they did not."""
        return self._raft.unanswered

    @property
    def ends(self) -> bool:
        """True once its end has begun."""
        return not self._takes

    @property
    def caught_up(self) -> bool:
        """True if all that the quorum's present leader has committed is applied here."""
        state = self._raft.state
        if state is None or state.leader_id is None or self.problem is not None:
            return False
        image, role = self.image, state.role
        if isinstance(role, Follower) and not 0 <= role.leader_shows <= image.offset + 1:
            return False
        return image.epoch == state.epoch and METADATA_VERSION in image.features

    def seen(self) -> tuple[int, Address | None]:
        """The leader of the quorum, and where other nodes reach it; (-1, None): none is known."""
        state = self._raft.state
        # A broker whose disk is full goes on with its heartbeats, and serves reads.
        problem = self.problem if self._endpoints else self.broken
        if state is None or state.leader_id is None or problem is not None or self.ends:
            return -1, None
        return state.leader_id, self._raft.place(state.leader_id)

    def standing(self) -> Standing | None:
        """As QuorumReplica.standing."""
        state = self._raft.state
        if state is None:
            return None
        leader = -1 if state.leader_id is None else state.leader_id
        role = type(state.role).__name__.lower()
        return Standing(leader, state.epoch, state.high_watermark, state.log.end, role)

    @property
    def votes(self) -> bool:
        """True if this node is a voter."""
        state = self._raft.state
        if state is None or state.options.observes:
            return False
        return find(state.voters, self.identity.node) is not None

    def listen(self, changed: Callable[[Change], None]) -> MetadataImage:
        """Call `changed` after each change of the image, in order, in the controller's thread;
        returns the image before the first one."""
        return self._controller.listen(changed)

    def on_turn(self, turned: Callable[[], None]) -> None:
        """Call `turned` whenever the leader or the epoch has changed; it must return at once."""
        with self._turning:
            self._turned.append(turned)

    def follow(
        self, lock: threading.RLock | None = None, turned: Callable[[], None] | None = None
    ) -> Followed:
        """The metadata as a broker in this process follows them."""
        if turned is not None:
            self.on_turn(turned)
        made = Followed(self, self._controller, lock)
        self.on_turn(made.look)
        return made

    def _turn(self) -> None:
        with self._turning:
            calls = [*self._turned]
        for call in calls:
            try:
                call()
            except Exception:  # it is the caller's
                _logger.exception("a change of the quorum's leader could not be followed")

    # ---- requests --------------------------------------------------------------------------------

    def ask(
        self, api: Api, request: Any, version: int, answer: Answer, *, size: int = 0,
        listener: str = "", context: Any = None,
    ) -> None:  # fmt: skip
        """Ask Raft or the active controller; `answer` is called once, in some thread, and must
        return at once.

        `size`: the request's memory, in bytes; `listener`: by which it came, empty: the first of
        the controllers'; `context`: the sender, for requests whose answer depends on it.

        Raises: Timeout: requests of ASKED_BYTES_MAX wait.
        """
        size += REQUEST_BYTES
        of_raft = api.key in RAFT_APIS

        def answered(body: Body | Exception | None) -> None:
            with self._asking:
                self._asked_bytes[of_raft] -= size
            answer(body)

        with self._asking:
            takes = self._takes and self._started
            if takes and (waiting := self._asked_bytes[of_raft]) >= ASKED_BYTES_MAX:
                raise Timeout(f"node {self.identity.node}: requests of {waiting} bytes wait for "
                              "the quorum")  # fmt: skip
            known = getattr(request, "cluster_id", None) in (None, self.identity.cluster_id)
            if takes:
                self._asked_bytes[of_raft] += size
            # With the lock held: none comes after the end, which answers all that came before.
            if takes and not of_raft:
                self._controller.put(ClientRequest(answered, api, request, version, context))
            elif takes and known:
                self._raft.put(Ask(api, request, version, listener, answered))
        if not takes:
            answer(None)
        elif of_raft and not known:
            answered(refusal(api, ErrorCode.INCONSISTENT_CLUSTER_ID))

    # ---- between the threads ---------------------------------------------------------------------

    def _tell(self, event: Any) -> None:
        self._controller.put(event)


# ---- settings ------------------------------------------------------------------------------------


def _connecting(node: int, config: ServerConfig) -> Connecting:
    patience_ms = config.controller_quorum_request_timeout_ms
    return Connecting(
        client_id=str(node), connect_timeout_ms=patience_ms, request_timeout_ms=patience_ms,
        response_bytes_max=RESPONSE_BYTES_MAX,
    )  # fmt: skip


def _options(
    config: ServerConfig, me: ReplicaKey, endpoints: tuple[Endpoint, ...], places: Places
) -> Options:
    return Options(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        backoff_ms=config.controller_quorum_retry_backoff_ms,
        bootstrap=places.bootstrap,
        auto_join=config.controller_quorum_auto_join_enable,
        itself=Voter(me, endpoints) if endpoints else None,
        observes=not endpoints,
    )
