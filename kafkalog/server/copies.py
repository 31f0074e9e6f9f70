"""The replicas that this cluster node keeps: it leads, follows or drops each of them."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import lib
from kafkalog.client.link.transport import Address, Options
from kafkalog.disk.layout import uuid_text
from kafkalog.errors import (
    KafkalogError,
    NotFound,
    NotLeaderOrFollower,
    StorageOffline,
    TopicExists,
    passes,
)
from kafkalog.log.log import handle_of
from kafkalog.metadata.image import Change, Partition, Topic
from kafkalog.replication.copies import Copy, not_synced_before_leading
from kafkalog.replication.fetcher import Fetcher, Replica
from kafkalog.replication.fetcher import Follow as Command
from kafkalog.replication.followers import Follower
from kafkalog.replication.isr import Isr, followers, told
from kafkalog.replication.options import FetcherOptions
from kafkalog.replication.roles import Drop, Effect, Follow, Held, Lead
from kafkalog.replication.throttle import NONE, throttled
from kafkalog.server.network.reactor import RoleChange
from kafkalog.server.owed import Owed, owed
from kafkalog.server.partitions import Partitions, has_failed
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.directory.manager import Manager
    from kafkalog.log.log import Log
    from kafkalog.replication.membership import Membership
    from kafkalog.server.network.reactor import Reactor

__all__ = ["Copies"]

_logger = logging.getLogger(__name__)

CAUGHT_UP_S = 0.005
"""How often a node that shuts down looks how far its followers are."""


UNREADABLE: Mapping[int, str] = {
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "its oldest records are in tiered storage",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "it has messages of format 0 or 1",
}
"""The contents that kafkalog cannot copy, by error code."""


class _Terms(NamedTuple):
    """A topic's settings that concern the roles of its partitions."""

    durable: bool
    min_isr: int
    slowed: Container[int]
    """Partitions whose replication is throttled."""


class Copies(Partitions):
    """Carries out the controller's commands for this node's replicas."""

    def __init__(
        self,
        manager: Manager,
        member: Membership,
        reactor: Reactor,
        options: FetcherOptions,
        racks: bool = False,
    ) -> None:
        """Nothing is opened before the controller says which replicas this node has.

        `racks`: a consumer is sent to a replica in its own rack.
        """
        self._member = member
        self._options = options
        self._racks = racks
        self._fetchers: dict[Address, Fetcher] = {}
        self._followed: dict[TopicPartition, Fetcher] = {}
        self._owed: dict[TopicPartition, Owed] = {}
        """The last command's partitions that failed; only changed while no other command runs."""
        self._failures = 0  # of all logs of this process, when last checked
        self._hands_over = False
        self._ends: dict[TopicPartition, int] = {}
        """Where logs ended when acks=1 began to be refused; guarded by `lock`."""
        self._tags: dict[TopicPartition, int] = {}  # the data plane's numbers of partitions
        self._tagged: list[TopicPartition] = []
        self.led: dict[TopicPartition, Isr] = {}
        """ISRs of the partitions led by this node; guarded by `lock`."""
        super().__init__(manager, member, reactor)
        self.lock = self._lock
        member.carry_out = self._carry_out
        member.registered = self._registered
        self._tell_racks()

    def close(self) -> None:
        """Stop following."""
        for fetcher in self._fetchers.values():
            fetcher.close()

    # ---- what the controller wants ---------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> dict[TopicPartition, ErrorCode]:
        """One partition's failure delays no other and is retried.  A log that is offline is not led
        here if another node could lead it: it is dropped.

        Returns the dropped partitions, and those that could not be deleted yet, with the reason.
        """
        self.on_leave({one.partition for one in effects if not self._leads_on(one)})
        lost = {}
        for effect in self._at_once(effects):
            problem = self._try(effect)
            if isinstance(effect, Drop):
                if effect.delete and problem is not None:
                    lost[effect.partition] = _not_deleted(problem)
                continue
            alone = not isinstance(effect, Lead) or len(effect.held.state.isr) < 2
            if isinstance(problem, StorageOffline) and not alone:
                del self._owed[effect.partition]
                self._let_go(effect.partition)
                lost[effect.partition] = ErrorCode.KAFKA_STORAGE_ERROR
        return lost

    def _leads_on(self, effect: Effect) -> bool:
        """True if the partition is led here already, in the same leader epoch."""
        led = self.led.get(effect.partition)
        epoch = None if led is None else led.leader_epoch
        return isinstance(effect, Lead) and effect.held.state.leader_epoch == epoch

    def _at_once(self, effects: Sequence[Effect]) -> list[Effect]:
        """Change the roles of open replicas in a few steps for all of them: a thousand partitions
        change when a node dies, and each separate step waits for whatever else this node
        is doing.

        Returns what must be done one by one: the rest, and the failures, which report their reason.
        """
        if len({one.partition for one in effects}) < len(effects):
            return [*effects]  # one after another
        with self._lock:
            open_ = [(one, log) for one in effects if not isinstance(one, Drop)
                     if (log := self._served.get(one.partition)) is not None
                     and one.partition.topic in self._image.topics]  # fmt: skip
        self._unfollow([one.partition for one, _ in open_])
        behind = not_synced_before_leading(
            handle_of(log) for one, log in open_ if isinstance(one, Lead)
        )
        ready = [(one, log) for one, log in open_ if handle_of(log) not in behind]
        done = self._change_roles([one for one, _ in ready])
        done -= self._follow_all(
            (one, log) for one, log in ready if isinstance(one, Follow) and one.partition in done
        )
        for tp in done:
            self._owed.pop(tp, None)
        return [one for one in effects if one.partition not in done]

    def _unfollow(self, partitions: Iterable[TopicPartition]) -> None:
        """On return nothing is written to these replicas any more."""
        found: dict[Fetcher, list[TopicPartition]] = {}
        for tp in partitions:
            if fetcher := self._followed.pop(tp, None):
                found.setdefault(fetcher, []).append(tp)
        for fetcher, those in found.items():
            fetcher.drop(those)

    def _change_roles(self, effects: Sequence[Lead | Follow]) -> set[TopicPartition]:
        """Give open replicas their new roles; returns those that have changed."""
        epochs = self._broker_epochs()
        terms = {name: self._terms(name) for name in {one.partition.topic for one in effects}}
        changes, led = [], {}
        with self._lock:
            for effect in effects:
                tp = effect.partition
                role = self._role(tp, effect.held.state, terms[tp.topic])
                self._empty.discard(tp)
                those: Sequence[Follower] = ()
                if isinstance(effect, Lead):
                    led[tp] = self._now_led(tp, effect.held.state)
                    those = followers(led[tp], epochs)
                else:
                    self.led.pop(tp, None)
                changes.append(RoleChange(handle_of(self._served[tp]), role, those))
            changed = self._reactor.change_roles(changes)
            done = {one.partition for one, well in zip(effects, changed, strict=True) if well}
            self.led.update((tp, isr) for tp, isr in led.items() if tp in done)
            for tp in led.keys() & done:
                self._ends.pop(tp, None)
                self._note_end(tp)
        for effect in effects:
            if isinstance(effect, Lead) and effect.partition in done:
                self.on_lead(effect.partition, effect.held.state.leader_epoch)
        return done

    def _follow_all(self, found: Iterable[tuple[Follow, Log]]) -> set[TopicPartition]:
        """Follow the leaders; returns the partitions that are not followed because this node
        stops."""
        commands: dict[Address, dict[TopicPartition, Command]] = {}
        for effect, log in found:
            if place := self._place(effect.held):
                commands.setdefault(place, {})[effect.partition] = _command(effect.held, log)
        lost: set[TopicPartition] = set()
        for place, those in commands.items():
            try:
                self._follow_there(place, those)
            except KafkalogError:
                lost.update(those)
        return lost

    def try_again(self) -> None:
        """Retry what failed when the controller commanded it, as the controller does not repeat
        it."""
        if self._owed:
            now_s = time.monotonic()
            self._member.followed(lambda: [
                self._try(one.effect) for one in [*self._owed.values()] if one.due_s <= now_s
            ])  # fmt: skip

    def failed(self) -> bool:
        """Stop leading and following logs that went offline; returns whether any did since the last
        call.

        Its followers' fetches are refused, so they must not count as lagging: they would leave the
        ISR, and none of them could lead.
        """
        count = int(lib.kl_logs_failed())
        if count == self._failures:
            return False
        self._failures = count
        return self._member.followed(self._fail_those)

    def _fail_those(self) -> bool:
        with self._lock:
            those = [
                tp
                for tp, log in self._served.items()
                if has_failed(log) and self._member.held(tp) is not None
            ]
            for tp in those:
                self.led.pop(tp, None)
        for tp in those:
            self._owed.pop(tp, None)
            if fetcher := self._followed.pop(tp, None):
                fetcher.drop([tp])
            _logger.error("%s-%d: is offline here until this node restarts: check the disk", *tp)
        self._member.fail(those)
        return bool(those)

    def _try(self, effect: Effect) -> Exception | None:
        tp = effect.partition
        before = self._owed.pop(tp, None)
        try:
            if isinstance(effect, Drop):
                self._drop(effect)
            else:
                self._hold(effect)
        except (KafkalogError, OSError) as problem:
            self._owed[tp] = owed(effect, str(problem), before, time.monotonic())
            if before is None or before.why != str(problem):
                _logger.error("%s-%d: %s", *tp, problem)
            return problem
        return None

    def _hold(self, effect: Lead | Follow) -> None:
        tp, held = effect.partition, effect.held
        with self._lock:
            if tp.topic not in self._image.topics:
                self._introduce(Topic(tp.topic, held.topic_id, {}))
            if fetcher := self._followed.pop(tp, None):
                fetcher.drop([tp])
            if isinstance(effect, Follow):
                self.led.pop(tp, None)
            self._empty.discard(tp)
            known = self._served.get(tp)
        if known is not None:
            # First the log, then the permission to write: no record gets an older epoch.
            epoch = self._member.lead(known)
            with self._lock:
                self._serve(tp, known, epoch)
        log = known or self.log(*tp)
        if isinstance(effect, Lead):
            self._lead(tp, held)
        else:
            self._follow(tp, held, log)

    def _lead(self, tp: TopicPartition, held: Held) -> None:
        with self._lock:
            self.led[tp] = self._now_led(tp, held.state)
            self._ends.pop(tp, None)
            self.tell(tp)
        self.on_lead(tp, held.state.leader_epoch)

    def _now_led(self, tp: TopicPartition, state: Partition) -> Isr:
        now = Isr(
            state.leader, state.leader_epoch, state.partition_epoch, state.replicas, state.isr,
            bool(state.leader_recovery_state),
        )  # fmt: skip
        return told(self.led.get(tp), now) or self.led[tp]

    def tell(self, tp: TopicPartition) -> None:
        """Pass the ISR to the data plane.  The caller holds the lock."""
        self._reactor.set_followers(*tp, followers(self.led[tp], self._broker_epochs()))
        self._note_end(tp)

    def _broker_epochs(self) -> dict[int, int]:
        return {one.id: one.epoch for one in self._image.brokers.values()}

    def tell_again(self) -> None:
        """Let the data plane report again which followers have caught up."""
        for tp in self.each_led():
            with self._lock, suppress(NotFound):
                if tp in self.led:
                    self.tell(tp)

    def _follow(self, tp: TopicPartition, held: Held, log: Log) -> None:
        if place := self._place(held):
            self._follow_there(place, {tp: _command(held, log)})

    def _place(self, held: Held) -> Address | None:
        """The leader's address; None if nobody leads it or the leader cannot be reached: the
        controller will then name another."""
        leader = held.state.leader
        return None if leader == self._member.node else self._member.place(leader)

    def _follow_there(
        self, place: Address, commands: Mapping[TopicPartition, Command]
    ) -> None:  # fmt: skip
        fetcher = self._fetcher(place)
        self._followed.update(dict.fromkeys(commands, fetcher))
        fetcher.follow(commands)

    def _fetcher(self, leader: Address) -> Fetcher:
        found = self._fetchers.get(leader)
        if found is None:
            replica = Replica(self._member.node, self._member.epoch)
            named = Options(client_id=str(self._member.node))
            found = Fetcher(replica, leader, self._problem, self._options, named)
            self._fetchers[leader] = found
        return found

    def _registered(self, epoch: int) -> None:
        """Set the followers of partitions led here from now on."""
        for fetcher in self._fetchers.values():
            fetcher.replica = Replica(self._member.node, epoch)

    def _problem(self, tp: TopicPartition, problem: KafkalogError) -> None:
        if why := UNREADABLE.get(problem.code or 0):
            _logger.error("%s-%d: is not replicated here: %s, which kafkalog does not read (%s); "
                          "move this replica to one of the brokers of Kafka",
                          *tp, why, problem)  # fmt: skip
        else:
            _logger.info("%s-%d: is not followed now: %s", *tp, problem)
        if isinstance(problem, StorageOffline):
            self._failures = -1  # of a log that had failed before following began

    def _drop(self, effect: Drop) -> None:
        self._let_go(effect.partition)
        if effect.delete:
            self._manager.delete_partitions([effect.partition])  # which may be gone

    def _let_go(self, tp: TopicPartition) -> None:
        if fetcher := self._followed.pop(tp, None):
            fetcher.drop([tp])
        with self._lock:
            self.led.pop(tp, None)
            self._served.pop(tp, None)
            self._offline.pop(tp, None)
            with suppress(NotFound):
                self._reactor.remove_partition(*tp)

    # ---- shutting down -------------------------------------------------------------------------

    def hand_over(self, at_most_s: float) -> list[TopicPartition]:
        """Prepare for other nodes to lead what is led here: refuse acks=1 where a replica may be in
        sync, and wait until all in sync have everything; returns the partitions for which that took
        longer than `at_most_s`.

        acks=all, which needs no such wait, and a partition without another replica in sync continue
        as before.  This holds until the broker ends.
        """
        self._member.followed(self._refuse_acks_1)
        end_s = time.monotonic() + at_most_s
        while (late := self._not_caught_up()) and time.monotonic() < end_s:
            time.sleep(CAUGHT_UP_S)
        return late

    def _refuse_acks_1(self) -> None:
        with self._lock:
            self._hands_over = True
            for tp, isr in self.led.items():
                if (log := self._served.get(tp)) is not None:
                    with suppress(KafkalogError):  # as for a log that went offline
                        self._serve(tp, log, isr.leader_epoch)
                        self._note_end(tp)

    def _not_caught_up(self) -> list[TopicPartition]:
        with self._lock:
            return [
                tp
                for tp, end in self._ends.items()
                if tp in self.led
                and (log := self._served.get(tp)) is not None
                and not has_failed(log)
                and handle_of(log).high_watermark < end
            ]

    def _note_end(self, tp: TopicPartition) -> None:
        """After the ISR or the role was passed to the data plane.  The caller holds the lock."""
        if not self._hands_over:
            return
        if len(self.led[tp].maximal) > 1:
            self._ends.setdefault(tp, handle_of(self._served[tp]).state().log_end_offset)
        else:
            self._ends.pop(tp, None)  # it takes acks=1

    def needed(self, tp: TopicPartition) -> int:
        """The offset below which a follower has everything when it joins the ISR: what is shown,
        and while leaderships are handed over, what was taken with acks=1.

        Raises: NotFound.
        """
        return max(self.shown(tp), self._ends.get(tp, 0))

    # ---- following the metadata ----------------------------------------------------------------

    def obey(self, config: ServerConfig) -> None:
        """As Partitions.obey; also sets the rate at which throttled replicas are copied."""
        self._reactor.set_replication_rate(config.leader_replication_throttled_rate)
        if self._options.throttle is not None:
            self._options.throttle.quota.set_rate(config.follower_replication_throttled_rate)

    def _introduce(self, topic: Topic) -> None:
        super()._introduce(topic)
        names = self.config(topic.name).follower_replication_throttled_replicas
        if self._options.throttle is not None:
            self._options.throttle.put(topic.name, throttled(names, self._member.node))
        for tp in (TopicPartition(topic.name, number) for number in topic.partitions):
            if fetcher := self._followed.get(tp):
                fetcher.settle([tp])

    def _remove(self, topic: Topic) -> None:
        if self._options.throttle is not None:
            self._options.throttle.put(topic.name, NONE)
        super()._remove(topic)

    def _changed(self, change: Change) -> None:
        super()._changed(change)
        if change.old.brokers != change.new.brokers:
            self._tell_racks()

    def _other_roles(self, change: Change) -> set[str]:
        return set()  # the controller tells this node what it leads, and all nodes what others lead

    def _tell_racks(self) -> None:
        if self._racks:
            found = {one.id: one.rack for one in self._image.brokers.values() if one.rack}
            self._reactor.set_racks(found)

    # ---- as the controller said it -------------------------------------------------------------

    def state(self, topic: str, partition: int) -> Partition | None:
        """As Partitions.state; for replicas kept here, as the controller's command says."""
        found = self._member.held(TopicPartition(topic, partition))
        return super().state(topic, partition) if found is None else found

    def leader_epoch(self, topic: str, partition: int) -> int:
        """As Partitions.leader_epoch."""
        self._id(TopicPartition(topic, partition))
        state = self.state(topic, partition)
        if state is None or state.leader != self._member.node:
            raise NotLeaderOrFollower(f"{topic}-{partition} is not led by node {self._member.node}")
        return state.leader_epoch

    # ---- as the data plane has it --------------------------------------------------------------

    def _id(self, tp: TopicPartition) -> uuid.UUID:
        found = self._member.topic_id(*tp)
        if found is not None:
            return found
        if self.has(*tp):
            raise NotLeaderOrFollower(f"{tp[0]}-{tp[1]} is not kept by node {self._member.node}")
        raise self._unknown(tp)

    def _get(self, tp: TopicPartition) -> Log:
        try:
            return super()._get(tp)
        except TopicExists as problem:
            self._set_aside(tp, problem)
            return super()._get(tp)

    def _set_aside(self, tp: TopicPartition, problem: TopicExists) -> None:
        """Rename a folder that belongs to an earlier topic of that name, as Kafka does with strays:
        the controller does not know of it, and somebody may want its records.

        Raises: `problem` if it does not belong to another topic.
        """
        topic_id, folders = self._id(tp), self._manager.folders
        found = folders.partition_id(tp) if folders.name(tp) else None
        if found is None or ZERO_UUID in (found, topic_id) or found == topic_id:
            raise problem
        self._manager.delete_partitions([tp], kind="stray")
        _logger.warning(
            "%s-%d: its folder belongs to an earlier topic of that name (id %s): it is renamed to "
            "-stray, and kept; delete it unless you want its records", *tp, uuid_text(found),
        )  # fmt: skip

    def _serve(self, tp: TopicPartition, log: Log, leader_epoch: int) -> None:
        state = self._member.held(tp)
        if state is None:
            return
        self._reactor.put_partition(handle_of(log), **self._role(tp, state, self._terms(tp.topic)))
        self._served[tp] = log

    def _terms(self, topic: str) -> _Terms:
        config = self.config(topic)
        return _Terms(
            config.kafkalog_durability == "fsync", config.min_insync_replicas,
            throttled(config.leader_replication_throttled_replicas, self._member.node),
        )  # fmt: skip

    def _role(self, tp: TopicPartition, state: Partition, terms: _Terms) -> dict[str, Any]:
        """As role_of takes it."""
        return {
            "leader_epoch": state.leader_epoch,
            "durable": terms.durable,
            "led_by": None if state.leader == self._member.node else state.leader,
            "min_isr": min(terms.min_isr, len(state.replicas)),
            "tag": self._tag(tp),
            "throttled": tp.partition in terms.slowed,
            "hands_over": self._hands_over,
        }

    def _tag(self, tp: TopicPartition) -> int:
        if tp not in self._tags:
            self._tags[tp] = len(self._tagged)
            self._tagged.append(tp)
        return self._tags[tp]

    def tagged(self, tag: int) -> TopicPartition:
        """The partition for a number that was passed to the data plane."""
        return self._tagged[tag]

    def read(self, topic: str, partition: int) -> None:
        """As Partitions.read; replicas on this node are already open."""
        self.log(topic, partition)

    def low_watermark(self, tp: TopicPartition) -> int:
        """As Partitions.low_watermark, over the replicas on live nodes; -1 if one of them is not
        known yet."""
        with self._lock:
            if tp not in self.led:
                raise NotLeaderOrFollower(f"{tp[0]}-{tp[1]} is not led by node {self._member.node}")
            living = self._image.brokers
        states = self._reactor.followers(*tp)
        starts = [state.log_start for state in states if state.follower.id in living]
        return min([self.log(*tp).start_offset, *starts])

    def shown(self, tp: TopicPartition) -> int:
        """The high watermark of a partition led here.

        Raises: as `log`.
        """
        return handle_of(self.log(*tp)).high_watermark

    def each_led(self) -> list[TopicPartition]:
        """The partitions led here."""
        with self._lock:
            return list(self.led)

    def change(self, tp: TopicPartition, step: Callable[[Isr], Isr]) -> Isr | None:
        """The new state of the ISR; None if it is unchanged or no longer led here."""
        with self._lock:
            before = self.led.get(tp)
            after = None if before is None else step(before)
            if after is None or after == before:
                return None
            self.led[tp] = after
            self.tell(tp)
            return after


def _not_deleted(problem: Exception) -> ErrorCode:
    """Why a copy is still here: its disk is broken, or what may pass."""
    broken = isinstance(problem, OSError) and not passes(problem)
    return ErrorCode.KAFKA_STORAGE_ERROR if broken else ErrorCode.UNKNOWN_SERVER_ERROR


def _command(held: Held, log: Log) -> Command:
    return Command(held.topic_id, held.state.leader_epoch, Copy(log))
