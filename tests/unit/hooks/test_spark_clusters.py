# SPDX-License-Identifier: Apache-2.0
"""What the documentation says of clusters that no test can run: the commands are those that are built, and each setting
is one that Spark knows.
"""

from __future__ import annotations

import json
import re
import runpy
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk import DAG

from airflow_provider_lakecommit.exceptions import SpecError
from tests.unit.hooks.test_spark import command

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "guides" / "spark.rst"
DAGS = DOCS / "examples" / "spark_clusters_dag.py"
TEXT = PAGE.read_text().partition(".. _spark-connect:")[0]
"""The part about spark-submit."""
JARS = ("core", "yarn", "kubernetes")
"""Of Spark, in which a cluster's settings are declared."""


def written_confs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The Spark settings of the DAGs of the page, as their write tasks render them in a pod."""
    monkeypatch.setenv("POD_NAME", "orders-write-1")
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    dags = [d for d in runpy.run_path(str(DAGS)).values() if isinstance(d, DAG)]
    confs = [(dag.get_template_env(), dag.get_task("land.write").partial_kwargs["spark_conf"]) for dag in dags]
    return [{name: env.from_string(text).render() for name, text in conf.items()} for env, conf in confs]


def examples(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Of each cluster of the page: its connection, the settings of its DAG, and the command."""
    stated = re.findall(r"AIRFLOW_CONN_SPARK_\w+='(\{.*?\})'", TEXT, re.DOTALL)
    commands = re.findall(r"^   (spark-submit --master (?:yarn|k8s).*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
    found = zip(stated, written_confs(monkeypatch), commands, strict=True)
    return [{"connection": json.loads(c), "spark_conf": conf, "command": text.split()} for c, conf, text in found]


def test_the_page_has_an_example_for_each_kind_of_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [e["connection"]["host"].partition(":")[0] for e in examples(monkeypatch)] == ["yarn", "k8s"]


def test_executors_on_kubernetes_reach_the_pod_of_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = examples(monkeypatch)[1]["spark_conf"]
    assert conf["spark.kubernetes.driver.pod.name"] == "orders-write-1"
    assert conf["spark.driver.host"] == "10.1.2.3"


@pytest.mark.parametrize("number", [0, 1], ids=["yarn", "kubernetes"])
def test_a_command_of_the_page_is_what_is_run(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    example = examples(monkeypatch)[number]
    stated = {key: value for key, value in example["connection"].items() if key != "conn_type"}
    arguments = command(monkeypatch, conf=example["spark_conf"], **stated)
    arguments[arguments.index("main.py")] = "/somewhere/spark/main.py"
    place = 0
    for piece in " ".join(example["command"]).split(" … "):
        # What is left out between two pieces replaces any words, and within a word for a folder.
        pattern = re.compile(r"(?<!\S)" + re.escape(piece).replace("…", r"\S*") + r"(?!\S)")
        found = pattern.search(" ".join(arguments), place)
        assert found, f"{piece!r} is not in, or not in that order: {arguments}"
        place = found.end()
    assert place == len(" ".join(arguments))


def test_without_the_library_that_the_hook_needs_kubernetes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(spark_submit, "kube_client", raising=False)
    with pytest.raises(SpecError, match="LC5313"):
        command(monkeypatch, host="k8s://https://kubernetes.default.svc:443")


def test_spark_knows_each_setting_that_the_page_names() -> None:
    named = set(re.findall(r"\bspark(?:\.[a-zA-Z0-9_]+){2,}|\bspark\.archives\b", TEXT + DAGS.read_text()))
    assert len(named) > 12
    classes = b"".join(_classes(name) for name in JARS)
    # Variables of the environment are named behind a prefix.
    unknown = {n for n in named if n.removesuffix(".PYSPARK_PYTHON").encode() not in classes}
    assert unknown == set()


def _classes(name: str) -> bytes:
    """Those of a jar in which settings are declared."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob(f"spark-{name}_*.jar")
    with zipfile.ZipFile(jar) as archive:
        expected = [n for n in archive.namelist() if re.search(r"(/config/\w+|/Config|/yarn/Client)\$?\.class$", n)]
        return b"".join(archive.read(n) for n in expected)
