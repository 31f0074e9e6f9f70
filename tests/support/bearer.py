"""An issuer of OAUTHBEARER's tokens, with its keys and tokens in files, for either kind of node."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from kafkalog.config.sasl import LOGS_IN, SIGNED
from tests.support.secured import BEARER, jaas

__all__ = ["Issuer"]

AUDIENCE, ISSUER = "kafka", "https://issuer"
LASTS_S = 3600


class Issuer:
    """It signs a token for each user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.keys = folder / "issuer.json"
        public = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        self.keys.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))

    def token(self, user: str) -> Path:
        """The file with a new token."""
        now_s = int(time.time())
        claims = {"sub": user, "aud": AUDIENCE, "iss": ISSUER, "iat": now_s, "exp": now_s + LASTS_S}
        path = self._folder / f"{user}.token"
        path.write_text(jwt.encode(claims, self._key, "RS256", headers={"kid": "one"}))
        return path

    def client(self, user: str) -> dict[str, str]:
        """The settings of a client's login."""
        return {
            "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas(BEARER),
            "sasl.login.callback.handler.class": LOGS_IN,
            "sasl.oauthbearer.token.endpoint.url": self.token(user).as_uri(),
        }  # fmt: skip

    def node(self, listener: str, user: str) -> dict[str, object]:
        """The settings of a node's listener, and of its logins to others there."""
        of_login = {name: value for name, value in self.client(user).items()
                    if name != "sasl.mechanism"}  # fmt: skip
        begin = f"listener.name.{listener.lower()}.oauthbearer"
        return {f"{begin}.{name}": value for name, value in {
            **of_login, "sasl.server.callback.handler.class": SIGNED,
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }.items()}  # fmt: skip
