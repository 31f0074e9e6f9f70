"""Unsupported protection is refused: a broker never serves everybody by mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.protection import protects
from kafkalog.config.server_properties import sorted_out
from kafkalog.directory.manager import Manager
from kafkalog.errors import ArgumentError, InvalidSetting
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.server.broker import Broker
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S

PROTECTING = {
    "sasl.kerberos.service.name": "brokers",
    "sasl.login.class": "org.example.Login",
    "ssl.engine.factory.class": "org.example.Engines",
    "principal.builder.class": "org.example.Builder",
    "create.topic.policy.class.name": "org.example.Policy",
    "alter.config.policy.class.name": "org.example.Policy",
}


@pytest.mark.parametrize("name", PROTECTING)
def test_a_setting_that_protects_ends_the_start(tmp_path: Path, name: str) -> None:
    """From a file and from a program; the message has its name and not its value."""
    value = PROTECTING[name]
    with pytest.raises(InvalidSetting, match=name) as found:
        sorted_out({"log.dirs": "/x", name: value})
    assert value not in str(found.value)
    with pytest.raises(InvalidSetting, match=name):
        Broker(tmp_path / "data", config={name: value})
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
     ("super.users", "User:a;noprincipal"), ("allow.everyone.if.no.acl.found", "maybe")],
)  # fmt: skip
def test_another_authorizer_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidSetting, match=name):
        Broker(tmp_path / "data", config={name: value})
    assert not (tmp_path / "data").exists()


def test_values_that_keep_nobody_out_are_named_and_passed_over() -> None:
    """A file with Kafka's own defaults, as distributions ship it, still starts."""
    harmless = {
        "ssl.trustmanager.algorithm": "PKIX",
        "ssl.keymanager.algorithm": "SunX509", "sasl.login.refresh.buffer.seconds": "300",
        "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
        "sasl.kerberos.min.time.before.relogin": "30000", "sasl.login.refresh.window.jitter": "0.1",
        "sasl.kerberos.ticket.renew.jitter": "0.1", "sasl.login.connect.timeout.ms": "7",
    }  # fmt: skip
    notes = sorted_out(harmless).notes
    assert notes == tuple(f"{name}: ignored: this value restricts nothing" for name in harmless)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_listener_without_its_settings_ends_the_start(tmp_path: Path, protocol: str) -> None:
    with pytest.raises(InvalidSetting, match=f"(?i){protocol}"):
        Broker(tmp_path / "data", listeners=f"{protocol}://127.0.0.1:0")


def test_serve_names_the_refused_setting(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:0\n"
                    "authorizer.class.name=org.example.Authorizer\n")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "kafkalog", "serve", "--config", str(file)],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode != 0
    assert "authorizer.class.name" in done.stderr
    assert "Traceback" not in done.stderr


RECORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "super.users": ("ConfigRecord", {
        "resource_type": 4, "resource_name": "", "name": "super.users", "value": "User:a"}),
}  # fmt: skip


@pytest.mark.parametrize("what", RECORDS)
def test_a_directory_that_somebody_protected_is_not_served(tmp_path: Path, what: str) -> None:
    """It can be read as before, and is served again once the metadata no longer has it."""
    Broker(tmp_path).close()
    with Manager(tmp_path) as manager, MetadataLog.open(manager) as metadata:
        metadata.write([RECORDS[what]])
    with pytest.raises((ArgumentError, InvalidSetting), match=what):
        Broker(tmp_path)
    with Manager(tmp_path, mode="r") as manager, MetadataLog.open(manager) as metadata:
        assert metadata.image.offset > 0
    with Manager(tmp_path) as manager, MetadataLog.open(manager) as metadata:
        if what == "super.users":
            metadata.write([("ConfigRecord", {**RECORDS[what][1], "value": None})])
    Broker(tmp_path).close()


def test_a_running_broker_takes_no_such_setting(raw: Raw) -> None:
    own = "listener.name.plaintext.ssl.client.auth"
    for name in ("super.users", "authorizer.class.name", own):
        found = raw.alter(4, "", **{name: "required"})
        assert found.error_code == ErrorCode.INVALID_REQUEST
        assert name in found.error_message
    assert raw.alter(4, "", **{own: ""}).error_code == 0  # an empty value protects nothing


def test_other_settings_are_no_protection() -> None:
    for name in ("log.retention.ms", "sslx", "my.ssl.thing", "listener.name.x.max.connections"):
        assert not protects(name, "7")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_serve_warns_of_a_listener_that_is_open_to_other_machines(
    tmp_path: Path, host: str
) -> None:
    command = [sys.executable, "-m", "kafkalog", "serve", "--dir", str(tmp_path / "d"), "--listen",
               f"{host}:0", "--log-level", "ERROR"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as serving:
        assert serving.stdout is not None
        assert b"kafkalog serves" in serving.stdout.readline()
        serving.terminate()
        _, errors = serving.communicate(timeout=LIMIT_S)
    assert (b"WARNING: listener PLAINTEXT (0.0.0.0" in errors) == (host == "0.0.0.0")
