"""Tests of what kafkalog offers to other projects' tests."""
