"""The broker's settings of authorisation."""

from kafkalog.config.declare import Flag, Settings, Word

__all__ = ["ACL_AUTHORIZER", "STANDARD_AUTHORIZER", "AuthorizerConfig"]

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The one of brokers on ZooKeeper."""


class _Principals(Word):
    """Principals between semicolons: their names may have commas."""

    def parse(self, found: object) -> str:
        value = super().parse(found)
        if any(one.strip() and ":" not in one for one in value.split(";")):
            raise ValueError
        return value

    def wanted(self) -> str:
        return "types and names between semicolons, as in User:alice;User:CN=ops,O=us"


class AuthorizerConfig(Settings):
    """The authorizer, which decides about permissions; a broker takes them with its own."""

    scope = "broker"

    authorizer_class_name = Word(
        "",
        "What decides about the permissions of clients: by the ACLs in the metadata Kafka's "
        "StandardAuthorizer, and in a cluster on ZooKeeper its AclAuthorizer. Empty: nothing, and "
        "every client may do everything.",
        choices=("", STANDARD_AUTHORIZER, ACL_AUTHORIZER),
    )
    super_users = _Principals(
        "",
        "Principals that may do everything, between semicolons: User:admin;User:CN=ops,O=us.",
    )
    allow_everyone_if_no_acl_found = Flag(
        False, "Whether everyone may use a resource that no ACL names; only with an authorizer."
    )
