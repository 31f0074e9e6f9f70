"""The client's software, as brokers see it."""

from __future__ import annotations

from functools import cache

__all__ = ["software"]


@cache
def _software_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kafkalog")
    except PackageNotFoundError:
        return "0"


def software() -> dict[str, str]:
    """The client's software, as ApiVersions reports it (KIP-511)."""
    return {
        "client_software_name": "kafkalog",
        "client_software_version": _software_version(),
    }
