"""UnregisterBroker and UnregisterController: removes registrations.

Pure, as plan.py.  Source: Kafka's ReplicationControlManager, ClusterControlManager; KIP-631.
"""

from __future__ import annotations

from kafkalog.kraft.plan import Plan, Record
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["unregister_broker", "unregister_controller"]

CONTROLLERS_SINCE = 33
"""The first metadata.version at which a controller can be unregistered: 4.4-IV2."""


def unregister_broker(image: MetadataImage, broker_id: int) -> Plan:
    """Refuse to unregister this broker, which would continue to serve without a registration."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return _refused(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {broker_id} is not currently registered",
        )
    if broker_id == image.node_id:
        return _refused(
            ErrorCode.INVALID_REQUEST, "Broker cannot unregister itself while it serves."
        )
    fields = {"broker_id": broker_id, "broker_epoch": broker.epoch}
    return _done("UnregisterBrokerRecord", fields)


def unregister_controller(image: MetadataImage, controller_id: int) -> Plan:
    """Refuse to unregister this node, which is the active controller of its metadata."""
    if controller_id == image.node_id:
        return _refused(
            ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
        )
    if image.features.get(METADATA_VERSION, 0) < CONTROLLERS_SINCE:
        return _refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if controller_id not in image.controllers:
        return _refused(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {controller_id} is not currently registered.",
        )
    return _done("UnregisterControllerRecord", {"controller_id": controller_id})


def _done(name: str, fields: dict[str, int]) -> Plan:
    record: Record = (name, fields)
    return Plan([record], [{"error_code": ErrorCode.NONE, "error_message": None}])


def _refused(code: ErrorCode, message: str) -> Plan:
    return Plan([], [{"error_code": code, "error_message": message}])
