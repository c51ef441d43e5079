# SPDX-License-Identifier: Apache-2.0
"""Variables of the environment in YAML files: resolved in place, missed by name, never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.cli import main as face
from airflow_provider_lakecommit.cli.adopt import catalog_of, connect_of
from airflow_provider_lakecommit.cli.control_log import source_of
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing, load_spec
from airflow_provider_lakecommit.landing.yaml_file import Variables

SPEC = """
name: orders
topics: ["${STAGE}-orders", plain]
table: ${STAGE}.orders
window:
  groups: ${GROUPS}
  completion_timeout: ${TIMEOUT}
dead_letters: {max_ratio: "${RATIO}"}
columns: {metadata: "${COLUMNS}"}
kafka: {bootstrap.servers: "${BROKERS}", sasl.password: "${KAFKA_PASSWORD}"}
catalog: {type: sql, uri: "postgresql://lake:${PG}@db/lake"}
"""
VALUES = {
    "STAGE": "dev",
    "GROUPS": "3",
    "RATIO": "0.5",
    "COLUMNS": "true",
    "TIMEOUT": "90",
    "BROKERS": "127.0.0.1:1",
    "KAFKA_PASSWORD": "hunter-one",
    "PG": "hunter-two",
}


@pytest.fixture
def spec_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "orders.yaml"
    path.write_text(SPEC)
    return path


def test_references_are_resolved_wherever_they_are(spec_file: Path) -> None:
    found = load_spec(spec_file)
    landing = found.landing
    assert landing.topic_names == ("dev-orders", "plain")
    assert (landing.table, landing.window.groups, landing.dead_letters.max_ratio) == ("dev.orders", 3, 0.5)
    assert landing.columns.metadata is True
    assert landing.window.completion_timeout.total_seconds() == 90
    assert found.kafka == {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hunter-one"}
    assert found.catalog["uri"] == "postgresql://lake:hunter-two@db/lake"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("$${STAGE}", "${STAGE}"),
        ("$$${STAGE}", "$${STAGE}"),
        ("a$b $ {c} $", "a$b $ {c} $"),
        ("${STAGE}${STAGE}", "devdev"),
        ("$${${STAGE}", "${dev"),
    ],
)
def test_a_plain_dollar_is_one(text: str, means: str) -> None:
    variables = Variables(values=VALUES)
    assert variables.filled(text) == means
    assert variables.wrong == []


def test_a_value_is_not_checked_again() -> None:
    variables = Variables(values={"A": "${B}", "B": "b"})
    assert variables.filled("${A}") == "${B}"


def test_keys_and_what_is_no_text_stay_as_they_are() -> None:
    variables = Variables(values={"A": "a"})
    assert variables.filled({"${A}": [1, None, True, "${A}"]}) == {"${A}": [1, None, True, "a"]}


@pytest.mark.parametrize(
    "text", ["${}", "${1X}", "${A-B}", "${A:-fallback}", "${ A }", "${file:/etc/key}", "${A", "x ${", "${" + "A" * 999]
)
def test_what_is_no_reference_is_refused_and_reports_how_a_plain_one_is_written(text: str) -> None:
    variables = Variables(values={"A": "value-of-a"})
    variables.filled({"catalog": {"x": [text]}})
    (wrong,) = variables.wrong
    assert wrong.startswith("catalog.x[0]: ")
    assert "`$${`" in wrong
    assert "value-of-a" not in wrong
    assert len(wrong) < 200


def test_variables_that_are_not_set_are_all_named_with_their_positions(
    spec_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("STAGE", "PG"):
        monkeypatch.delenv(name)
    with pytest.raises(SpecError) as refused:
        load_spec(spec_file)
    text = str(refused.value)
    assert "topics[0]: the environment has no variable STAGE" in text
    assert "table: the environment has no variable STAGE" in text
    assert "catalog.uri: the environment has no variable PG" in text
    assert "is not a" not in text, "what else is wrong with a field is not known before it is whole"
    assert face.main(["status", str(spec_file)]) == 2
    assert "hunter" not in text + "".join(capsys.readouterr())


def test_an_empty_variable_is_a_value_and_is_evaluated_as_one(spec_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGE", "")
    with pytest.raises(SpecError, match="LC1101"):
        load_spec(spec_file)


def test_a_landing_in_a_dag_needs_no_variable_of_the_sections(spec_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROKERS", "KAFKA_PASSWORD", "PG"):
        monkeypatch.delenv(name)
    assert Landing.from_yaml(spec_file).table == "dev.orders"


def test_a_section_that_is_had_from_elsewhere_needs_none(spec_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PG")
    assert load_spec(spec_file, elsewhere=("catalog",)).kafka["sasl.password"] == "hunter-one"
    monkeypatch.delenv("BROKERS")
    assert load_spec(spec_file, elsewhere=("catalog", "kafka")).landing.name == "orders"


def test_a_secret_in_the_wrong_place_is_not_printed(spec_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec_file.write_text(SPEC.replace("${GROUPS}", "${KAFKA_PASSWORD}"))
    with pytest.raises(SpecError, match="LC1103") as refused:
        load_spec(spec_file)
    assert "hunter" not in str(refused.value)


def test_what_a_secret_variable_holds_is_known_to_the_output(spec_file: Path) -> None:
    spec_file.write_text(SPEC.replace("catalog: {", 'catalog: {plain.key: "${KAFKA_PASSWORD}", '))
    assert "hunter-one" in load_spec(spec_file).variables.values()


def test_signing_keys_are_referred_to_as_before(spec_file: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 40)
    text = SPEC.replace("kafka: {", f'kafka: {{lakecommit.signing.key: "${{file:{key}}}", ')
    spec_file.write_text(text)
    assert load_spec(spec_file).kafka["lakecommit.signing.key"] == "k" * 40


def test_the_other_files_of_the_command_line_take_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "https://there")
    path = tmp_path / "some.yaml"
    path.write_text("url: ${PLACE}\n")
    assert source_of(None, bootstrap="x", topic="t", config_file=str(path))[0]["url"] == "https://there"
    assert catalog_of(str(path)) == {"url": "https://there"}
    assert (connect_of(str(path)) or {})["url"] == "https://there"
    monkeypatch.delenv("PLACE")
    for read in (
        lambda: source_of(None, bootstrap="x", topic="t", config_file=str(path)),
        lambda: catalog_of(str(path)),
        lambda: connect_of(str(path)),
    ):
        with pytest.raises(SpecError, match="LC1219"):
            read()
