"""kill -9 at every step of a compaction: each group of segments is the old or the new one."""

import pytest

import kafkalog
from tests.damage.crash import work
from tests.support import trees
from tests.unit.clean.history import read

STEPS = ("clean.", "segment.delete.after_log")


def allowed(path):
    """The states that may be read after a kill in the first or the second compaction.

    Groups are exchanged from the lowest up: a prefix of them is done.
    """
    log = work.fill_compacted(path)
    states = [read(log)]
    for _ in range(2):
        before = states[-1]
        log.compact()
        after = read(log)
        for segment in log.segments[1:]:
            base = segment.base_offset
            done = [r for r in after if r[0] < base] + [r for r in before if r[0] >= base]
            states.append(done)
        states.append(after)
    log.close()
    return states


@pytest.fixture(scope="module")
def passed(zygote, memory):
    """The steps of the scenario, and how often each is passed."""
    worker = zygote.start("scenario", path=str(memory / "passed" / "log-0"), name="compact")
    hits = next(words[1] for words in worker.reports() if words[0] == "hits")
    return {name: count for name, count in hits.items() if name.startswith(STEPS)}


def test_each_step_is_killed_at(passed):
    """Every step in the sources, and several groups are exchanged."""
    assert set(passed) == {name for name in work.failpoints() if name.startswith(STEPS)}
    assert passed["clean.after_final_names"] >= 4


@pytest.mark.slow
def test_a_kill_leaves_the_old_or_the_new(passed, zygote, memory_path):
    """Also for a reader that comes before any writer; it changes nothing."""
    states = allowed(memory_path / "allowed" / "log-0")
    for failpoint, count in passed.items():
        for after in sorted({1, (count + 1) // 2, count}):
            path = memory_path / f"{failpoint}-{after}" / "log-0"
            worker = zygote.start(
                "scenario", path=str(path), name="compact", failpoint=failpoint, after=after
            )
            assert all(words[0] != "done" for words in worker.reports())
            what = f"killed at {failpoint}, pass {after}"
            check(path.parent / "compacted-0", states, what)


def check(path, states, what):
    left = trees.fingerprint(path)
    with kafkalog.Log(path, mode="r") as reader:
        seen = read(reader)
        assert seen in states, what
        for offset, *_ in seen[:: max(1, len(seen) // 7)]:
            assert reader[offset].offset == offset, what
    assert trees.fingerprint(path) == left, what
    with kafkalog.Log(path, config=work.COMPACTED) as log:
        # A reader that still finds the dead writer's page may have seen an earlier state.
        assert read(log) in states[states.index(seen) :], what
        report = log.verify(deep=True)
        assert report.clean, (what, report.findings)
        log.compact()
        log.compact()
        assert read(log)[-1] == states[-1][-1], what
    assert not [p for p in path.iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")], what
