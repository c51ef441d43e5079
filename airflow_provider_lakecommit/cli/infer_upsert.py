# SPDX-License-Identifier: Apache-2.0
"""The section `upsert` that `lakecommit infer-schema` proposes where record keys identify rows: the topic is compacted,
a sampled key has several values, or the values are change envelopes. Uncommented, it is a valid part of the spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_lakecommit.cli.infer_parts import comment, flow
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.formats import InferredColumn, SampledValues, bad_texts, is_wrapper, sample_values
from airflow_provider_lakecommit.formats.infer_values import infer
from airflow_provider_lakecommit.kafka import SourceTopics
from airflow_provider_lakecommit.landing import PAYLOAD, Landing, Upsert, wrong_columns

SECONDS = 5.0
RECORD_KEY = "record_key"
"""The proposed column of a key that equals no field of the value."""
Fields = Mapping[str, Any]
"""The columns that a key fills, with their types."""


def is_compacted(kafka: Mapping[str, Any], topics: Sequence[str]) -> bool:
    """Return True if the brokers report that they compact one of the topics."""
    with suppress(LakecommitError), SourceTopics(kafka, tuple(topics)) as source:
        return any(retention.compacted for retention in source.retentions(SECONDS).values())
    return False


def proposed(
    landing: Landing,
    columns: Iterable[InferredColumn],
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    compacted: bool,
    registered: tuple[str, Fields] | None = None,
) -> tuple[list[str], list[str]]:
    """Return the lines about record keys, and those of the columns that the table lacks for them.

    :param registered: the format of the keys and their fields, by their registered schema
    """
    keyed = [(key, value) for key, value in records if key]
    if landing.upsert.key or not keyed:
        return [], []
    if not (why := _why(landing, keyed, compacted=compacted)):
        return [comment("record keys are in no column: `columns.key` fills columns from them")], []
    typed = {c.name: c.type for c in columns if c.type is not None}
    section, fields = _filled_from(keyed, typed, registered)
    filled: dict[str, Any] = {"columns": {"key": section}} if landing.transform.unwrap is None else {}
    sections: dict[str, Any] = {"upsert": {"key": [*fields]}, **filled}
    if wrong := next(_wrong(landing, sections, fields, typed), None):
        return [comment(f"{why}, but `upsert` cannot use them: {wrong}")], []
    hint = f"{why}: uncomment this to keep one row per key, the newest, instead of one row per record"
    return (
        [comment(hint), *(f"# {name}: {flow(values)}" for name, values in sections.items())],
        [
            f"# - {flow({'name': name, 'type': kind})}  # for `upsert`"
            for name, kind in fields.items()
            if name not in typed
        ],
    )


def _why(landing: Landing, keyed: Sequence[tuple[bytes, bytes | None]], *, compacted: bool) -> str:
    if landing.transform.unwrap is not None:
        return "the records are changes of rows, which their keys identify"
    if compacted:
        return "the topic is compacted, so record keys identify rows"
    values = dict[bytes, set[bytes | None]]()
    for key, value in keyed:
        values.setdefault(key, set()).add(value)
    repeated = sum(len(each) > 1 for each in values.values())
    return f"{repeated} of {len(values)} sampled record keys have several values" if repeated else ""


def _filled_from(
    keyed: Sequence[tuple[bytes, bytes | None]], typed: Fields, registered: tuple[str, Fields] | None
) -> tuple[dict[str, Any], Fields]:
    """Return the section `columns.key`, and the columns that it fills."""
    keys = [(str(n), key) for n, (key, _) in enumerate(keyed)]
    found = sample_values(keys)
    if registered is not None:
        form, fields = registered
        return {"columns": [*fields], "format": form}, fields
    if not found.refused:
        root = found.root.fields[PAYLOAD] if is_wrapper(found.root.fields) else found.root
        fields = {c.name: c.type for c in infer(SampledValues(root=root)) if c.type is not None}
        return {"columns": [*fields], "format": "json"}, fields
    if bad_texts([key for _, key in keys]):
        return {"column": RECORD_KEY, "format": "raw"}, {RECORD_KEY: "binary"}
    name = next((name for name in typed if all(_same(key, value, name) for key, value in keyed)), RECORD_KEY)
    kind = typed.get(name, "string")
    return {"column": name, "format": "json" if kind == "long" else "string"}, {name: kind}


def _same(key: bytes, value: bytes | None, name: str) -> bool:
    """Return True if the record has its key in this field, or is a tombstone."""
    found = sample_values([("", value)]).root.fields.get(name)
    return not value or (found is not None and key.decode() in (*found.texts, str(found.numbers.high)))


def _wrong(landing: Landing, sections: Mapping[str, Any], fields: Fields, typed: Fields) -> Iterator[str]:
    """Yield why these columns of the key cannot identify the rows of the landing."""
    for name, kind in fields.items():
        if typed.get(name, kind) != kind:
            yield f"{name} is {typed[name]} in the value, and {kind} in the key"
        if landing.transform.unwrap is not None and name not in typed:
            yield f"the rows have no column {name}"
    yield from wrong_columns(Upsert(key=tuple(fields)), {name: str(kind) for name, kind in fields.items()})
    try:
        landing.changed(**sections)
    except SpecError as e:
        yield str(e)
