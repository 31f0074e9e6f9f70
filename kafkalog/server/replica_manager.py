"""The replicas that this cluster node keeps: it leads, follows or drops each of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Container, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import lib
from kafkalog.config.replica import RACK_AWARE
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
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import Change, Partition, Topic
from kafkalog.replication.follower_log import not_synced_before_leading
from kafkalog.replication.followers import Follower
from kafkalog.replication.isr import Isr, followers
from kafkalog.replication.options import fetcher_options
from kafkalog.replication.roles import Drop, Effect, Follow, Lead
from kafkalog.replication.throttle import throttled
from kafkalog.server.led_partitions import LedPartitions
from kafkalog.server.network.reactor import RoleChange
from kafkalog.server.partitions import Partitions, has_failed
from kafkalog.server.replica_fetchers import ReplicaFetchers
from kafkalog.server.replica_retries import Retry, retry_of
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.directory.manager import Manager
    from kafkalog.log.log import Log
    from kafkalog.replication.membership import Membership
    from kafkalog.replication.options import FetcherOptions
    from kafkalog.server.network.reactor import Reactor

__all__ = ["ReplicaManager"]

_logger = limited(__name__)

OPENED_AT_ONCE = 500
"""Replicas that are opened before they are followed, when a node starts."""

CAUGHT_UP_S = 0.005
"""How often a node that shuts down looks how far its followers are."""


class _Terms(NamedTuple):
    """A topic's settings that concern the roles of its partitions."""

    durable: bool
    min_isr: int
    slowed: Container[int]
    """Partitions whose replication is throttled."""


def replica_manager(
    manager: Manager, member: Membership, reactor: Reactor, config: ServerConfig
) -> ReplicaManager:
    """The manager that a broker's settings ask for."""
    racks = config.replica_selector_class == RACK_AWARE
    return ReplicaManager(manager, member, reactor, fetcher_options(config), racks=racks)


class ReplicaManager(Partitions):
    """Carries out the controller's commands for this node's replicas.

    Two locks.  The membership holds its own while a command of the controller is carried out and
    while the metadata changes, and `Membership.followed` takes it for retries: it puts them into an
    order, and guards which replicas follow whom and which commands are retried.  The lock of the
    partitions, taken inside it, guards what the data plane knows: the open logs, what is led, the
    numbers of partitions.
    """

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
        self._racks = racks
        self._fetchers = ReplicaFetchers(member, options, self._look_for_failures)
        self._retries: dict[TopicPartition, Retry] = {}
        self._failures = 0  # of all logs of this process, when last checked
        self._tags: dict[TopicPartition, int] = {}  # the data plane's numbers of partitions
        self._tagged: list[TopicPartition] = []
        super().__init__(manager, member, reactor)
        self.led = LedPartitions(self._lock, self._open_logs, reactor, self._broker_epochs)
        member.carry_out = self._carry_out
        member.registered = self._fetchers.set_epoch
        self._tell_racks()

    @property
    def bytes_in(self) -> int:
        """Bytes of records that came from leaders since the start."""
        return self._fetchers.bytes_in

    def close(self) -> None:
        """Stop following."""
        self._fetchers.close()

    # ---- the controller's commands ---------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> dict[TopicPartition, ErrorCode]:
        """One partition's failure delays no other and is retried.  A log that is offline is not led
        here if another node could lead it: it is dropped.

        Returns the dropped partitions, and those that could not be deleted yet, with the reason.
        """
        self.on_resignation({one.partition for one in effects if not self._leads_on(one)})
        together = len({one.partition for one in effects}) == len(effects)  # not one after another
        if together:
            self._change_folders(effects)
        done = self._change_together(effects) if together else set[TopicPartition]()
        if together:
            done |= self._follow_together([one for one in effects if one.partition not in done])
        lost = {}
        for effect in effects:
            tp = effect.partition
            problem = None if tp in done else self._carry_out_one(effect)
            if problem is None:
                continue
            if isinstance(effect, Drop):
                if effect.delete:
                    lost[tp] = _not_deleted(problem)
                continue
            others_could = isinstance(effect, Lead) and len(effect.held.state.isr) > 1
            if isinstance(problem, StorageOffline) and others_could:
                del self._retries[tp]
                self._release(tp)
                lost[tp] = ErrorCode.KAFKA_STORAGE_ERROR
        return lost

    def _leads_on(self, effect: Effect) -> bool:
        """True if the partition is led here already, in the same leader epoch."""
        isr = self.led.isr(effect.partition)
        epoch = None if isr is None else isr.leader_epoch
        return isinstance(effect, Lead) and effect.held.state.leader_epoch == epoch

    def retry(self) -> None:
        """Retry what failed when the controller commanded it, as the controller does not repeat
        it."""
        if self._retries:
            now_s = time.monotonic()
            self._member.followed(lambda: [
                self._carry_out_one(one.effect)
                for one in [*self._retries.values()] if one.due_s <= now_s
            ])  # fmt: skip

    # ---- many at once ----------------------------------------------------------------------------

    def _change_folders(self, effects: Sequence[Effect]) -> None:
        """Rename the folders of deleted replicas and create those of new ones, with a few waits for
        the disk however many there are.  `_carry_out_one` repeats what fails, and reports why.
        """
        deleted = [one.partition for one in effects if isinstance(one, Drop) and one.delete]
        for tp in deleted:
            self._release(tp)
        with suppress(KafkalogError, OSError):
            self._manager.delete_partitions(deleted)
        kept: dict[tuple[str, uuid.UUID], list[int]] = {}
        for tp, held in ((one.partition, one.held) for one in effects if not isinstance(one, Drop)):
            if self._member.topic_id(*tp) == held.topic_id:
                kept.setdefault((tp.topic, held.topic_id), []).append(tp.partition)
        for (topic, topic_id), partitions in kept.items():
            with suppress(KafkalogError, OSError):
                self._manager.make(topic, topic_id, partitions)

    def _change_together(self, effects: Sequence[Effect]) -> set[TopicPartition]:
        """Change the roles of open replicas in a few steps for all of them: a thousand partitions
        change when a node dies, and each separate step waits for whatever else this node
        is doing.

        Returns the partitions that have changed.  The others are left to `_carry_out_one`, which
        reports why one fails.
        """
        with self._lock:
            open_ = [(one, log) for one in effects if not isinstance(one, Drop)
                     if (log := self._open_logs.get(one.partition)) is not None
                     and one.partition.topic in self._image.topics]  # fmt: skip
        self._fetchers.unfollow(one.partition for one, _ in open_)
        behind = not_synced_before_leading(
            handle_of(log) for one, log in open_ if isinstance(one, Lead)
        )
        ready = [(one, log) for one, log in open_ if handle_of(log) not in behind]
        done = self._change_roles([one for one, _ in ready])
        done -= self._fetchers.follow(
            (one.partition, one.held, log)
            for one, log in ready
            if isinstance(one, Follow) and one.partition in done
        ).keys()
        for tp in done:
            self._retries.pop(tp, None)
        return done

    def _follow_together(self, effects: Sequence[Effect]) -> set[TopicPartition]:
        """Open those of these replicas that are to follow, and let them, some at a time: a node
        that starts follows nearly all of its replicas, and one after another each would send
        fetchers another request.  Returns as `_change_together`.
        """
        with self._lock:
            closed = [one for one in effects if isinstance(one, Follow)
                      and one.partition not in self._open_logs
                      and one.partition.topic in self._image.topics]  # fmt: skip
        done = set[TopicPartition]()
        for at in range(0, len(closed), OPENED_AT_ONCE):
            those = closed[at : at + OPENED_AT_ONCE]
            for one in those:
                with suppress(KafkalogError, OSError):
                    self.log(*one.partition)
            done |= self._change_together(those)
        return done

    def _change_roles(self, effects: Sequence[Lead | Follow]) -> set[TopicPartition]:
        """Give open replicas their new roles; returns those that have changed."""
        epochs = self._broker_epochs()
        terms = {name: self._terms(name) for name in {one.partition.topic for one in effects}}
        changes, led = [], dict[TopicPartition, Isr]()
        with self._lock:
            for effect in effects:
                tp = effect.partition
                role = self._role(tp, effect.held.state, terms[tp.topic])
                self._empty.discard(tp)
                those: Sequence[Follower] = ()
                if isinstance(effect, Lead):
                    led[tp] = self.led.commanded(tp, effect.held.state)
                    those = followers(led[tp], epochs)
                else:
                    self.led.remove(tp)
                changes.append(RoleChange(handle_of(self._open_logs[tp]), role, those))
            changed = self._reactor.change_roles(changes)
            done = {one.partition for one, well in zip(effects, changed, strict=True) if well}
            for tp in led.keys() & done:
                self.led.lead_published(tp, led[tp])
        for effect in effects:
            if isinstance(effect, Lead) and effect.partition in done:
                self.on_election(effect.partition, effect.held.state.leader_epoch)
        return done

    # ---- one -------------------------------------------------------------------------------------

    def _carry_out_one(self, effect: Effect) -> Exception | None:
        """Returns why it failed, which is logged once; it is retried then."""
        tp = effect.partition
        before = self._retries.pop(tp, None)
        try:
            if isinstance(effect, Drop):
                self._release(tp)
                if effect.delete:
                    self._manager.delete_partitions([tp])  # which may be gone
            else:
                self._change_role(effect)
        except (KafkalogError, OSError) as problem:
            self._retries[tp] = retry_of(effect, str(problem), before, time.monotonic())
            if before is None or before.why != str(problem):
                _logger.error("%s-%d: %s", *tp, problem)
            return problem
        return None

    def _change_role(self, effect: Lead | Follow) -> None:
        """Open the replica if needed, and give it its new role.

        Raises: as `log`; Closed: this node stops.
        """
        tp, held = effect.partition, effect.held
        self._fetchers.unfollow([tp])
        with self._lock:
            if tp.topic not in self._image.topics:
                self._introduce(Topic(tp.topic, held.topic_id, {}))
            if isinstance(effect, Follow):
                self.led.remove(tp)
            self._empty.discard(tp)
            known = self._open_logs.get(tp)
        if known is not None:
            # First the log, then the permission to write: no record gets an older epoch.
            epoch = self._member.lead(known)
            with self._lock:
                self._serve(tp, known, epoch)
        log = known or self.log(*tp)
        if isinstance(effect, Lead):
            with self._lock:
                self.led.lead(tp, self.led.commanded(tp, held.state))
            self.on_election(tp, held.state.leader_epoch)
        elif problem := self._fetchers.follow([(tp, held, log)]).get(tp):
            raise problem

    def _release(self, tp: TopicPartition) -> None:
        """Neither lead nor follow; the data plane forgets the partition."""
        self._fetchers.unfollow([tp])
        with self._lock:
            self.led.remove(tp)
            self._open_logs.pop(tp, None)
            self._offline.pop(tp, None)
            with suppress(NotFound):
                self._reactor.remove_partition(*tp)

    # ---- logs that go offline --------------------------------------------------------------------

    def release_failed(self) -> bool:
        """Stop leading and following logs that went offline; returns whether any did since the last
        call.

        Its followers' fetches are refused, so they must not count as lagging: they would leave the
        ISR, and none of them could lead.
        """
        count = int(lib.kl_logs_failed())
        if count == self._failures:
            return False
        self._failures = count
        return self._member.followed(self._release_failed)

    def _look_for_failures(self) -> None:
        self._failures = -1

    def _release_failed(self) -> bool:
        with self._lock:
            failed = [
                tp
                for tp, log in self._open_logs.items()
                if has_failed(log) and self._member.held(tp) is not None
            ]
            for tp in failed:
                self.led.remove(tp)
        self._fetchers.unfollow(failed)
        for tp in failed:
            self._retries.pop(tp, None)
            _logger.error("%s-%d: is offline here until this node restarts: check the disk", *tp)
        self._member.fail(failed)
        return bool(failed)

    # ---- shutting down ---------------------------------------------------------------------------

    def hand_over(self, at_most_s: float) -> list[TopicPartition]:
        """Prepare for other nodes to lead what is led here: refuse acks=1 where a replica may be in
        sync, and wait until all in sync have everything; returns the partitions for which that took
        longer than `at_most_s`.

        acks=all, which needs no such wait, and a partition without another replica in sync continue
        as before.  This holds until the broker ends.
        """
        self._member.followed(self._refuse_acks_1)
        end_s = time.monotonic() + at_most_s
        while (late := self.led.not_caught_up()) and time.monotonic() < end_s:
            time.sleep(CAUGHT_UP_S)
        return late

    def stop_leading(self) -> None:
        """Lead nothing that others keep in sync: what waits for them gets an error.

        The controller may have moved it without this node being told, if that is also ending.
        """
        self._member.followed(self._stop_leading)

    def _stop_leading(self) -> None:
        for tp in self.led.partitions():
            isr = self.led.isr(tp)
            if isr is not None and len(isr.maximal) > 1:
                self._release(tp)

    def _refuse_acks_1(self) -> None:
        with self._lock:
            self.led.hands_over = True
            for tp in self.led.partitions():
                log, isr = self._open_logs.get(tp), self.led.isr(tp)
                if log is not None and isr is not None:
                    with suppress(KafkalogError):  # as for a log that went offline
                        self._serve(tp, log, isr.leader_epoch)
                        self.led.note_end(tp)

    def joining_offset(self, tp: TopicPartition) -> int:
        """The offset below which a follower has everything when it joins the ISR: the high
        watermark, and while leaderships are handed over, the end of what was taken with acks=1.

        Raises: as `log`.
        """
        return max(handle_of(self.log(*tp)).high_watermark, self.led.end(tp))

    # ---- following the metadata ------------------------------------------------------------------

    def apply_settings(self, config: ServerConfig) -> None:
        """As Partitions.apply_settings; also sets the rates at which throttled replicas are
        copied."""
        self._reactor.set_replication_rate(config.leader_replication_throttled_rate)
        self._fetchers.set_rate(config.follower_replication_throttled_rate)

    def _introduce(self, topic: Topic) -> None:
        super()._introduce(topic)
        names = self.config(topic.name).follower_replication_throttled_replicas
        self._fetchers.set_throttled(topic.name, names)
        self._fetchers.settle(topic)

    def _remove(self, topic: Topic) -> None:
        self._fetchers.set_throttled(topic.name, ())
        super()._remove(topic)

    def _changed(self, change: Change) -> None:
        super()._changed(change)
        if change.old.brokers != change.new.brokers:
            self._tell_racks()

    def _topics_with_roles(self, change: Change) -> set[str]:
        return set()  # the controller tells this node what it leads, and all nodes what others lead

    def _tell_racks(self) -> None:
        if self._racks:
            found = {one.id: one.rack for one in self._image.brokers.values() if one.rack}
            self._reactor.set_racks(found)

    def _broker_epochs(self) -> dict[int, int]:
        return {one.id: one.epoch for one in self._image.brokers.values()}

    # ---- as the controller said it ---------------------------------------------------------------

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

    # ---- as the data plane has it ----------------------------------------------------------------

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
        self._open_logs[tp] = log

    def _terms(self, topic: str) -> _Terms:
        config = self.config(topic)
        return _Terms(
            config.kafkalog_durability == "fsync",
            config.min_insync_replicas,
            throttled(config.leader_replication_throttled_replicas, self._member.node),
        )

    def _role(self, tp: TopicPartition, state: Partition, terms: _Terms) -> dict[str, Any]:
        """As role_of takes it."""
        return {
            "leader_epoch": state.leader_epoch,
            "durable": terms.durable,
            "led_by": None if state.leader == self._member.node else state.leader,
            "min_isr": min(terms.min_isr, len(state.replicas)),
            "tag": self._tag(tp),
            "throttled": tp.partition in terms.slowed,
            "hands_over": self.led.hands_over,
        }

    def _tag(self, tp: TopicPartition) -> int:
        if tp not in self._tags:
            self._tags[tp] = len(self._tagged)
            self._tagged.append(tp)
        return self._tags[tp]

    def partition_of(self, tag: int) -> TopicPartition:
        """The partition for a number that was passed to the data plane."""
        return self._tagged[tag]

    def allow_reads(self, topic: str, partition: int) -> None:
        """As Partitions.allow_reads.  The folders of new replicas are made by the controller's
        command, for many at once, not by the first to ask."""
        if self._manager.has(TopicPartition(topic, partition)):
            self.log(topic, partition)

    def low_watermark(self, tp: TopicPartition) -> int:
        """As Partitions.low_watermark, over the replicas on live nodes; -1 if one of them is not
        known yet."""
        with self._lock:
            if self.led.isr(tp) is None:
                raise NotLeaderOrFollower(f"{tp[0]}-{tp[1]} is not led by node {self._member.node}")
            living = self._image.living
        states = self._reactor.followers(*tp)
        starts = [state.log_start for state in states if state.follower.id in living]
        return min([self.log(*tp).start_offset, *starts])


def _not_deleted(problem: Exception) -> ErrorCode:
    """Why a copy is still here: its disk is broken, or what may pass."""
    broken = isinstance(problem, OSError) and not passes(problem)
    return ErrorCode.KAFKA_STORAGE_ERROR if broken else ErrorCode.UNKNOWN_SERVER_ERROR
