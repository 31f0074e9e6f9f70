"""The zygote of the crash tests serves here, too."""

from tests.damage.crash.conftest import zygote

__all__ = ["zygote"]
