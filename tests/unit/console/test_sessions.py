"""Sessions end in time, and there are only so many; so do attempts to log in."""

from __future__ import annotations

from itertools import count

from kafkalog.console import sessions
from kafkalog.console.sessions import Attempts, Passes, Sessions, same


def numbered() -> Sessions[str]:
    tokens = count()
    return Sessions(lambda: f"token{next(tokens)}")


def test_a_session_is_found_by_its_token_alone() -> None:
    table = numbered()
    token, gone = table.begin("alice", "clients", 0.0)
    assert gone == []
    found = table.use(token, 1.0)
    assert found is not None and (found.user, found.person) == ("alice", "clients")
    assert found.csrf != token
    for other in ("", "token9", found.csrf, token + "x", token * 100):
        assert table.use(other, 1.0) is None


def test_an_idle_session_ends() -> None:
    table = numbered()
    token, _ = table.begin("alice", "clients", 0.0)
    assert table.use(token, sessions.IDLE_S - 1)
    assert table.use(token, 2 * sessions.IDLE_S - 2)
    assert table.use(token, 3 * sessions.IDLE_S) is None
    assert table.expire(3 * sessions.IDLE_S) == ["clients"]
    assert len(table) == 0


def test_a_busy_session_ends_too() -> None:
    table = numbered()
    token, _ = table.begin("alice", "clients", 0.0)
    now_s = 0.0
    while now_s < sessions.LIFE_S - 60:
        now_s += 60
        assert table.use(token, now_s)
    assert table.use(token, sessions.LIFE_S) is None


def test_a_logout_ends_it() -> None:
    table = numbered()
    token, _ = table.begin("alice", "clients", 0.0)
    assert table.end(token) == ["clients"]
    assert table.end(token) == []
    assert table.use(token, 0.0) is None


def test_one_user_ends_only_their_own_sessions() -> None:
    table = numbered()
    other, _ = table.begin("bob", "bob", 0.0)
    gone = [
        one for number in range(3 * sessions.SESSIONS_MAX)
        for one in table.begin("alice", f"alice{number}", 1.0)[1]
    ]  # fmt: skip
    assert len(table) == 1 + sessions.OF_USER_MAX
    assert gone == [f"alice{n}" for n in range(3 * sessions.SESSIONS_MAX - sessions.OF_USER_MAX)]
    assert table.use(other, 2.0)


def test_the_least_used_session_makes_room() -> None:
    table = numbered()
    tokens = [table.begin(f"u{n}", f"u{n}", 0.0)[0] for n in range(sessions.SESSIONS_MAX)]
    assert table.use(tokens[0], 1.0)
    _, gone = table.begin("one more", "one more", 2.0)
    assert gone == ["u1"]
    assert len(table) == sessions.SESSIONS_MAX


def test_browsers_of_an_open_cluster_show_tokens_of_this_process() -> None:
    tokens = count()
    here, elsewhere = (Passes(lambda: f"token{next(tokens)}") for _ in range(2))
    token, other = here.begin(), here.begin()
    csrf = here.csrf(token)
    assert csrf is not None and csrf == here.csrf(token) != here.csrf(other)
    seed, mac = token.split(".")
    for wrong in ("", ".", seed, f"{seed}.{csrf}", f"{seed}x.{mac}", "\ud800.x", elsewhere.begin()):
        assert here.csrf(wrong) is None


def test_failures_of_a_user_are_limited_where_they_came_from() -> None:
    """Nobody locks a user out from elsewhere, however many addresses they have."""
    attempts = Attempts()
    for number in range(sessions.FAILURES_MAX):
        assert attempts.wait_s("here", "alice", number) == 0
        attempts.begin("here", "alice", number)
    for number in range(sessions.ADDRESSES_MAX - 1):
        attempts.begin(f"10.0.{number >> 8}.{number & 255}", "alice", 9.0)
    assert attempts.wait_s("here", "alice", 10.0) == sessions.WINDOW_S - 10.0
    assert attempts.wait_s("here", "bob", 10.0) == 0
    assert attempts.wait_s("elsewhere", "alice", 10.0) == 0
    assert attempts.wait_s("here", "alice", sessions.WINDOW_S) == 0


def test_one_address_cannot_try_many_users() -> None:
    attempts = Attempts()
    for number in range(sessions.OF_ADDRESS_MAX):
        assert attempts.wait_s("here", f"u{number}", number / 10) == 0
        attempts.begin("here", f"u{number}", number / 10)
    assert attempts.wait_s("here", "another", 10.0) == sessions.WINDOW_S - 10.0
    assert attempts.wait_s("elsewhere", "another", 10.0) == 0


def test_the_addresses_of_one_network_count_together() -> None:
    """A host has as many addresses of IPv6 as it likes, with the same first 64 bits."""
    attempts = Attempts()
    for number in range(sessions.OF_ADDRESS_MAX):
        attempts.begin(f"2001:db8::{number:x}", f"u{number}", 0.0)
    assert attempts.wait_s("2001:db8::ffff:1", "alice", 1.0) > 0
    assert attempts.wait_s("2001:db8:0:1::1", "alice", 1.0) == 0
    attempts = Attempts()
    for number in range(sessions.OF_ADDRESS_MAX):
        attempts.begin(f"::ffff:10.0.0.{number}", f"u{number}", 0.0)
    assert attempts.wait_s("::ffff:10.0.1.1", "alice", 1.0) == 0
    for _ in range(sessions.FAILURES_MAX):
        attempts.begin("::ffff:10.0.1.1", "alice", 0.0)
    assert attempts.wait_s("10.0.1.1", "alice", 1.0) > 0


def test_failures_that_are_remembered_are_bounded() -> None:
    attempts = Attempts()
    for number in range(3 * sessions.ADDRESSES_MAX):
        attempts.begin(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "alice", 0.0)
    assert len(attempts) == sessions.ADDRESSES_MAX
    assert attempts.wait_s("x", "alice", sessions.WINDOW_S) == 0 == len(attempts)


def test_a_login_that_succeeds_is_forgotten() -> None:
    attempts = Attempts()
    for _ in range(5 * sessions.FAILURES_MAX):
        assert attempts.wait_s("here", "alice", 0.0) == 0
        attempts.begin("here", "alice", 0.0)
        attempts.succeed("here", "alice")


def test_secrets_are_compared() -> None:
    assert same("abc", "abc")
    assert not same("abd", "abc") and not same("", "abc") and not same("\ud800é", "abc")
