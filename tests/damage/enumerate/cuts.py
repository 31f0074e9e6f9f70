"""Every cut of a recorded protocol: each moment, and the pending changes that may be left."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.damage.enumerate.disk import Change, Data, Disk, Files, Form, parts
from tests.damage.enumerate.judge import Judge
from tests.damage.enumerate.promise import Promise
from tests.damage.enumerate.trace import Step

ALL_SUBSETS = 4  # up to this many pending changes every subset is tried
AGAIN_SHARE = 0.02  # share of drawn cuts that are followed by cuts of the recovery


def systematic(
    pending: Sequence[Change], all_subsets: int, moment: int, fine: bool
) -> Iterator[list[Form]]:
    """Prefixes, each change alone left out or kept, all subsets of a few, and each way in which a
    write of this moment may be torn: with all others kept and, with fewer ways, with none kept."""
    count = len(pending)
    for kept in range(count + 1):
        yield [i < kept for i in range(count)]
    if count <= all_subsets:
        yield from (list(forms) for forms in itertools.product((False, True), repeat=count))
    else:
        for one in range(count):
            yield [i != one for i in range(count)]
            yield [i == one for i in range(count)]
    for torn, change in enumerate(pending):
        if change.step == moment:
            for part in parts(change, fine):
                yield [part if i == torn else True for i in range(count)]
            for part in parts(change, fine=False):
                yield [part if i == torn else False for i in range(count)]


def drawn(pending: Sequence[Change], rng: random.Random) -> list[Form]:
    """Any subset, with any writes torn."""
    keep = rng.choice((0.2, 0.5, 0.8, 0.95))
    forms: list[Form] = []
    for change in pending:
        form: Form = rng.random() < keep
        if isinstance(change, Data) and rng.random() < 0.2:
            form = rng.choice(list(parts(change)))
        forms.append(form)
    return forms


@dataclass
class Fault(Exception):
    """A cut after which a promise is broken."""

    protocol: str
    steps: Sequence[Step]
    moment: int  # the number of the last step before the cut
    power: bool
    pending: Sequence[Change]
    forms: list[Form]
    problem: str

    def __str__(self) -> str:
        what = "power cut" if self.power else "kill"
        lines = [f"{self.protocol}: {what} after {self.steps[self.moment]}: {self.problem}"]
        last = [step for step in self.steps[: self.moment + 1] if step.mark][-3:]
        lines += [f"  before it: {step}" for step in last]
        lines += [
            f"  {'kept' if form is True else 'lost' if form is False else form}: "
            f"{self.steps[change.step]}"
            for change, form in zip(self.pending, self.forms, strict=True)
        ]
        return "\n".join(lines)


@dataclass
class Enumeration:
    """The cuts of one protocol, judged."""

    protocol: str
    steps: Sequence[Step]
    promises: Sequence[Promise]
    root: Path  # the folder of the recording
    judge: Judge
    first: int = 0  # the first step to cut at
    all_subsets: int = ALL_SUBSETS
    fine: bool = False  # tear every small file at every byte, not only logs
    every: int = 1  # moments per systematic power cut; kills come at each moment
    image: Files = field(default_factory=dict)  # the files before the first step
    cuts: int = field(default=0, init=False)

    def moments(self) -> Iterator[tuple[int, Disk]]:
        """Each moment at which a crash may find something new, and the disk there."""
        disk = Disk(self.root)
        disk.load(self.image)
        for step in self.steps:
            changed = disk.replay(step)
            if step.number >= self.first and (changed or step.mark):
                yield step.number, disk

    def _try(self, moment: int, disk: Disk, forms: list[Form], power: bool = True) -> None:
        self.cuts += 1
        problem = self._problem(moment, disk, forms, power)
        if problem is not None:
            forms = self._reduced(moment, disk, forms, power)
            problem = self._problem(moment, disk, forms, power) or problem
            raise Fault(self.protocol, self.steps, moment, power, tuple(disk.pending), forms,
                        problem)  # fmt: skip

    def _problem(self, moment: int, disk: Disk, forms: list[Form], power: bool) -> str | None:
        return self.judge.problem(disk.image(forms), self.promises[moment], power)

    def _reduced(self, moment: int, disk: Disk, forms: list[Form], power: bool) -> list[Form]:
        """Keep every pending change that can be kept without losing the fault."""
        for i in range(len(forms)):
            for simpler in (True, False):
                trial: list[Form] = [*forms[:i], simpler, *forms[i + 1 :]]
                if forms[i] is not simpler and self._problem(moment, disk, trial, power):
                    forms = trial
                    break
        return forms

    def systematic(self, kills: bool = True) -> None:
        """Try each moment with a kill, and with every systematic cut.

        Raises: Fault.
        """
        for moment, disk in self.moments():
            everything: list[Form] = [True] * len(disk.pending)
            if kills:
                self._try(moment, disk, everything, power=False)
            if moment % self.every:
                continue
            fine = self.fine or self.steps[moment].name.endswith(".log")
            forms_of = systematic(disk.pending, self.all_subsets, moment, fine)
            for forms in forms_of:
                self._try(moment, disk, forms)

    def draw(self, rng: random.Random, rounds: Iterator[int]) -> None:
        """Try a drawn cut each round, and sometimes a second one during the recovery.

        Raises: Fault.
        """
        drew = True
        while drew:
            drew = False
            for moment, disk in self.moments():
                if len(disk.pending) < 2:
                    continue
                if next(rounds, None) is None:
                    return
                drew = True
                forms = drawn(disk.pending, rng)
                self._try(moment, disk, forms)
                if rng.random() < AGAIN_SHARE:
                    self.again(moment, disk.image(forms))

    def again(self, moment: int, image: Files) -> None:
        """Try cuts during the open that follows a cut."""
        opening = self.judge.opening(image)
        again = Enumeration(
            protocol=f"{self.protocol}, the open after a cut after {self.steps[moment]}",
            steps=opening,
            promises=[self.promises[moment]] * len(opening),
            root=self.judge.root,
            judge=self.judge,
            all_subsets=0,
            image=image,
        )
        again.systematic(kills=False)
        self.cuts += again.cuts
