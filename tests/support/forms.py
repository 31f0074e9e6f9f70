"""The two forms of calls that differ between systems: see kafkalog/_native/base/system.h.

With KAFKALOG_PORTABLE=1 the second form is built here, and every test runs with it but those that
say why they cannot.
"""

from __future__ import annotations

import pytest

from kafkalog import system
from kafkalog._native import ffi, lib

__all__ = ["linux_form_only", "use_the_built_form"]

PORTABLE = ffi.string(lib.kl_system_form()) != b"linux"


def linux_form_only(why: str) -> pytest.MarkDecorator:
    """A test of what only the first form can do."""
    return pytest.mark.skipif(PORTABLE, reason=f"the portable form: {why}")


def use_the_built_form() -> None:
    """Python uses the form that C was built with."""
    if PORTABLE:
        system.LINUX = False
