"""One partition on one node, in one of its lives: a real log, led or followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog._native import check, ffi, lib
from kafkalog.config.topic import TopicConfig
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.errors import KafkalogError
from kafkalog.log.handle import Handle
from kafkalog.log.log import Log, handle_of, log_over
from kafkalog.log.opening import open_plan
from kafkalog.log.owner import LoneOwner
from kafkalog.replication.follower_log import FollowerLog, sync_before_leading
from kafkalog.replication.followers import CaughtUp, Follower, FollowerState
from kafkalog.replication.following import (
    Await,
    Cut,
    EpochEnd,
    Place,
    Rest,
    Restart,
    failed,
    placed,
)
from kafkalog.replication.isr import Isr
from kafkalog.replication.roles import Follow, Lead
from kafkalog.simulate.around import Around
from kafkalog.simulate.records import checksum
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Ends", "Fetch", "Produce", "Produced", "Replica", "Row", "Where", "open_copy"]

CONSUMER = -1
BACKOFF_MS, WAIT_MS, HELD_MS = 100.0, 200.0, 5.0
FETCH_BYTES = 4096


class Fetch(NamedTuple):
    """A request for a partition's records."""

    tp: TopicPartition
    replica: int
    """CONSUMER, or the node that follows."""
    replica_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    topic_id: UUID | None = None
    """None: of any topic of that name."""


class Row(NamedTuple):
    """The answer to a Fetch, by the names of its response."""

    error_code: int = 0
    records: bytes = b""
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEnd | None = None


class Produce(NamedTuple):
    """A producer's batch."""

    tp: TopicPartition
    batch: bytes
    acks: int
    topic_id: UUID | None = None
    """As in Fetch."""


class Produced(NamedTuple):
    """The answer to a Produce."""

    error: str
    """Empty: it was appended, and with acks=all is committed."""
    offset: int = -1
    leader_epoch: int = -1
    """The epoch in which it was refused."""


class Ends(NamedTuple):
    """A request for a log's start and end."""

    tp: TopicPartition
    leader_epoch: int


class Where(NamedTuple):
    """A client's request for a partition's leader: a node, and its leader epoch."""

    tp: TopicPartition


class _Promise(NamedTuple):
    offset: int
    cuts: int
    reply: Callable[[Produced], None]


def open_copy(folder: Path, tp: TopicPartition, config: TopicConfig) -> Log:
    """A partition's log, created if there is none."""
    state = DirectoryState(str(folder), "w", create=True, own=True)
    state.copied = True
    return log_over(Handle(str(folder), open_plan(state, tp, config), LoneOwner(state)))


class _Judged(FollowerLog):
    """The records that a follower shows its readers are checked, too."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica.log)
        self._replica = replica

    def show(self, high_watermark: int, log_start: int) -> None:
        """As FollowerLog.show."""
        before = int(self.now().high_watermark)
        super().show(high_watermark, log_start)
        if self.now().high_watermark > before:
            self._replica.node.checks.follows(self._replica, before)


class Replica:
    """Led, followed, or neither."""

    def __init__(self, node: Around, tp: TopicPartition, folder: Path, topic_id: UUID) -> None:
        self.node, self.tp, self.folder, self.topic_id = node, tp, folder, topic_id
        self.log = open_copy(folder, tp, node.setup.topic_config)
        self.handle = handle_of(self.log)
        self.copy: FollowerLog = _Judged(self)
        self.isr: Isr | None = None
        self.leader_epoch = -1
        self.leads = False
        self.command: Follow | None = None
        """The current command to follow; a different object with each command."""
        self._role: Any = None
        self._parked: list[tuple[Fetch, Callable[[Row], None], int]] = []
        self._promises: list[_Promise] = []
        self._flushing = self._ended = False
        self._unsynced = False
        self._shown = -1, -1
        self._state: Any = None
        self._end: int | None = None
        """Where the log ended when acks=1 began to be refused."""
        self._taken: list[tuple[int, int]] = []
        """Offset and checksum of what was acknowledged with acks=1."""
        self.promised = False
        """All of that is committed before another node leads."""
        self._segments = int(self.handle.state().segment_count)
        self._on_disk = min(node.on_disk.get(tp, 0), self.log.end_offset)

    @property
    def on_disk(self) -> int:
        """Everything below it survives a power cut: what was synced, also in earlier lives."""
        return max(self._on_disk, self.handle.flushed_offset)

    @property
    def where(self) -> int:
        """The node's number."""
        return self.node.number

    @property
    def waits(self) -> set[int]:
        """The replicas that wait for records; a consumer is CONSUMER."""
        return {ask.replica for ask, _, _ in self._parked}

    def __repr__(self) -> str:
        return f"{self.tp.topic}-{self.tp.partition} on {self.node.number}"

    # ---- what the controller wants -----------------------------------------------------------

    def hold(self, effect: Lead | Follow) -> None:
        """As in kafkalog.server.replica_manager: first the log, then the permission to write."""
        node, state = self.node, effect.held.state
        self.moved()  # what it showed as the leader is checked as that
        self.command = None
        self._end = None
        if isinstance(effect, Follow):
            self.isr = None
        ours = state.leader == node.number
        if not ours:
            self.end_leading()
        else:
            if node.rules.leader_syncs:
                sync_before_leading(self.handle)
            self.handle.lead(state.leader_epoch)
        self._set_role(state, ours)
        if isinstance(effect, Lead):
            now = Isr(
                state.leader, state.leader_epoch, state.partition_epoch, state.replicas,
                state.isr, bool(state.leader_recovery_state),
            )  # fmt: skip
            node.checks.leads(self, now)
            self.isr = node.rules.told(self.isr, now) or self.isr
            self.tell()
        elif state.leader >= 0 and not ours:
            if node.rules.cuts_first:
                self.log.truncate(self.handle.high_watermark)
            self.command = effect
            self._unsynced |= node.rules.found_syncs
            self._fetch(effect)
        self.moved()

    def _set_role(self, state: Any, ours: bool) -> None:
        setup = self.node.setup
        self._state = state
        role = ffi.new("kl_role *", {
            "leader_epoch": state.leader_epoch, "durable": 2 if setup.durable else 0,
            "follows": not ours, "leader_id": state.leader,
            "min_isr": min(setup.min_isr, len(state.replicas)), "tag": 0,
            "hands_over": self.node.stopping and self.node.rules.refuses,
        })  # fmt: skip
        if self._role is None:
            out = ffi.new("kl_replica **")
            check(lib.kl_alone_new(self.handle.c, role, out))
            self._role = out[0]
        else:
            check(lib.kl_alone_set_role(self._role, role))
        self.leader_epoch, self.leads = state.leader_epoch, ours

    def tell(self) -> None:
        """Pass the ISR to the data plane."""
        assert self.isr is not None
        those = self.node.rules.followers(self.isr, self.node.epochs())
        rows = ffi.new("kl_follower[]", [
            {"id": f.id, "in_sync": f.in_sync, "maximal": f.maximal, "broker_epoch": f.broker_epoch}
            for f in those
        ])  # fmt: skip
        now_ms = int(self.node.now_ms())
        check(lib.kl_alone_set_followers(self._role, rows, len(those), now_ms))
        self._note_end()

    # ---- shutting down: as in kafkalog.server.replica_manager --------------------------------

    def hand_over(self) -> None:
        """Refuse acks=1 from now on, if another node may lead next."""
        if self.leads:
            self._set_role(self._state, True)
            self._note_end()

    def _note_end(self) -> None:
        if not self.node.stopping or self.isr is None:
            return
        if len(self.isr.maximal) == 1:
            self._end = None
        elif self._end is None:
            self._end = self.log.end_offset

    @property
    def caught_up(self) -> bool:
        """True if all in sync have what was taken with acks=1."""
        return self._end is None or int(self.handle.high_watermark) >= self._end

    def end_leading(self) -> None:
        """It leads no longer, or ends in order."""
        if self.promised:
            self.node.checks.handed_over(self, self._taken)
        self.promised = False
        self._taken.clear()

    def end(self) -> None:
        """End it as in a crash: nothing more is written, no request is answered."""
        self.command, self.isr, self.leads = None, None, False
        self._ended = True
        if self._role is not None:
            lib.kl_alone_free(self._role)
            self._role = None
        self.handle.abandon()

    def _written(self) -> None:
        """A thread syncs a sealed segment, at once or later: here at once, so that each run of a
        seed is the same."""
        count = int(self.handle.state().segment_count)
        if count != self._segments:
            self._segments = count
            self.handle.flush()

    # ---- what moves -------------------------------------------------------------------------

    def moved(self) -> None:
        """Check again everything that waits for a change of the log or of the role."""
        if self._ended:
            return
        now = self.handle.state()
        if self.leads:
            shown = self.leader_epoch, int(now.high_watermark)
            if shown != self._shown:
                self.node.checks.shown(self, self._shown, int(now.high_watermark))
                self._shown = shown
        promises, self._promises = self._promises, []
        for one in promises:
            kept = lib.kl_alone_kept(self._role, one.offset, one.cuts)
            if kept > 0:
                one.reply(Produced("", one.offset - 1))
            elif kept < 0:
                one.reply(Produced("NotLeaderOrFollower"))
            else:
                self._promises.append(one)
        parked, self._parked = self._parked, []
        for ask, reply, shown_before in parked:
            ended = not self.leads or ask.leader_epoch not in (-1, self.leader_epoch)
            end = now.high_watermark if ask.replica == CONSUMER else now.log_end_offset
            if ended or end != ask.offset or now.high_watermark > shown_before:
                reply(self._read(ask))
            else:
                self._parked.append((ask, reply, shown_before))

    def _flush_later(self) -> None:
        """The leader's own sync: what acks=all promises is on its disk, too."""
        if not self._flushing:
            self._flushing = True
            self.node.after_disk(self._flushed)

    def _flushed(self) -> None:
        self._flushing = False
        if self._ended:
            return
        self.handle.flush()
        self.moved()

    # ---- producers --------------------------------------------------------------------------

    def produce(self, ask: Produce, reply: Callable[[Produced], None]) -> None:
        """Append a batch."""
        rules = self.node.rules
        out = ffi.new("kl_appended *")
        try:
            if self._role is None or ask.topic_id not in (None, self.topic_id):
                raise KafkalogError("no leader is known")
            if not self.leads and not rules.leaves:
                span = self.log.append_batches(ask.batch)
                reply(Produced("", span.last_offset))
                return
            now_ms = int(self.node.wall_ms())
            check(lib.kl_alone_append(self._role, ask.batch, len(ask.batch), ask.acks, now_ms, out))
        except KafkalogError as problem:
            reply(Produced(type(problem).__name__, leader_epoch=self.leader_epoch))
            return
        self._written()
        if ask.acks == 1:
            self._taken.append((int(out.last_offset), checksum(ask.batch)))
        if ask.acks != -1 or not rules.waits:
            reply(Produced("", out.last_offset))
        else:
            self._promises.append(_Promise(out.last_offset + 1, out.cuts, reply))
            if self.node.setup.durable:
                self._flush_later()
        self.moved()

    # ---- readers ----------------------------------------------------------------------------

    def fetch(self, ask: Fetch, reply: Callable[[Row], None]) -> None:
        """Answer a Fetch now, or when there is something to answer."""
        row = self._read(ask)
        at_end = not (row.error_code or row.records or row.diverging_epoch)
        if not at_end:
            reply(row)
            return
        parked = ask, reply, row.high_watermark
        self._parked.append(parked)
        self.node.after(WAIT_MS, lambda: self._waited(parked))

    def _waited(self, parked: tuple[Fetch, Callable[[Row], None], int]) -> None:
        if parked in self._parked and not self._ended:
            self._parked.remove(parked)
            parked[1](self._read(parked[0]))

    def _read(self, ask: Fetch) -> Row:
        """The answer that the data plane gives to a Fetch (fetch_read.c)."""
        code = self._refusal(ask)
        if code:
            return Row(code)
        now = self.handle.state()
        start, end = int(now.log_start_offset), int(now.log_end_offset)
        parted = self._parted(ask, start)
        if isinstance(parted, Row):
            return parted
        if not start <= ask.offset <= end:
            return Row(ErrorCode.OFFSET_OUT_OF_RANGE)
        if ask.replica != CONSUMER:
            self._heard(ask)
        bound = "read_uncommitted" if ask.replica == CONSUMER else "log_end"
        limit = int(self.handle.high_watermark) if ask.replica == CONSUMER else end
        records = b""
        if ask.offset < limit:
            records = self.log.read_batches(ask.offset, FETCH_BYTES, bound, check_crcs=False)
        return Row(0, records, int(self.handle.high_watermark), start)

    def _refusal(self, ask: Fetch) -> int:
        if self._role is None or not self.leads:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if ask.topic_id not in (None, self.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if ask.replica != CONSUMER and not lib.kl_alone_has_follower(
            self._role, ask.replica, ask.replica_epoch
        ):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if ask.leader_epoch == -1 or not self.node.rules.fences:
            return 0
        if ask.leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if ask.leader_epoch > self.leader_epoch else 0

    def _parted(self, ask: Fetch, start: int) -> Row | None:
        if ask.last_epoch < 0 or not self.node.rules.diverges:
            return None
        epoch, end = self.log.epoch_end(ask.last_epoch)
        if epoch < 0 or end < 0 or ask.offset < start:
            return Row(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= ask.last_epoch and end >= ask.offset:
            return None
        return Row(0, b"", self.handle.high_watermark, start, EpochEnd(epoch, end))

    def _heard(self, ask: Fetch) -> None:
        """A follower has everything below the offset from which it fetches."""
        joins = lib.kl_alone_fetched(
            self._role, ask.replica, ask.replica_epoch, ask.offset, ask.log_start,
            int(self.node.now_ms()),
        )  # fmt: skip
        if joins or self._joins_early(ask):
            found = CaughtUp(0, ask.replica, ask.replica_epoch, self.leader_epoch)
            self.node.after(1.0, lambda: self.expand(found))
        self.node.after(0, self.moved)

    def _joins_early(self, ask: Fetch) -> bool:
        if self.node.rules.begins or self.isr is None or ask.replica in self.isr.maximal:
            return False
        return ask.offset >= self.handle.high_watermark

    def ends(self, ask: Ends, reply: Callable[[tuple[int, int, int]], None]) -> None:
        """(error, start, end) of the log."""
        code = self._refusal(Fetch(ask.tp, CONSUMER, -1, ask.leader_epoch, 0, -1, -1))
        now = self.handle.state()
        reply((code, int(now.log_start_offset), int(now.log_end_offset)))

    # ---- the ISR ----------------------------------------------------------------------------

    def expand(self, found: CaughtUp) -> None:
        """A follower has caught up."""
        if self.isr is not None:
            self.change(self.node.rules.expand(self.isr, found, self.node.epochs()))
            self._release()

    def _release(self) -> None:
        """As in kafkalog.server.threads.isr_maintenance."""
        if self.isr is None:
            return
        needed = int(self.handle.high_watermark)
        if self._end is not None:
            needed = max(needed, self._end)
        self.change(self.node.rules.released(self.isr, self._states(), needed))
        if self.isr.proposal is not None and self.isr.proposal.held:
            self.node.after(HELD_MS, self._release)

    def look(self) -> None:
        """Propose that lagging followers leave the ISR."""
        if self.isr is not None:
            lag_ms, epochs = self.node.setup.lag_ms, self.node.epochs()
            self.change(self.node.rules.shrink(self.isr, self._states(), lag_ms, epochs))

    def _states(self) -> list[FollowerState]:
        room, count = 16, ffi.new("int32_t *")
        out = ffi.new("kl_follower_state[]", room)
        lib.kl_alone_get_followers(self._role, int(self.node.now_ms()), out, room, count)
        return [
            FollowerState(
                Follower(f.who.id, bool(f.who.in_sync), bool(f.who.maximal), f.who.broker_epoch),
                f.log_end, f.log_start, f.behind_ms,
            )
            for f in out[0 : count[0]]
        ]  # fmt: skip

    def answered(self, asked: Isr, row: Any) -> None:
        """The controller answered a proposal."""
        if self.isr is not None:
            self.change(self.node.rules.answered(self.isr, asked, row))

    def change(self, after: Isr) -> None:
        """Take another state of the ISR, if it differs."""
        if after != self.isr:
            self.isr = after
            self.tell()
            self.moved()
            if after.due:
                self.node.propose()

    # ---- following --------------------------------------------------------------------------

    def _fetch(self, command: Follow) -> None:
        if self.command is not command:
            return
        if self._unsynced and self.node.setup.durable and self.node.rules.follower_syncs:
            self.node.after_disk(lambda: self._synced(command))
            return
        now, node = self.copy.now(), self.node
        state = command.held.state
        epoch = node.standing.epoch if node.rules.epoch_said else -1
        ask = Fetch(
            self.tp, node.number, epoch, state.leader_epoch, now.log_end, now.last_epoch,
            now.log_start, self.topic_id,
        )  # fmt: skip
        node.ask(
            state.leader, ask, lambda row: self._took(command, ask, row),
            lambda: node.after(BACKOFF_MS, lambda: self._fetch(command)),
            WAIT_MS + node.setup.answer_ms, ("fetch", self.tp),
        )  # fmt: skip

    def _synced(self, command: Follow) -> None:
        if self.command is command:
            self._unsynced = False
            self.handle.flush()
            self._fetch(command)

    def _took(self, command: Follow, ask: Fetch, row: Row) -> None:
        """As in kafkalog.replication.fetcher."""
        if self.command is not command and self.node.rules.asks_again:
            return
        self._unsynced |= bool(row.records)
        self._act(command, self.node.rules.fetched(row), ask.offset)

    def _act(self, command: Follow, action: Any, offset: int) -> None:
        node = self.node
        try:
            action = node.rules.do(self.copy, action, offset)
            self._written()
            if isinstance(action, Cut | Restart):
                self._on_disk = min(self._on_disk, action.offset)
        except KafkalogError as problem:
            node.note(self, type(problem).__name__, problem)
            node.after(BACKOFF_MS, lambda: self._fetch(command))
            return
        if isinstance(action, Await):
            self.command = None
        elif isinstance(action, Rest):
            node.after(BACKOFF_MS, lambda: self._fetch(command))
        elif isinstance(action, Place):
            self._place(command)
        else:
            self._fetch(command)

    def _place(self, command: Follow) -> None:
        state = command.held.state

        def found(answer: tuple[int, int, int]) -> None:
            code, start, end = answer
            if self.command is command:
                what = failed(code) if code else placed(start, end, self.copy.now())
                self._act(command, what, -1)

        self.node.ask(
            state.leader, Ends(self.tp, state.leader_epoch), found,
            lambda: self.node.after(BACKOFF_MS, lambda: self._fetch(command)),
            self.node.setup.answer_ms, ("fetch", self.tp),
        )  # fmt: skip
