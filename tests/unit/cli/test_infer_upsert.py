# SPDX-License-Identifier: Apache-2.0
"""Record keys that identify rows are proposed as the key of an upsert, and what is proposed can be uncommented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.cli.infer_output import to_yaml
from airflow_provider_lakecommit.cli.infer_schema import Inferred, Question
from airflow_provider_lakecommit.cli.infer_upsert import proposed
from airflow_provider_lakecommit.formats.infer_values import infer
from airflow_provider_lakecommit.formats.sampled import sample_values
from airflow_provider_lakecommit.landing import Landing, wrong_columns

NEW = Landing(name="new", topics="t", table="lake.new")
ROUTED = Landing(
    name="new",
    topics="t",
    table="lake.new",
    route={"field": "kind", "tables": {"a": "lake.new", "b": "lake.b"}, "other": "dead_letter"},
)
UNWRAPPED = Landing(name="new", topics="t", table="lake.new", transform={"unwrap": "debezium"})  # type: ignore[arg-type]
UPSERTED = UNWRAPPED.changed(upsert={"key": ["id"]})


def of(key: Any) -> bytes | None:
    return key if key is None or isinstance(key, bytes) else json.dumps(key).encode()


def propose(
    keys: list[Any], values: list[Any], landing: Landing = NEW, *, compacted: bool = False, **more: Any
) -> tuple[list[str], list[str]]:
    sample = [(f"t[0]@{n}", of(value)) for n, value in enumerate(values)]
    records = [(of(key), value) for key, (_, value) in zip(keys, sample, strict=True)]
    return proposed(landing, infer(sample_values(sample)), records, compacted=compacted, **more)


def uncommented(tmp_path: Path, values: list[Any], lines: tuple[list[str], list[str]], landing: Landing) -> Landing:
    sample = [(f"t[0]@{n}", of(value)) for n, value in enumerate(values)]
    found = sample_values(sample)
    question = Question(kafka={}, topics=["t"], landing=landing, catalog=None, records=10, examples=False)
    inferred = Inferred(question=question, found=found, columns=infer(found), wrong=[])
    text = "\n".join(to_yaml(inferred, None, lines))
    path = tmp_path / "spec.yaml"
    for line in (*lines[0][1:], *lines[1]):
        text = text.replace(line, line.removeprefix("# "))
    path.write_text(text)
    return Landing.from_yaml(path)


ROWS = [{"id": n % 3, "name": f"n{n % 3}", "amount": n / 4} for n in range(6)]


@pytest.mark.parametrize(
    ("keys", "section", "key"),
    [
        ([{"id": row["id"]} for row in ROWS], {"columns": ["id"], "format": "json"}, ["id"]),
        ([{"a": row["id"], "b": "x"} for row in ROWS], {"columns": ["a", "b"], "format": "json"}, ["a", "b"]),
        ([row["id"] for row in ROWS], {"column": "id", "format": "json"}, ["id"]),
        ([row["name"].encode() for row in ROWS], {"column": "name", "format": "string"}, ["name"]),
        ([f"k{n % 2}".encode() for n in range(6)], {"column": "record_key", "format": "string"}, ["record_key"]),
        ([bytes([255, n % 2]) for n in range(6)], {"column": "record_key", "format": "raw"}, ["record_key"]),
    ],
    ids=["object", "new columns", "number", "text", "text of its own", "bytes"],
)
def test_keys_that_repeat_are_proposed_and_can_be_uncommented(
    tmp_path: Path, keys: list[Any], section: dict[str, Any], key: list[str]
) -> None:
    lines = propose(keys, ROWS)
    assert "sampled record keys have several values" in lines[0][0]
    spec = uncommented(tmp_path, ROWS, lines, NEW)
    assert spec.columns.key == section
    assert list(spec.upsert.key) == key
    types = {c["name"]: str(c["type"]) for c in (spec.create or {})["schema"]}
    assert list(wrong_columns(spec.upsert, types)) == []


def test_a_compacted_topic_and_one_with_envelopes_are_proposed_whatever_the_sample_has(tmp_path: Path) -> None:
    keys = [{"id": n} for n in range(3)]
    lines = propose(keys, [*ROWS[:2], None], compacted=True)
    assert "compacted" in lines[0][0]
    assert uncommented(tmp_path, ROWS, lines, NEW).upsert.key == ("id",)
    lines = propose(keys, ROWS[:3], UNWRAPPED)
    assert "changes of rows" in lines[0][0]
    spec = uncommented(tmp_path, ROWS, lines, UNWRAPPED)
    assert (spec.upsert.key, spec.columns.key) == (("id",), {})
    wrapped = [{"schema": {"type": "struct"}, "payload": key} for key in keys]
    assert propose(wrapped, ROWS[:3], UNWRAPPED) == lines


def test_a_registered_key_is_proposed_by_its_schema() -> None:
    framed = [b"\0\0\0\0\1" + bytes([n % 2]) for n in range(6)]
    lines, added = propose(framed, ROWS, registered=("avro", {"order": "long"}))
    assert lines[1:] == ["# upsert: {key: [order]}", "# columns: {key: {columns: [order], format: avro}}"]
    assert added == ["# - {name: order, type: long}  # for `upsert`"]


@pytest.mark.parametrize(
    ("keys", "landing", "why"),
    [
        ([{"id": n % 2 + 0.5} for n in range(6)], NEW, "id is long in the value, and double in the key"),
        ([{"at": n % 2 + 0.5} for n in range(6)], NEW, "LC1324"),
        ([{"other": n} for n in range(6)], UNWRAPPED, "the rows have no column other"),
        ([n % 2 for n in range(6)], ROUTED, "LC1328"),
    ],
)
def test_keys_that_cannot_identify_rows_are_reported_with_the_reason(
    keys: list[Any], landing: Landing, why: str
) -> None:
    (line,), added = propose(keys, ROWS, landing)
    assert why in line
    assert added == []


def test_other_topics_get_no_proposal() -> None:
    assert propose([None] * 6, ROWS, compacted=True) == ([], [])
    assert propose(list(range(6)), ROWS, UPSERTED) == ([], [])
    (line,), added = propose(list(range(6)), ROWS)
    assert "`columns.key`" in line
    assert added == []


def test_one_bad_value_in_a_hundred_does_not_decide_a_type() -> None:
    values = [
        {"at": "2026-01-01T10:00:00Z" if n % 150 else "n/a", "n": n if n % 150 else "bad", "id": n} for n in range(600)
    ]
    at, n, number = infer(sample_values([(f"t[0]@{i}", of(v)) for i, v in enumerate(values)]))
    assert (at.type, n.type, number.required) == ("timestamptz", "long", True)
    assert "596 of 600" in at.notes[0]
    assert "dead letters" in at.notes[0]
    assert "4 of kind text are dead letters" in n.notes[0]


def test_columns_of_a_small_sample_are_optional() -> None:
    small = [(f"t[0]@{i}", of({"id": i})) for i in range(499)]
    assert not infer(sample_values(small))[0].required
    assert infer(sample_values([*small, ("t[0]@499", of({"id": 1}))]))[0].required
