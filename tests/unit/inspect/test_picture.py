"""The picture of a topic is a well-formed drawing of everything in it."""

import xml.etree.ElementTree as ElementTree

from kafkalog.inspect.picture import PartitionShape, SegmentShape, draw

SVG = "{http://www.w3.org/2000/svg}"


def segment(base: int, records: int, first_ms: int = 0, step_ms: int = 1000) -> SegmentShape:
    """A segment of 100-byte records, with an index entry every ten records."""
    entries = range(base + 9, base + records, 10)
    return SegmentShape(
        base,
        base + records,
        records * 100,
        first_ms if records else -1,
        first_ms + records * step_ms if records else -1,
        [(offset, (offset - base) * 100) for offset in entries],
        [(first_ms + (offset - base) * step_ms, offset) for offset in entries],
    )


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_every_segment_is_drawn_in_both_panels() -> None:
    parts = [
        PartitionShape("a-0", 0, 300, [segment(0, 200), segment(200, 100, 200_000)]),
        PartitionShape("a-1", 50, 250, [segment(50, 200)]),
    ]
    root = ElementTree.fromstring(draw("a", parts))
    boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.get("rx")]
    assert len(boxes) == 2 * 3
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert titles == [
        "0 to 199, 19.5 KiB",
        "200 to 299, 9.8 KiB",
        "50 to 249, 19.5 KiB",
    ]
    dots = [path.get("d", "") for path in root.iter(f"{SVG}path")]
    assert sum(path.count("M") for path in dots) == 2 * (20 + 10 + 20)


def test_the_head_shows_the_counts() -> None:
    parts = [PartitionShape("a-0", 0, 200, [segment(0, 200)])]
    assert (
        "1 partition  ·  200 offsets  ·  1 segment  ·  19.5 KiB on disk  ·  40 index entries"
        in (texts(draw("a", parts)))
    )


def test_an_empty_topic_has_a_picture() -> None:
    picture = draw("empty", [PartitionShape("empty-0", 0, 0, [segment(0, 0)])])
    assert "no records with a time" in texts(picture)


def test_extreme_times_and_offsets_stay_on_the_paper() -> None:
    far = SegmentShape(2**62, 2**62 + 5, 500, 0, 2**53, [(2**62 + 1, 100)], [(2**52, 2**62 + 1)])
    for parts in (
        [PartitionShape("far-0", 2**62, 2**62 + 5, [far])],
        [PartitionShape("near-0", 0, 10, [segment(0, 10, 1_700_000_000_000, 1)])],
        [PartitionShape("same-0", 0, 10, [segment(0, 10, 5, 0)])],
    ):
        root = ElementTree.fromstring(draw("t", parts))
        for element in root.iter():
            for name in ("x", "y", "x1", "x2", "y1", "y2"):
                assert -1 <= float(element.get(name, "0")) <= 1400


def test_names_are_text_not_markup() -> None:
    assert "<a> & 'b'" in texts(draw("<a> & 'b'", []))


def test_many_partitions_keep_their_names_on_the_paper() -> None:
    parts = [PartitionShape(f"t-{i}", 0, 10 + i, [segment(0, 10 + i)]) for i in range(60)]
    labels = ElementTree.fromstring(draw("t", parts)).iter(f"{SVG}text")
    assert all(float(label.get("y", "0")) > 0 for label in labels)
