"""DescribeAcls, CreateAcls, DeleteAcls."""

from collections.abc import Mapping
from typing import Any

from kafkalog.controller.acls import describe_acls as described
from kafkalog.metadata import translation
from kafkalog.server.failures import answer_failure
from kafkalog.server.node import Serving
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["alter_acls", "describe_acls"]


def describe_acls(node: Serving, request: Request) -> Mapping[str, Any] | None:
    """The ACLs that a filter selects.

    Raises: InvalidRequest.
    """
    if _disabled(node, request):
        return None
    return {"resources": described(node.image, translation.acl_filter(request.body))}


def alter_acls(node: Serving, request: Request) -> Mapping[str, Any] | None:
    """CreateAcls and DeleteAcls, which the controller carries out; that of a KRaft cluster also
    knows if there is an authorizer."""
    if not node.under_controllers and _disabled(node, request):
        return None
    return node.controller_apis.handle(request)


def _disabled(node: Serving, request: Request) -> bool:
    """True if the node has no authorizer, which was answered."""
    if node.admission.authorizes:
        return False
    where = " on the broker" if request.api is apis.DESCRIBE_ACLS else ""
    message = f"No Authorizer is configured{where}" + ("" if where else ".")
    answer_failure(request, ErrorCode.SECURITY_DISABLED, message)
    return True
