"""kill -9 at random moments and at every named failpoint: nothing acknowledged is lost."""

import random
import threading

import pytest

from tests.damage.crash import work
from tests.damage.crash.ledger import Ledger
from tests.support.effort import EXPLORING, LONG, patience_s, rounds

LOGS = 5
FRESH_AFTER = 20  # kills on one directory before a new one starts


def account(worker, ledger):
    """Pass every report to the ledger.  Returns the failpoints' hits that the worker reported."""
    hits = {}
    for words in worker.reports():
        if words[0] == "hits":
            hits = words[1]
        else:
            ledger.note(words)
    return hits


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(patience_s(300))
def test_kills_at_random_moments_lose_nothing(zygote, rng, memory_path):
    """Each worker finds what the one before it had promised, and is then killed itself."""
    kills = changes = 0
    for _ in rounds(LOGS):
        ledger = Ledger()
        path = memory_path / f"torture-{kills}"
        for _ in range(FRESH_AFTER):
            worker = zygote.start(
                "torture", path=str(path), seed=rng.getrandbits(32), number=ledger.next_number
            )
            killer = threading.Timer(rng.expovariate(1 / 0.03), worker.kill)
            killer.start()
            account(worker, ledger)
            killer.cancel()
            kills += 1
        account(zygote.start("look", path=str(path), number=ledger.next_number), ledger)
        assert ledger.pending is None
        changes += ledger.changes
    print(f"{kills} kills, {changes} acknowledged changes, none lost")
    assert kills >= FRESH_AFTER and changes > 0


@pytest.fixture(scope="module")
def passed(zygote, memory):
    """Scenario to {failpoint: how often it is passed}."""
    found = {}
    for name in work.SCENARIOS:
        worker = zygote.start("scenario", path=str(memory / f"passed-{name}" / "log-0"), name=name)
        found[name] = account(worker, Ledger())
    return found


def test_every_failpoint_is_passed_by_some_scenario(passed):
    missed = set(work.failpoints()) - {name for hits in passed.values() for name in hits}
    assert missed == set()


@pytest.mark.explore
@pytest.mark.parametrize("name", work.SCENARIOS)
def test_a_kill_at_every_failpoint_loses_nothing(name, zygote, passed, memory_path):
    """Kill at the first and last pass of each failpoint that no earlier scenario has, and at the
    last pass of every other one of the rest; of all of them in the long form.  Exploring also kills
    at every first pass, and at one between them."""
    assert passed[name]
    before = {point for other, hits in passed.items() if other < name for point in hits}
    for place, (failpoint, count) in enumerate(passed[name].items()):
        if failpoint in before and place % 2 and not (LONG or EXPLORING):
            continue
        firsts = {1} if EXPLORING or failpoint not in before else set()
        for after in sorted({count, *firsts, *([(count + 1) // 2] if EXPLORING else [])}):
            path = str(memory_path / f"{failpoint}-{after}" / "log-0")
            ledger = Ledger()
            killed = zygote.start(
                "scenario", path=path, name=name, failpoint=failpoint, after=after
            )
            words = ["nothing"]
            for words in killed.reports():
                if words[0] != "hits":
                    ledger.note(words)
            # The sync thread runs when it can, and joins waiting flushes: how often it passes is
            # not fixed, only that a flush does.  Nor is how often it records its progress.
            survived = words[0] == "done"
            free = failpoint.startswith("flush.") and (name != "flush" or after > 1)
            free |= failpoint.startswith("dir.replace.") and (name != "close" or after > 1)
            assert not survived or free, failpoint
            try:
                account(zygote.start("look", path=path, number=ledger.next_number), ledger)
            except AssertionError as failure:
                raise AssertionError(f"killed at {failpoint}, pass {after}: {failure}") from failure


def test_the_ledger_finds_a_lost_record():
    """The judge itself: it sees a record that is gone, moved or altered."""
    rng = random.Random(1)
    ledger = Ledger()
    ledger.note(["append", 0, 3])
    ledger.note(["returned", 0, 2])
    for start, end, found in (
        (0, 2, [[0, 0], [1, 1]]),
        (0, 3, [[0, 0], [1, 1]]),
        (0, 3, [[0, 0], [1, 2], [2, 1]]),
        (1, 3, [[1, 1], [2, 2]]),
        (0, 4, [[0, 0], [1, 1], [2, 2]]),
    ):
        with pytest.raises(AssertionError):
            ledger.check(start, end, found)
    ledger.check(0, 3, [[0, 0], [1, 1], [2, 2]])
    number = rng.randrange(10**6)
    value = work.value_of(number)
    with pytest.raises(AssertionError):
        work.number_of(work.key_of(number), value + b"x")
