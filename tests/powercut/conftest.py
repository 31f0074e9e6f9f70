"""The zygote of the crash tests serves here, too."""

from tests.crash.conftest import zygote

__all__ = ["zygote"]
