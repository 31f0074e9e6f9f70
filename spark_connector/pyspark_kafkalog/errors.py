"""The errors of a read."""


class BadOption(ValueError):
    """An option, or a combination of options, that this source does not support."""


class MissingTopic(BadOption):
    """An option names a topic or a partition that does not exist."""


class DataLoss(RuntimeError):
    """Requested records do not exist (any more)."""


class ReadError(RuntimeError):
    """A read, or one of its tasks, could not continue."""
