"""Certificates for tests: an authority, servers and clients, and the settings that name them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import trustme

__all__ = ["Certificates", "client_context", "pem_of"]


def pem_of(certificate: trustme.LeafCert) -> str:
    """The key and the chain as one PEM text."""
    chain = b"".join(one.bytes() for one in certificate.cert_chain_pems)
    return (certificate.private_key_pem.bytes() + chain).decode()


class Certificates:
    """An authority with a server's certificate for localhost, in a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = trustme.CA()
        self.server = self.authority.issue_cert("localhost", "127.0.0.1", "::1")
        self.trust = path / "ca.pem"
        self.trust.write_bytes(self.authority.cert_pem.bytes())
        self.keystore = path / "server.pem"
        self.keystore.write_text(pem_of(self.server))

    def settings(self, **more: Any) -> dict[str, Any]:
        """The `ssl.*` settings of a server with this certificate; `more` with underscores."""
        given = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }
        return {**given, **{f"ssl.{n.replace('_', '.')}": value for n, value in more.items()}}

    def client(self, name: str, **how: Any) -> Path:
        """The file with key and certificate of a client whose common name is `name`."""
        found = self.authority.issue_cert(common_name=name, **how)
        path = self.path / f"{name}.pem"
        path.write_text(pem_of(found))
        return path


def client_context(
    trust: Path, version: ssl.TLSVersion | None = None, own: Path | None = None
) -> ssl.SSLContext:
    """A client that trusts `trust`, speaks only `version`, and shows the certificate `own`."""
    context = ssl.create_default_context(cafile=trust)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if own is not None:
        context.load_cert_chain(own)
    return context
