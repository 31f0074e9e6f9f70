"""What a member of a group does while its owner works: it beats, commits, and notices that
nobody polls.

One thread, with connections of its own, that talks to its owner through what the lock guards.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.cluster import Cluster, passing
from kafkalog.client.failures import check_code, failure_class
from kafkalog.client.groups import Committed, GroupMetadata, commit_offsets
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["COORDINATOR_MOVED", "Committing", "Keeper", "leave_group"]

COORDINATOR_MOVED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_logger = logging.getLogger(__name__)
END_S = 1.0
"""How long `stop` waits for the thread; it ends by itself when its request does."""
Offsets = Mapping[TopicPartition, Committed]
Callback = Callable[[Offsets, "errors.KafkalogError | None"], object]


class Committing(NamedTuple):
    """Offsets that are committed in the background, and then how that went."""

    offsets: Offsets
    member: GroupMetadata
    callback: Callback | None
    problem: errors.KafkalogError | None = None


def leave_group(cluster: Cluster, member: GroupMetadata, reason: str) -> None:
    """Say goodbye, so that the others need not wait for the session to end.

    Raises: what the coordinator answers; not tried again.
    """
    one = {"member_id": member.member_id, "group_instance_id": None, "reason": reason}
    connection = cluster.connect(cluster.coordinator(member.group))
    body = {"group_id": member.group, "member_id": member.member_id, "members": [one]}
    answer = connection.call(apis.LEAVE_GROUP, body)
    check_code(answer.error_code, f"group {member.group!r}")


class Keeper:
    """The background thread of a member; it begins when there is something to do."""

    def __init__(
        self, cluster: Cluster, heartbeat_ms: int, poll_interval_ms: int, nudge: Callable[[], None]
    ) -> None:
        """`cluster`: its own, which it closes.  `nudge`: tells the owner to look."""
        self.cluster = cluster
        self.clock = cluster.clock
        self.polled_s = self.clock.monotonic_s()
        """When the owner polled last; it sets this.  Without end: it is there, and waits."""
        self._heartbeat_s = heartbeat_ms / 1000
        self._poll_interval_s = poll_interval_ms / 1000
        self._nudge = nudge
        self._thread: threading.Thread | None = None
        self._condition = threading.Condition()  # guards what follows
        self._member: GroupMetadata | None = None
        self._next_beat_s = 0.0
        self._problem: errors.KafkalogError | None = None
        self._left = False
        self._commits: deque[Committing] = deque()
        self._busy = False
        self._done: deque[Committing] = deque()
        self._stopping = False

    # ---- for the owner -----------------------------------------------------------------

    def beat_as(self, member: GroupMetadata) -> None:
        """Beat for this member from now on; its owner is here, however long the join took."""
        with self._condition:
            # Once it has left a generation, it is no longer a member of that one.
            self._left &= self._member == member
            self._member, self._problem = member, None
            self.polled_s = self.clock.monotonic_s()
            self._next_beat_s = self.polled_s + self._heartbeat_s
            self._wake()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """The owner waits for the group within: that is no pause between polls."""
        self.polled_s = math.inf
        try:
            yield
        finally:
            self.polled_s = self.clock.monotonic_s()

    def rest(self) -> None:
        """Beat no more: it joins, or has left."""
        with self._condition:
            self._member = None
            self._problem, self._left = None, False

    def problem(self) -> errors.KafkalogError | None:
        """What the coordinator said to the last heartbeat, if that was no yes."""
        return self._problem

    @property
    def left(self) -> bool:
        """Whether it has left the group, because nobody polled."""
        return self._left

    def commit(self, committing: Committing) -> None:
        """Commit in the background, in the order of the calls; `finished` tells how it went.

        What waits and nobody asked about goes with the next: a commit a record is not kept.
        """
        with self._condition:
            last = self._commits[-1] if self._commits else committing
            quiet = last.callback is None and committing.callback is None
            if self._commits and quiet and last.member == committing.member:
                self._commits.pop()
                committing = committing._replace(offsets={**last.offsets, **committing.offsets})
            self._commits.append(committing)
            self._wake()

    def finished(self) -> list[Committing]:
        """The commits that have ended since the last call."""
        if not self._done:
            return []
        with self._condition:
            found = list(self._done)
            self._done.clear()
        return found

    def drain(self, patience_s: float) -> bool:
        """Wait until no commit is under way; False: one is still."""
        with self._condition:
            return self._condition.wait_for(
                lambda: not self._commits and not self._busy, patience_s
            )

    def stop(self) -> None:
        """End the thread; what it has not begun is not done."""
        with self._condition:
            self._stopping = True
            self._member = None
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_S)
        else:
            self.cluster.close()

    def _wake(self) -> None:
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name="kafkalog-member", daemon=True)
            thread.start()  # it may not: then the next call tries again
            self._thread = thread
        self._condition.notify_all()

    # ---- the thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (step := self._wait()) is not None:
                step()
        except BaseException as problem:
            _logger.exception("a member's thread failed")
            self.cluster.close()
            self._failed(errors.Closed(f"the member's thread failed: {problem!r}"))
        else:
            self.cluster.close()

    def _failed(self, problem: errors.KafkalogError) -> None:
        """The thread ends: who waits is told, and another begins when there is more to do."""
        with self._condition:
            self._done += [one._replace(problem=problem) for one in self._commits]
            self._commits.clear()
            self._problem, self._thread = problem, None
            self._condition.notify_all()
        self._nudge()

    def _wait(self) -> Callable[[], None] | None:
        """What is to be done next; None: nothing any more."""
        with self._condition:
            while not self._stopping:
                if self._commits:
                    self._busy = True
                    return self._commit
                now_s = self.clock.monotonic_s()
                next_s = None
                if self._member is not None and not self._left:
                    late_s = self.polled_s + self._poll_interval_s
                    if now_s >= late_s:
                        return self._leave
                    if now_s >= self._next_beat_s:
                        return self._beat
                    next_s = min(late_s, self._next_beat_s)
                self.clock.wait_until(self._condition, next_s)
        return None

    def _beat(self) -> None:
        member, problem = self._member, None
        if member is None:
            return
        pause_s = self._heartbeat_s
        try:
            connection = self.cluster.connect(self.cluster.coordinator(member.group))
            body = {
                "group_id": member.group,
                "generation_id": member.generation,
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
            }
            check_code(connection.call(apis.HEARTBEAT, body).error_code, f"group {member.group!r}")
        except errors.KafkalogError as found:
            if found.code in COORDINATOR_MOVED or passing(found):
                # The same generation may go on with the new coordinator.
                self.cluster.forget_coordinator(member.group)
                pause_s = min(pause_s, self.cluster.options.retry_backoff_max_ms / 1000)
            else:
                problem = found
        with self._condition:
            self._next_beat_s = self.clock.monotonic_s() + pause_s
            if self._member != member:
                return  # of a generation that has ended meanwhile
            # Until the owner has looked: a later heartbeat may be answered by a yes.
            self._problem = problem or self._problem
        if problem is not None:
            self._nudge()

    def _leave(self) -> None:
        """Give the partitions up: a static member by its silence, another one by saying so."""
        member = self._member
        if member is None:
            return
        if member.instance_id is None:
            try:
                leave_group(self.cluster, member, "poll was not called in max.poll.interval.ms")
            except errors.KafkalogError:
                self.cluster.forget_coordinator(member.group)  # its session ends by itself
        with self._condition:
            self._left = self._member == member
        self._nudge()

    def _commit(self) -> None:
        with self._condition:
            given = self._commits.popleft()
        problem: errors.KafkalogError | None = errors.Closed("the member's thread failed")
        try:
            if given.member.generation == -1 and given.member.member_id:
                code = ErrorCode.UNKNOWN_MEMBER_ID
                raise failure_class(code)(f"group {given.member.group!r}: not a member any more")
            commit_offsets(
                self.cluster,
                given.member.group,
                given.offsets,
                given.member.generation,
                given.member.member_id,
                given.member.instance_id,
            )
            problem = None
        except errors.KafkalogError as found:
            problem = found
        finally:
            with self._condition:
                self._done.append(given._replace(problem=problem))
                self._busy = False
                self._condition.notify_all()
            self._nudge()
