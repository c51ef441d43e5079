# SPDX-License-Identifier: Apache-2.0
"""Which commands of the documentation are run by a test, and why the others are not.

``tests/integration/test_docs_played.py`` plays pages from top to bottom. Here is the one list of commands that are not
played, each with the reason, or with the tests that run it; none is on it that is played, or that nobody gives.
"""

from __future__ import annotations

import json
import re
import runpy
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from airflow_provider_lakecommit.hooks.connections import kafka_settings, registry_connection, stated_properties
from airflow_provider_lakecommit.landing import declares_set, load_set, load_spec
from tests.support.doc_play import Line, is_played, script
from tests.support.doc_texts import ROOT, pages

EXAMPLES = ROOT / "docs" / "examples"
SCRIPT = re.compile(r"python (?:docs/examples/)?(\w+\.py)")

NOT_PLAYED = {
    r"pip install .*|python3 -m venv .*": "what it names is looked at below; tests/unit/test_packaging.py",
    r"(\.venv/bin/)?python -m dev\.servers\.kafka (up|down).*": "the broker that all pages are played on is this one",
    r"docker run .*": "no container can be started where tests are run",
    r"mkdir -p .*": "the shell's",
    r'export AIRFLOW.*|"[a-z.]+": .*': "connections, read below",
    r"airflow standalone": "tests/airflow has the same parts, one by one",
    r"spark-(submit|sql) .*": "of Spark; dev/servers/connect.py and dev/servers/engine.py start it so",
    r"kafka-topics .*|acls=.*|\$acls .*": "Kafka's own; tests/integration/test_rights.py gives the same rights",
    r"lakecommit (status|reset blocked|doctor) --dag .*": "needs an Airflow: tests/airflow/test_decide.py",
    r"uv (venv|pip install) .*|tar -czf .*": "tests/cluster runs jobs with what they make",
    r"lakecommit connect rescue --connector .*": "needs a sink and its files: tests/integration/test_rescue.py",
    r"lakecommit connect adopt orders\.yaml .*": "needs a sink in Kafka Connect: tests/worker/test_adopt.py",
    r"lakecommit doctor orders\.yaml .*--role .*": "needs brokers with rights: tests/integration/test_rights.py",
}
ELSEWHERE = {
    "docs/concepts/ledger.rst": "a process is killed in the middle: tests/integration/test_cli_land.py",
    "docs/guides/many_topics.rst": "it is about many topics: tests/integration/test_land_set.py",
    "docs/guides/continuous.rst": "a follow does not end by itself: tests/faults/test_follow.py",
    "docs/guides/upsert.rst": "a table that was appended to: tests/integration/test_cli_upsert.py",
}
"""Pages whose commands of ``lakecommit`` are run by another test."""


def commands() -> list[tuple[Path, Line]]:
    return [(page, line) for page in pages() for line in script(page) if line.kind == "command"]


def played(page: Path, line: Line) -> bool:
    return is_played(page) and (line.text.startswith("lakecommit ") or SCRIPT.fullmatch(line.text) is not None)


def excused(line: Line) -> list[str]:
    return [pattern for pattern in NOT_PLAYED if re.fullmatch(pattern, line.text)]


def test_each_command_is_played_or_it_is_reported_why_not() -> None:
    left = [
        f"{name}: {line.text}"
        for page, line in commands()
        if not played(page, line) and not excused(line) and (name := str(page.relative_to(ROOT))) not in ELSEWHERE
    ]
    assert left == []


def test_the_list_of_what_is_not_played_is_no_longer_than_it_must_be() -> None:
    used = {pattern for page, line in commands() for pattern in excused(line)}
    assert sorted(NOT_PLAYED.keys() - used) == []
    both = [line.text for page, line in commands() if played(page, line) and excused(line)]
    assert both == []
    assert not [name for name in ELSEWHERE if is_played(ROOT / name) or not (ROOT / name).exists()]


def test_most_are_played() -> None:
    of_ours = [(page, line) for page, line in commands() if line.text.startswith("lakecommit ")]
    assert len([1 for page, line in of_ours if played(page, line)]) > 50
    assert len({page for page, line in of_ours if played(page, line)}) > 12


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_extras_that_pages_name_are_there(page: Path) -> None:
    setup = (ROOT / "setup.cfg").read_text()
    extras = set(re.findall(r"^([a-z0-9-]+) =$", setup.partition("[options.extras_require]")[2], re.MULTILINE))
    for named in re.findall(r"airflow-provider-lakecommit\[([a-z0-9,-]+)\]", page.read_text(encoding="utf-8")):
        assert set(named.split(",")) <= extras, named


def connections(page: Path) -> list[tuple[str, str]]:
    """Connections that a page states as variables of the environment."""
    return re.findall(r"(AIRFLOW_CONN_\w+)='(\{.*?\})'", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in pages() if connections(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_connections_are_as_the_package_reads_them(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in connections(page):
        fields = json.loads(text, strict=False)
        monkeypatch.setenv(name, json.dumps(fields))
        of = name.removeprefix("AIRFLOW_CONN_").lower()
        match fields["conn_type"]:
            case "kafka":
                assert kafka_settings(of)["bootstrap.servers"]
            case "iceberg":
                assert stated_properties(of).keys() >= {"uri", "warehouse"}
            case "http":
                assert registry_connection(of)["url"] == "https://registry.example.org:8081"
            case kind:
                assert kind in ("spark", "spark_connect"), text


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_specs_without_a_mistake(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{(\w+)\}", example.read_text()):
        monkeypatch.setenv(name, "stated")
    if declares_set(example):
        assert load_set(example).landing_set.name == "shop"
    else:
        # A reader may run one example after another: each table has its own landing.
        assert load_spec(example).landing.name == load_spec(example).landing.table.rpartition(".")[2]
    assert yaml.safe_load(example.read_text()).keys() >= {"kafka", "catalog", "spark"}


def test_the_quick_start_declares_what_it_is_played_with() -> None:
    readme, declared = (ROOT / "README.md").read_text(), (EXAMPLES / "orders.yaml").read_text()
    assert re.findall(r"^```yaml\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL) == [declared]


def test_a_table_is_registered_with_its_newest_metadata_file_as_a_page_reports(tmp_path: Path) -> None:
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with closing(load_catalog("lake", type="sql", **place)) as catalog:
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
        yesterday = table.metadata_location
        table.append(pa.table({"id": [1]}))
        today = table.metadata_location
        catalog.drop_table("shop.orders")
        catalog.register_table("shop.orders", yesterday)
    program = (EXAMPLES / "register_newest.py").read_text().replace("/tmp/lake", str(tmp_path))
    named = re.sub(r"00042-….metadata.json", today.rpartition("/")[2], program)
    assert named != program
    (tmp_path / "register.py").write_text(named)
    with closing(runpy.run_path(str(tmp_path / "register.py"))["catalog"]) as catalog:
        assert catalog.load_table("shop.orders").scan().to_arrow().num_rows == 1


def test_the_dag_of_the_pages_declares_what_the_spec_declares() -> None:
    landing = runpy.run_path(str(EXAMPLES / "orders_dag.py"))["orders"]
    spec = load_spec(EXAMPLES / "orders.yaml").landing
    assert landing.spec_version == spec.spec_version
    assert landing.asset == spec.asset
