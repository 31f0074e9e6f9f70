"""`kafkalog failpoints`: lists the places where the test build can be made to fail."""

import argparse
import os

from kafkalog.cli.common import UsageError

EXAMPLES = """\
example:
  KAFKALOG_NATIVE=test kafkalog failpoints
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""
    del parser


def run(options: argparse.Namespace) -> int:
    """One name per line."""
    del options
    try:
        from kafkalog._native import ffi, lib
    except ImportError as problem:
        if os.environ.get("KAFKALOG_NATIVE") != "test":
            raise
        raise UsageError(f"the test build is not here ({problem})") from None
    if not hasattr(lib, "kl_failpoint_count"):
        raise UsageError(
            "this build has no failpoints; build with KAFKALOG_TEST_EXTENSION=1 and set "
            "KAFKALOG_NATIVE=test"
        )
    names = (lib.kl_failpoint_name(i) for i in range(lib.kl_failpoint_count()))
    print("\n".join(sorted(ffi.string(name).decode() for name in names)))
    return 0
