"""`kafkalog simulate`."""

from __future__ import annotations

from tests.unit.cli.conftest import Command


def test_the_command(kafkalog: Command) -> None:
    ran = kafkalog("simulate", "--seed", 1, "--seeds", 2, "--events", 500, "--json")
    assert ran.status == 0 and ran.out.count('"failure":""') == 2
    assert "2 seeds from 1" in ran.err and "none failed" in ran.err
    mistaken = kafkalog("simulate", "--seed", 0, "--seeds", 1, "--mutant", "ack-at-append")
    assert mistaken.status == 1 and mistaken.out.startswith("seed 0: acknowledged:")
    assert "grown-too-late" in kafkalog("simulate", "--mutant", "list").out
    assert kafkalog("simulate", "--mutant", "none").status == 2
    assert kafkalog("simulate", "--nodes", 1).status == 2


def test_a_quorum(kafkalog: Command) -> None:
    ran = kafkalog("simulate", "--quorum", "--seed", 1, "--seeds", 2, "--events", 500, "--json")
    assert ran.status == 0 and ran.out.count('"failure":""') == 2
    mistaken = kafkalog(
        "simulate", "--quorum", "--seed", 0, "--seeds", 3, "--mutant", "half-elects"
    )
    assert mistaken.status == 1 and "seed" in mistaken.out
    assert "votes-twice" in kafkalog("simulate", "--quorum", "--mutant", "list").out
    assert kafkalog("simulate", "--quorum", "--mutant", "ack-at-append").status == 2


def test_controllers_over_a_quorum(kafkalog: Command) -> None:
    given = ("simulate", "--quorum", "--controllers", "--seeds", 1, "--events")
    ran = kafkalog(*given, 500, "--seed", 1)
    assert ran.status == 0, ran.err
    mistaken = kafkalog(*given, 1_500, "--seed", 2, "--mutant", "no-sessions")
    assert mistaken.status == 1 and "led:" in mistaken.out
    listed = kafkalog("simulate", "--quorum", "--controllers", "--mutant", "list")
    assert "stays-active" in listed.out
    assert kafkalog("simulate", "--controllers").status == 2
