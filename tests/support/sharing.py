"""How a run lies on the machine: how many processes, and which tests share one."""

from __future__ import annotations

import os
import re

from xdist.scheduler import LoadFileScheduling

from tests.support.effort import EXPLORING

SPARK = re.compile(r"tests/spark/test_\w*session\.py$")
"""Files whose tests start Spark: ten seconds of a processor, and as many until it is warm."""


KAFKA = re.compile(r"tests/(?!kafka/).*\[kafka[-\]]")
"""Tests of ours that Apache Kafka proves right: one of it is enough for all."""
HOUSE = re.compile(r"tests/house/")
"""They parse the same files of the whole project."""


class Scheduling(LoadFileScheduling):  # type: ignore[misc, unused-ignore]
    """A file's tests in one process, as they share what is dear to start; Spark's files, too."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if KAFKA.match(nodeid):
            return "kafka"
        if HOUSE.search(file):
            return "house"
        return "spark" if SPARK.search(file) else file


def processes() -> int | None:
    """How many processes run tests; None: as many as processors.

    Two more, as tests often wait; a search does not.
    """
    return None if EXPLORING else (os.cpu_count() or 1) + 2
