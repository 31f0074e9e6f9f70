"""Commands against a cluster that only takes clients with a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalog.testing.broker import TestBroker
from tests.support import secured
from tests.support.tls_front import TlsFront
from tests.unit.cli.conftest import Command


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> secured.Papers:
    return secured.papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def fronts(
    files: secured.Papers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[TlsFront]]:
    """Two brokers, each behind TLS."""
    with ExitStack() as stack:
        found = []
        for number in range(2):
            front = stack.enter_context(TlsFront(files.server, files.authority))
            config = {"advertised.listeners": f"PLAINTEXT://{front.servers}"}
            folder = tmp_path_factory.mktemp(f"broker{number}")
            broker = stack.enter_context(TestBroker(folder, config=config))
            front.target = int(broker.bootstrap_servers.rpartition(":")[2])
            found.append(front)
        yield found


@pytest.fixture
def properties(files: secured.Papers, tmp_path: Path) -> Path:
    """A file as Kafka's tools take it, with settings of other clients."""
    config = {
        **secured.settings("ssl", files), "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.client), "key.serializer": "x", "linger.ms": "3",
        "client.id": "me", "own.setting": "1",
    }  # fmt: skip
    path = tmp_path / "client.properties"
    path.write_text("# ours\n" + "".join(f"{name}={value}\n" for name, value in config.items()))
    return path


def test_every_kind_of_command(
    kafkalog: Command, fronts: list[TlsFront], properties: Path, unique: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    for words in (
        ["topics", "create", unique],
        ["produce", "--topic", unique, str(lines)],
        ["consume", "--topic", unique],
        ["consume", "--topic", unique, "--group", "g", "--max-messages", "2"],
        ["groups", "describe", "g"],
        ["offsets", unique],
        ["configs", "describe", "--topic", unique],
        ["transactions", "list"],
    ):
        ran = kafkalog(
            *words, "--bootstrap-server", fronts[0].servers, "--command-config", str(properties)
        )
        assert ran.status == 0, (words, ran)
        if words[0] == "consume":
            assert "two" in ran.out
    assert "own.setting is not known, and ignored" in ran.err


def test_mirror_has_settings_for_each_side(
    kafkalog: Command, fronts: list[TlsFront], properties: Path, unique: str
) -> None:
    source, target = (front.servers for front in fronts)
    reach = ["--bootstrap-server", source, "--command-config", str(properties)]
    assert kafkalog("topics", "create", unique, *reach).status == 0
    ran = kafkalog(
        "mirror", "--from", source, "--to", target, "--topics", unique, "--once",
        "--from-config", str(properties), "--to-config", str(properties),
    )  # fmt: skip
    assert ran.status == 0 and "1 topic" in ran.out
    ran = kafkalog(
        "mirror", "--from", source, "--to", target, "--topics", unique, "--once",
        "--from-config", str(properties),
    )  # fmt: skip
    assert ran.status != 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sasl.jas.config=hunter2", "sasl.jas.config is not supported"),
        ("ssl.provider=hunter2", "ssl.provider is not supported"),
        ("request.timeout.ms=soon", "request.timeout.ms: found 'soon', wanted a number"),
        ("security.protocol=SASL_SSL", "sasl.mechanism: found GSSAPI, wanted one of PLAIN"),
    ],
)
def test_settings_that_cannot_be(kafkalog: Command, tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(line + "\n")
    ran = kafkalog("topics", "--bootstrap-server", "h:1", "--command-config", str(path))
    assert ran.status == 2 and told in ran.err and "hunter2" not in ran.err


def test_a_setting_may_be_a_property(kafkalog: Command, fronts: list[TlsFront]) -> None:
    """Those of producers and consumers that have options of their own still go there."""
    ran = kafkalog(
        "consume", "--topic", "t", "--bootstrap-server", fronts[0].servers,
        "--consumer-property", "security.protocol=SSL",
    )  # fmt: skip
    assert ran.status == 1 and "the broker's certificate is not accepted" in ran.err
