"""What a read fails with."""


class BadOption(ValueError):
    """An option, or a combination of options, that this source cannot obey."""


class DataLoss(RuntimeError):
    """Records that were asked for are not there (any more)."""


class ReadError(RuntimeError):
    """A read, or a task of one, could not go on."""
