"""An answer that a scripted peer sends only when the test lets it."""

from __future__ import annotations

import threading
from typing import Any

from tests.support.waiting import LIMIT_S


class Gate:
    """For `Peer.on`: answers once it is open."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, request: Any, version: int) -> Any:
        self.reached.set()
        assert self.open.wait(LIMIT_S)
        return self.answer(request, version) if callable(self.answer) else self.answer
