"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides of an exchange, and the credentials.

Each side is a state machine that reads no clock, file or socket.  As in Kafka, there is no channel
binding, and passwords and names are UTF-8 as they come: SASLprep changes nothing.

Source: RFC 5802, RFC 7677, KIP-84; KIP-48 for `tokenauth`.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kafkalog.errors import ArgumentError, SaslAuthenticationFailed
from kafkalog.security.principal import Principal

__all__ = [
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "TOKEN_AUTH",
    "ClientExchange",
    "Credential",
    "Decoys",
    "Mechanism",
    "ServerExchange",
    "TokenLogin",
    "credential_of",
    "credential_of_salted",
    "new_salt",
    "salted_password",
]

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""The iterations of stored credentials; a client refuses a server that asks for fewer."""
TOKEN_AUTH = "tokenauth"
"""The extension with which a client authenticates by a delegation token; its value is `true`."""
MESSAGE_BYTES_MAX = 16_384
NONCE_MAX = 1_024
CLIENT_ITERATIONS_MAX = 1_000_000
"""The most work that a client does for a server that it does not know yet."""
DECOY_MODELS = 16


class Mechanism(IntEnum):
    """A mechanism, by its number in Kafka's requests and records."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Its name in SASL, such as `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash(self) -> str:
        """The name of its hash function in hashlib."""
        return "sha" + self.name[-3:]

    @property
    def key_bytes(self) -> int:
        """The size of its keys."""
        return int(self.name[-3:]) // 8

    @classmethod
    def named(cls, name: str) -> "Mechanism":
        """The mechanism with this SASL name.

        Raises: ArgumentError.
        """
        for one in cls:
            if one.sasl_name == name:
                return one
        names = ", ".join(one.sasl_name for one in cls)
        raise ArgumentError(f"mechanism: found {name!r}, wanted one of {names}")


class Credential(NamedTuple):
    """A server's knowledge of a password.  It shows nothing of itself but the iterations."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(hidden, iterations={self.iterations})"


class TokenLogin(NamedTuple):
    """A delegation token as a credential, and whom it stands for."""

    credential: Credential
    owner: Principal
    expires_ms: int


# ---- keys --------------------------------------------------------------------------------------


def new_salt() -> bytes:
    """A salt as Kafka's tools choose it: 26 random letters and digits."""
    return _text(secrets.token_bytes(26))


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The key that is derived from a password; who knows it can authenticate.

    Raises: ArgumentError: the password is empty.
    """
    if not password:
        raise ArgumentError("password: found an empty one, wanted at least one character")
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def credential_of_salted(
    mechanism: Mechanism, salted: bytes, iterations: int, salt: bytes
) -> Credential:
    """The credential of a salted password."""
    stored = hashlib.new(mechanism.hash, _hmac(mechanism, salted, b"Client Key")).digest()
    return Credential(salt, stored, _hmac(mechanism, salted, b"Server Key"), iterations)


def credential_of(
    mechanism: Mechanism, password: str, iterations: int = ITERATIONS_MIN, salt: bytes | None = None
) -> Credential:
    """The credential of a password.  `salt`: None for a new one.

    Raises: ArgumentError: the password is empty.
    """
    salt = new_salt() if salt is None else salt
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of_salted(mechanism, salted, iterations, salt)


class Decoys:
    """Credentials of users that do not exist: an exchange with one of them takes the same steps and
    work as with a real one, and fails in the last.

    A name always gets the same decoy, as long as the key is the same.
    """

    def __init__(self, key: bytes | None = None) -> None:
        """`key`: a secret; None for a random one."""
        self._key = key or secrets.token_bytes(32)

    def credential(
        self, mechanism: Mechanism, user: str, models: Iterable[Credential] = ()
    ) -> Credential:
        """A credential whose iterations and kind of salt are those of one of `models`: at most
        16 real credentials."""
        seed = hmac.digest(self._key, f"{mechanism} {user}".encode(), "sha512")
        known = [one for _, one in zip(range(DECOY_MODELS), models, strict=False)]
        # A user who is added or changed becomes the model of few names, and the rest keep theirs.
        model = min(known, key=lambda one: hmac.digest(seed, one.salt, "sha256"), default=None)
        salt = hashlib.shake_256(seed).digest(len(model.salt) if model else 26)
        if model is None or model.salt.isalnum():
            salt = _text(salt)
        key = seed[: mechanism.key_bytes]
        return Credential(salt, key, key, model.iterations if model else ITERATIONS_MIN)

    def __repr__(self) -> str:
        return "Decoys()"


_DECOYS = Decoys()


# ---- an exchange -------------------------------------------------------------------------------


class ServerExchange:
    """The server's side of one exchange: two messages in, two out.

    `lookup` gets the name in the client's first message and returns its credential, or None;
    `tokens` gets the id of a delegation token instead.  One thread only.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        lookup: Callable[[str], Credential | None],
        tokens: Callable[[str], TokenLogin | None] | None = None,
        models: Iterable[Credential] = (),
        decoys: Decoys = _DECOYS,
        nonce: str | None = None,
    ) -> None:
        """`tokens`: None if there are no delegation tokens; `models`: real credentials, which the
        decoys of unknown users resemble; `nonce`: None for a random one."""
        self._mechanism = mechanism
        self._lookup, self._tokens = lookup, tokens
        self._models, self._decoys = models, decoys
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._next: Callable[[bytes], bytes] | None = self._first
        self._credential = Credential(b"", b"", b"", 0)
        self._header = self._said = b""
        self.done = False
        """True once the client has proved that it knows the password."""
        self.user = ""
        """The name that the client gave: of a user, or the id of a token."""
        self.expires_ms: int | None = None
        """When the token expires with which the client authenticated; None: it used none."""
        self._owner: Principal | None = None

    @property
    def principal(self) -> Principal:
        """The client's user; with a token, that of the token's owner."""
        return Principal("User", self.user) if self._owner is None else self._owner

    def step(self, message: bytes) -> bytes:
        """Take the client's next message; returns the answer.

        Raises: SaslAuthenticationFailed, in the same words whatever was wrong with the password.
        """
        take, self._next = self._next, None
        try:
            if take is None or len(message) > MESSAGE_BYTES_MAX:
                raise _Wrong
            answer = take(message)
        except (_Wrong, ValueError):
            raise _refused(self._mechanism) from None
        return answer

    def _first(self, message: bytes) -> bytes:
        found = _match(_CLIENT_FIRST, message)
        self.user, authorization = _name(found["name"]), found["authzid"]
        extensions = dict(_EXTENSION.findall(found["extensions"]))
        by_token = extensions.get(TOKEN_AUTH, "").lower() == "true"
        if authorization is not None and _name(authorization) != self.user:
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        known = self._token() if by_token else self._lookup(self.user)
        decoy = self._decoys.credential(self._mechanism, self.user, self._models)
        self._credential = decoy if known is None else known
        self._header = found["header"].encode()
        self._nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}".encode()
        self._said = message[len(self._header) :] + b"," + answer
        self._next = self._final
        return answer

    def _token(self) -> Credential | None:
        login = None if self._tokens is None else self._tokens(self.user)
        if login is None:
            return None
        self._owner, self.expires_ms = login.owner._replace(by_token=True), login.expires_ms
        return login.credential

    def _final(self, message: bytes) -> bytes:
        found = _match(_CLIENT_FINAL, message)
        proof = _bytes_of(found["proof"])
        bound = hmac.compare_digest(_bytes_of(found["binding"]), self._header)
        same = hmac.compare_digest(found["nonce"].encode(), self._nonce.encode())
        if not (bound and same) or len(proof) != self._mechanism.key_bytes:
            raise _Wrong
        said = self._said + b"," + message[: message.rindex(b",p=")]
        signature = _hmac(self._mechanism, self._credential.stored_key, said)
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        stored = hashlib.new(self._mechanism.hash, client_key).digest()
        if not hmac.compare_digest(stored, self._credential.stored_key):
            raise _Wrong
        answer = _hmac(self._mechanism, self._credential.server_key, said)
        self.done = True
        return b"v=" + base64.b64encode(answer)

    def __repr__(self) -> str:
        return f"ServerExchange({self._mechanism.sasl_name}, done={self.done})"


class ClientExchange:
    """The client's side of one exchange: `step(b"")` begins it.  One thread only."""

    def __init__(
        self,
        mechanism: Mechanism,
        user: str,
        password: str,
        extensions: Mapping[str, str] | None = None,
        nonce: str | None = None,
    ) -> None:
        """`extensions`: such as `{"tokenauth": "true"}`; `nonce`: None for a random one.

        Raises: ArgumentError: a name, a password or an extension cannot be sent.
        """
        if not user or "\0" in user:
            raise ArgumentError("user: wanted at least one character, and no NUL")
        if not password:
            raise ArgumentError("password: found an empty one, wanted at least one character")
        for name, value in (extensions or {}).items():
            if not _EXTENSION.fullmatch(f",{name}={value}"):
                raise ArgumentError(f"SASL extension {name!r}: wanted letters, and a value without "
                                    "commas")  # fmt: skip
        self._mechanism, self._password = mechanism, password
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = user.replace("=", "=3D").replace(",", "=2C")
        more = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._bare = f"n={name},r={self._nonce}{more}".encode()
        self._signature = b""
        self._next: Callable[[bytes], bytes] | None = self._first
        self.done = False
        """True once the server has proved that it knows the credential."""

    def step(self, message: bytes) -> bytes:
        """Take the server's message, empty before the first; returns the client's next.

        Raises: SaslAuthenticationFailed.
        """
        take, self._next = self._next, None
        try:
            if take is None or len(message) > MESSAGE_BYTES_MAX:
                raise _Wrong("its message was not expected")
            return take(message)
        except (_Wrong, ValueError) as problem:
            why = str(problem) if isinstance(problem, _Wrong) else "its message is not SCRAM's"
            name = self._mechanism.sasl_name
            raise SaslAuthenticationFailed(f"{name}: the broker failed: {why}") from None

    def _first(self, message: bytes) -> bytes:
        if message:
            raise _Wrong("it spoke first")
        self._next = self._proof
        return b"n,," + self._bare

    def _proof(self, message: bytes) -> bytes:
        found = _match(_SERVER_FIRST, message)
        iterations = int(found["iterations"])
        if not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise _Wrong("its nonce does not continue the client's")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise _Wrong(f"found {iterations} iterations, wanted {ITERATIONS_MIN} to "
                         f"{CLIENT_ITERATIONS_MAX}")  # fmt: skip
        without = b"c=biws,r=" + found["nonce"].encode()
        said = self._bare + b"," + message + b"," + without
        salted = salted_password(
            self._mechanism, self._password, _bytes_of(found["salt"]), iterations
        )
        self._password = ""
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        stored = hashlib.new(self._mechanism.hash, client_key).digest()
        signature = _hmac(self._mechanism, stored, said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = _hmac(self._mechanism, salted, b"Server Key")
        self._signature = _hmac(self._mechanism, server_key, said)
        self._next = self._end
        return without + b",p=" + base64.b64encode(proof)

    def _end(self, message: bytes) -> bytes:
        found = _match(_SERVER_FINAL, message)
        if found["error"] is not None:
            raise _Wrong(f"it answered {found['error'][:100]!r}")
        if not hmac.compare_digest(_bytes_of(found["signature"]), self._signature):
            raise _Wrong("it does not know the password")
        self.done = True
        return b""

    def __repr__(self) -> str:
        return f"ClientExchange({self._mechanism.sasl_name}, done={self.done})"


# ---- messages ----------------------------------------------------------------------------------


class _Wrong(Exception):
    """A message breaks the protocol, or proves nothing."""


_NAME = r"(?:[^\0=,]|=2C|=3D)+"
_NONCE = rf"[\x21-\x2b\x2d-\x7e]{{1,{NONCE_MAX}}}"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_MORE = r"(?:,[A-Za-z]+=[^\0,]+)*"
_EXTENSION = re.compile(r",([A-Za-z]+)=([^\0,]+)")
_CLIENT_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_MORE})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]{{1,{2 * NONCE_MAX}}}),s=(?P<salt>{_BASE64}),"
    rf"i=(?P<iterations>[0-9]{{1,10}}){_MORE}"
)
_CLIENT_FINAL = re.compile(
    rf"c=(?P<binding>{_BASE64}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]{{1,{2 * NONCE_MAX}}}){_MORE},"
    rf"p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^\0=,]+)|v=(?P<signature>{_BASE64})){_MORE}")


def _match(pattern: "re.Pattern[str]", message: bytes) -> "re.Match[str]":
    found = pattern.fullmatch(message.decode())
    if found is None:
        raise _Wrong("its message is not SCRAM's")
    return found


def _name(escaped: str) -> str:
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _Wrong("its message is not SCRAM's") from None


def _hmac(mechanism: Mechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash)


def _text(data: bytes) -> bytes:
    letters = b"0123456789abcdefghijklmnopqrstuvwxyz"
    return bytes(letters[byte % len(letters)] for byte in data)


def _refused(mechanism: Mechanism) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism.sasl_name}"
    )
