"""The console's page, its style and its modules, as files of this package."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["read_statics"]

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def read_statics() -> dict[str, tuple[str, bytes]]:
    """Content type and bytes of each file, by its path in a URL."""
    found: dict[str, tuple[str, bytes]] = {}
    for file in files("kafkalog.console").joinpath("static").iterdir():
        kind = _TYPES.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            found[f"/static/{file.name}"] = kind, file.read_bytes()
    found["/"] = found["/static/index.html"]
    return found
