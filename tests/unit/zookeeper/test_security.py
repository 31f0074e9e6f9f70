"""The security of a session with ZooKeeper: its settings, and the login, without a server."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.declare import Password
from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting
from kafkalog.zookeeper.security import Login, digest_response, is_open, is_secret, security_of
from tests.support.secured import jaas, papers

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGIN = Login("chris", Password("secret"))


def config(**given: Any) -> ServerConfig:
    return ServerConfig({name.replace("_", "."): value for name, value in given.items()})


def test_the_login_of_rfc_2831() -> None:
    """Its parts, made here in the order of the document."""
    challenge = (
        b'realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    answer, is_right = digest_response(LOGIN, challenge, "OA6MHXh6VqTrRk")
    said = dict(one.split("=", 1) for one in answer.decode().split(","))
    assert said["username"] == '"chris"' and said["digest-uri"] == '"zookeeper/zk-sasl-md5"'

    def digest(text: bytes) -> str:
        return hashlib.md5(text).hexdigest()

    a1 = hashlib.md5(b"chris:zk-sasl-md5:secret").digest() + b":OA6MG9tEQGm2hh:OA6MHXh6VqTrRk"
    middle = f"{digest(a1)}:OA6MG9tEQGm2hh:00000001:OA6MHXh6VqTrRk:auth:"
    wanted = digest((middle + digest(b"AUTHENTICATE:zookeeper/zk-sasl-md5")).encode())
    assert said["response"] == wanted
    last = digest((middle + digest(b":zookeeper/zk-sasl-md5")).encode())
    assert is_right(f"rspauth={last}".encode())
    assert not is_right(f"rspauth={wanted}".encode()) and not is_right(b"")


@pytest.mark.parametrize(
    "challenge", [b"", b"nonsense", b'nonce="x",algorithm=md5', b'nonce="x",qop="auth-conf"',
                  b"\xff\xfe", b'nonce="x' * 1000],
)  # fmt: skip
def test_other_challenges_are_refused(challenge: bytes) -> None:
    with pytest.raises(ValueError):
        digest_response(LOGIN, challenge, "x")


def test_quotes_in_names() -> None:
    answer, _ = digest_response(Login('a"b\\', Password("x")), b'nonce="n\\"1"', "c")
    assert b'username="a\\"b\\\\"' in answer and b'nonce="n\\"1"' in answer


def test_no_settings_are_no_security() -> None:
    assert security_of(config()) is None
    assert security_of(config(zookeeper_ssl_keystore_location="/none")) is None


def test_the_settings_of_tls(tmp_path: Path) -> None:
    """Types by the files' names; versions and the check of the host."""
    files = papers(tmp_path)
    found = security_of(config(
        zookeeper_ssl_client_enable=True, zookeeper_ssl_keystore_location=str(files.client),
        zookeeper_ssl_truststore_location=str(files.authority),
        zookeeper_ssl_protocol="TLSv1.3", zookeeper_ssl_endpoint_identification_algorithm="",
    ))  # fmt: skip
    assert found is not None and found.tls is not None and found.login is None
    assert found.tls.ssl_keystore_type == found.tls.ssl_truststore_type == "PEM"
    assert found.tls.tls_versions == ("TLSv1.3",)
    assert found.tls.ssl_endpoint_identification_algorithm == ""
    assert not found.sets_acls


def test_the_login_is_hidden() -> None:
    text = jaas(MODULE, username="node", password="S3CRET")
    found = security_of(config(kafkalog_zookeeper_sasl_jaas_config=text, zookeeper_set_acl="true"))
    assert found is not None and found.login is not None and found.sets_acls
    assert found.login.password.value == "S3CRET"
    assert "S3CRET" not in repr(found) + repr(found.login)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"zookeeper_set_acl": True}, "zookeeper.set.acl: found true, wanted kafkalog"),
        ({"zookeeper_set_acl": True, "zookeeper_ssl_client_enable": True}, "zookeeper.set.acl"),
        ({"kafkalog_zookeeper_sasl_jaas_config": jaas("x.Krb5LoginModule", username="S3CRET")},
         "wanted one named DigestLoginModule"),
        ({"kafkalog_zookeeper_sasl_jaas_config": jaas(MODULE, username="S3CRET")},
         "found no password"),
        ({"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": "/none.pem"},
         "ZooKeeper: ssl.truststore.location: /none.pem"),
        ({"zookeeper_ssl_crl_enable": True}, "zookeeper.ssl.crl.enable"),
        ({"zookeeper_ssl_ocsp_enable": True}, "zookeeper.ssl.ocsp.enable"),
        ({"zookeeper_clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"},
         "zookeeper.clientCnxnSocket"),
    ],
)  # fmt: skip
def test_refused_settings(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as found:
        security_of(config(**given))
    assert "S3CRET" not in str(found.value)


def test_paths_with_secrets() -> None:
    assert is_secret("/config/users/alice") and is_secret("/delegation_token/tokens/x")
    assert is_secret("/config/users") and is_secret("/delegation_token")
    assert not is_secret("/config/topics/t") and not is_secret("/brokers/ids/1")
    assert is_open("/consumers") and not is_open("/consumers/old") and not is_open("/config")
