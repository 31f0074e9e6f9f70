"""Delegation tokens: over the wire, kept in the metadata, and as SCRAM credentials."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.clock import ManualClock
from kafkalog.config.declare import Password
from kafkalog.controller import tokens as rules_
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.kraft.records import decode, encode
from kafkalog.metadata.changes import Replay
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.security.principal import ANONYMOUS, Principal, parse_principal
from kafkalog.security.scram import ClientExchange, Mechanism, ServerExchange
from kafkalog.security.tokens import Token, hmac_of, login_of_token, token_with
from kafkalog.server.admission import Admission
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import sasl
from tests.support.raw import Raw

KEY = "s3cret"
SECRET = Password(KEY)
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
NOW_MS, DAY_MS = 1_700_000_000_000, 86_400_000
RULES = rules_.Rules(SECRET, 7 * DAY_MS, DAY_MS, NOW_MS)
NEW = empty_image("c", 1)._replace(features={"metadata.version": 27})


def with_(image: MetadataImage, plan: rules_.Plan) -> MetadataImage:
    """The image after a plan."""
    replay = Replay(image)
    for name, fields in plan[0]:
        replay.feed(decode(encode(name, fields, image)))
    replay.settle(image.offset + 1, 0, 0)
    return replay.image


def created(image: MetadataImage = NEW, *renewers: Principal, lifetime_ms: int = -1) -> Any:
    plan = rules_.create_token(image, RULES, "id", ALICE, ALICE, renewers, lifetime_ms)
    return with_(image, plan), plan[1][0]


# ---- rules -------------------------------------------------------------------------------------


def test_a_token_lives_as_long_as_the_settings_say() -> None:
    """A shorter life can be asked for, a longer one is cut."""
    image, result = created()
    assert result["expiry_timestamp_ms"] == NOW_MS + DAY_MS
    assert result["max_timestamp_ms"] == NOW_MS + 7 * DAY_MS
    assert result["hmac"] == hmac.digest(KEY.encode(), b"id", "sha512")
    assert image.tokens["id"] == Token(
        "id", ALICE, ALICE, (), NOW_MS, NOW_MS + 7 * DAY_MS, NOW_MS + DAY_MS
    )
    _, short = created(lifetime_ms=1000)
    assert short["expiry_timestamp_ms"] == short["max_timestamp_ms"] == NOW_MS + 1000
    _, long = created(lifetime_ms=1 << 62)
    assert long["max_timestamp_ms"] == NOW_MS + 7 * DAY_MS


@pytest.mark.parametrize(("given", "code"), [
    ({"rules": RULES._replace(secret=Password(""))}, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ({"image": NEW._replace(features={"metadata.version": 13})}, ErrorCode.UNSUPPORTED_VERSION),
    ({"renewers": [Principal("Group", "x")]}, ErrorCode.INVALID_PRINCIPAL_TYPE),
    ({"renewers": [BOB] * 101}, ErrorCode.POLICY_VIOLATION),
])  # fmt: skip
def test_a_token_that_is_refused(given: dict[str, Any], code: ErrorCode) -> None:
    """With a code, the names of owner and requester, and no password."""
    said = {"image": NEW, "rules": RULES, "renewers": [], **given}
    records, (result,) = rules_.create_token(
        said["image"], said["rules"], "id", ALICE, BOB, said["renewers"], 0
    )
    assert (records, result["error_code"], result["hmac"]) == ([], code, b"")
    assert (result["principal_name"], result["token_requester_principal_name"]) == ("alice", "bob")


Change = Callable[..., rules_.Plan]


@pytest.mark.parametrize("change", [rules_.renew_token, rules_.expire_token])
def test_owner_and_renewers_may_change_a_token(change: Change) -> None:
    """Its owner and its renewers, with its password; nobody after its end."""
    image, _ = created(NEW, BOB)
    password = hmac_of(SECRET, "id")

    def code(caller: Principal, given: bytes = password, later_ms: int = 0) -> int:
        rules = RULES._replace(now_ms=NOW_MS + later_ms)
        return int(change(image, rules, caller, given, 1000)[1][0]["error_code"])

    assert code(ALICE) == code(BOB) == ErrorCode.NONE
    assert code(EVE) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    for wrong in (b"", password[:-1], bytes(64), hmac_of(Password("x"), "id")):
        assert code(ALICE, wrong) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert code(ALICE, later_ms=DAY_MS) == ErrorCode.NONE
    assert code(ALICE, later_ms=DAY_MS + 1) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    disabled = RULES._replace(secret=Password(""))
    assert change(image, disabled, ALICE, password, 1)[1][0]["error_code"] == (
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    )


def test_a_token_is_renewed_expired_and_removed() -> None:
    """Never beyond its maximum; less than 0 removes it at once."""
    image, _ = created()
    password, later = hmac_of(SECRET, "id"), RULES._replace(now_ms=NOW_MS + DAY_MS)

    def until(plan: rules_.Plan) -> int:
        after = with_(image, plan)
        assert after.tokens["id"].expires_ms == plan[1][0]["expiry_timestamp_ms"]
        return after.tokens["id"].expires_ms

    renew, expire = rules_.renew_token, rules_.expire_token
    assert until(renew(image, later, ALICE, password, -1)) == NOW_MS + 2 * DAY_MS
    assert until(renew(image, later, ALICE, password, 9 * DAY_MS)) == NOW_MS + 2 * DAY_MS
    assert until(renew(image, later, ALICE, password, 5)) == NOW_MS + DAY_MS + 5
    assert until(expire(image, RULES, ALICE, password, 9 * DAY_MS)) == NOW_MS + 7 * DAY_MS
    assert until(expire(image, RULES, ALICE, password, 0)) == NOW_MS
    gone = expire(image, RULES, ALICE, password, -1)
    assert with_(image, gone).tokens == {} and gone[1][0]["expiry_timestamp_ms"] == NOW_MS
    assert rules_.remove_expired(image, NOW_MS + DAY_MS)[0] == []
    assert with_(image, rules_.remove_expired(image, NOW_MS + DAY_MS + 1)).tokens == {}


# ---- as a credential ---------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_client_authenticates_by_a_token(mechanism: Mechanism) -> None:
    """With its id and its password in base64, until it expires."""
    image, result = created()
    password = base64.b64encode(result["hmac"]).decode()

    def login(word: str, now_ms: int, secret: Password = SECRET, extension: str = "true") -> bool:
        server = ServerExchange(
            mechanism, lambda _: None,
            lambda name: login_of_token(image.tokens, secret, mechanism, name, now_ms),
        )  # fmt: skip
        client = ClientExchange(mechanism, "id", word, {"tokenauth": extension})
        try:
            client.step(server.step(client.step(server.step(client.step(b"")))))
        except Exception:
            return False
        owner, expires_ms = ALICE._replace(by_token=True), NOW_MS + DAY_MS
        return (server.done, server.principal, server.expires_ms) == (True, owner, expires_ms)

    assert login(password, NOW_MS)
    assert not login(password, NOW_MS, extension="false")
    assert not login(password + "x", NOW_MS)
    assert not login(password, NOW_MS + DAY_MS + 1)
    assert not login(password, NOW_MS, Password("other"))
    assert not login(password, NOW_MS, Password(""))


def test_names_of_principals() -> None:
    """As records have them; a name may contain colons."""
    for one in (ALICE, Principal("User", "a:b"), Principal("User", ""), Principal("X", "=,")):
        assert parse_principal(str(one)) == one
    assert parse_principal("alice") == ALICE
    assert token_with({}, SECRET, b"") is None


# ---- over the wire -----------------------------------------------------------------------------

Make = Callable[..., Broker]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def broker(make_broker: Make, clock: ManualClock) -> Broker:
    return make_broker(clock, delegation_token_secret_key=KEY)


class Caller:
    """A connection whose caller the broker takes for this principal."""

    def __init__(self, raw: Raw, patch: pytest.MonkeyPatch) -> None:
        self.raw, self.patch = raw, patch

    def be(self, principal: Principal) -> None:
        self.patch.setattr(Admission, "principal", lambda self, number: principal)

    def call(self, api: Any, version: int | None = None, **body: Any) -> Any:
        return self.raw.call(api, version, **body)


@pytest.fixture
def caller(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    with Raw(broker.bootstrap_servers) as raw:
        made = Caller(raw, monkeypatch)
        made.be(ALICE)
        yield made


def create(caller: Caller, **body: Any) -> Any:
    return caller.call(
        apis.CREATE_DELEGATION_TOKEN,
        **{"renewers": [], "max_lifetime_ms": -1, "owner_principal_name": None,
           "owner_principal_type": None, **body},
    )  # fmt: skip


def test_tokens_over_the_wire(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """Created, described, renewed, removed; the records survive a restart."""
    renewers = [{"principal_type": "User", "principal_name": "bob"}]
    made = create(caller, renewers=renewers)
    assert (made.error_code, made.principal_name, made.issue_timestamp_ms) == (0, "alice", NOW_MS)
    assert len(made.hmac) == 64 and len(made.token_id) == 22
    for version in (1, 2, 3):
        (one,) = caller.call(apis.DESCRIBE_DELEGATION_TOKEN, version, owners=None).tokens
        assert (one.token_id, one.hmac, one.principal_name) == (
            made.token_id, made.hmac, "alice"
        )  # fmt: skip
        assert [row.principal_name for row in one.renewers] == ["bob"]
    owners = [{"principal_type": "User", "principal_name": "eve"}]
    assert caller.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=owners).tokens == []
    assert caller.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=[]).tokens == []
    clock.advance(1000)
    found = caller.call(apis.RENEW_DELEGATION_TOKEN, hmac=made.hmac, renew_period_ms=-1)
    assert (found.error_code, found.expiry_timestamp_ms) == (0, NOW_MS + 1000 + DAY_MS)
    found = caller.call(apis.EXPIRE_DELEGATION_TOKEN, hmac=made.hmac, expiry_time_period_ms=-1)
    assert (found.error_code, found.expiry_timestamp_ms) == (0, NOW_MS + 1000)
    assert node_of(broker).image.tokens == {}


def test_our_admin(broker: Broker, caller: Caller) -> None:
    """All four calls; the password of a token is nowhere in its text."""
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        made = admin.create_delegation_token(["User:bob"], max_lifetime_ms=2 * DAY_MS)
        assert (made.owner, made.requester, made.renewers) == ("User:alice", "User:alice",
                                                               ("User:bob",))  # fmt: skip
        assert (made.issue_ms, made.max_ms) == (NOW_MS, NOW_MS + 2 * DAY_MS)
        assert base64.b64decode(made.password) == made.hmac == hmac_of(SECRET, made.token_id)
        assert made.password not in repr(made) and repr(made.hmac) not in repr(made)
        assert admin.describe_delegation_tokens() == [made]
        assert admin.describe_delegation_tokens(["User:eve"]) == []
        assert admin.renew_delegation_token(made.hmac) == NOW_MS + DAY_MS
        assert admin.expire_delegation_token(made.hmac, 5) == NOW_MS + 5
        caller.be(EVE)
        with pytest.raises(errors.KafkalogError, match="DELEGATION_TOKEN_OWNER_MISMATCH"):
            admin.expire_delegation_token(made.hmac)
        assert admin.describe_delegation_tokens() != []  # without an authorizer, all may
        caller.be(BOB)
        assert admin.expire_delegation_token(made.hmac) == NOW_MS
        with pytest.raises(errors.ArgumentError, match="wanted a principal such as User:alice"):
            admin.create_delegation_token(["bob"])
        theirs = admin.create_delegation_token(owner="User:eve")
        assert (theirs.owner, theirs.requester) == ("User:eve", "User:bob")


@pytest.mark.parametrize("who", [ANONYMOUS, ALICE._replace(by_token=True)])
def test_some_callers_get_no_answer_about_tokens(caller: Caller, who: Principal) -> None:
    """A caller that is not known, and one that authenticated by a token."""
    caller.be(who)
    denied = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert create(caller).error_code == denied
    for api in (apis.RENEW_DELEGATION_TOKEN, apis.EXPIRE_DELEGATION_TOKEN):
        found = caller.call(api, hmac=b"x")
        assert (found.error_code, found.expiry_timestamp_ms) == (denied, -1)
    assert caller.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=None).error_code == denied


def test_a_broker_without_a_key_has_no_tokens(
    make_broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Raw(make_broker().bootstrap_servers) as raw:
        caller = Caller(raw, monkeypatch)
        caller.be(ALICE)
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert create(caller).error_code == disabled
        assert caller.call(apis.RENEW_DELEGATION_TOKEN, hmac=b"x").error_code == disabled
        assert caller.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=None).error_code == disabled


def test_expired_tokens_are_removed(
    make_broker: Make, clock: ManualClock, wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In the background, every delegation.token.expiry.check.interval.ms; and a restart and a
    snapshot keep the others."""
    settings = {"delegation_token_secret_key": KEY,
                "delegation_token_expiry_check_interval_ms": 1000}  # fmt: skip
    with make_broker(clock, **settings) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            caller = Caller(raw, monkeypatch)
            caller.be(ALICE)
            kept = create(caller).token_id
            create(caller, max_lifetime_ms=500)
        assert len(node_of(broker).image.tokens) == 2
        clock.advance(1001)
        wait_until(lambda: len(node_of(broker).image.tokens) == 1, "the expired one is removed")
        metadata = node_of(broker).metadata
        assert isinstance(metadata, MetadataLog) and metadata.take_snapshot() is not None
        before = dict(metadata.image.tokens)
        assert list(before) == [kept]
    with make_broker(clock, **settings) as broker:
        assert node_of(broker).image.tokens == before


# ---- with SASL ---------------------------------------------------------------------------------


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Broker]:
    config = sasl.settings("PLAIN", "SCRAM-SHA-256", delegation_token_secret_key=KEY,
                           connection_failed_authentication_delay_ms=1)  # fmt: skip
    with Broker(tmp_path / "secured", config=config) as made:
        yield made


def test_a_client_logs_in_by_a_token(secured: Broker) -> None:
    """It acts as the owner until the token expires, and creates no other tokens."""
    servers = secured.bootstrap_servers
    with Raw(servers) as alice, Raw(servers) as by_token, Raw(servers) as wrong:
        sasl.authenticate(alice, "alice")
        made = alice.call(
            apis.CREATE_DELEGATION_TOKEN, owner_principal_type=None, owner_principal_name=None,
            renewers=[], max_lifetime_ms=-1,
        )  # fmt: skip
        assert (made.error_code, made.principal_name) == (0, "alice")
        password = base64.b64encode(made.hmac).decode()
        found = sasl.scram(by_token, made.token_id, password, by_token=True)
        assert found.error_code == 0 and 0 < found.session_lifetime_ms <= DAY_MS
        assert by_token.call(apis.METADATA, topics=[]).brokers
        assert by_token.create("t").error_code == 0
        refused = by_token.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=None)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        failed = sasl.scram(wrong, made.token_id, password)  # as a user of that name
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        config = {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{sasl.SCRAM_MODULE} required username="{made.token_id}" '
                                f'password="{password}" tokenauth="true";',
        }  # fmt: skip
        with kafkalog.Admin(servers, config=config) as admin:
            assert admin.list_topics() == ["t"]
            with pytest.raises(errors.KafkalogError, match="REQUEST_NOT_ALLOWED"):
                admin.create_delegation_token()
        gone = alice.call(apis.EXPIRE_DELEGATION_TOKEN, hmac=made.hmac, expiry_time_period_ms=-1)
        assert gone.error_code == 0
        with (
            kafkalog.Admin(servers, config=config) as admin,
            pytest.raises(errors.SaslAuthenticationFailed),
        ):
            admin.list_topics()
