"""A broker's life: how it starts, listens and ends, and what survives each kind of end."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.cli import serve
from kafkalog.cli.serve import RESTART
from kafkalog.clock import ManualClock
from kafkalog.directory.manager import Manager
from kafkalog.errors import Closed, InvalidSetting, IoFailed, Locked, UnknownSetting
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import Client

SERVE = """
import sys
from kafkalog.server.broker import Broker
broker = Broker(sys.argv[1], config={"log.initial.task.delay.ms": 0})
print(broker.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def values(raw: Raw, topic: str) -> list[bytes | None]:
    """Every value of partition 0."""
    found: list[bytes | None] = []
    end = raw.offsets(topic, -1).offset
    offset = raw.offsets(topic, -2).offset
    while offset < end:
        data = raw.fetch(topic, offset).records
        for header in batches.headers(data):
            found += _values(data, header)
            offset = header.last_offset + 1
    return found


def _values(data: bytes, header: batches.Header) -> list[bytes | None]:
    """The values of an uncompressed batch whose records are all shorter than 64 bytes."""
    pos = header.pos + batches.HEADER_BYTES
    out: list[bytes | None] = []
    for _ in range(header.record_count):
        size = data[pos] >> 1
        body = data[pos + 1 : pos + 1 + size]
        key_bytes = body[3] >> 1 if not body[3] & 1 else -1
        at = 4 + max(key_bytes, 0)
        out.append(None if body[at] & 1 else body[at + 1 : at + 1 + (body[at] >> 1)])
        pos += 1 + size
    return out


# ---- begin and end -----------------------------------------------------------------------------


def test_all_is_there_after_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        topic_id = raw.create("t", 2).topic_id
        raw.produce("t", b"a")
        raw.produce("t", b"b")
        cluster = raw.call(apis.METADATA, 2, topics=[]).cluster_id
    broker.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with Raw(make_broker().bootstrap_servers) as raw:
        found = raw.call(apis.METADATA, topics=[{"name": "t"}])
        assert (found.cluster_id, found.topics[0].topic_id) == (cluster, topic_id)
        assert values(raw, "t") == [b"a", b"b"]
        assert found.topics[0].partitions[0].leader_epoch == 0  # nothing could be lost


def test_a_producer_that_heard_of_none_of_its_batches_sends_all_again(
    make_broker: MakeBroker,
) -> None:
    """As clients of a restarted node do; refusing the first batch would end the producer."""
    sent = [
        batches.batch([batches.Row(b"v")] * 2, producer_id=7, producer_epoch=0, base_sequence=2 * i)
        for i in range(5)
    ]
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        for data in sent:
            assert raw.produce_batch("t", data).error_code == ErrorCode.NONE
    broker.close()
    with Raw(make_broker().bootstrap_servers) as raw:
        found = [raw.produce_batch("t", data) for data in sent]
        assert [(one.error_code, one.base_offset) for one in found] == [
            (ErrorCode.NONE, 2 * i) for i in range(5)
        ]
        assert raw.offsets("t", -1).offset == 10


def test_close_is_harmless_when_repeated(broker: Broker) -> None:
    broker.close()
    broker.close()
    with pytest.raises(ConnectionError):
        Raw(broker.bootstrap_servers)


def test_a_program_that_forgets_to_close_ends_cleanly(tmp_path: Path) -> None:
    program = (
        "import sys, kafkalog; broker = kafkalog.Broker(sys.argv[1]); "
        "print(broker.bootstrap_servers)"
    )
    path = tmp_path / "data"
    done = subprocess.run([sys.executable, "-c", program, str(path)], timeout=LIMIT_S)
    assert done.returncode == 0
    assert (path / ".kafka_cleanshutdown").exists()


def test_a_request_in_flight_is_answered_at_the_end(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        raw.fetch("t")
        raw.send(apis.FETCH, 11, {
            "max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20,
            "topics": [{"topic": "t", "partitions": [part]}],
        })  # fmt: skip
        with Raw(broker.bootstrap_servers) as other:
            other.produce("t", b"v", acks=1)  # afterwards the fetch has been read
        assert raw.receive(apis.FETCH, 11).responses[0].partitions[0].error_code == 0
        raw.send(apis.FETCH, 11, {
            "max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20,
            "topics": [{"topic": "t", "partitions": [{**part, "fetch_offset": 1}]}],
        })  # fmt: skip
        # A request that is not read before the end gets no answer, and its connection is reset.
        wait_for(lambda: broker._node.reactor.stats().parked == 1, "it waits")
        closer = threading.Thread(target=broker.close)
        closer.start()
        assert raw.receive(apis.FETCH, 11).responses[0].partitions[0].error_code == 0
        closer.join()


def test_a_member_that_waits_for_its_group_is_answered_at_the_end(make_broker: MakeBroker) -> None:
    broker = make_broker(group_initial_rebalance_delay_ms=60_000)
    with Raw(broker.bootstrap_servers) as raw:
        raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0)
        join = {"group_id": "g", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000,
                "member_id": "", "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
        while raw.call(apis.HEARTBEAT, 0, group_id="g", generation_id=1, member_id="x") == 14:
            pass
        raw.send(apis.JOIN_GROUP, 2, join)
        key = apis.JOIN_GROUP.key
        wait_for(lambda: broker._node.reactor.stats().requests.get(key) == 1, "it was read")
        broker.close()
        assert raw.receive(apis.JOIN_GROUP, 2).error_code in (
            ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )  # fmt: skip


def test_a_second_owner_learns_the_firsts_pid(broker: Broker) -> None:
    program = "import sys; from kafkalog.server.broker import Broker; Broker(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, broker.path], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert f"pid {os.getpid()}" in done.stderr or str(os.getpid()) in done.stderr
    with pytest.raises(Locked):
        Broker(broker.path)


def test_a_start_that_fails_leaves_the_directory_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(IoFailed, match=f"port {port}.*already in use"):
            Broker(tmp_path / "data", listeners=f"PLAINTEXT://127.0.0.1:{port}")
    with Broker(tmp_path / "data") as broker:
        assert broker.bootstrap_servers


def test_wrong_settings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with pytest.raises(UnknownSetting, match="nearest is num"):
        Broker(path, config={"num.partitons": 3})
    with pytest.raises(InvalidSetting, match=r"OUT: ssl\.keystore\.location: found none"):
        Broker(path, "OUT://:0", config={"listener.security.protocol.map": "OUT:SSL"})
    assert not path.exists()


def test_a_directory_keeps_its_node_id(make_broker: MakeBroker) -> None:
    make_broker(node_id=7).close()
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.call(apis.METADATA, topics=[]).brokers[0].node_id == 7
    broker.close()
    with pytest.raises(InvalidSetting, match="found 8, wanted 7"):
        make_broker(node_id=8)


# ---- listeners ---------------------------------------------------------------------------------


def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    config = {
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,LOCAL:PLAINTEXT",
        "advertised.listeners": "OUT://broker.example:1234",
    }
    path = f"{tmp_path}/socket"
    listeners = f"IN://127.0.0.1:0,OUT://127.0.0.1:0,LOCAL://unix:{path}"
    with Broker(tmp_path / "data", listeners, config) as broker:
        inside, out = broker.bootstrap_servers.split(",")
        assert out == "broker.example:1234"
        with Raw(inside) as raw:
            (one,) = raw.call(apis.METADATA, topics=[]).brokers
            assert f"{one.host}:{one.port}" == inside
        with Raw(f"unix:{path}") as raw:
            (one,) = raw.call(apis.METADATA, topics=[]).brokers
            assert one.host == f"unix:{path}"
    assert not os.path.exists(path)


def test_ipv6(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", "PLAINTEXT://[::1]:0") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        with Raw(broker.bootstrap_servers) as raw:
            (one,) = raw.call(apis.METADATA, topics=[]).brokers
            assert one.host == "::1"


# ---- next to others ------------------------------------------------------------------------------


def test_an_asyncio_program_uses_it_in_its_own_loop(broker: Broker) -> None:
    async def run() -> list[Any]:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        found = await asyncio.wait_for(consumer.getone(), 30)
        await consumer.stop()
        return [found.value, found.offset]

    assert asyncio.run(run()) == [b"v", 0]


def test_a_forked_child_forgets_it(broker: Broker) -> None:
    child = os.fork()
    if not child:
        broker.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.produce("t", b"v").error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_timers_go_by_the_given_clock(make_broker: MakeBroker) -> None:
    clock = ManualClock()
    broker = make_broker(clock=clock)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        raw.fetch("t")
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        raw.send(apis.FETCH, 11, {
            "max_wait_ms": 300_000, "min_bytes": 1, "max_bytes": 1 << 20,
            "topics": [{"topic": "t", "partitions": [part]}],
        })  # fmt: skip
        raw.socket.settimeout(0.05)
        while True:
            clock.advance(100_000)  # below connections.max.idle.ms
            try:
                found = raw.receive(apis.FETCH, 11)
                break
            except TimeoutError:
                continue
        assert found.responses[0].partitions[0].error_code == 0


def test_a_broker_that_is_killed_carries_nothing_out_any_more(
    broker: Broker, raw: Raw, wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end does not wait for markers: the next start writes them."""
    raw.create("t")
    client = Client(raw)
    client.add("t", 0)
    client.write("t", b"a")
    node = broker._node
    log, tries = node.partitions.log, 0

    def fails(topic: str, partition: int) -> Any:
        nonlocal tries
        if topic != "t":
            return log(topic, partition)
        tries += 1
        raise Closed("closed")

    monkeypatch.setattr(node.partitions, "log", fails)
    assert client.end().error_code == ErrorCode.NONE
    wait_until(lambda: tries, "a marker is tried")
    broker.abandon()
    assert tries < 20  # ten tries a second; a wait would last five seconds


# ---- what survives -------------------------------------------------------------------------------


def test_nothing_acknowledged_is_lost_by_a_kill(make_broker: MakeBroker, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    acknowledged: list[bytes] = []
    with Raw(child.stdout.readline().strip()) as raw:
        raw.create("t")
        for number in range(200):
            value = b"%d" % number
            if raw.produce("t", value, acks=-1 if number % 2 else 1).error_code == 0:
                acknowledged.append(value)
            if number == 150:
                child.kill()
                child.wait()
                break
    assert len(acknowledged) == 151
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        assert values(raw, "t")[:151] == acknowledged
        (topic,) = raw.call(apis.METADATA, topics=[{"name": "t"}]).topics
        # Records seen before they were on disk may be lost: clients notice (KIP-320).
        assert topic.partitions[0].leader_epoch == 1
        assert raw.produce("t", b"more").base_offset == 151
    broker.close()
    with Manager(path, mode="r") as manager:
        assert manager.get("t").verify().clean


def test_the_clean_marker_goes_with_the_first_write(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    make_broker().close()
    marker = tmp_path / "data" / ".kafka_cleanshutdown"
    assert marker.exists()
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        assert not marker.exists()
    broker.close()
    assert marker.exists()


def test_sigterm_ends_serve_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "data"
    child = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", "serve", "--dir", str(path), "--listen", "127.0.0.1:0",
         "--log-format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line.startswith(f"kafkalog serves {path} at 127.0.0.1:")
    with Raw(line.split()[-1]) as raw:
        raw.create("t")
        assert raw.produce("t", b"v").error_code == 0
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 0
    assert '"fields": {"signal": "SIGTERM", "kind": "broker"}' in errors
    assert (path / ".kafka_cleanshutdown").exists()


def test_serve_reads_a_properties_file_and_names_ignored_settings(tmp_path: Path) -> None:
    """At its start, and when it reads the file again."""
    path = tmp_path / "data"
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={path}\nnum.partitions=3\n"
        "metric.reporters=x\nnum.partitons=4\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", "serve", "--config", str(properties)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    line = child.stdout.readline()
    with Raw(line.split()[-1]) as raw:
        for _ in range(2):  # the first one creates it
            (topic,) = raw.call(apis.METADATA, topics=[{"name": "t"}]).topics
        assert len(topic.partitions) == 3
    more = "num.replicas=2\nkafkalog.log.format=json\n"
    properties.write_text(properties.read_text() + more)
    child.send_signal(RESTART)
    assert child.stdout.readline().startswith(f"kafkalog serves {path} at ")
    child.terminate()
    _, errors = child.communicate(timeout=LIMIT_S)
    assert "num.replicas: ignored: no setting has this name" in errors
    assert '"event": "broker_started"' in errors
    assert '"event": "process_ends", "message": "SIGTERM: the broker ends"' in errors
    assert "metric.reporters: ignored: it is not supported yet" in errors
    assert "num.partitons: ignored: no setting has this name" in errors


def test_serve_names_the_owner_of_the_directory(broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafkalog", "serve", "--dir", broker.path],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafkalog: ") and str(os.getpid()) in line


def test_serve_gives_small_requests_a_turn_among_large_ones(tmp_path: Path) -> None:
    """A broker embedded in another program does not change that program's Python settings."""
    script = (
        "import os, signal, sys, threading\n"
        "from kafkalog.cli import main\n"
        "from kafkalog.server.broker import Broker\n"
        "before = sys.getswitchinterval()\n"
        "Broker(sys.argv[1] + '/inside').close()\n"
        "assert sys.getswitchinterval() == before\n"
        "def look():\n"
        "    assert sys.stdin.readline()\n"
        "    print(sys.getswitchinterval() < before, flush=True)\n"
        # To this thread: the main thread, which waits, is not interrupted.
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=look).start()\n"
        "main(['serve', '--dir', sys.argv[1] + '/data', '--listen', '127.0.0.1:0'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline().startswith("kafkalog serves ")
    found, _ = child.communicate("look\n", timeout=LIMIT_S)
    assert (child.returncode, found) == (0, "True\n")


def test_an_embedded_brokers_groups_begin_at_once(tmp_path: Path) -> None:
    """Its program knows when all members are there; `serve` waits as Kafka does."""
    name = "group.initial.rebalance.delay.ms"
    with Broker(tmp_path / "a") as broker:
        assert broker.config[name] == 0
    with Broker(tmp_path / "b", config={name: 1500}) as broker:
        assert broker.config[name] == 1500
    options = serve_options(["--dir", "x"])
    assert serve.settings_from(options).config[name] == 3000
    options = serve_options(["--dir", "x", "--set", f"{name}=7"])
    assert serve.settings_from(options).config[name] == "7"


def serve_options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.arguments(parser)
    return parser.parse_args(words)
