"""A connection's requests run one at a time, answers come in order, and what runs in parallel."""

from __future__ import annotations

import random

import pytest

from kafkalog._native import lib
from tests.support.effort import SEED
from tests.support.waiting import wait_for
from tests.unit.net import network
from tests.unit.net.kafka_requests import STORED, fetch, fetched, produce, produced
from tests.unit.net.network import Server, request


def test_the_next_request_of_a_connection_comes_up_when_the_first_is_answered():
    with Server(workers=0) as server, server.client() as client:
        client.send(request(1) + request(2) + request(3))
        for number in (1, 2, 3):
            taken = server.take()
            assert taken.correlation_id == number
            assert server.reactor.take(20) is None
            taken.answer(b"", 0)
            assert client.response() == (number, b"")


def test_requests_of_many_connections_are_answered_in_any_order():
    draw = random.Random(SEED)
    with Server(workers=0) as server:
        clients = [server.client() for _ in range(20)]
        for number, client in enumerate(clients):
            client.send(request(number, b"%d" % number))
        taken = [server.take() for _ in clients]
        draw.shuffle(taken)
        for one in taken:
            one.answer(one.body, 0)
        for number, client in enumerate(clients):
            assert client.response() == (number, b"%d" % number)
            client.close()


def test_a_request_without_response_lets_the_next_run():
    def silent_when_odd(taken: network.RawRequest) -> None:
        taken.answer(b"", -1 if taken.correlation_id % 2 else 0)

    with Server(silent_when_odd) as server, server.client() as client:
        client.send(b"".join(request(number) for number in range(10)))
        assert [client.response()[0] for _ in range(5)] == [0, 2, 4, 6, 8]


def test_a_header_of_version_1_has_tagged_fields():
    with Server(lambda taken: taken.answer(b"body", 1)) as server, server.client() as client:
        assert client.ask(1) == b"\0body"


def test_a_large_answer_comes_whole_to_a_slow_reader():
    answer = random.Random(SEED).randbytes(6 << 20)
    with (
        Server(lambda taken: taken.answer(answer, 0)) as server,
        server.client(receive_buffer=4096) as client,
        server.client() as other,
    ):
        client.send(request(1) + request(2))
        assert other.ask(5) == answer
        assert client.response() == (1, answer)
        assert client.response() == (2, answer)


# ---- Produce that waits for the disk ----------------------------------------------------------


def test_reading_goes_on_while_produce_waits_for_the_disk(served, io):
    """acks=all after acks=all: each is appended immediately, and one sync serves all."""
    with Server(workers=0) as server, server.client() as client:
        log = served(server, durable=True)
        io.kl_io_hold(b"fdatasync", 1)
        client.send(b"".join(produce(number, -1) for number in range(10)))
        wait_for(lambda: log.end_offset == 10, "all were appended")
        wait_for(lambda: server.reactor.stats().parked == 10, "all wait")
        io.kl_io_hold(b"fdatasync", 0)
        for number in range(10):
            answer = produced(client, number)
            assert (answer.error_code, answer.base_offset) == (0, number)
        assert server.reactor.stats().parked == 0


def test_an_answer_waits_for_those_before_it(served, io):
    """acks=1 after acks=all is done immediately, and answered in its turn."""
    with Server(workers=0) as server, server.client() as client, server.client() as other:
        log = served(server, durable=True)
        io.kl_io_hold(b"fdatasync", 1)
        client.send(produce(1, -1) + produce(2, 1) + produce(3, 0) + produce(4, -1))
        wait_for(lambda: log.end_offset == 4, "all were appended")
        other.send(produce(5, 1))
        assert produced(other, 5).base_offset == 4
        io.kl_io_hold(b"fdatasync", 0)
        assert [produced(client, number).base_offset for number in (1, 2, 4)] == [0, 1, 3]


def test_how_many_wait_for_the_disk_is_bounded(served, io):
    with Server(workers=0, kafkalog_produce_waiting_max=3) as server, server.client() as client:
        log = served(server, durable=True)
        io.kl_io_hold(b"fdatasync", 1)
        client.send(b"".join(produce(number, -1) for number in range(20)))
        wait_for(lambda: log.end_offset == 3, "three were appended")
        assert server.reactor.stats().requests == {0: 3}
        io.kl_io_hold(b"fdatasync", 0)
        for number in range(20):
            assert produced(client, number).base_offset == number


def test_other_requests_wait_for_waiting_produce_requests(served, io):
    """It must see what was produced before it."""
    with Server(workers=0) as server, server.client() as client:
        served(server, durable=True)
        io.kl_io_hold(b"fdatasync", 1)
        client.send(produce(1, -1) + request(2) + fetch(3))
        wait_for(lambda: server.reactor.stats().parked == 1, "the Produce waits")
        assert server.reactor.take(50) is None
        io.kl_io_hold(b"fdatasync", 0)
        server.take().answer(b"", 0)
        assert produced(client, 1).error_code == 0
        assert client.response() == (2, b"")
        assert fetched(client, 3).records == STORED


def test_a_connection_that_ends_while_its_produce_waits_is_forgotten(served, io):
    with Server(workers=0) as server, server.client() as other:
        log = served(server, durable=True)
        io.kl_io_hold(b"fdatasync", 1)
        clients = [server.client() for _ in range(10)]
        for client in clients:
            client.send(produce(1, -1) + produce(2, -1))
        wait_for(lambda: server.reactor.stats().parked == 20, "all wait")
        for client in clients:
            client.reset()
        server.connected(1)
        assert server.reactor.stats().parked == 0
        io.kl_io_hold(b"fdatasync", 0)
        other.send(produce(3, -1))
        assert produced(other, 3).base_offset == 20
        assert log.end_offset == 21


def test_a_fetch_that_waits_is_answered_by_a_produce(served):
    with Server(workers=0) as server, server.client() as reader, server.client() as writer:
        served(server)
        reader.send(fetch(1, max_wait_ms=60_000))
        wait_for(lambda: server.reactor.stats().parked == 1, "it waits")
        writer.send(produce(1, 1))
        assert produced(writer, 1).error_code == 0
        assert fetched(reader, 1).records == STORED
        assert server.reactor.stats().fast == 2


def test_many_that_wait_for_the_same_records_all_get_them(served):
    with Server(workers=0) as server, server.client() as writer:
        served(server)
        readers = [server.client() for _ in range(50)]
        for reader in readers:
            reader.send(fetch(1, max_wait_ms=60_000))
        wait_for(lambda: server.reactor.stats().parked == 50, "all wait")
        writer.send(produce(1, 1))
        for reader in readers:
            assert fetched(reader, 1).records == STORED
            reader.close()


def test_a_fetch_of_much_is_sent_from_the_file(served, io):
    """File slices and memory in order, to slow readers and to quick ones."""
    draw = random.Random(SEED)
    with Server(workers=0) as server, server.client(receive_buffer=8192) as slow:
        log = served(server)
        values = [draw.randbytes(draw.randrange(200_000)) for _ in range(80)]
        for value in values:
            log.append(value)
        before = lib.kl_io_calls(b"sendfile")
        slow.send(fetch(1) + fetch(2))
        with server.client() as quick:
            quick.send(fetch(3))
            records = fetched(quick, 3).records
        assert fetched(slow, 1).records == records
        assert fetched(slow, 2).records == records
        assert lib.kl_io_calls(b"sendfile") > before
        assert len(records) > sum(map(len, values))


def test_a_fetch_of_little_is_one_write(served, io):
    """Header, records and the tagged fields after them are not in separate packets."""
    with Server(workers=0) as server, server.client() as client:
        served(server).append(b"little")
        io.kl_io_reset()
        client.send(fetch(1))
        assert len(fetched(client, 1).records) > 61
        assert lib.kl_io_calls(b"sendfile") == 0


@pytest.mark.parametrize("error", [0, 5])
def test_unreadable_small_records_are_not_answered_wrongly(served, io, error):
    with Server(workers=0) as server, server.client() as client, server.client() as other:
        log = served(server)
        log.append(b"little")
        other.send(fetch(1))
        good = fetched(other, 1).records
        io.kl_io_fail(b"pread", 1, error, 1, 0)
        client.send(fetch(2))
        try:
            found = fetched(client, 2)
            assert found.error_code != 0 or found.records == good
        except EOFError:
            pass
        io.kl_io_reset()
        other.send(fetch(3))
        assert fetched(other, 3).records == good


def test_a_file_that_cannot_be_sent_closes_the_connection(served, io):
    with Server(workers=0) as server, server.client() as client, server.client() as other:
        log = served(server)
        log.append(bytes(1_000_000))
        io.kl_io_fail(b"sendfile", 1, 5, 0, 0)
        client.send(fetch(1))
        try:
            client.response()
        except EOFError:
            pass
        else:
            raise AssertionError("it was answered")
        other.send(fetch(2))
        assert len(fetched(other, 2).records) > 1_000_000
