"""The end of a metadata log, when the disk may be full."""

from typing import TYPE_CHECKING

from kafkalog.disk.space import Reserve
from kafkalog.errors import NoSpace
from kafkalog.kraft.batches import records_in
from kafkalog.logs.limit import limited

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["Tail"]

_logger = limited(__name__)


class Tail:
    """Appends batches.  One thread at a time.

    Records that only say that this node leads may wait in memory for space, and are written before
    the next batch.  If a crash loses them, nothing is lost, as the next start writes them again.
    """

    def __init__(self, log: "Log", directory: str) -> None:
        """`directory` is where the reserve is kept, see Reserve."""
        self._log = log
        self._reserve = Reserve(directory)
        self._owed: list[bytes] = []
        self._end = -1  # after the waiting records

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._end if self._owed else self._log.end_offset

    @property
    def owes(self) -> bool:
        """True if records wait for space."""
        return bool(self._owed)

    def append(self, batch: bytes, owe: bool = False, frees: bool = False) -> None:
        """Append a batch at `end_offset`.

        On a full disk it may use the reserve if it `frees` space, or waits if it may
        (`owe`).

        Raises: NoSpace (nothing changed), IoFailed, StorageOffline.
        """
        try:
            self._append(batch)
        except NoSpace as error:
            if (owe or frees) and self._append_in_reserve(batch):
                return
            if not owe:
                raise
            if not self._owed:
                _logger.warning("%s: the disk is full, the first records have to wait: %s",
                                self._log.path, error)  # fmt: skip
            *_, last = records_in(batch)
            self._owed.append(batch)
            self._end = last.offset + 1

    def _append(self, batch: bytes) -> None:
        while self._owed:
            self._log.append_as_follower(self._owed[0])
            del self._owed[0]
        self._log.append_as_follower(batch)

    def _append_in_reserve(self, batch: bytes) -> bool:
        if not self._reserve.give():
            return False
        try:
            self._append(batch)
        except NoSpace:
            return False
        return True

    def keep_space(self) -> None:
        """Restore the reserve, as far as there is space."""
        self._reserve.keep()
