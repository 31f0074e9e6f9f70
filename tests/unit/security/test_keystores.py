"""The `ssl.*` settings name a key and trusted certificates; secrets are never shown."""

import sys

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from kafkalog.config.server import ServerConfig
from kafkalog.config.ssl import SslSettings
from kafkalog.errors import InvalidSetting
from kafkalog.metadata.configs import describe_configs, is_sensitive
from kafkalog.metadata.image import BROKER, empty_image
from kafkalog.metadata.requests import ResourceAsked, SettingsAsked
from kafkalog.security.keystores import load_key, load_trust, stamp

SECRET = "correct horse"
ca = trustme.CA()
server = ca.issue_cert("localhost")
KEY = server.private_key_pem.bytes()
CHAIN = b"".join(one.bytes() for one in server.cert_chain_pems)
private = serialization.load_pem_private_key(KEY, None)
ENCRYPTED = private.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    BestAvailableEncryption(SECRET.encode()),
)
CERTIFICATE = x509.load_pem_x509_certificate(CHAIN)
AUTHORITY = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
PKCS12 = pkcs12.serialize_key_and_certificates(
    b"server", private, CERTIFICATE, [AUTHORITY], BestAvailableEncryption(SECRET.encode())
)
TRUST12 = pkcs12.serialize_key_and_certificates(
    None, None, None, [AUTHORITY], BestAvailableEncryption(SECRET.encode())
)


def public_numbers(pem):
    return serialization.load_pem_private_key(pem, None).public_key().public_numbers()


def settings(**given):
    return SslSettings({f"ssl.{name.replace('_', '.')}": str(v) for name, v in given.items()})


def written(tmp_path, data, name="store"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_a_pem_file_holds_key_and_chain(tmp_path):
    """The file's certificates come in their order; other text of it is dropped."""
    path = written(tmp_path, b"subject=x\n" + KEY + b"text\n" + CHAIN + ca.cert_pem.bytes())
    found = load_key(settings(keystore_type="PEM", keystore_location=path))
    assert public_numbers(found.key) == private.public_key().public_numbers()
    assert x509.load_pem_x509_certificates(found.chain) == [CERTIFICATE, AUTHORITY]
    assert "PRIVATE" not in repr(found) and b"text" not in found.chain


def test_an_unencrypted_pem_key_needs_no_package(tmp_path, monkeypatch):
    """Without `cryptography` only encrypted keys and PKCS12 fail, with the extra's name."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    inline = {"keystore_type": "PEM", "keystore_certificate_chain": CHAIN.decode()}
    assert load_key(settings(keystore_key=KEY.decode(), **inline)).key.strip() == KEY.strip()
    for given in (
        settings(keystore_key=ENCRYPTED.decode(), key_password=SECRET, **inline),
        settings(keystore_location=written(tmp_path, PKCS12), keystore_password=SECRET),
    ):
        with pytest.raises(InvalidSetting, match=r"kafkalog\[secure\]"):
            load_key(given)


def test_an_encrypted_key_is_decrypted_with_its_password():
    """ssl.key.password opens a PKCS8 key; what is loaded is not encrypted."""
    inline = {"keystore_type": "PEM", "keystore_certificate_chain": CHAIN.decode()}
    found = load_key(settings(keystore_key=ENCRYPTED.decode(), key_password=SECRET, **inline))
    assert public_numbers(found.key) == private.public_key().public_numbers()
    for wrong in ({"key_password": SECRET + "s"}, {}):
        with pytest.raises(InvalidSetting) as refused:
            load_key(settings(keystore_key=ENCRYPTED.decode(), **wrong, **inline))
        assert SECRET not in str(refused.value) and "BEGIN" not in str(refused.value)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_pkcs12_file_holds_key_and_chain(tmp_path, kind):
    """Kafka's default type, JKS, takes a PKCS12 file, too, as Java's does since Java 9."""
    path = written(tmp_path, PKCS12)
    found = load_key(settings(keystore_type=kind, keystore_location=path, keystore_password=SECRET))
    assert public_numbers(found.key) == private.public_key().public_numbers()
    assert x509.load_pem_x509_certificates(found.chain) == [CERTIFICATE, AUTHORITY]
    trust = written(tmp_path, TRUST12, "trust")
    trusted = load_trust(
        settings(truststore_type=kind, truststore_location=trust, truststore_password=SECRET)
    )
    assert x509.load_pem_x509_certificates(trusted) == [AUTHORITY]
    with pytest.raises(InvalidSetting, match="password is wrong, or the file is damaged"):
        load_key(settings(keystore_location=path, keystore_password="guess"))


def test_a_jks_file_is_refused_with_the_command_that_converts_it(tmp_path):
    """The error is a command to copy."""
    path = written(tmp_path, b"\xfe\xed\xfe\xed\0\0\0\2", "server.jks")
    with pytest.raises(InvalidSetting) as refused:
        load_key(settings(keystore_location=path, keystore_password=SECRET))
    assert f"keytool -importkeystore -srckeystore {path}" in str(refused.value)
    assert f"{tmp_path}/server.p12 -deststoretype PKCS12" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keystore_key": "x"}, "ssl.keystore.certificate.chain: found none"),
        ({"keystore_key": "x", "keystore_certificate_chain": "x"}, "wanted PEM"),
        ({"keystore_type": "PEM", "keystore_location": "/x", "keystore_password": "p"},
         "ssl.keystore.password: found a value, wanted none"),
        ({"keystore_password": "p"}, "wanted ssl.keystore.location"),
        ({"keystore_location": "/x"}, "ssl.keystore.password: found none"),
        ({"keystore_location": "/no such", "keystore_password": "p"}, "No such file"),
        ({"keystore_type": "PEM", "keystore_location": "/dev/null"}, "found no certificate"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(given, said):
    """As Kafka refuses them; the error names the setting."""
    with pytest.raises(InvalidSetting, match=said):
        load_key(settings(**given))


def test_nothing_given_is_no_key():
    """A client needs neither."""
    assert load_key(SslSettings()) is None
    assert load_trust(SslSettings()) is None


def test_a_stamp_changes_with_the_file(tmp_path):
    """A file that was written again, or replaced, has another stamp."""
    path = written(tmp_path, PKCS12)
    given = settings(keystore_location=path, keystore_password=SECRET)
    before = stamp(given)
    assert stamp(given) == before
    written(tmp_path, PKCS12, "new").replace(path)
    assert stamp(given) != before


def test_secrets_are_shown_nowhere():
    """Neither the settings' repr, nor errors, nor DescribeConfigs have the value."""
    config = ServerConfig({"ssl.key.password": SECRET, "ssl.keystore.key": KEY.decode()})
    assert config.ssl_key_password.value == SECRET
    assert config == ServerConfig(dict(config)) and config.ssl_key_password
    shown = [repr(config), str(dict(config)), f"{config.ssl_key_password}"]
    shown += [ServerConfig.table[name].show(config[name]) for name in config]
    asked = SettingsAsked((ResourceAsked(BROKER, "1", None),), True, True)
    (told,) = describe_configs(empty_image("cluster", 1), asked, config)
    entries = {one["name"]: one for one in told["configs"]}
    shown.append(str(entries))
    for text in shown:
        assert SECRET not in text and "PRIVATE KEY" not in text
    assert entries["ssl.key.password"]["is_sensitive"]
    assert entries["ssl.key.password"]["config_type"] == 9
    assert not entries["ssl.keystore.location"]["is_sensitive"]
    assert is_sensitive("listener.name.external.ssl.keystore.key")
    assert not is_sensitive("listener.name.external.ssl.keystore.type")
    with pytest.raises(InvalidSetting, match=r"ssl\.key\.password: found bytes, wanted text"):
        ServerConfig({"ssl.key.password": SECRET.encode()})
