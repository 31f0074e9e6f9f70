"""For PyInstaller: where the hook is that names the modules of kafkalog."""

import os

__all__ = ["folders"]


def folders() -> list[str]:
    """The folders with hooks: PyInstaller calls it by its entry point."""
    return [os.path.dirname(__file__)]
