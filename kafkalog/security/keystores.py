"""The key and the certificates that the `ssl.*` settings name, read as PEM.

A PEM store is a file, or text in the settings.  PKCS12 files and encrypted keys need the package
`cryptography` (the extra `secure`).  No error shows a key or a password.
Source: Kafka's DefaultSslEngineFactory, KIP-651.
"""

import os
import re
from typing import Any, NamedTuple

from kafkalog.config.declare import Password
from kafkalog.config.ssl import SslSettings
from kafkalog.errors import InvalidSetting

__all__ = ["KeyMaterial", "Stamp", "load_key", "load_trust", "stamp"]

_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", re.MULTILINE
)
_KEY = re.compile(
    rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----[^-]+(?:-[^-]+)*-----END \1PRIVATE KEY-----"
)
_JKS = b"\xfe\xed\xfe\xed"
_STORE_BYTES_MAX = 1 << 20
Stamp = tuple[tuple[str, int, int, int], ...]
"""Name, inode, time of the last change (ns) and bytes of each file; changes with any of them."""


class KeyMaterial(NamedTuple):
    """A private key, not encrypted, and its certificates, its own first, as PEM."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"KeyMaterial({self.chain.count(b'BEGIN')} certificates, key hidden)"


def load_key(config: SslSettings) -> KeyMaterial | None:
    """The own key that the settings name; None: they name none.

    Raises: InvalidSetting (a missing file, a wrong password or format, settings that contradict
    each other).
    """
    _check_store(config, "keystore", ("ssl.keystore.key", "ssl.keystore.certificate.chain"))
    password = config.ssl_key_password
    if config.ssl_keystore_key:
        where = "ssl.keystore.key"
        key = config.ssl_keystore_key.value.encode()
        chain = config.ssl_keystore_certificate_chain.value.encode()
        return KeyMaterial(
            _certificates(chain, "ssl.keystore.certificate.chain"), _pem_key(key, password, where)
        )
    if not config.ssl_keystore_location:
        return None
    path = config.ssl_keystore_location
    where = f"ssl.keystore.location: {path}"
    data = _read(path, "ssl.keystore.location")
    if config.ssl_keystore_type == "PEM":
        return KeyMaterial(_certificates(data, where), _pem_key(data, password, where))
    key, own, others = _pkcs12(data, config, "keystore")
    if key is None or own is None:
        raise InvalidSetting(f"{where}: found no private key, wanted one with its certificate")
    return KeyMaterial(b"".join(map(_pem_of, [own, *others])), _plain_key(key))


def load_trust(config: SslSettings) -> bytes | None:
    """The certificates that the settings trust, as PEM; None: they name none.

    Raises: InvalidSetting.
    """
    _check_store(config, "truststore", ("ssl.truststore.certificates",))
    if config.ssl_truststore_certificates:
        text = config.ssl_truststore_certificates.value.encode()
        return _certificates(text, "ssl.truststore.certificates")
    if not config.ssl_truststore_location:
        return None
    where = f"ssl.truststore.location: {config.ssl_truststore_location}"
    data = _read(config.ssl_truststore_location, "ssl.truststore.location")
    if config.ssl_truststore_type == "PEM":
        return _certificates(data, where)
    _, own, others = _pkcs12(data, config, "truststore")
    found = ([own] if own is not None else []) + others
    if not found:
        raise InvalidSetting(f"{where}: found no certificate, wanted at least one")
    return b"".join(map(_pem_of, found))


def stamp(config: SslSettings) -> Stamp:
    """The state of the files that the settings name; equal stamps mean equal files.  A missing file
    has no line."""
    found = []
    for path in (config.ssl_keystore_location, config.ssl_truststore_location):
        try:
            at = os.stat(path) if path else None
        except OSError:
            continue
        if at is not None:
            found.append((path, at.st_ino, at.st_mtime_ns, at.st_size))
    return tuple(found)


# ---- what the settings say -------------------------------------------------------------------


def _check_store(config: SslSettings, store: str, inline: tuple[str, ...]) -> None:
    """Refuse settings of one store that contradict each other, as Kafka does."""
    kind, location = config[f"ssl.{store}.type"], config[f"ssl.{store}.location"]
    given = [name for name in inline if config[name]]
    password = f"ssl.{store}.password"
    if given and len(given) < len(inline):
        missing = next(name for name in inline if name not in given)
        raise InvalidSetting(f"{missing}: found none, wanted it together with {given[0]}")
    if given and kind != "PEM":
        raise InvalidSetting(f"ssl.{store}.type: found {kind}, wanted PEM: {given[0]} is PEM text")
    if given and location:
        raise InvalidSetting(f"ssl.{store}.location: found together with {given[0]}, wanted one")
    if config[password] and kind == "PEM":
        raise InvalidSetting(
            f"{password}: found a value, wanted none: a PEM store has no password"
            + ("; ssl.key.password is that of its key" if store == "keystore" else "")
        )
    if config[password] and not location:
        raise InvalidSetting(f"{password}: found a value, wanted ssl.{store}.location with it")
    if store == "keystore" and location and kind != "PEM" and not config[password]:
        raise InvalidSetting(f"{password}: found none, wanted the password of {location}")


def _read(path: str, name: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_STORE_BYTES_MAX + 1)
    except OSError as problem:
        raise InvalidSetting(f"{name}: {path}: {problem.strerror}") from None
    if len(data) > _STORE_BYTES_MAX:
        raise InvalidSetting(
            f"{name}: {path}: found more than {_STORE_BYTES_MAX} bytes, wanted a key store"
        )
    return data


# ---- PEM -------------------------------------------------------------------------------------


def _certificates(data: bytes, where: str) -> bytes:
    """All certificates of a PEM text, and nothing else of it."""
    found = _CERTIFICATE.findall(data)
    if not found:
        raise InvalidSetting(f"{where}: found no certificate, wanted PEM with BEGIN CERTIFICATE")
    return b"".join(one + b"\n" for one in found)


def _pem_key(data: bytes, password: Password, where: str) -> bytes:
    """The key of a PEM text, decrypted."""
    match = _KEY.search(data)
    if match is None:
        raise InvalidSetting(f"{where}: found no private key, wanted PEM with BEGIN PRIVATE KEY")
    pem = match.group(0) + b"\n"
    if match.group(1) != b"ENCRYPTED " and b"ENCRYPTED" not in pem:
        return pem
    if not password:
        raise InvalidSetting(f"{where}: its key is encrypted, wanted ssl.key.password")
    serialization = _cryptography("an encrypted key").serialization
    try:
        key = serialization.load_pem_private_key(pem, password.value.encode())
    except Exception:  # its messages may quote the text
        raise InvalidSetting(
            f"{where}: its key cannot be decrypted: the password is wrong, or the key is damaged"
        ) from None
    return _plain_key(key)


# ---- PKCS12 ----------------------------------------------------------------------------------


def _pkcs12(data: bytes, config: SslSettings, store: str) -> tuple[Any, Any, list[Any]]:
    """The key, its certificate and the other certificates of a PKCS12 file."""
    path = config[f"ssl.{store}.location"]
    where = f"ssl.{store}.location: {path}"
    if data.startswith(_JKS):
        raise InvalidSetting(
            f"{where}: found a JKS file, wanted PKCS12 or PEM; convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {os.path.splitext(path)[0]}.p12 "
            f"-deststoretype PKCS12, and set ssl.{store}.type=PKCS12"
        )
    if data.lstrip().startswith(b"-----BEGIN"):
        kind = config[f"ssl.{store}.type"]
        raise InvalidSetting(f"{where}: found PEM, wanted {kind}; set ssl.{store}.type=PEM")
    pkcs12 = _cryptography("a PKCS12 file").pkcs12
    secret: Password = config[f"ssl.{store}.password"]
    try:
        found = pkcs12.load_pkcs12(data, secret.value.encode() if secret else None)
    except Exception:  # its messages may quote the bytes
        raise InvalidSetting(
            f"{where}: cannot be opened as PKCS12: the password is wrong, or the file is damaged"
        ) from None
    own = found.cert.certificate if found.cert is not None else None
    return found.key, own, [one.certificate for one in found.additional_certs]


def _pem_of(certificate: Any) -> bytes:
    encoding = _cryptography("a PKCS12 file").serialization.Encoding.PEM
    pem: bytes = certificate.public_bytes(encoding)
    return pem


def _plain_key(key: Any) -> bytes:
    serialization = _cryptography("an encrypted key").serialization
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem


def _cryptography(what: str) -> Any:
    """The package's `serialization`, in which pkcs12 is, too; `what` needs it."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise InvalidSetting(
            f"{what} needs the package cryptography: pip install 'kafkalog[secure]'; "
            "an unencrypted PEM key needs nothing"
        ) from None
    return _Cryptography(serialization, pkcs12)


class _Cryptography(NamedTuple):
    serialization: Any
    pkcs12: Any
