# SPDX-License-Identifier: Apache-2.0
"""What the documentation says of clusters that no test can run: the commands are those that are built, and each setting
is one that Spark knows.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from airflow_provider_lakecommit.exceptions import SpecError
from tests.unit.hooks.test_spark import command

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "spark.rst"
TEXT = PAGE.read_text().partition(".. _spark-connect:")[0]
"""The part about spark-submit."""
JARS = ("core", "yarn", "kubernetes")
"""Of Spark, in which a cluster's settings are declared."""


def examples() -> list[dict[str, Any]]:
    """The blocks of JSON of the page."""
    blocks = re.findall(r"^\.\. code-block:: json\n(?:   :.*\n)*\n((?:   .*\n|\n)+)", TEXT, re.MULTILINE)
    return [json.loads(block) for block in blocks]


def test_the_page_has_an_example_for_each_kind_of_cluster() -> None:
    assert [e["connection"]["host"].partition(":")[0] for e in examples()] == ["yarn", "k8s"]


@pytest.mark.parametrize("number", [0, 1], ids=["yarn", "kubernetes"])
def test_a_command_of_the_page_is_what_is_run(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    example = examples()[number]
    stated = {key: value for key, value in example["connection"].items() if key != "conn_type"}
    arguments = command(monkeypatch, conf=example["spark_conf"], **stated)
    arguments[arguments.index("main.py")] = "/somewhere/spark/main.py"
    place = 0
    for piece in " ".join(example["command"]).split(" … "):
        # What is left out between two pieces stands for any words, and within a word for a folder.
        wanted = re.compile(r"(?<!\S)" + re.escape(piece).replace("…", r"\S*") + r"(?!\S)")
        found = wanted.search(" ".join(arguments), place)
        assert found, f"{piece!r} is not in, or not in that order: {arguments}"
        place = found.end()
    assert place == len(" ".join(arguments))


def test_without_the_library_that_the_hook_needs_kubernetes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(spark_submit, "kube_client", raising=False)
    with pytest.raises(SpecError, match="LC5313"):
        command(monkeypatch, host="k8s://https://kubernetes.default.svc:443")


def test_spark_knows_each_setting_that_the_page_names() -> None:
    named = set(re.findall(r"\bspark(?:\.[a-zA-Z0-9_]+){2,}|\bspark\.archives\b", TEXT))
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
