"""`python -m kafkalog.cli`: the same as `kafkalog`."""

import sys

from kafkalog.cli import main

if __name__ == "__main__":
    sys.exit(main())
