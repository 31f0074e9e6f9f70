"""Images and requests, as for the tests of the metadata."""

from tests.unit.metadata.conftest import empty, site, with_topics

__all__ = ["empty", "site", "with_topics"]
