"""A broker's address is not a path; the error says what can read from it."""

import pytest

import kafkalog
import kafkalog.pandas
import kafkalog.polars


@pytest.mark.parametrize("where", ["localhost:9092", "10.0.0.1:9092,[::1]:9093"])
def test_an_address_is_refused_at_once(where: str) -> None:
    for call in (kafkalog.polars.scan, kafkalog.pandas.read):
        with pytest.raises(kafkalog.errors.ArgumentError, match="Consumer reads there") as refused:
            call(where, "orders")
        assert repr(where) in str(refused.value)


def test_a_path_that_looks_like_one_is_a_path(tmp_path, monkeypatch) -> None:
    with kafkalog.Log(tmp_path / "a:1" / "t-0") as log:
        log.append(b"v")
    monkeypatch.chdir(tmp_path)
    assert kafkalog.polars.scan("a:1", "t").collect()["value"].to_list() == [b"v"]


def test_named_sources_make_frames(tmp_path) -> None:
    import polars

    with kafkalog.Broker(tmp_path / "data", listeners="127.0.0.1:0") as broker:
        broker.store.create_topic("t")
        with kafkalog.Producer(broker) as producer:
            producer.send("t", b"v").result()
        with kafkalog.Consumer(broker, "t", auto_offset_reset="earliest") as consumer:
            [batch] = consumer.poll_arrow(60_000)
            assert polars.DataFrame(batch)["value"].to_list() == [b"v"]
