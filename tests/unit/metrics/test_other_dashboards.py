"""The names that well-known dashboards of Kafka ask for."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from kafkalog.metrics.metric import Kind
from kafkalog.metrics.other_dashboards import DASHBOARDS, JOB, QUANTILES, recorded
from kafkalog.metrics.table import BY_NAME
from tests.house import tree
from tests.support.promql import parse

RULES = tree.ROOT / "docs" / "deploy" / "names.yml"


def test_each_name_is_here_recorded_or_explained() -> None:
    for title, asked in DASHBOARDS:
        names = [one.name for one in asked]
        assert len(set(names)) == len(names) > 20, title
        for one in asked:
            here = one.name in BY_NAME and BY_NAME[one.name].kind is not Kind.HISTOGRAM
            assert [here, bool(one.rule), bool(one.why)].count(True) == 1, one.name
            if here:
                assert set(one.labels) <= set(BY_NAME[one.name].labels), one.name


def test_reasons_name_metrics_that_exist() -> None:
    text = " ".join(one.why for each in DASHBOARDS for one in each.asked)
    named = re.findall(r"\bkafka(?:log)?_\w+", text)
    assert len(named) > 5 and [name for name in named if name not in BY_NAME] == []


def test_each_rule_records_the_labels_that_are_asked_for() -> None:
    wanted = {one.name: set(one.labels) for each in DASHBOARDS for one in each.asked if one.rule}
    rules = list(recorded())
    assert {name for name, _, _ in rules} == set(wanted)
    assert len({(name, quantile) for name, _, quantile in rules}) == len(rules)
    for name, rule, quantile in rules:
        (one,) = parse(rule)
        metric = BY_NAME[one.name.removesuffix("_bucket")]
        assert (metric.kind is Kind.HISTOGRAM) == (quantile in QUANTILES), name
        assert ("job", "=", "kafkalog") in one.matchers and JOB in rule
        labels = one.grouped | {"quantile"} if quantile else set(metric.labels)
        assert wanted[name] <= labels, name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
def test_prometheus_takes_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
