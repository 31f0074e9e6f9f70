"""The client's software, as brokers see it."""

from __future__ import annotations

import sys

__all__ = ["software"]


def software() -> dict[str, str]:
    """The client's software, as ApiVersions reports it (KIP-511)."""
    package = sys.modules[__name__.partition(".")[0]]  # loaded before each of its modules
    return {"client_software_name": "kafkalog", "client_software_version": package.__version__}
