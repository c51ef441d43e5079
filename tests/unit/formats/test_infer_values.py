# SPDX-License-Identifier: Apache-2.0
"""Schemas from samples: never narrower than what was seen, and checked against the landing's own decoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.cli.infer_output import to_yaml
from airflow_provider_lakecommit.cli.infer_schema import Inferred, Question, rejected
from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.infer_values import InferredColumn, infer
from airflow_provider_lakecommit.formats.sampled import sample_values
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.landing import Landing
from tests.support.story import STEADY

Sample = list[tuple[str, bytes | None]]


def sample(*values: Any) -> Sample:
    """Values as JSON, bytes as they are."""
    return [
        (f"t[0]@{n}", v if v is None or isinstance(v, bytes) else json.dumps(v).encode()) for n, v in enumerate(values)
    ]


def columns(*values: Any, examples: bool = False) -> dict[str, InferredColumn]:
    return {c.name: c for c in infer(sample_values(sample(*values)), examples=examples)}


def printed(taken: Sample, tmp_path: Path) -> tuple[Landing, str]:
    """The landing that is read back from what is printed."""
    found = sample_values(taken)
    inferred = infer(found)
    wrong = rejected(taken, inferred, FormatOptions(), examples=False)
    question = Question(kafka={}, topics=["my topic/1"], landing=None, catalog=None, records=len(taken), examples=False)
    shown = Inferred(question=question, found=found, columns=inferred, wrong=wrong)
    text = "\n".join(to_yaml(shown))
    path = tmp_path / "printed.yaml"
    path.write_text(text.replace('topics: "my topic/1"', "topics: t"))
    return Landing.from_yaml(path), text


NAMES = st.sampled_from(["id", "a", "b", "name", "at", "true", "x y", "ä", '"q"', "c: d", "#no"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(["2026-01-01", "2026-01-01T10:00:00Z", "12:30:00.5", "c5a1e0a0-7a3c-5f0e-9f55-1a4e0c0fd3b1"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
RECORDS = st.one_of(st.dictionaries(NAMES, VALUES, max_size=4), LEAVES)


@STEADY
@given(values=st.lists(RECORDS, min_size=1, max_size=8))
def test_what_the_printed_schema_refuses_is_what_was_reported(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    taken = sample(*values)
    inferred = infer(sample_values(taken))
    if not any(c.type is not None for c in inferred):
        return
    landing, _ = printed(taken, tmp_path_factory.mktemp("yaml"))
    schema, _, _ = create_from_spec(landing.create or {})
    decoded = JsonDecoder(schema).decode([v for _, v in taken if v is not None])
    rejects = rejected(taken, inferred, FormatOptions(), examples=False)
    assert len(decoded.rejects) == sum(n for _, n, _ in rejects)


#: Records whose fields always have one kind each: nothing contradicts anything.
ALIKE = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1), "price": st.floats(-1e9, 1e9)},
    optional={
        "note": st.none() | st.text(max_size=5),
        "tags": st.lists(st.text(max_size=3) | st.none(), max_size=3),
        "place": st.fixed_dictionaries({"x": st.booleans()}, optional={"y": st.integers(0, 9) | st.none()}),
    },
)


@STEADY
@given(values=st.lists(ALIKE, min_size=1, max_size=10))
def test_records_that_agree_are_all_taken(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    taken = sample(*values)
    landing, _ = printed(taken, tmp_path_factory.mktemp("yaml"))
    schema, _, _ = create_from_spec(landing.create or {})
    decoded = JsonDecoder(schema).decode([v for _, v in taken if v is not None])
    assert decoded.rejects == ()
    assert [row["id"] for row in decoded.table.to_pylist()] == [v["id"] for v in values]


@pytest.mark.parametrize(
    ("values", "kind", "note"),
    [
        ([1, 2], "long", ""),
        ([1, 2.5], "double", "decimal(18, 1)"),
        ([12.25, 3], "double", "decimal(18, 2)"),
        (["7.50", "-12.5"], "string", "decimal(18, 2)"),
        (["0.123456789012345678901", "1.5"], "string", "decimal(22, 21)"),
        ([2**63], "decimal(38, 0)", "exceed a long"),
        ([10**40], "double", "exceed every exact type"),
        ([True, False], "boolean", ""),
        (["x"], "string", ""),
        (["2026-01-01", "2025-12-31"], "date", "`string` takes any other text too"),
        (["2026-01-01", "soon enough"], "string", ""),
        (["2026-01-01T10:00:00Z", "2026-01-01T10:00:00.5+02:00"], "timestamptz", "all 2"),
        (["2026-01-01T10:00:00"], "timestamp", "all 1"),
        (["c5a1e0a0-7a3c-5f0e-9f55-1a4e0c0fd3b1"], "uuid", "all 1"),
        (["20260101"], "string", ""),
        ([1_767_225_600], "long", '`timestamps: {"c": epoch_seconds}`'),
        ([1_767_225_600_000], "long", "epoch_millis"),
        ([1_767_225_600_000, 7], "long", ""),
        ([None], None, "null in all 1"),
        ([[]], None, "always an empty list"),
        ([{}], None, "none of its fields has a type"),
        ([[1, None]], {"list": "long"}, ""),
        ([[1], [2]] * 250, {"list": "long", "required": True}, ""),
        ([[1], [2]], {"list": "long"}, ""),
    ],
)
def test_a_type_is_never_narrower_than_what_was_observed(values: list[Any], kind: Any, note: str) -> None:
    found = columns(*({"c": v} for v in values))["c"]
    assert found.type == kind
    assert note in "; ".join(found.notes)
    assert bool(found.notes) is bool(note)


def test_required_is_only_what_was_always_there_and_never_null() -> None:
    values = ({"a": 1, "b": 1, "c": {"x": 1, "y": 1}}, {"a": 2, "b": None, "c": {"x": 1}}, {"a": 3, "c": {"x": 2}})
    found = columns(*values * 200)
    assert [found[n].required for n in "abc"] == [True, False, True]
    assert found["c"].type == {
        "struct": [{"name": "x", "type": "long", "required": True}, {"name": "y", "type": "long"}]
    }


def test_records_that_contradict_each_other_are_reported_with_counts_and_positions() -> None:
    taken = sample({"c": 1}, {"c": 2}, {"c": "three"})
    (found,) = infer(sample_values(taken))
    assert found.type == "long"
    assert "2 values are of kind number; 1 of kind text are dead letters (t[0]@2)" in found.notes[0]
    ((reason, count, places),) = rejected(taken, [found], FormatOptions(), examples=False)
    assert (count, places) == (1, ["t[0]@2"])
    assert "three" not in reason


def test_values_that_are_no_rows_are_counted_and_placed(tmp_path: Path) -> None:
    taken = sample({"c": 1}, b"no json", b'{"c":1,"c":2}', b'{"c":NaN}', None, [1], b"\xff")
    found = sample_values(taken)
    assert {why: n for why, (n, _) in found.refused.items()} == {
        "is not JSON": 2,
        "has a key twice": 1,
        "has the number NaN, which is not JSON": 1,
        "is not a JSON object": 1,
    }
    _, text = printed(taken, tmp_path)
    assert "1 records without a value" in text
    assert sum(n for _, n, _ in rejected(taken, infer(found), FormatOptions(), examples=False)) == 5


def test_an_object_with_many_keys_that_differ_may_be_a_map() -> None:
    found = columns(*({"c": {f"k{n}": n}} for n in range(30)))["c"]
    assert '30 different keys in 30 objects: if it is a map, use {map: {key: string, value: "long"}}' in found.notes[0]


def test_no_value_is_printed_unless_it_is_requested(tmp_path: Path) -> None:
    values = [{"born": "1815-12-10", "name": "Ada"}, {"born": "1815-12-11", "name": 5, "odd": 1}]
    _, text = printed(sample(*values), tmp_path)
    assert not any(secret in text for secret in ("1815", "Ada"))
    assert "1815-12-10" in columns(*values, examples=True)["born"].notes[0]


def test_a_value_that_is_nested_without_end_is_refused_and_not_followed() -> None:
    found = sample_values([("t[0]@0", b'{"a":' * 100_000), ("t[0]@1", b'{"a":' * 200 + b"1" + b"}" * 200)])
    assert sum(n for n, _ in found.refused.values()) == 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Price", "its name differs from column price only in case"),
        ("", "its name is empty"),
        ("lot.name", "its name has a dot"),
        ("_pos", "Iceberg reserves that name"),
    ],
)
def test_a_name_that_other_engines_cannot_read_is_left_out(name: str, why: str) -> None:
    found = columns({"price": 1, name: 2})
    assert (found["price"].type, found[name].type) == ("long", None)
    assert found[name].notes[0].startswith(f"{name or repr(name)}: left out: {why}")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Zip", "its name differs from column zip only in case"),
        ("z.ip", "its name has a dot"),
        ("", "its name is empty"),
    ],
)
def test_a_struct_keeps_its_other_fields(name: str, why: str) -> None:
    found = columns({"home": {"zip": "1", name: "2"}}, {"home": {"zip": "1"}})["home"]
    assert found.type == {"struct": [{"name": "zip", "type": "string"}]}
    assert f"home.{name}: left out: {why}" in found.notes[0]
    inner = columns({"homes": [{"zip": "1", name: "2"}]})["homes"]
    assert inner.type == {"list": {"struct": [{"name": "zip", "type": "string"}]}}


def test_of_names_that_differ_in_case_the_more_frequent_one_is_proposed() -> None:
    values = [{"ID": 1, "home": {"ZIP": "1"}}, *({"id": 1, "home": {"zip": "1"}} for _ in range(3))]
    found = columns(*values)
    assert (found["ID"].type, found["id"].type) == (None, "long")
    assert found["home"].type == {"struct": [{"name": "zip", "type": "string"}]}
