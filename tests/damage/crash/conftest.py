"""A zygote for the module's workers, and folders in memory for each test."""

import tempfile
from pathlib import Path

import pytest

from tests.damage.crash.zygote import Zygote


@pytest.fixture(scope="module")
def zygote(native_test):
    """Forks workers with the test build of the C core."""
    with Zygote() as serving:
        yield serving


@pytest.fixture
def memory_path(memory, request):
    """A new folder there for one test."""
    return Path(tempfile.mkdtemp(dir=memory, prefix=request.node.originalname))
