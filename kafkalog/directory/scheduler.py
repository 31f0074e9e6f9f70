"""Periodic jobs on an injected clock: the decision what is due is separate from the thread."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kafkalog.clock import Clock
from kafkalog.config.declare import FOREVER
from kafkalog.errors import Closed, KafkalogError, told_once
from kafkalog.logs.limit import limited

__all__ = ["Job", "Scheduler", "due", "next_due_ms"]

_logger = limited(__name__)


class Job(NamedTuple):
    """Work to do every `period_ms` (FOREVER: never), first after `delay_ms`."""

    name: str
    run: Callable[[], object]
    period_ms: int
    delay_ms: int


def due(times: Mapping[str, int], now_ms: int) -> list[str]:
    """The jobs that are due, the longest overdue first.  `times`: next run by name."""
    return sorted((name for name, at in times.items() if at <= now_ms), key=lambda n: times[n])


def next_due_ms(times: Mapping[str, int]) -> int:
    """When to check again; FOREVER if there is nothing to wait for."""
    return min(times.values(), default=FOREVER)


class Scheduler:
    """One thread that runs jobs, one at a time; a missed run is not made up for.

    A job that raises is logged, kept in `failures`, and runs again at its next time.
    """

    def __init__(self, name: str, clock: Clock, jobs: Iterable[Job]) -> None:
        """The thread starts with `start`; `name` is its name."""
        self._clock = clock
        self._wake = threading.Condition()  # guards what follows
        self._jobs = {job.name: job for job in jobs}
        now_ms = self._now_ms()
        self._times = {
            job.name: now_ms + job.delay_ms if job.period_ms < FOREVER else FOREVER
            for job in self._jobs.values()
        }
        self._stopping = False
        self._failures: dict[str, Exception] = {}
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def _now_ms(self) -> int:
        # Rounded: a clock in seconds may show a whole millisecond as slightly less.
        return round(self._clock.monotonic_s() * 1000)

    @property
    def failures(self) -> dict[str, Exception]:
        """The exception of each job's last run, by the job's name; a success clears it."""
        with self._wake:
            return dict(self._failures)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, job: Job) -> None:
        """Run a job from now on, for the first time after its delay."""
        with self._wake:
            self._jobs[job.name] = job
            self._times[job.name] = min(FOREVER, self._now_ms() + job.delay_ms)
            self._wake.notify_all()

    def set_period(self, name: str, period_ms: int) -> None:
        """Run the job every `period_ms` from now on; the first time that long from now."""
        with self._wake:
            self._jobs[name] = self._jobs[name]._replace(period_ms=period_ms)
            self._times[name] = min(FOREVER, self._now_ms() + period_ms)
            self._wake.notify_all()

    def run_due(self) -> list[str]:
        """Run each due job in this thread; returns their names."""
        with self._wake:
            names = due(self._times, self._now_ms())
        for name in names:
            self._run(name)
        return names

    def _run(self, name: str) -> None:
        with self._wake:
            if self._stopping:
                return
            job = self._jobs[name]
            # Measured from the start of this run; if that has passed at its end, others go first.
            self._times[name] = min(FOREVER, self._now_ms() + job.period_ms)
        failure: Exception | None = None
        try:
            job.run()
        except Closed:
            return  # it met something that is being closed on purpose
        except Exception as error:
            # Other jobs must continue: a full disk stops checkpoints, not retention.
            self._tell(job, error)
            failure = error
        with self._wake:
            if failure is None:
                if self._failures.pop(name, None) is not None:
                    _logger.info("job %s works again", name)
            else:
                self._failures[name] = failure

    def _tell(self, job: Job, error: Exception) -> None:
        """Log one line for an error of the disk or the data, once; a traceback for our own bugs."""
        again = f"job {job.name} failed; it runs again in {job.period_ms} ms"
        if not isinstance(error, (KafkalogError, OSError)):
            _logger.error("%s", again, exc_info=error)
            return
        with self._wake:
            known = self._failures.get(job.name)
        if known is None or told_once(known) != told_once(error):
            _logger.error("%s: %s", again, error)

    def soon(self, name: str) -> None:
        """Run the job now, whatever its period."""
        with self._wake:
            self._times[name] = self._now_ms()
            self._wake.notify_all()

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not self._stopping and next_due_ms(self._times) > self._now_ms():
                    at_ms = next_due_ms(self._times)
                    until_s = None if at_ms >= FOREVER else at_ms / 1000
                    self._clock.wait_until(self._wake, until_s)
                if self._stopping:
                    return
            self.run_due()

    def stop(self) -> None:
        """Stop the thread; on return no job runs and none will.  Idempotent."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
