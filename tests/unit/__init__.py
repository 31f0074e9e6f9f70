"""Tests of each part of the package: the folders match the package's."""
