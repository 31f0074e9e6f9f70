"""`kafkalog.Mirror`: copies topics from one cluster to another until it is stopped."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalog import arguments, errors
from kafkalog.batch.codecs import CODECS
from kafkalog.client.link.failures import failure_class, passing
from kafkalog.client.link.not_copied import Handle
from kafkalog.client.link.transport import Where
from kafkalog.client.login.tokens import TokenSource
from kafkalog.disk.layout import NAME_PART
from kafkalog.mirror.copying import Copying
from kafkalog.mirror.life import Replaced, Run, admin_of
from kafkalog.mirror.state import Owner
from kafkalog.mirror.wish import SEPARATOR, Counts, Side, Tell, Wish
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Mirror", "MirrorStatus"]

_logger = logging.getLogger(__name__)
PAUSE_S, PAUSE_MAX_S = 0.5, 30.0
REFRESH_MS = 30_000
TRIES_ONCE = 5
"""How often `copy` restarts without progress."""
STARTS_MAX = 20
"""How often a mirror may be fenced before the target has stored it as the owner."""
_ENDED = (
    errors.ProducerFenced,
    errors.InvalidProducerEpoch,
    errors.InvalidTxnState,
    errors.TransactionAborted,
    errors.OutOfOrderSequenceNumber,
    errors.TransactionCoordinatorFenced,
    failure_class(ErrorCode.TRANSACTION_ABORTABLE),
    # It forgot the producer's id: the mirror wrote nothing for days.
    failure_class(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    failure_class(ErrorCode.UNKNOWN_PRODUCER_ID),
)
"""The target has aborted the transaction, because it took too long or an operator wanted it: the
next life continues, unless it finds another owner."""


class MirrorStatus(NamedTuple):
    """A mirror's progress."""

    topics: int
    partitions: int
    records: int
    """Records copied by this object, each in a committed transaction."""
    bytes: int
    """Bytes of the batches that they came in."""
    transactions: int
    groups: int
    """Group offsets written."""
    lag: int
    """Offsets between the copy and the source's readable end, as last reported."""
    aside: dict[str, str]
    """Topics that are no longer copied, and why."""
    returned: dict[str, str]
    """Topics that are not copied because they are copies that came from the target, and why."""


class Mirror(Handle):
    """Copies topics of `source` to `target`: records, settings, groups' offsets.

    A topic of the target, `kafkalog-mirror.NAME`, holds its progress, written in the same
    transactions as the records: a mirror that continues after a kill, at any moment, misses
    nothing and repeats nothing.  One thread at a time, except for `stop`.  Nothing stays open
    between two calls.
    """

    def __init__(
        self,
        source: Where,
        target: Where,
        topics: str,
        *,
        exclude: str | None = None,
        target_alias: str | None = None,
        groups: str | None = None,
        rename: str = "{}",
        accept_loss: str | None = None,
        name: str | None = None,
        replication_factor: int = -1,
        compression: str = "none",
        transaction_bytes: int = 16 << 20,
        refresh_ms: float | None = None,
        refresh_s: float | None = None,
        on_warning: Callable[[str], object] | None = None,
        on_progress: Callable[[MirrorStatus], object] | None = None,
        source_config: Mapping[str, object] | None = None,
        target_config: Mapping[str, object] | None = None,
        source_oauth_token: TokenSource | None = None,
        target_oauth_token: TokenSource | None = None,
    ) -> None:
        """Nothing is sent yet.

        `topics`, `exclude`, `groups`: regular expressions that the whole name matches; None: no
        groups.  `target_alias`: MirrorMaker's alias of the target; topics that came from there by
        MirrorMaker's names (ALIAS.TOPIC) are not copied.  `rename`: the name in the target, {} the
        source's.  `accept_loss`: topics of the source that are copied on although the source or
        the target has lost records that were copied (see docs/mirror.md).  `name`: of the mirror,
        by default the id of the source's cluster; of two with one name the second ends the first.
        `compression`: for rebuilt batches.  `transaction_bytes`: approximate size of one
        transaction.  `refresh_ms`: how often it checks topics, settings and groups (None: every
        30 s); `refresh_s`: older, in seconds.  `on_warning` gets sentences, by default they go to
        the log; `on_progress` gets the status, several times a second.  `source_config`,
        `target_config`: settings of every client, such as `security.protocol`; the tokens: see
        docs/clients.md.

        Raises: ArgumentError, Closed.
        """
        every_ms = arguments.time_of("refresh_ms", refresh_ms, refresh_s, "refresh_s")
        if every_ms == 0:
            raise errors.ArgumentError("refresh_ms: found 0, wanted more")
        self._wish = Wish(
            _side("source_config", source, source_config, source_oauth_token),
            _side("target_config", target, target_config, target_oauth_token),
            None if name is None else _name(name),
            _pattern("topics", topics),
            None if exclude is None else _pattern("exclude", exclude),
            None if target_alias is None else _alias(target_alias),
            None if groups is None else _pattern("groups", groups),
            _rename(rename),
            None if accept_loss is None else _pattern("accept_loss", accept_loss),
            arguments.whole_number("replication_factor", replication_factor, -1, 32_767),
            arguments.one_of("compression", compression, CODECS),
            arguments.whole_number("transaction_bytes", transaction_bytes, 1, 1 << 30),
            (REFRESH_MS if every_ms is None else every_ms) / 1000,
        )  # fmt: skip
        self._begin(on_warning, on_progress)

    def _begin(
        self,
        on_warning: Callable[[str], object] | None,
        on_progress: Callable[[MirrorStatus], object] | None,
    ) -> None:
        arguments.called("on_warning", on_warning)
        arguments.called("on_progress", on_progress)
        self._warn = on_warning or _logger.warning
        self._on_progress = on_progress
        self._begin_here()
        self._counts = Counts()
        admin_of(self._wish.source).close()  # invalid addresses and settings fail now
        admin_of(self._wish.target).close()

    def _begin_here(self) -> None:
        self._pid, self._stop = os.getpid(), threading.Event()

    def _here(self) -> None:
        """A forked child may run it, too: nothing stays open between two calls.  It does not stop
        its parent's."""
        if self._pid != os.getpid():
            self._begin_here()

    @property
    def status(self) -> MirrorStatus:
        """Its progress.  From any thread."""
        c = self._counts
        return MirrorStatus(
            c.topics, c.partitions, c.records, c.bytes, c.transactions, c.groups, c.lag,
            dict(c.aside), dict(c.returned),
        )  # fmt: skip

    def _progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.status)

    def stop(self) -> None:
        """Make `run` and `copy` return soon, after the current transaction.  From any thread, and
        from a signal handler."""
        self._here()
        self._stop.set()

    def copy(self) -> MirrorStatus:
        """Copy everything that is readable in the source now, and return.

        Transient failures are retried.  Raises: as `run`; a transient failure that does not end.
        """
        return self._again(once=True)

    def run(self) -> MirrorStatus:
        """Copy until `stop` is called.

        Raises: ProducerFenced: another mirror with its name has started; ArgumentError: it would
        copy what it writes; MessageTooLarge and other lasting failures.
        """
        return self._again(once=False)

    def _again(self, once: bool) -> MirrorStatus:
        """Start over after each failure: there is no other way to continue."""
        self._here()
        pause_s, tries, before = PAUSE_S, 0, self._counts.transactions
        run, starts = Run(_owner()), 0
        while True:
            try:
                tell = Tell(self._warn, self._progress)
                with Copying(self._wish, self._counts, self._stop, tell, run) as copying:
                    if copying.go_on(once):
                        return self.status
                continue
            except Replaced:
                raise
            except errors.KafkalogError as problem:
                ended = isinstance(problem, _ENDED)
                # A topic may be deleted, or not known everywhere yet: the next life will see.
                gone = isinstance(problem, errors.UnknownTopicOrPartition)
                if not (passing(problem) or ended or gone):
                    raise
                if not run.registered and isinstance(problem, errors.ProducerFenced):
                    starts += 1  # an earlier mirror continues: it ends when this one is the owner
                    if starts < STARTS_MAX:
                        continue
                if self._counts.transactions > before:
                    pause_s, tries, before = PAUSE_S, 0, self._counts.transactions
                tries += 1
                if (once and tries == TRIES_ONCE) or not self._counts.reached:
                    raise
                why = (
                    f"the target has ended the mirror's transaction, as it took more than a minute "
                    f"or was aborted ({problem})"
                    if ended else problem
                )  # fmt: skip
                self._warn(f"{why}; it starts over where it was")
            if self._stop.wait(pause_s):
                return self.status
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _owner() -> Owner:
    return Owner(uuid.uuid4().hex, f"host {socket.gethostname()}, process {os.getpid()}")


def _side(
    name: str, where: Where, config: Mapping[str, object] | None, token: TokenSource | None
) -> Side:
    return Side(where, dict(arguments.mapping(name, config or {})), token)


def _rename(found: str) -> str:
    arguments.text("rename", found)
    if found.count("{}") != 1 or not NAME_PART.fullmatch(found.replace("{}", "x")):
        raise errors.ArgumentError(
            f"rename: found {found!r}, wanted a topic's name with {{}} in the source's place"
        )
    return found


def _name(found: str) -> str:
    if not NAME_PART.fullmatch(arguments.text("name", found)):
        raise errors.ArgumentError(
            f"name: found {found!r}, wanted up to 200 of letters, digits, '.', '_', '-'"
        )
    return found


def _alias(found: str) -> str:
    arguments.text("target_alias", found)
    if SEPARATOR in found or not NAME_PART.fullmatch(found):
        raise errors.ArgumentError(
            f"target_alias: found {found!r}, wanted up to 200 of letters, digits, '_', '-'"
        )
    return found


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(arguments.text(name, text))
    except re.error as problem:
        raise errors.ArgumentError(f"{name}: found {text!r}: {problem}") from None
