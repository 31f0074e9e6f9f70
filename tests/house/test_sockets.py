"""Every byte of a client passes net/stream.c, or encrypted net/tls_stream.c, and no other file."""

from __future__ import annotations

import re

from tests.house.tree import named, with_suffix

CALLS = re.compile(r"\b(recv|recvmsg|send|sendto|sendmsg|readv|writev|sendfile|TCP_NODELAY)[ (]")
NATIVE = "kafkalog/_native/"


def test_only_the_stream_touches_a_connections_socket() -> None:
    found = {
        named(path)
        for path in with_suffix(".c", ".h")
        if named(path).startswith((f"{NATIVE}net/", f"{NATIVE}plane/", f"{NATIVE}server/"))
        and CALLS.search(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL))
    }
    assert found == {f"{NATIVE}net/stream.c", f"{NATIVE}net/tls_stream.c"}
