"""The commands' arithmetic: percentiles, histograms, durations."""

from __future__ import annotations

import pytest

from kafkalog.cli.common import UsageError
from kafkalog.cli.histogram import percentiles, render_histogram, show_ms
from kafkalog.cli.remote import config_changes, names_of, spread
from kafkalog.cli.resets import parse_duration


def test_percentiles_are_of_records_not_of_batches() -> None:
    found = percentiles([(0.001, 989), (0.1, 10), (2.0, 1)])
    assert found == {"p50": 0.001, "p90": 0.001, "p99": 0.1, "p99.9": 0.1, "max": 2.0}
    assert set(percentiles([(0.5, 1)]).values()) == {0.5}


def test_the_largest_bar_is_whole_and_the_smallest_is_seen() -> None:
    lines = render_histogram([(0.001, 100_000), (0.003, 50_000), (0.01, 1)]).splitlines()
    bars = [line.split()[-1] for line in lines if "█" in line or "▏" in line]
    assert len(bars[0]) == 48
    assert len(bars[1]) == 24
    assert bars[-1] == "▏"
    assert sum(float(line.split("%")[0].split()[-1]) for line in lines) == pytest.approx(100, 1e-2)


def test_three_digits_that_count() -> None:
    assert [show_ms(s) for s in (0.000123, 0.00123, 0.0123, 1.234)] == [
        "0.123 ms", "1.23 ms", "12.3 ms", "1234 ms",
    ]  # fmt: skip


def test_durations() -> None:
    assert parse_duration("PT1H30M") == 5_400_000
    assert parse_duration("P7DT0.5S") == 604_800_500
    for text in ("", "P", "PT", "1h", "P1Y", "-PT1S"):
        with pytest.raises(UsageError, match="--by-duration"):
            parse_duration(text)


def test_settings_as_kafkas_tools_write_them() -> None:
    assert config_changes(["a=1,b=[x,y],c=", "d.e=f=g"], "--add-config") == {
        "a": "1", "b": "x,y", "c": "", "d.e": "f=g",
    }  # fmt: skip
    for text in ("a", "=1", "a=1,b"):
        with pytest.raises(UsageError, match="wanted name=value"):
            config_changes([text], "--add-config")


def test_names_and_partitions() -> None:
    assert names_of(["a", "b,c"], None, "a, d") == ["a", "b", "c", "d"]
    assert spread(["a:0,2-3,b", "c,d:1"]) == ["a:0,2-3", "b", "c", "d:1"]
