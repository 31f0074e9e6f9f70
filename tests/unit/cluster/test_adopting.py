"""A directory of a single broker is adopted by a node of a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.cluster.node.adoption import Adoption, carry_out
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.errors import CorruptLog
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper.session import Create, open_session
from tests.support.secured import ALICE
from tests.support.secured_nodes import LOGIN, SecuredNodes
from tests.support.waiting import wait_for


def test_a_damaged_meta_properties_is_named_before_anything_is_written(tmp_path: Path) -> None:
    """Neither the tree nor the directory is changed."""
    home = tmp_path / "data"
    home.mkdir()
    meta = home / "meta.properties"
    meta.write_bytes(b"version=1\n")
    step = (Create("/told", b""),)
    with StandIn() as inside, open_session(inside.hosts, lambda _: None) as session:
        with pytest.raises(CorruptLog, match=re.escape(f"{meta}: node.id: found None")):
            carry_out(str(home), Adoption(1, "cluster", (), (step,), False), session)
        assert session.commit(step).done
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert meta.read_bytes() == b"version=1\n"


@pytest.mark.long
def test_a_protected_cluster_adopts_with_the_settings_of_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without them, and with an open listener, it refuses before anything is written."""
    secured: dict[str, object] = {
        "authorizer.class.name": ACL_AUTHORIZER, "super.users": f"User:{LOGIN};User:{ALICE}",
        "default.replication.factor": 2,
    }  # fmt: skip
    with StandIn() as inside, SecuredNodes(tmp_path, inside.hosts, "SASL_SSL") as nodes:
        nodes.begin(1, 2, settings=secured)
        nodes.all_known()
        home = tmp_path / "node3"
        with (
            kafkalog.Broker(home, config={"node.id": 3}) as alone,
            kafkalog.Producer(alone.bootstrap_servers) as producer,
        ):
            for number in range(3):
                producer.send("brought", b"%d" % number).result(30)
        words = ["cluster", "adopt", "--dir", str(home), "--execute"]
        assert main([*words, "--zookeeper", inside.hosts]) == 2
        assert "no plain text at brokers 1, 2; wanted" in capsys.readouterr().err
        file = tmp_path / "server.properties"

        def write(settings: dict[str, object]) -> None:
            file.write_text("".join(
                f"{name}=" + str(value).replace("\\", "\\\\") + "\n"
                for name, value in settings.items()
            ))  # fmt: skip

        own = {**nodes.settings(3), **secured}
        write({**own, "listener.security.protocol.map": "INSIDE:SSL"})
        assert main([*words, "--config", str(file)]) == 2
        assert "listener INSIDE" in capsys.readouterr().err
        assert (home / "__cluster_metadata-0").exists()
        write(own)
        assert main([*words, "--config", str(file)]) == 0
        said = capsys.readouterr()
        assert f"--config {file}" in said.out + said.err
        nodes.begin(3, settings=secured)
        nodes.all_known()
        nodes.in_sync("brought", 3)
        with kafkalog.Admin(nodes.servers, config=nodes.client) as admin:
            admin.alter_partition_reassignments({("brought", 0): [1, 3]}).check()
        nodes.in_sync("brought", 1, 3)
        nodes.produce("brought", b"3")
        wanted = [b"%d" % number for number in range(4)]
        wait_for(lambda: nodes.values("brought") == wanted, "all are there")
