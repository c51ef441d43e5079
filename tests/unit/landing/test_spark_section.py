# SPDX-License-Identifier: Apache-2.0
"""The section `spark` of a spec: every mistake is reported, together, and before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import load_spec
from airflow_provider_lakecommit.landing.connected import wrong_with_spark


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn"),
        *("spark://h:7077,h2:7077", "k8s://https://h:6443", "k8s://h:6443"),
    ],
)
def test_masters_that_spark_takes_are_taken(master: str) -> None:
    assert wrong_with_spark({"master": master, "conf": {"spark.executor.cores": 2}}) == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"mster": "local"}, "unknown key 'mster' (did you mean 'master'?)"),
        ({"master": "local2"}, "`master` 'local2' is not one of local, local[4]"),
        ({"master": "local[2"}, "`master` 'local[2' is not one of"),
        ({"master": "spark//h:7077"}, "`master` 'spark//h:7077' is not one of"),
        ({"master": ""}, "`master` '' is not one of"),
        ({"remote": "localhost:15002"}, "`remote` 'localhost:15002' is not the address of a Spark Connect server"),
        ({"conf": "a=b"}, "`conf` must be a mapping"),
        ({"remote": "sc://h", "master": "local"}, "give either `master` or `remote`"),
        ({"remote": "sc://h", "conf": {"a": 1}}, "remove `conf`: the server of `remote`"),
    ],
    ids=str,
)
def test_a_mistake_is_named_with_what_is_allowed(section: dict[str, object], message: str) -> None:
    (text,) = wrong_with_spark(section)
    assert text.startswith("section 'spark': ")
    assert message in text


SPEC = "name: a\ntopics: a\ntable: n.a\nkafka: {bootstrap.servers: h}\ncatalog: {}\n"


def test_a_spec_is_refused_by_whoever_reads_it_with_all_its_mistakes(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC + "window: {groups: 0}\nspark: {mster: local, remote: h}\n")
    with pytest.raises(SpecError) as refused:
        load_spec(spec)
    for mistake in ("did you mean 'master'", "`remote` 'h'", "window.groups: 0 is not a whole number"):
        assert mistake in str(refused.value)


def test_spark_from_elsewhere_needs_no_section(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC + "spark: {master: local2}\n")
    assert load_spec(spec, elsewhere=("spark",)).spark == {"master": "local2"}
