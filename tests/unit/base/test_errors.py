"""Statuses of the C core become exceptions."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
import threading

import pytest

from kafkalog import errors
from kafkalog._native import check, failure, ffi, lib

KAFKA_CODES = {
    "OffsetOutOfRange": 1,
    "CorruptMessage": 2,
    "UnknownTopicOrPartition": 3,
    "Timeout": 7,
    "MessageTooLarge": 10,
    "RecordListTooLarge": 18,
    "InvalidTimestamp": 32,
    "InvalidSetting": 40,
    "UnsupportedForMessageFormat": 43,
    "OutOfOrderSequenceNumber": 45,
    "InvalidProducerEpoch": 47,
    "InvalidTxnState": 48,
    "TransactionCoordinatorFenced": 52,
    "StorageOffline": 56,
    "FencedLeaderEpoch": 74,
    "UnsupportedCompressionType": 76,
    "InvalidRecord": 87,
}


def test_each_status_has_its_own_class():
    statuses = ffi.typeof("kl_status").elements
    classes = {type(failure(number)) for number in statuses if number}
    assert len(classes) == len(statuses) - 1
    assert all(issubclass(cls, errors.KafkalogError) for cls in classes)


def test_codes_are_kafkas():
    for name, code in KAFKA_CODES.items():
        assert getattr(errors, name).code == code, name


def test_every_error_is_public_and_sorted():
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.KafkalogError)
    }
    assert errors.__all__ == sorted(defined)


def test_ok_is_nothing():
    assert check(0) is None


def test_errors_are_caught_by_the_builtins_that_users_know(directory, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        directory.read("absent")
    assert isinstance(caught.value, errors.NotFound)
    assert caught.value.errno == errno.ENOENT
    assert str(tmp_path / "absent") in str(caught.value)
    with pytest.raises(ValueError):
        directory.read("a/b")


def test_an_error_survives_pickling(directory):
    with pytest.raises(errors.NotFound) as caught:
        directory.read("absent")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is errors.NotFound and str(copy) == str(caught.value)


def test_a_name_that_is_not_text_is_printed_all_the_same(directory):
    with pytest.raises(errors.NotFound) as caught:
        directory.read("caf\udce9")
    str(caught.value).encode("utf-8")
    assert "caf\\xe9" in str(caught.value)


def test_each_thread_has_its_own_message(directory):
    """A failure in another thread must not change this thread's message."""
    assert lib.kl_dir_unlink(directory.handle, b"mine") != 0

    def fail_elsewhere() -> None:
        assert lib.kl_dir_unlink(directory.handle, b"theirs") != 0
        assert b"theirs" in ffi.string(lib.kl_error_message())

    thread = threading.Thread(target=fail_elsewhere)
    thread.start()
    thread.join()
    assert b"mine" in ffi.string(lib.kl_error_message())


def test_a_very_long_name_makes_a_bounded_message(directory):
    with pytest.raises(errors.ArgumentError) as caught:
        directory.read("x" * 100_000)
    assert len(str(caught.value)) < 1024


def test_importing_the_core_brings_no_heavy_package():
    code = (
        "import sys, kafkalog._native; "
        "print(sorted({'numpy', 'pyarrow', 'cffi', 'zstandard'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
