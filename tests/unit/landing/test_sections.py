# SPDX-License-Identifier: Apache-2.0
"""The sections of a landing: how many fields there are, what is recorded, and the answer to a misplaced key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.cycle.sets.expansion import options_of
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Connections, Format, Landing, LandingSet, Transform, Window, load_spec
from airflow_provider_lakecommit.landing.checks import CHECKS
from airflow_provider_lakecommit.landing.options import SECTION_KEYS, SECTIONS, TOP, from_flat, merged, to_flat

LEAST: dict[str, Any] = {"name": "orders", "topics": "orders", "table": "shop.orders"}
COLUMNS = [{"name": "id", "type": "long"}]
AVRO = {"type": "record", "name": "Order", "fields": []}
RECORDED: Mapping[str, Mapping[str, Any]] = {
    "least": LEAST,
    "reading": {
        **LEAST,
        "topics": ["orders", "orders.v2"],
        "timestamps": {"ts": "epoch_millis"},
        "encodings": {"blob": "base64"},
        "unknown_fields": "dead_letter",
        "dead_letter_table": "shop.orders_dead",
        "metadata_columns": True,
        "headers": {"trace": "trace-id"},
        "key": {"column": "k"},
    },
    "csv": {**LEAST, "format": "csv", "csv": {"columns": ["id", "ts"], "delimiter": ";"}},
    "avro": {
        **LEAST,
        "format": "avro",
        "schema": AVRO,
        "reader_schema": AVRO,
        "evolve": "widen",
        "on_incompatible": "stop",
    },
    "protobuf": {**LEAST, "format": "protobuf", "message": "shop.v1.Order", "unwrap": None},
    "changes": {**LEAST, "unwrap": {"envelope": "debezium", "columns": {"_op": "op"}}},
    "sql": {
        **LEAST,
        "transform": "select id from record",
        "record_schema": COLUMNS,
        "functions": {"cents": "acme.lake.cents"},
    },
    "route": {
        **LEAST,
        "route": {
            "field": "type",
            "tables": {"order": "shop.orders", "refund": "shop.refunds"},
            "other": "fail",
            "create": {"shop.refunds": {"schema": COLUMNS}},
        },
        "transform": {"shop.orders": "select id from record"},
        "record_schema": COLUMNS,
    },
    "running": {
        **LEAST,
        "start": "latest",
        "dead_letter_max_records": 5,
        "dead_letter_max_ratio": 0.5,
        "groups": 4,
        "max_records": 10,
        "max_bytes": 20,
        "slice_records": 30,
        "target_window": "1m",
        "target_file_size": 1000,
        "group_by": "load",
        "speculation": 3.0,
        "branch": "audit",
        "on_spec_change": "void",
        "completion_timeout": "1h30m",
        "commit_files": 100,
        "stalled_cycles": 5,
        "slow_down": True,
        "max_open_cycles": 2,
        "max_pending_slices": 40,
        "max_pending_files": None,
        "max_pending_bytes": 1000,
        "location_providers": ["acme.lake.Folders"],
        "kafka_config_id": "k",
        "registry_conn_id": "r",
        "iceberg_conn_id": "i",
        "control_topic": "control",
        "control_events": "1.10",
        "create": {"schema": COLUMNS},
    },
}
BEFORE = {
    "least": ("2f2af84c7da20b6b", "44136fa355b3678a", "1afc67aa0cf5723d"),
    "reading": ("867e57cb3af0f085", "b7623e6d5747023c", "1e3fd2d5e93cd17c"),
    "csv": ("7444710a709dc1dd", "f529e375e25bf0f4", "264f56874adeffac"),
    "avro": ("00ef4c89eabd7682", "18a26c2949075949", "f2f6dc18c0e432b5"),
    "protobuf": ("37092396cb2c2b55", "db68b10f7bcd92a9", "1553600b4daa6801"),
    "changes": ("0fc0194318420006", "e79a10d43930aef8", "21afc3df6419c613"),
    "sql": ("c108d187f90f0df4", "288158562203f8c5", "ea07437ca97b00c4"),
    "route": ("efbba7d3f8c99cc7", "b591098952282909", "676fd147438146b9"),
    "running": ("2f2af84c7da20b6b", "44136fa355b3678a", "27466e09c9ab185a"),
}
"""By landing: spec version, hash of what decodes, and the beginning of the SHA-256 of the recorded JSON, as they were
when all options were flat.
"""


def refusal(**values: Any) -> str:
    with pytest.raises(SpecError) as refused:
        Landing(**{**LEAST, **values})
    return str(refused.value)


def test_a_landing_has_at_most_18_fields() -> None:
    assert len(dataclasses.fields(Landing)) <= 18
    assert {f.name for f in dataclasses.fields(Landing)} == {*TOP, *SECTIONS}


def test_every_option_has_one_recorded_name_and_one_check() -> None:
    keys = [f.name for kind in SECTIONS.values() for f in dataclasses.fields(kind)]
    assert len(SECTION_KEYS) == len(keys)
    assert set(CHECKS) == {*SECTION_KEYS, *TOP}


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_recorded_is_what_it_was_when_all_options_were_flat(name: str) -> None:
    made = Landing.from_flat(RECORDED[name])
    recorded = hashlib.sha256(json.dumps(made.to_flat()).encode()).hexdigest()[:16]
    assert (made.spec_version, made.decoding_hash, recorded) == BEFORE[name]


@pytest.mark.parametrize("values", RECORDED.values(), ids=RECORDED)
def test_names_in_sections_and_recorded_names_are_each_others_inverse(values: Mapping[str, Any]) -> None:
    assert to_flat(from_flat(values)) == values
    assert Landing.from_dict(from_flat(values)) == Landing.from_flat(values)
    assert pickle.loads(pickle.dumps(Landing.from_flat(values))) == Landing.from_flat(values)


def test_a_section_is_the_same_as_an_object_and_as_a_mapping(tmp_path: Path) -> None:
    by_hand = Landing(
        **LEAST,
        window=Window(groups=4, target=timedelta(minutes=5)),
        connections=Connections(kafka="k", location_providers=["acme.lake.Folders"]),
        format=Format(encodings={"blob": "hex"}),
    )
    spec = tmp_path / "orders.yaml"
    spec.write_text(
        "name: orders\ntopics: orders\ntable: shop.orders\nwindow:\n  groups: 4\n  target: 5m\n"
        "connections: {kafka: k, location_providers: [acme.lake.Folders]}\n"
        "format:\n  encodings: {blob: hex}\nbackpressure:\ntransform: {}\n"
    )
    assert load_spec(spec, connections=False).landing == by_hand == Landing.from_dict(by_hand.to_dict())


def test_a_variable_in_a_section_is_a_number_where_the_key_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPS", "4")
    spec = tmp_path / "orders.yaml"
    spec.write_text(
        "name: o\ntopics: o\ntable: s.o\nwindow: {groups: '${GROUPS}'}\nconnections: {kafka: '${GROUPS}'}\n"
    )
    landing = load_spec(spec, connections=False).landing
    assert (landing.window.groups, landing.connections.kafka) == (4, "4")
    spec.write_text("name: o\ntopics: o\ntable: s.o\nwindow: {groups: '${NOT_SET_HERE}'}\n")
    with pytest.raises(SpecError, match="LC1001"):
        load_spec(spec, connections=False)


@pytest.mark.parametrize("key", sorted(SECTION_KEYS.keys() - {"transform", "format"}))
def test_an_option_at_its_former_key_is_named_with_its_new_one(key: str) -> None:
    section, name = SECTION_KEYS[key]
    # `format: csv` would read as the format's name.
    place = f"`format: {{name: …, {name}: …}}`" if section == "format" else f"`{section}: {name}`"
    assert f"unknown key {key!r} (it is {place})" in refusal(**{key: 1})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gruops": 2}, "unknown key 'gruops' (did you mean `window: groups`?)"),
        ({"fromat": "csv"}, "unknown key 'fromat' (did you mean 'format'?)"),
        ({"max_ratio": 0.5}, "unknown key 'max_ratio' (it is `dead_letters: max_ratio`)"),
        ({"windw": {}}, "unknown key 'windw' (did you mean 'window'?)"),
        ({"window": {"gruops": 2}}, "window: unknown key 'gruops' (did you mean 'groups'?)"),
        ({"window": {"stalled_cycles": 2}}, "unknown key 'stalled_cycles' (it is `backpressure: stalled_cycles`)"),
        ({"window": {"target_window": "5m"}}, "window: unknown key 'target_window' (it is `window: target`)"),
        ({"window": {"format": "csv"}}, "window: unknown key 'format' (it is `format`, outside of `window`)"),
        ({"window": 5}, "window: 5 is not a mapping of start, groups, group_by, "),
        ({"transform": "select 1"}, "(the value of the option is `transform: sql`)"),
        ({"transform": {"shop.a": "select 1"}}, "'shop.a' (the value of the option is `transform: sql`)"),
        ({"window": {"groups": 0}, "zzz": 1}, "unknown key 'zzz' [LC1125]\n- window.groups: 0 is not a whole number"),
    ],
)
def test_a_wrong_key_is_named_with_what_was_meant(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


def test_a_section_refuses_a_wrong_key_by_itself() -> None:
    with pytest.raises(SpecError, match="LC1150"):
        Window(target_window="5m")  # type: ignore[call-arg]


def test_some_keys_of_a_section_are_changed() -> None:
    landing = Landing(**LEAST, window=Window(groups=4, max_records=5))
    changed = landing.changed(window={"groups": 2}, publish={"branch": "audit"})
    assert (changed.window, changed.branch) == (Window(groups=2, max_records=5), "audit")
    assert landing.changed(window=Window(groups=1)).window == Window(groups=1)
    with pytest.raises(SpecError, match="LC1103"):
        landing.changed(window={"groups": 0})


def test_sections_are_merged_key_by_key() -> None:
    assert merged({"window": {"groups": 1, "max_records": 5}, "evolve": "add"}, {"window": {"groups": 2}}) == {
        "window": {"groups": 2, "max_records": 5},
        "evolve": "add",
    }
    assert merged({"window": Window(groups=1)}, {"window": Window(max_records=5)}, {"window": None}) == {
        "window": {"groups": 1, "max_records": 5}
    }
    assert merged({"create": {"schema": []}}, {"create": {"properties": {}}}) == {"create": {"properties": {}}}


def test_an_override_of_a_set_changes_the_keys_that_it_names() -> None:
    declared = LandingSet(
        name="shop",
        topics_pattern=".*",
        table="lake.{topic}",
        defaults={"window": {"groups": 1, "max_records": 5}, "transform": Transform(unwrap="debezium")},
        overrides=[
            {"table": "lake.a.*", "window": {"groups": 2}},
            {"table": "lake.ab", "window": {"slice_records": 7}, "transform": None},
        ],
    )
    assert options_of(declared, "lake.ab") == {
        "window": {"groups": 2, "max_records": 5, "slice_records": 7},
        "transform": {"unwrap": "debezium"},
    }
    assert options_of(declared, "lake.c")["window"] == {"groups": 1, "max_records": 5}
