"""Directories that earlier versions of kafkalog wrote: this one opens, extends and verifies them."""
