"""One event of a coordinator: the input, the time, and the effects that follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "VERSION_2",
    "Answer",
    "Body",
    "Call",
    "JournalRecord",
    "Producer",
    "Repeated",
    "Settle",
    "Step",
    "Write",
    "all_of",
]

VERSION_2 = 2
"""Transaction version 2 (KIP-890): each end raises the epoch."""
Body = dict[str, Any]
"""A response's fields, by kafkalog.wire's names."""
Answer = Callable[[Body], None]
"""Takes the response to one request; called exactly once."""
JournalRecord = tuple[bytes, bytes | None]
"""Key and value of a record for the journal; no value: a tombstone."""


class Repeated(Protocol):
    """An answer that is repeated without the coordinator."""

    def end(self) -> None:
        """The next request comes here again."""

    @property
    def silence_ms(self) -> int | None:
        """How long ago it was last repeated, in ms; None: never."""


class Call(NamedTuple):
    """A client's request to a coordinator, and where its answer goes."""

    body: Any
    """A kafkalog.wire Struct."""
    version: int
    client_id: str
    client_host: str
    """As Kafka shows it: "/127.0.0.1"."""
    answer: Answer
    allowed: Callable[[], ErrorCode] = lambda: ErrorCode.NONE
    """Why what another part allowed the sender no longer holds; NONE: it does."""
    size: int = 0
    """Approximate memory of `body`, in bytes."""
    visible: Callable[[Collection[str]], Collection[str]] = lambda names: names
    """Those of some topics that the sender may describe."""
    creatable: Callable[[Collection[str]], Collection[str]] = lambda names: names
    """Those of some topics that the sender may create."""
    repeat: Callable[[], Repeated | None] = lambda: None
    """Has the answer repeated, without the coordinator, as long as the sender says the same; None:
    this sender's requests always come here.  Called before the answer is given."""
    rows: Callable[[str], Any] = lambda _field: []
    """An empty list for a field of the answer, to which pieces are added (+=); it may encode
    each, and leave out what the sender may not see."""


class Producer(NamedTuple):
    """The producer whose transaction a write belongs to."""

    producer_id: int
    epoch: int
    commit: bool | None = None
    """None: its records are part of the transaction.  Otherwise the write is the marker that ends
    it, and has no records."""
    coordinator_epoch: int = 0
    """The marker's coordinator epoch."""
    version: int = 0
    """The version of the transaction that a marker ends: version 2 raises the epoch."""

    @property
    def raised(self) -> bool:
        """True if the marker's epoch is above that of its transaction."""
        return self.version >= VERSION_2


Settle = Callable[["Step", ErrorCode], None]
"""Called when a write's outcome is known."""


class Write(NamedTuple):
    """Records that belong together, and what happens once they are in the journal."""

    partition: int
    records: Sequence[JournalRecord]
    settle: Settle
    """Called exactly once: with the outcome, or with REQUEST_TIMED_OUT if it takes too
    long."""
    late: Settle | None
    """After a timeout, called with the outcome."""
    producer: Producer | None = None


def all_of(calls: Iterable[Callable[[], None]]) -> None:
    """Make every call, even if some fail.

    Raises: the first failure, after all of them.
    """
    failure: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as problem:
            failure = failure or problem
    if failure is not None:
        raise failure


class Step:
    """The times of one event, and the resulting answers and writes."""

    def __init__(self, now_ms: int, wall_ms: int) -> None:
        self.now_ms = now_ms
        """Time of the monotonic clock: for timers."""
        self.wall_ms = wall_ms
        """Since 1970: for what is written down."""
        self.answers: list[tuple[Answer, Body]] = []
        self.writes: list[Write] = []
        self.effects: list[Any] = []
        """Other work to do outside; each coordinator has its own kinds."""
        self.loads: list[tuple[int, int]] = []
        """Partitions of the journal to read again, with their leader epoch."""

    def answer(self, answer: Answer, **body: Any) -> None:
        """Answer a request with these fields; the others get the schema's defaults."""
        self.answers.append((answer, body))

    def write(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        settle: Settle,
        late: Settle | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Append records to a partition of the journal; see Write."""
        self.writes.append(Write(partition, records, settle, late, producer))
