"""Refuses to serve a protected directory to everybody."""

from typing import TYPE_CHECKING

from kafkalog.config.protection import refuse_protection
from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import BROKER

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage

__all__ = ["check_open_to_all"]


def check_open_to_all(image: "MetadataImage") -> None:
    """Refuse metadata with permissions or credentials.

    Raises: ArgumentError (ACLs, SCRAM credentials, delegation tokens), InvalidSetting.
    """
    found = {
        "ACLs": len(image.acls),
        "SCRAM credentials": len(image.scram),
        "delegation tokens": len(image.tokens),
    }
    some = ", ".join(f"{count} {what}" for what, count in found.items() if count)
    if some:
        raise ArgumentError(
            f"the metadata hold {some}, which protect the directory and are not supported yet; "
            "it is not served until Apache Kafka's tools have removed them"
        )
    for resource in ("", str(image.node_id)):
        for name, value in image.config(BROKER, resource).items():
            refuse_protection(name, value, f"the metadata, broker {resource or 'default'}: ")
