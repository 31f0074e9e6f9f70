"""Login modules as Kafka's settings write them."""

from __future__ import annotations

import pytest

from kafkalog.errors import InvalidSetting
from kafkalog.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_login_module_with_options() -> None:
    found = parse_jaas(f'{PLAIN} required\n  username="admin" password="a b"\n user_bob="x";\n')
    assert (found.name, found.flag) == (PLAIN, "required")
    assert found.short_name == "PlainLoginModule"
    assert found.options == {"username": "admin", "password": "a b", "user_bob": "x"}


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ('k="a\\"b"', 'a"b'),
        ('k="a\\\\b"', "a\\b"),
        ('k="a\\tb\\n"', "a\tb\n"),
        ('k="\\101"', "A"),
        ("k='it is \"quoted\"'", 'it is "quoted"'),
        ("k=bare", "bare"),
        ("k=true", "true"),
        ("k=/etc/kafka/x.keytab", "/etc/kafka/x.keytab"),
        ('k = "spaced"', "spaced"),
        ('k=""', ""),
        ('k="a;b=c"', "a;b=c"),
        ('k="//no comment"', "//no comment"),
        ('/* a comment */ k="v" // and one more\n', "v"),
        ('k="für Ünïcode €"', "für Ünïcode €"),
        ('k="first" k="last"', "last"),
    ],
)
def test_values_are_read_as_java_reads_them(written: str, wanted: str) -> None:
    assert parse_jaas(f"{PLAIN} required {written};").options == {"k": wanted}


def test_no_options() -> None:
    assert parse_jaas(f"{PLAIN} REQUIRED;").flag == "required"


@pytest.mark.parametrize(
    "text",
    ["", ";", PLAIN, f"{PLAIN};", f"{PLAIN} needed;", f'{PLAIN} required k="S3CRET"',
     f'{PLAIN} required k="S3CRET', f"{PLAIN} required S3CRET;", f"{PLAIN} required k=;",
     f'{PLAIN} required k="S3CRET"; more', f'{PLAIN} required k "S3CRET";',
     f'{PLAIN} required ="S3CRET";', f'{PLAIN} S3CRET="S3CRET";'],
)  # fmt: skip
def test_wrong_texts_are_refused_without_their_values(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"my\.setting: at character [0-9]+: wanted") as found:
        parse_jaas(text, "my.setting")
    assert "S3CRET" not in str(found.value)
    assert found.value.__cause__ is None


def test_secrets_are_not_shown() -> None:
    found = parse_jaas(f'{PLAIN} required user_bob="S3CRET";')
    assert "S3CRET" not in repr(found) + str(found) + f"{found}"


def test_a_long_text_is_read_in_linear_time() -> None:
    options = " ".join(f'user_{number}="secret-{number}"' for number in range(5_000))
    assert len(parse_jaas(f"{PLAIN} required {options};").options) == 5_000
    with pytest.raises(InvalidSetting):
        parse_jaas(f"{PLAIN} required " + "/*" * 50_000)
