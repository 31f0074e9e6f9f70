"""`kafkalog storage format` and kafka-storage write the same files, and Kafka starts from ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kafkalog
from kafkalog.batch.walk import whole_batches
from kafkalog.cli import main
from kafkalog.disk.layout import METADATA_TOPIC
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]

CLUSTER = "kCqXc3kZSMuHVTYRMKxNrA"
TOOL = "kafka.tools.StorageTool"
NAMED = "1@127.0.0.1:19093:07R5amHmR32VDA6jHkGbTA,2@[::1]:19094:MvDxzVmcRsaTz33bUuRU6A"
STATIC = "controller.quorum.voters=1@127.0.0.1:19093"
DYNAMIC = "controller.quorum.bootstrap.servers=127.0.0.1:19093"
PROPERTIES = """\
process.roles={roles}
node.id=1
listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/a,{folder}/b
{quorum}
"""
LISTENERS = {"controller": "CONTROLLER://127.0.0.1:19093", "broker": "PLAINTEXT://127.0.0.1:19092"}
CHECKED_FROM, CRC_POS, TIMES_POS = 21, 17, 27
SCRAM = "SCRAM-SHA-256=[name=alice,password=alice-secret,salt=QUJDREVG]"
CASES = {
    "static": ("controller", STATIC, ()),
    "combined": ("broker,controller", STATIC, ()),
    "standalone": ("broker,controller", DYNAMIC, ("--standalone",)),
    "initial": ("controller", DYNAMIC, ("--initial-controllers", NAMED)),
    "joins": ("controller", DYNAMIC, ("--no-initial-controllers",)),
    "not-dynamic": ("controller", STATIC, ("--no-initial-controllers",)),
    "broker": ("broker", DYNAMIC, ()),
    "user": ("controller", STATIC, ("--add-scram", SCRAM)),
    "old": ("controller", STATIC, ("--release-version", "3.7")),
    "chosen": ("controller", STATIC, ("-r", "4.1-IV1", "-f", "group.version=0")),
}
RELEASES = ("3.3-IV3", "3.9", "4.0-IV0", "4.0", "4.1", "4.2-IV0", "4.2", "4.3", "4.4-IV0", "4.4")


def plain(path: Path) -> bytes:
    """A snapshot without its times, the random id of a directory, and checksums."""
    found = b""
    data = path.read_bytes()
    meta = (path.parent.parent / "meta.properties").read_text()
    directory_id = re.findall(r"directory\.id=(\S+)", meta)[0]
    for _, whole in whole_batches(data):
        batch = bytearray(whole)
        batch[CRC_POS:CHECKED_FROM] = bytes(4)
        batch[TIMES_POS : TIMES_POS + 16] = bytes(16)
        found += bytes(batch)
    from kafkalog.disk.layout import parse_uuid

    head = re.search(rb"\x00\x00\x00\x03\x16\x00\x00(.{8})", found, re.DOTALL)  # the header's time
    assert head is not None
    return found.replace(head[1], bytes(8)).replace(parse_uuid(directory_id).bytes, bytes(16))


@pytest.mark.parametrize("case", CASES)
def test_both_format_alike(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same files, the same first records byte for byte, and the same words."""
    roles, quorum, words = CASES[case]
    said = []
    for name in ("kafka", "ours"):
        folder = tmp_path / name
        folder.mkdir()
        listeners = ",".join(LISTENERS[role] for role in roles.split(","))
        path = folder / "server.properties"
        path.write_text(
            PROPERTIES.format(roles=roles, listeners=listeners, folder=folder, quorum=quorum)
        )
        command = ["format", "-t", CLUSTER, "-c", str(path), *words]
        try:
            if name == "kafka":
                told = apache.ask(TOOL, *command)
            else:
                assert main(["storage", *command]) == 0
                told = capsys.readouterr().out
        except apache.Unavailable as reason:
            pytest.skip(f"Apache Kafka cannot run here: {reason}")
        lines = [line for line in told.splitlines() if line.startswith("Formatting")]
        said.append([line.replace(str(folder), "") for line in lines])
    assert sorted(said[0]) == sorted(said[1]) != []
    theirs, ours = (
        {str(one.relative_to(tmp_path / name)) for one in (tmp_path / name).rglob("*")}
        for name in ("kafka", "ours")
    )
    assert theirs == ours
    for one in sorted(theirs):
        if one.endswith(".checkpoint"):
            assert plain(tmp_path / "kafka" / one) == plain(tmp_path / "ours" / one), one
        elif one.endswith("meta.properties"):
            keys = [
                {line.partition("=")[0] for line in (tmp_path / name / one).read_text().split("\n")
                 if not line.startswith("#")} for name in ("kafka", "ours")
            ]  # fmt: skip
            assert keys[0] == keys[1]


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_same_levels(release: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        theirs = apache.ask(TOOL, "version-mapping", "-r", release)
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")
    assert main(["storage", "version-mapping", "-r", release]) == 0
    ours = capsys.readouterr().out.split("\n")
    assert sorted(theirs.strip().split("\n")) == sorted(filter(None, ours))


@pytest.mark.parametrize("dynamic", [False, True], ids=["voters", "standalone"])
def test_kafka_starts_our_directory(dynamic: bool, memory: Path) -> None:
    """Apache Kafka, broker and controller in one, serves a directory that we have formatted."""
    home = memory / f"formatted-{dynamic}"
    home.mkdir()
    try:
        broker = apache.Broker(home / "data")
        path = home / "server.properties"
        if dynamic:
            text = path.read_text()
            path.write_text(text.replace("quorum.voters=1@", "quorum.bootstrap.servers="))
        words = ["--standalone"] if dynamic else []
        assert main(["storage", "format", "-t", CLUSTER, "-c", str(path), *words]) == 0
        with broker, kafkalog.Admin(broker.bootstrap_servers) as admin:
            assert admin.describe_cluster().cluster_id == CLUSTER
            admin.create_topic("orders")
            levels = {one.name: one.level for one in admin.describe_features().features}
            assert levels["metadata.version"] == 33
            assert levels.get("kraft.version", 0) == dynamic
            assert [one.node for one in admin.describe_quorum().voters] == [1]
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")
    assert main(["storage", "info", "-c", str(path)]) == 0
    assert (home / "data" / f"{METADATA_TOPIC}-0" / "quorum-state").exists()
