"""Checks one sealed segment against its side-car: headers, size, indexes, identity."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog.batch.walk import BatchWalk
from kafkalog.disk.layout import (
    PARTITION_METADATA,
    parse_folder,
    parse_marked,
    parse_partition_metadata,
    parse_uuid,
    uuid_text,
)
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rawfiles import SegmentFiles
from kafkalog.inspect.sidecar import (
    INDEX_SUFFIXES,
    SIDECAR,
    FileSum,
    RegionSums,
    Sidecar,
    Summed,
    file_sum,
    find_bit,
    read_sidecar,
)
from kafkalog.report import Report

if TYPE_CHECKING:
    import numpy as np

    Table = np.ndarray[Any, Any]

__all__ = ["SidecarCheck", "topic_id_of"]

EXAMPLES = 8
UNKNOWN = 1 << 63


def topic_id_of(folder: Path) -> str:
    """The id in a partition's partition.metadata; empty if none can be read."""
    try:
        return uuid_text(parse_partition_metadata((folder / PARTITION_METADATA).read_bytes()))
    except (KafkalogError, OSError):
        return ""


def _plain(topic_id: str) -> str:
    """The usual one of several texts for an id; empty: it is not an id."""
    try:
        return uuid_text(parse_uuid(topic_id))
    except ValueError:
        return ""


class SidecarCheck:
    """Gets a segment's batches; silent for a segment that has no side-car."""

    def __init__(self, files: SegmentFiles, report: Report) -> None:
        self.files = files
        self.report = report
        self.path = files.path(SIDECAR)
        self.sidecar = self._read() if files.sealed else None
        if self.sidecar is None:
            return
        report.counters["sidecars"] += 1
        self.sums = RegionSums(self.sidecar.region_bytes)
        regions = self.sidecar.regions
        numbers = [region.position // self.sidecar.region_bytes for region in regions]
        stops = [region.position for region in regions[1:]]
        if regions:  # repair may have left nothing of a segment
            stops.append(self.sidecar.log_bytes)
        self.wanted = dict(zip(numbers, regions, strict=True))
        self.ends = dict(zip(numbers, stops, strict=True))
        self.same = 0
        self.unfit = UNKNOWN
        """The first position of batches that begin or end elsewhere than the sealed ones."""
        self.unlike: list[tuple[Summed, int]] = []
        """Regions with a wrong sum, the first few, and the sum that each should have."""
        self.differ = 0

    def _read(self) -> Sidecar | None:
        try:
            return read_sidecar(self.path.read_bytes())
        except FileNotFoundError:
            self.report.counters["sidecars_missing"] += 1
        except (ValueError, OSError) as problem:
            self.report.add("sidecar-bytes", self.path, problem, "a side-car")
        return None

    def feed(self, table: Table, walk: BatchWalk) -> None:
        """Sum up a block of batches."""
        del walk
        if self.sidecar is not None:
            self.sums.feed(table)
            self._compare()

    def _compare(self) -> None:
        """Compare the regions that are complete."""
        for summed in self.sums.done:
            number = summed.position // self.sums.region_bytes
            wanted = self.wanted.get(number)
            if (
                wanted is None
                or wanted.position != summed.position
                or self.ends[number] != summed.end
                or not summed.whole
            ):
                self.unfit = min(self.unfit, summed.position)
                continue
            if summed.crc == wanted.crc:
                self.same += 1
                continue
            self.differ += 1
            if len(self.unlike) < EXAMPLES:
                self.unlike.append((summed, wanted.crc))
        self.sums.done.clear()

    def finish(self, complete: bool) -> None:
        """Report what differs.  `complete`: no batch was damaged."""
        if self.sidecar is None:
            return
        self.sums.close()
        self._compare()
        self._whose(self.sidecar)
        size = self.files.path(".log").stat().st_size
        if size == self.sidecar.log_bytes:
            for summed, crc in self.unlike:
                self._tell(summed, crc)
            # Damaged batches have their own findings.
            if complete and self.unfit < UNKNOWN:
                self.report.add(
                    "header-sum",
                    self.files.path(".log"),
                    "batches of other sizes",
                    "those that were sealed",
                    position=self.unfit,
                )
        elif self.differ and not self._has_sealed_index(self.sidecar):
            self.report.add(
                "sidecar-stale",
                self.path,
                f"{self.differ} of {self.differ + self.same} regions changed, {size} bytes",
                f"{self.sidecar.log_bytes} bytes",
            )
        else:
            self.report.add(
                "log-size", self.files.path(".log"), f"{size} bytes",
                f"{self.sidecar.log_bytes} bytes, as sealed",
                position=min(size, self.sidecar.log_bytes),
                offset=self.files.base_offset,
            )  # fmt: skip
        for suffix, wanted in zip(INDEX_SUFFIXES, self.sidecar.indexes, strict=True):
            self._index(suffix, wanted)

    def _has_sealed_index(self, sidecar: Sidecar) -> bool:
        """True if the index is the sealed one: when Kafka rewrites a segment, it changes, too."""
        found = file_sum(self.files.path(".index"))
        return found.size > 0 and found == sidecar.indexes[0]

    def _whose(self, sidecar: Sidecar) -> None:
        folder = self.files.folder.absolute().name
        found, here = parse_folder(sidecar.folder), parse_folder(folder)
        topic_id, sealed_id = topic_id_of(self.files.folder), _plain(sidecar.topic_id)
        if sidecar.base_offset != self.files.base_offset:
            self.report.add(
                "sidecar-identity", self.path, f"of the segment {sidecar.base_offset}",
                f"of the segment {self.files.base_offset}", offset=self.files.base_offset,
            )  # fmt: skip
        elif parse_marked(folder) or not (topic_id and sealed_id):
            return  # a folder may have any name, and be copied to another one
        elif (sealed_id, found and found.partition) != (topic_id, here and here.partition):
            self.report.add(
                "sidecar-identity", self.path, f"of {sidecar.folder}, topic id {sidecar.topic_id}",
                f"of {folder}, topic id {topic_id}", offset=self.files.base_offset,
            )  # fmt: skip

    def _tell(self, summed: Summed, crc: int) -> None:
        log = self.files.path(".log")
        bit = find_bit(summed, crc)
        if bit is None:
            self.report.add(
                "header-sum",
                log,
                f"checksum {summed.crc:#010x} of {len(summed.positions)} headers",
                f"{crc:#010x}, as sealed",
                position=summed.position,
            )
            return
        with open(log, "rb") as file:
            found = os.pread(file.fileno(), 1, bit[0])[0]
        self.report.add(
            "header-bit", log, f"{found:#04x}", f"{found ^ 1 << bit[1]:#04x}",
            position=bit[0], length=1,
        )  # fmt: skip

    def _index(self, suffix: str, wanted: FileSum) -> None:
        path = self.files.path(suffix)
        found = file_sum(path)
        if found != wanted and (found.size >= 0 or suffix == ".txnindex"):
            self.report.add(
                "aborts-changed" if suffix == ".txnindex" else "index-changed",
                path,
                f"{found.size} bytes, checksum {found.crc:#010x}",
                f"{wanted.size} bytes, checksum {wanted.crc:#010x}, as sealed",
            )
