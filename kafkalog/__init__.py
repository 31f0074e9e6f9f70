"""kafkalog: an embeddable commit log that is Kafka.

The public names; what is not in __all__ is private.  Everything heavy (numpy, pyarrow, the
codecs) is imported when it is first used, and so are the names below.
"""

from typing import TYPE_CHECKING, Any

from kafkalog import errors as _errors
from kafkalog.errors import *  # noqa: F403
from kafkalog.log.above import Above as _Above
from kafkalog.log.above import give as _give
from kafkalog.types import Found, Record, Sent, Span, TopicPartition

if TYPE_CHECKING:
    from kafkalog import aio, pandas, polars
    from kafkalog.client.admin import Admin
    from kafkalog.client.configs import ConfigResource
    from kafkalog.client.consumer import Consumer
    from kafkalog.client.delivery import RecordMetadata
    from kafkalog.client.groups import Committed
    from kafkalog.client.producer import Producer
    from kafkalog.client.results import Results
    from kafkalog.client.topics import NewTopic
    from kafkalog.log.log import Log
    from kafkalog.log.scan import Scan
    from kafkalog.mirror.mirror import Mirror, MirrorStatus
    from kafkalog.server.broker import Broker
    from kafkalog.store import Store

__version__ = "0.1.0"

__all__ = [
    *_errors.__all__,
    "Admin",
    "Broker",
    "Committed",
    "ConfigResource",
    "Consumer",
    "Found",
    "Log",
    "Mirror",
    "MirrorStatus",
    "NewTopic",
    "Producer",
    "Record",
    "RecordMetadata",
    "Results",
    "Scan",
    "Sent",
    "Span",
    "Store",
    "TopicPartition",
    "__version__",
    "aio",
    "pandas",
    "polars",
]

_LAZY = {
    "Admin": "kafkalog.client.admin",
    "Broker": "kafkalog.server.broker",
    "Committed": "kafkalog.client.groups",
    "ConfigResource": "kafkalog.client.configs",
    "Consumer": "kafkalog.client.consumer",
    "Log": "kafkalog.log.log",
    "Mirror": "kafkalog.mirror.mirror",
    "MirrorStatus": "kafkalog.mirror.mirror",
    "NewTopic": "kafkalog.client.topics",
    "Producer": "kafkalog.client.producer",
    "RecordMetadata": "kafkalog.client.delivery",
    "Results": "kafkalog.client.results",
    "Scan": "kafkalog.log.scan",
    "Store": "kafkalog.store",
}


def _later(module: str, name: str) -> Any:
    """A function of a part that is imported when it is first called."""

    def call(*args: Any, **options: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*args, **options)

    return call


_give(
    _Above(
        _later("kafkalog.metadata.offline", "lend"),
        _later("kafkalog.inspect.verify.files", "verify"),
        _later("kafkalog.store", "store_of"),
    )
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("aio", "pandas", "polars"):
        return import_module(f"kafkalog.{name}")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))
