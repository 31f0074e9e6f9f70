"""Broker settings that can change while it runs; not topic settings.

The defaults of topics go through the metadata into each log; see kafkalog.metadata.settings.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalog.config.listeners import own_setting
from kafkalog.config.server import ServerConfig, is_dynamic
from kafkalog.errors import InvalidSetting
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import BROKER
from kafkalog.server.connection_limits import apply_connection_limits

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.server.listener_keys import ListenerKeys
    from kafkalog.server.node import Node
    from kafkalog.server.request_log import RequestLog
    from kafkalog.server.threads.workers import Workers

__all__ = ["apply_each", "check_in_effect", "follow_settings", "in_effect"]

_logger = limited(__name__)

COORDINATORS = 2
"""Each may occupy an I/O thread as long as its disk takes; others need one, too."""


def in_effect(static: ServerConfig, image: "MetadataImage") -> ServerConfig:
    """The settings, overlaid with those set at run time for all brokers and for this one."""
    found: dict[str, object] = {}
    for resource in ("", str(image.node_id)):
        for name, value in image.config(BROKER, resource).items():
            own = own_setting(name)
            if is_dynamic(name) and (name if own is None else own.name) in ServerConfig.table:
                found[name] = value
    try:
        return ServerConfig.of(found, static) if found else static
    except InvalidSetting as problem:
        # From a directory that Apache Kafka wrote; we check what we write.
        _logger.warning("a setting of the broker is ignored: %s", problem)
        return static


def check_in_effect(
    check: "Callable[[ServerConfig], None]", static: ServerConfig, image: "MetadataImage"
) -> None:
    """Check the settings that would be in effect with this metadata.  Raises: as `check`."""
    check(in_effect(static, image))


def follow_settings(
    node: "Node", workers: "Workers", keys: "ListenerKeys", request_log: "RequestLog"
) -> None:
    """Apply the settings now and whenever they change; and let C repeat no answer that rests on
    other metadata.  To be called after all others that follow the metadata."""

    def obey(image: "MetadataImage") -> None:
        config = in_effect(node.config, image)
        apply_each(
            lambda: node.manager.reconfigure(config),
            lambda: workers.resize(config.num_io_threads),
            lambda: _lend(node, config.num_io_threads > COORDINATORS),
            lambda: node.reactor.set_threads(config.num_network_threads),
            lambda: apply_connection_limits(node, config),
            lambda: keys.apply(config),
            lambda: request_log.apply(config),
            lambda: node.partitions.apply_settings(config),
        )

    def changed(change: "Change") -> None:
        if any(kind == BROKER for kind, _ in change.resources):
            obey(change.new)
        elif change.new.quotas is not change.old.quotas:
            apply_connection_limits(node, in_effect(node.config, change.new))

    node.metadata.listen(changed)
    obey(node.image)
    # Last: what C repeats from then on rests on what all other parts know of the change.
    node.metadata.listen(lambda _change: node.reactor.end_repeats())
    node.reactor.end_repeats()


def apply_each(*each: Callable[[], None]) -> None:
    """Apply settings; one that fails is logged, and the others still apply."""
    for apply in each:
        try:
            apply()
        except Exception:
            _logger.exception("a setting of the broker is not applied")


def _lend(node: "Node", enough: bool) -> None:
    """Let the I/O threads do the coordinators' work if there are enough of them."""
    for one in (node.coordinator, node.transactions, node.share_states):
        one.borrows = enough
