"""`send_to` over a whole log: every batch once, whatever the slices' size."""

import socket
import threading

import pytest

import kafkalog

BATCH = 16 << 10


@pytest.mark.parametrize("size", [1, BATCH, 40_000, 64 << 10, 1 << 20])
def test_sending_continues_after_the_sent_bytes(log_dir, size):
    """Also if the index entry closest to the limit is that of the batch beyond it."""
    with kafkalog.Log(log_dir) as log:
        log.append_many([b"%0100d" % i for i in range(5_000)], batch_bytes=BATCH)
        ours, theirs = socket.socketpair()
        got = bytearray()

        def take():
            while part := theirs.recv(1 << 16):
                got.extend(part)

        reader = threading.Thread(target=take)
        reader.start()
        offset = 0
        while offset < log.end_offset:
            sent = log.send_to(ours, offset, size)
            assert sent.next_offset > offset
            offset = sent.next_offset
        ours.close()
        reader.join()
        theirs.close()
        assert bytes(got) == (log_dir / f"{0:020d}.log").read_bytes()[: log.size_bytes]
