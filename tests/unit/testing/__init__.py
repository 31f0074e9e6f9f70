"""Tests of what kafkalog gives to other people's tests."""
