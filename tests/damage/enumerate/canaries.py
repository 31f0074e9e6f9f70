"""Bugs that an engine could have, planted into a recorded trace: the harness must find each.

A trace is changed as if the code had left out a call, or made it too late.
"""

from collections.abc import Callable, Iterator

from tests.damage.enumerate.trace import Step, renumbered

Steps = list[Step]


def _without(steps: Steps, which: Callable[[Step], bool]) -> Steps:
    left = [step for step in steps if not which(step)]
    assert len(left) < len(steps), "nothing was left out"
    return renumbered(left)


def log_never_synced(steps: Steps) -> Steps:
    """A flush does not wait for the disk."""
    return _without(steps, lambda s: s.syncs and s.name.endswith(".log"))


def folder_never_synced(steps: Steps) -> Steps:
    """The names of new segments and renamed files are not on disk."""
    return _without(steps, lambda s: s.syncs and "." not in s.name)


def replaced_before_synced(steps: Steps) -> Steps:
    """Checkpoints are renamed into place before their bytes are on disk."""
    return _without(steps, lambda s: s.syncs and s.name.endswith("checkpoint.tmp"))


def copy_before_synced(steps: Steps) -> Steps:
    """A truncation renames the copy of a segment before its bytes are on disk."""
    return _without(steps, lambda s: s.syncs and s.name.endswith(".cleaned"))


def aborts_never_synced(steps: Steps) -> Steps:
    """The list of aborted transactions is forgotten."""
    return _without(steps, lambda s: s.syncs and ".txnindex" in s.name)


def snapshots_never_synced(steps: Steps) -> Steps:
    """The producers of deleted segments are forgotten."""
    return _without(steps, lambda s: s.syncs and ".snapshot" in s.name)


def start_never_written(steps: Steps) -> Steps:
    """A deletion moves the start only in memory."""
    return _without(steps, lambda s: "log-start-offset-checkpoint" in s.name)


def _windows(steps: Steps, kind: str) -> Iterator[tuple[int, int]]:
    """The begin and the return of each call of a kind."""
    begin = None
    for i, step in enumerate(steps):
        if step.mark and step.mark[0] == kind:
            begin = i
        elif step.mark and begin is not None:
            yield begin, i
            begin = None


def acknowledged_early(steps: Steps) -> Steps:
    """A flush returns when it has only begun."""
    out = list(steps)
    for begin, end in _windows(steps, "flush"):
        out.insert(begin + 1, out.pop(end))
    return renumbered(out)


def cut_never_synced(steps: Steps) -> Steps:
    """A truncation's end is only in memory."""
    inside = {i for begin, end in _windows(steps, "truncate") for i in range(begin, end)}
    return _without(steps, lambda s: s.number in inside and s.syncs and s.name.endswith(".log"))


def vouched_before_synced(steps: Steps) -> Steps:
    """A close writes its checkpoint and its clean marker before it syncs the log."""
    out = list(steps)
    for begin, end in _windows(steps, "close"):
        syncs = [s for s in out[begin:end] if s.syncs and s.name.endswith(".log")]
        rest = [s for s in out[begin:end] if s not in syncs]
        out[begin:end] = rest + syncs
    return renumbered(out)


# Each with a protocol that it breaks.
CANARIES: dict[Callable[[Steps], Steps], str] = {
    log_never_synced: "flush",
    folder_never_synced: "roll",
    replaced_before_synced: "delete",
    copy_before_synced: "truncate",
    snapshots_never_synced: "retain",
    start_never_written: "delete",
    acknowledged_early: "flush",
    cut_never_synced: "epochs",
    vouched_before_synced: "reopen",
}

# Bugs that would break a promise if the forgotten files were believed unchecked.
DERIVED: dict[Callable[[Steps], Steps], str] = {aborts_never_synced: "aborted_then_closed"}
