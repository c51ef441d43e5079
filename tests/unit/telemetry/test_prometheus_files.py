# SPDX-License-Identifier: Apache-2.0
"""The board, the alert rules and the mapping that are shipped name what is sent, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import airflow_provider_lakecommit
from airflow_provider_lakecommit.telemetry.metrics import METRICS, Sample, name_without_tags, prometheus_name

FOLDER = Path(airflow_provider_lakecommit.__file__).parent / "telemetry" / "prometheus"
SENT = {prometheus_name(m): m for m in METRICS}
NAME = re.compile(r"\bairflow_lakecommit_\w+")


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    return found


def targets() -> Iterator[tuple[str, str]]:
    """Expressions with the labels that their legends show."""
    for panel in panels():
        yield from ((t["expr"], t["legendFormat"]) for t in panel["targets"])


def labels_of(expression: str) -> set[str]:
    inside = " ".join(re.findall(r"\{([^}]*)\}", expression))
    by = ",".join(re.findall(r"\bby \(([^)]*)\)", expression))
    return {*re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside), *re.findall(r"\w+", by)}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_queries_what_is_sent_and_states_what_to_do(rule: dict[str, Any]) -> None:
    names = set(NAME.findall(rule["expr"]))
    assert names
    assert names <= set(SENT)
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    for name in names:
        assert labels_of(rule["expr"]) | shown <= set(SENT[name].tags)
    assert rule["annotations"]["description"]
    assert rule["labels"]["severity"] in ("page", "ticket")


@pytest.mark.parametrize(("expression", "legend"), list(targets()))
def test_a_panel_queries_what_is_sent(expression: str, legend: str) -> None:
    [name] = set(NAME.findall(expression))
    assert name in SENT
    assert labels_of(expression) | set(re.findall(r"\{\{(\w+)\}\}", legend)) <= set(SENT[name].tags)


def test_the_board_shows_every_metric_and_its_panels_do_not_overlap() -> None:
    assert {name for expression, _ in targets() for name in NAME.findall(expression)} == set(SENT)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels()]
    assert len(set(places)) == len(places) == len({p["id"] for p in panels()})
    variables = json.loads((FOLDER / "grafana.json").read_text())["templating"]["list"]
    [query] = [v["query"] for v in variables if v["name"] == "landing"]
    name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
    assert label in SENT[name].tags


def test_the_mapping_makes_of_each_name_without_tags_the_one_with_labels() -> None:
    rules = yaml.safe_load((FOLDER / "statsd_mapping.yaml").read_text())["mappings"]
    for m in METRICS:
        wire = "airflow." + name_without_tags(Sample(m, 1, tuple(f"a {tag}.x" for tag in m.tags)))
        fitting = []
        for rule in rules:
            pattern = re.escape(rule["match"]).replace(r"\*", "([^.]*)")
            if found := re.fullmatch(pattern, wire):
                filled = {k: found.group(int(v.removeprefix("$"))) for k, v in rule["labels"].items()}
                fitting.append((rule["name"], filled))
        assert fitting == [(prometheus_name(m), {tag: f"a_{tag}__x" for tag in m.tags})]
    assert len(rules) == len(METRICS)
