"""SCRAM: both sides of an exchange, credentials, and what an attacker learns."""

import base64
import itertools
import random
import re

import pytest

from kafkalog.errors import ArgumentError, SaslAuthenticationFailed
from kafkalog.security.principal import Principal
from kafkalog.security.scram import (
    ClientExchange,
    Credential,
    Decoys,
    Mechanism,
    ServerExchange,
    TokenLogin,
    credential_of,
    credential_of_salted,
    new_salt,
    salted_password,
)

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
PASSWORD = "pencil"
# RFC 7677, section 3.
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CREDENTIAL = credential_of(SHA_256, PASSWORD, 4096, RFC_SALT)


def _server(**kept) -> ServerExchange:
    kept.setdefault("nonce", RFC_NONCE)
    return ServerExchange(SHA_256, {"user": CREDENTIAL}.get, **kept)


def _talk(client: ClientExchange, server: ServerExchange) -> None:
    first = server.step(client.step(b""))
    client.step(server.step(client.step(first)))


def test_the_example_of_the_standard():
    """RFC 7677's exchange, byte for byte, on both sides."""
    client = ClientExchange(SHA_256, "user", PASSWORD, nonce="rOprNGfwEbeRWgbNEkqO")
    server = _server()
    assert client.step(b"") == FIRST
    assert server.step(FIRST) == SERVER_FIRST
    assert client.step(SERVER_FIRST) == FINAL
    assert not server.done
    assert server.step(FINAL) == SERVER_FINAL
    assert client.step(SERVER_FINAL) == b""
    assert client.done and server.done and server.principal == Principal("User", "user")
    assert server.expires_ms is None


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize(
    "user", ["alice", "a=b,c", "=2C", "=3D", "ünï", "a b", "n=x,r=y", "€" * 99]
)
def test_names_of_every_kind(mechanism, user):
    """Commas and equals signs in a name are escaped on the way, and passwords are UTF-8."""
    credential = credential_of(mechanism, "pässwörd ,=", 5000)
    asked = []
    server = ServerExchange(mechanism, lambda name: asked.append(name) or credential)
    client = ClientExchange(mechanism, user, "pässwörd ,=")
    _talk(client, server)
    assert client.done and server.done and server.user == user and asked == [user]


def test_a_salted_password_gives_the_same_credential():
    """A client may send the salted password instead of the password (KIP-554)."""
    salted = salted_password(SHA_512, PASSWORD, b"salt", 4096)
    assert credential_of_salted(SHA_512, salted, 4096, b"salt") == credential_of(
        SHA_512, PASSWORD, 4096, b"salt"
    )
    assert len(salted) == 64 == SHA_512.key_bytes


def test_new_salts_differ_and_look_like_kafkas():
    """Salts are random, of 26 letters and digits."""
    salts = {new_salt() for _ in range(20)}
    assert len(salts) == 20 and all(re.fullmatch(rb"[0-9a-z]{26}", salt) for salt in salts)


def test_wrong_password_and_unknown_user_look_alike():
    """Both get an answer to their first message, and the same error to their last."""
    errors = []
    for user, password in (("user", "wrong"), ("nobody", PASSWORD)):
        server = ServerExchange(SHA_256, {"user": CREDENTIAL}.get, models=[CREDENTIAL])
        client = ClientExchange(SHA_256, user, password)
        first = server.step(client.step(b""))
        assert re.fullmatch(rb"r=[^,]+,s=.{24},i=4096", first)
        with pytest.raises(SaslAuthenticationFailed) as failed:
            server.step(client.step(first))
        errors.append(str(failed.value))
        assert not server.done
    assert errors[0] == errors[1]
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in errors[0]


def test_decoys_are_stable_and_resemble_real_credentials():
    """An unknown name gets the same salt again, other names get others, and no key reveals it."""
    decoys = Decoys(b"secret")
    ours = credential_of(SHA_256, "x", 8192)
    one = decoys.credential(SHA_256, "nobody", [ours])
    assert one == Decoys(b"secret").credential(SHA_256, "nobody", [ours])
    assert one.iterations == 8192 and re.fullmatch(rb"[0-9a-z]{26}", one.salt)
    assert one.salt != decoys.credential(SHA_256, "somebody", [ours]).salt
    assert one.salt != Decoys(b"other").credential(SHA_256, "nobody", [ours]).salt
    binary = Credential(b"\xff" * 16, b"k" * 32, b"k" * 32, 4096)
    assert len(decoys.credential(SHA_256, "nobody", [binary]).salt) == 16
    endless = itertools.repeat(ours)
    assert decoys.credential(SHA_512, "nobody", endless).iterations == 8192
    assert len(decoys.credential(SHA_512, "nobody").stored_key) == 64


def test_a_new_user_changes_the_decoys_of_few_names():
    """Otherwise a name whose iterations change with another user's would be known to be unknown."""
    decoys = Decoys(b"secret")
    salts = (b"%026d" % number for number in range(9))
    *models, new = [
        credential_of_salted(SHA_256, b"k" * 32, 4096 + 1000 * number, salt)
        for number, salt in enumerate(salts)
    ]
    changed = 0
    for name in map(str, range(200)):
        before, after = (decoys.credential(SHA_256, name, one) for one in (models, [*models, new]))
        assert after in (before, before._replace(iterations=new.iterations))
        changed += after != before
    assert 0 < changed < 60


def test_tokens_are_looked_up_by_their_extension():
    """`tokenauth=true` asks for a token; without tokens, none is known."""
    asked = []

    def token(name):
        asked.append(name)
        return TokenLogin(CREDENTIAL, Principal("User", "alice"), 7)

    for lookup, known in ((token, True), (None, False)):
        server = ServerExchange(SHA_256, lambda _: pytest.fail("a user was looked up"), lookup)
        client = ClientExchange(SHA_256, "id", PASSWORD, extensions={"tokenauth": "true"})
        if known:
            _talk(client, server)
            assert server.done and server.principal == Principal("User", "alice", by_token=True)
            assert server.expires_ms == 7
        else:
            with pytest.raises(SaslAuthenticationFailed):
                _talk(client, server)
    assert asked == ["id"]


@pytest.mark.parametrize("message", [
    b"", b"n,,", b"n=user,r=x", b"p=tls-unique,,n=user,r=x", b"n,,n=,r=x", b"n,,n=user,r=",
    b"n,,n=us=er,r=x", b"n,,n=user,r=a b", b"n,,m=x,n=user,r=x", b"n,a=other,n=user,r=x",
    b"n,,n=user,r=x,", b"n,,n=user,r=x,1=2", b"n,,n=\xff,r=x", b"n,,n=us\0er,r=x",
    b"n,,n=user,r=" + b"x" * 1025, b"n,,n=" + b"u" * 20_000 + b",r=x", b"n,,n=user,r=x\n",
])  # fmt: skip
def test_first_messages_that_are_refused(message):
    """A malformed first message ends the exchange, in the words of every failure but one."""
    server = _server()
    with pytest.raises(SaslAuthenticationFailed, match=r"invalid credentials|authorization id"):
        server.step(message)
    with pytest.raises(SaslAuthenticationFailed):
        server.step(FIRST)
    assert not server.done


@pytest.mark.parametrize("message", [
    b"", FIRST, FINAL[:-1], FINAL.replace(b"biws", b"eSws"), FINAL.replace(b"p=d", b"p=e"),
    FINAL.replace(b"k0", b"k1"), FINAL.replace(b"r=rO", b"r="), FINAL + b",x=y", FINAL + b"\n",
    FINAL[: FINAL.index(b"p=")] + b"p=", FINAL[: FINAL.index(b"p=")] + b"p=AAAA",
    FINAL.replace(b"biws", b"===="), b"c=biws", b"\xff\xfe",
])  # fmt: skip
def test_final_messages_that_are_refused(message):
    """Only the right proof for this nonce and this header authenticates, and only once."""
    server = _server()
    server.step(FIRST)
    with pytest.raises(SaslAuthenticationFailed):
        server.step(message)
    with pytest.raises(SaslAuthenticationFailed):
        server.step(FINAL)
    assert not server.done


def test_a_final_message_cannot_be_replayed():
    """A proof is good for one nonce."""
    server = _server(nonce=None)
    server.step(FIRST)
    with pytest.raises(SaslAuthenticationFailed):
        server.step(FINAL)


def test_every_damaged_byte_is_refused():
    """No single changed, removed or added byte of the final message authenticates."""
    chance = random.Random(1)
    for at in range(len(FINAL)):
        for message in (
            FINAL[:at] + bytes([FINAL[at] ^ (1 + chance.randrange(255))]) + FINAL[at + 1 :],
            FINAL[:at] + FINAL[at + 1 :],
            FINAL[:at] + bytes([chance.randrange(256)]) + FINAL[at:],
        ):
            server = _server()
            server.step(FIRST)
            with pytest.raises(SaslAuthenticationFailed):
                server.step(message)


@pytest.mark.parametrize("message", [
    b"", b"r=other,s=c2FsdA==,i=4096", b"r=abc,s=c2FsdA==,i=4096", b"r=abcd,s=c2FsdA==,i=4095",
    b"r=abcd,s=c2FsdA==,i=9999999999", b"r=abcd,s=*,i=4096", b"r=abcd,s=c2FsdA==,i=-1",
    b"m=x,r=abcd,s=c2FsdA==,i=4096", b"e=other-error", b"\xff",
])  # fmt: skip
def test_a_client_refuses_a_servers_first_message(message):
    """A client does no work for fewer iterations than 4096, a million or a foreign nonce."""
    client = ClientExchange(SHA_256, "user", PASSWORD, nonce="abc")
    client.step(b"")
    with pytest.raises(SaslAuthenticationFailed) as failed:
        client.step(message)
    assert PASSWORD not in str(failed.value) and not client.done


@pytest.mark.parametrize("message", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", SERVER_FIRST])
def test_a_client_refuses_a_server_without_proof(message):
    """A server that does not know the credential is not believed."""
    client = ClientExchange(SHA_256, "user", PASSWORD, nonce="rOprNGfwEbeRWgbNEkqO")
    client.step(b"")
    client.step(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationFailed):
        client.step(message)
    assert not client.done


def test_a_servers_extensions_are_ignored():
    """Extensions that a later version adds to a message do not matter."""
    client = ClientExchange(SHA_256, "user", PASSWORD, nonce="rOprNGfwEbeRWgbNEkqO")
    client.step(b"")
    assert client.step(SERVER_FIRST + b",x=y").startswith(b"c=biws,")


@pytest.mark.parametrize(("user", "password", "extensions"), [
    ("", "x", {}), ("a\0", "x", {}), ("a", "", {}), ("a", "x", {"1": "y"}), ("a", "x", {"b": "y,"}),
    ("a", "x", {"b": ""}),
])  # fmt: skip
def test_a_client_cannot_send_everything(user, password, extensions):
    """Names, passwords and extensions that SCRAM cannot carry are refused before they are sent."""
    with pytest.raises(ArgumentError):
        ClientExchange(SHA_256, user, password, extensions)


def test_nothing_shows_a_secret():
    """Neither text of a credential, of an exchange or of its failure has a key or a password."""
    server = _server()
    client = ClientExchange(SHA_256, "user", "hunter2")
    first = server.step(client.step(b""))
    with pytest.raises(SaslAuthenticationFailed) as failed:
        server.step(client.step(first))
    texts = [repr(CREDENTIAL), str(CREDENTIAL), f"{[CREDENTIAL]}", repr(server), repr(client),
             repr(failed.value), repr(Decoys(b"secret"))]  # fmt: skip
    for text in texts:
        assert "hunter2" not in text and "secret" not in text and "\\x" not in text
        assert PASSWORD not in text
    assert failed.value.__cause__ is None and failed.value.__suppress_context__


def test_mechanisms_by_name():
    """Names are Kafka's, and an unknown one is refused with those that are known."""
    assert [Mechanism.named(one.sasl_name) for one in Mechanism] == [SHA_256, SHA_512]
    with pytest.raises(ArgumentError, match="wanted one of SCRAM-SHA-256, SCRAM-SHA-512"):
        Mechanism.named("SCRAM-SHA-1")


def test_an_empty_password_has_no_credential():
    """Kafka refuses it, too."""
    with pytest.raises(ArgumentError, match="password"):
        credential_of(SHA_256, "")


def test_kafka_pythons_client():
    """kafka-python's own SCRAM client agrees with our server."""
    scram = pytest.importorskip("kafka.net.sasl.scram")
    for mechanism in Mechanism:
        theirs = scram.ScramClient("alice", PASSWORD, mechanism.sasl_name)
        server = ServerExchange(mechanism, {"alice": credential_of(mechanism, PASSWORD)}.get)
        theirs.process_server_first_message(server.step(theirs.first_message()))
        theirs.process_server_final_message(server.step(theirs.final_message()))
        assert server.done
