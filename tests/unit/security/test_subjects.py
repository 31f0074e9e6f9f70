"""Names of certificates as Java writes them, and Kafka's rules that shorten them."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kafkalog.errors import AuthenticationFailed, InvalidSetting
from kafkalog.security.subjects import PrincipalRules, distinguished_name


def der(*parts):
    """A subject from (oid, value), the first part first."""
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts]).public_bytes()


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([(NameOID.COMMON_NAME, "alice")], "CN=alice"),
        (
            [(NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Example, Inc."),
             (NameOID.ORGANIZATIONAL_UNIT_NAME, "a+b"), (NameOID.COMMON_NAME, "Älice")],
            "CN=Älice,OU=a\\+b,O=Example\\, Inc.,C=DE",
        ),
        ([(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "7")], "UID=7,DC=org"),
        ([(NameOID.COMMON_NAME, "  x ")], "CN=\\ \\ x\\ "),
        ([(NameOID.COMMON_NAME, "#a=b<c>;\"\\")], "CN=\\#a\\=b\\<c\\>\\;\\\"\\\\"),
        ([(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([(NameOID.SERIAL_NUMBER, "12")], "2.5.4.5=#13023132"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_writes_it(parts, wanted):
    """RFC 2253: the last part first, special characters with a backslash, unknown types in hex."""
    assert distinguished_name(der(*parts)) == wanted


def test_a_part_with_several_values():
    both = x509.RelativeDistinguishedName([
        x509.NameAttribute(NameOID.COMMON_NAME, "a"),
        x509.NameAttribute(NameOID.USER_ID, "b"),
    ])  # fmt: skip
    found = distinguished_name(x509.Name([both]).public_bytes())
    assert sorted(found.split("+")) == ["CN=a", "UID=b"]


@pytest.mark.parametrize("end", range(20))
def test_a_damaged_subject_is_refused(end):
    """Every beginning of one."""
    whole = der((NameOID.COMMON_NAME, "alice"), (NameOID.ORGANIZATION_NAME, "x"))
    with pytest.raises(AuthenticationFailed):
        distinguished_name(whole[:end])


DOCUMENTED = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)
"""The example of Kafka's documentation."""


@pytest.mark.parametrize(
    ("rules", "name", "wanted"),
    [
        (DOCUMENTED, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
         "serviceuser"),
        (DOCUMENTED, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
         "adminuser@admin"),
        (DOCUMENTED, "OU=x,CN=Some.One,O=y", "some.one"),
        (DOCUMENTED, "O=nobody", "O=nobody"),
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:CN=(.*),O=.*/$1/U", "CN=alice,O=x", "ALICE"),
        ("RULE:CN=(.*),O=(.*)/$1@$4/", "CN=alice,O=x", "alice@$4"),
        ("RULE:CN=(.)(.*)/$21/", "CN=ab", "b1"),
        (r"RULE:CN=([^\/]*)\/(.*)/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:O=.*/x/,,DEFAULT", "CN=a", "CN=a"),
        ("RULE:.*/x/", "CN=a", "xx"),
    ],
)  # fmt: skip
def test_rules_are_kafkas(rules, name, wanted):
    """The first that matches the whole name; `$n` without such a group stands for itself."""
    assert PrincipalRules(rules).name(name) == wanted


def test_a_name_without_a_rule_does_not_authenticate():
    with pytest.raises(AuthenticationFailed, match="no rule"):
        PrincipalRules("RULE:O=.*/x/").name("CN=a")


@pytest.mark.parametrize(
    "wrong", ["x", "RULE:a", "RULE:(/x/", "RULE:a/$/", "RULE:a/$1/", "RULE:a/b/X"]
)
def test_a_wrong_rule_is_refused(wrong):
    """The message has the rule."""
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(wrong)
