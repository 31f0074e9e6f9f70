"""A secret of a data directory: random bytes that stay the same over restarts."""

import secrets
from contextlib import suppress

from kafkalog.disk.directory import Directory
from kafkalog.errors import CorruptLog, KafkalogError

__all__ = ["SECRET", "secret_of"]

SECRET = ".kafkalog_secret"
SECRET_BYTES = 32
READ_BYTES_MAX = 4096


def secret_of(directory: Directory) -> bytes:
    """The secret of the directory, which is made if there is none, or another file in its place.

    Without space for it, a new one: it lasts as long as the caller keeps it.
    """
    with suppress(CorruptLog):  # too long to be one
        found = directory.read(SECRET, READ_BYTES_MAX)
        if found is not None and len(found) == SECRET_BYTES:
            return found
    made = secrets.token_bytes(SECRET_BYTES)
    with suppress(KafkalogError):
        directory.replace(SECRET, made)
    return made
