# SPDX-License-Identifier: Apache-2.0
"""The declaration of a pipeline: one parser, one error text, an identity that only rows change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from airflow_provider_lakecommit.core.destinations import Role
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import DEFAULT_CONTROL_TOPIC, Landing, LandingSpec, load_spec
from airflow_provider_lakecommit.landing.options import label
from tests.support.declared import landing_of, nested

LEAST = {"name": "orders", "topics": "orders", "table": "shop.orders"}
FULL: Mapping[str, Any] = {
    **LEAST,
    "topics": ["orders", "orders.v2"],
    "timestamps": {"ts": "epoch_millis", "paid.at": "%Y-%m-%d"},
    "encodings": {"blob": "base64", "attrs.value": "hex"},
    "start": "latest",
    "unknown_fields": "dead_letter",
    "dead_letter_table": "shop.orders_dead",
    "dead_letter_max_records": 5,
    "dead_letter_max_ratio": 0.5,
    "metadata_columns": True,
    "create": {
        "schema": [{"name": "id", "type": "long"}, {"name": "ts", "type": "timestamptz"}],
        "partition_by": ["day(ts)"],
        "properties": {"a": "b"},
    },
    "route": {
        "field": "type",
        "tables": {"order": "shop.orders", "refund": "shop.refunds"},
        "other": "fail",
        "missing": "dead_letter",
        "create": {"shop.refunds": {"schema": [{"name": "id", "type": "long"}]}},
    },
    "transform": {"shop.orders": "select id from record"},
    "record_schema": [{"name": "id", "type": "long"}],
    "functions": {"cents": "acme.lake.cents"},
    "groups": 4,
    "max_records": 10,
    "max_bytes": 20,
    "slice_records": 30,
    "target_window": 60.5,
    "target_file_size": 1000,
    "group_by": "load",
    "speculation": 3.0,
    "branch": "audit",
    "checks": ["SELECT * FROM added_rows WHERE id < 0"],
    "on_spec_change": "void",
    "completion_timeout": 90.5,
    "commit_files": 100,
    "stalled_cycles": 5,
    "slow_down": True,
    "max_open_cycles": 2,
    "max_pending_slices": 40,
    "max_pending_files": None,
    "max_pending_bytes": 1000,
    "compact": False,
    "max_debt_files": 100,
    "max_debt_dead": 0.2,
    "max_debt_snapshots": 50,
    "location_providers": ["acme.lake.Folders"],
    "kafka_config_id": "k",
    "registry_conn_id": "r",
    "iceberg_conn_id": "i",
    "control_topic": "control",
    "control_events": "1.10",
}


PARTS: Mapping[str, Any] = {
    "format": "csv",
    "csv": {"columns": ["id", "ts"], "delimiter": ";", "rows": "many"},
    "key": {"columns": {"tenant": "t"}, "format": "json", "invalid": "ignore"},
    "headers": {"trace": "trace-id", "n": {"name": "n", "repeated": "first"}},
}
EVOLVE: Mapping[str, Any] = {"evolve": "widen", "on_incompatible": "stop"}
SHAPING = {"timestamps", "encodings", "unknown_fields", "dead_letter_table", "metadata_columns", "route"}
WITH_SQL = {"transform": {"shop.orders": "select id from record"}, "record_schema": [{"name": "id", "type": "long"}]}


def landing(**more: Any) -> Landing:
    return landing_of(**{**LEAST, **more})


class TestLanding:
    def test_three_values_are_enough(self) -> None:
        of = landing()
        assert of.topic_names == ("orders",)
        assert of.tables == ("shop.orders",)
        assert of.control_topic_name == DEFAULT_CONTROL_TOPIC
        assert of.group_id == "lakecommit-orders"
        assert of.budget == Budget(max_records=100_000, max_ratio=0.05)

    def test_the_data_table_comes_before_the_dead_letters(self) -> None:
        assert landing(dead_letter_table="shop.dead").tables == ("shop.orders", "shop.dead")

    def test_destinations_report_what_each_table_is_for(self) -> None:
        assert landing().destinations == {"shop.orders": Role.ROWS}
        both = landing(dead_letter_table="shop.dead").destinations
        assert both == {"shop.orders": Role.ROWS, "shop.dead": Role.DEAD_LETTERS}

    def test_each_table_of_a_route_takes_rows_and_the_stated_one_leads(self) -> None:
        tables = {"refund": "shop.refunds", "order": "shop.orders"}
        of = landing(route={"field": "type", "tables": tables, "other": "shop.rest"}, dead_letter_table="shop.dead")
        assert of.data_tables == ("shop.orders", "shop.refunds", "shop.rest")
        assert of.tables == ("shop.orders", "shop.refunds", "shop.rest", "shop.dead")

    def test_how_tables_of_a_route_are_made_changes_no_row_and_where_records_go_does(self) -> None:
        route = {"field": "type", "tables": {"order": "shop.orders"}}
        made = {**route, "create": {}}
        assert landing(route=route).spec_version == landing(route=made).spec_version
        assert landing(route=route).spec_version != landing(route={**route, "other": "fail"}).spec_version
        assert landing(route=route).decoding_hash != landing().decoding_hash

    @pytest.mark.parametrize(
        ("route", "message"),
        [
            ("type", "is not a mapping of field, by, tables"),
            ({"field": "type"}, "tables: needs a mapping"),
            ({"field": "a..b", "tables": {"x": "shop.orders"}}, "'a..b' is not the path of a field"),
            ({"field": "t", "tables": {1: "shop.orders"}}, "1 is not a text: write it in quotes"),
            ({"field": "t", "tables": {"x": "orders"}}, "'orders' is not a table name"),
            ({"field": "t", "tables": {"x": "shop.orders"}, "others": "fail"}, "did you mean 'other'"),
            ({"field": "t", "tables": {"x": "shop.orders"}, "other": "drop"}, "'drop' is not dead_letter, fail or"),
            (
                {"field": "t", "tables": {"x": "shop.orders"}, "missing": "make"},
                "'make' is not one of fail, dead_letter",
            ),
            ({"by": "name", "tables": {"x": "shop.orders"}}, "by: 'name' is not field or schema"),
            (
                {"by": "schema", "field": "t", "tables": {"x": "shop.orders"}},
                "field: remove it, the route is by schema",
            ),
            ({"by": "schema", "tables": {"x": "shop.orders"}}, "by schema needs records that name a registry schema"),
            ({"field": "t", "tables": {"x": "shop.other"}}, "`table` must be one of its tables (shop.other)"),
            (
                {"field": "t", "tables": {"x": "shop.orders", "y": "shop.dead"}},
                "the dead_letter_table cannot be a table of rows",
            ),
            (
                {"field": "t", "tables": {"x": "shop.orders"}, "create": {"shop.orders": {"schema": []}}},
                "give the schema of shop.orders in `create` of the landing",
            ),
            (
                {"field": "t", "tables": {"x": "shop.orders", "y": "shop.b"}, "create": {"shop.c": {"schema": []}}},
                "'shop.c' is not a table of the route",
            ),
            (
                {
                    "field": "t",
                    "tables": {"x": "shop.orders", "y": "shop.b"},
                    "create": {"shop.b": {"schema": [{"name": "a", "type": "lon"}]}},
                },
                "route.create: shop.b: create.schema: column a",
            ),
        ],
    )
    def test_a_wrong_route_is_reported(self, route: Any, message: str) -> None:
        with pytest.raises(SpecError, match=re.escape(message)):
            landing(route=route, dead_letter_table="shop.dead")

    def test_a_route_by_schema_is_for_records_that_name_theirs(self) -> None:
        route = {"by": "schema", "tables": {"shop.v1.Order": "shop.orders"}}
        for format in ("avro", "protobuf", "json_schema"):
            assert landing(route=route, format=format).spec_version != landing(format=format).spec_version
        with pytest.raises(SpecError, match="LC1135"):
            landing(route=route, format="avro", schema='{"type": "record", "name": "Order", "fields": []}')
        with pytest.raises(SpecError, match="LC1136"):
            landing(route=route, format="protobuf", message="shop.v1.Order")

    def test_records_of_several_rows_have_no_route(self) -> None:
        csv = {"columns": ["type", "id"], "rows": "many"}
        with pytest.raises(SpecError, match="LC1134"):
            landing(route={"field": "type", "tables": {"order": "shop.orders"}}, format="csv", csv=csv)

    def test_arguments_and_plain_values_make_the_same_landing(self) -> None:
        by_hand = landing_of(**{**FULL, "completion_timeout": timedelta(seconds=90.5)})
        assert Landing.from_flat(FULL) == Landing.from_dict(nested(**FULL)) == by_hand

    @pytest.mark.parametrize("values", [LEAST, FULL, {**LEAST, **PARTS}])
    def test_plain_values_come_back_through_json_without_defaults(self, values: Mapping[str, Any]) -> None:
        made = landing_of(**values)
        sections, flat = json.loads(json.dumps(made.to_dict())), json.loads(json.dumps(made.to_flat()))
        assert (sections, flat) == (nested(**values), dict(values))
        assert Landing.from_dict(sections) == Landing.from_flat(flat) == made

    def test_every_field_is_in_the_full_example(self) -> None:
        # It has only one that is there, and replicas are not for where slow slices are done again.
        apart = {"format", "schema", "reader_schema", "message", "replicas", "unwrap"} | set(PARTS) | set(EVOLVE)
        # No table with a route can be kept equal to its source.
        apart |= {"upsert_key", "upsert_order_by", "upsert_deletes"}
        assert set(landing().flat) - set(FULL) == apart

    def test_replicas_are_not_for_where_slow_slices_are_done_a_second_time(self) -> None:
        assert landing(replicas=2).to_dict()["window"] == {"replicas": 2}
        with pytest.raises(SpecError, match="LC1123"):
            landing_of(**{**FULL, "replicas": 2})


class TestSpecVersion:
    @pytest.mark.parametrize(
        ("keys", "version"),
        [
            ((), "2f2af84c7da20b6b"),
            (("dead_letter_table",), "ade439c2afc0c9b9"),
            (("encodings",), "47ef388216ec26ae"),
            (("metadata_columns",), "7bfc612b7308615f"),
            (("timestamps",), "e795bd9f90288890"),
            (("unknown_fields",), "a6f4347ffdbc7db8"),
            (tuple(FULL), "58b447e86d9ee74f"),
        ],
        ids=lambda value: "+".join(value) if isinstance(value, tuple) and len(value) < 2 else "",
    )
    def test_it_is_the_same_in_every_release(self, keys: tuple[str, ...], version: str) -> None:
        assert landing(**{key: FULL[key] for key in keys}).spec_version == version

    def test_the_options_of_the_format_are_the_fields_of_the_landing(self) -> None:
        options = landing(**FULL).format_options
        assert {f.name: getattr(options, f.name) for f in fields(options)} == {
            "format": "json",
            "schema": "",
            "reader_schema": "",
            "message": "",
            "csv": {},
            **{key: FULL[key] for key in ("timestamps", "encodings", "unknown_fields")},
        }

    @pytest.mark.parametrize(
        ("values", "version"),
        [
            ({"dead_letter_table": "shop.orders_dead"}, "ade439c2afc0c9b9"),
            (
                {
                    "topics": ["a", "b"],
                    "timestamps": {"ts": "epoch_millis"},
                    "unknown_fields": "dead_letter",
                    "dead_letter_table": "shop.dead",
                },
                "a847a53a9f998aa8",
            ),
            ({"metadata_columns": True, "encodings": {"raw": "base64"}, "groups": 4}, "5fcc21f574f83eab"),
        ],
    )
    def test_is_the_one_that_ledgers_hold(self, values: dict[str, Any], version: str) -> None:
        assert landing(**values).spec_version == version

    @pytest.mark.parametrize(
        ("key", "value"), [("table", "shop.others"), *((key, FULL[key]) for key in sorted(SHAPING))]
    )
    def test_what_changes_the_rows_changes_it(self, key: str, value: Any) -> None:
        assert landing(**{key: value}).spec_version != landing().spec_version

    def test_envelopes_sql_what_it_reads_and_its_functions_change_it(self) -> None:
        plain = landing(**WITH_SQL)
        others: list[dict[str, Any]] = [
            {"transform": "select id + 1 as id from record"},
            {"record_schema": [{"name": "id", "type": "int"}]},
            {"functions": {"cents": "acme.lake.cents"}},
        ]
        assert len({landing(**{**WITH_SQL, **o}).spec_version for o in others} | {plain.spec_version}) == 4
        assert landing(unwrap="debezium").spec_version != landing().spec_version
        assert len({landing(**{**WITH_SQL, **o}).decoding_hash for o in others} | {plain.decoding_hash}) == 4

    @pytest.mark.parametrize(
        "key", sorted(set(FULL) - {"name", "topics", "table", "transform", "record_schema", "functions"} - SHAPING)
    )
    def test_what_changes_no_row_does_not(self, key: str) -> None:
        assert landing(**{key: FULL[key]}).spec_version == landing().spec_version

    def test_columns_that_follow_the_records_do_not(self) -> None:
        assert landing(**EVOLVE).spec_version == landing().spec_version
        assert landing(**EVOLVE).to_dict() == nested(**LEAST, **EVOLVE)

    def test_columns_may_follow_the_records_of_each_table_or_its_sql(self) -> None:
        assert landing(**EVOLVE, route=FULL["route"]).evolve == "widen"
        assert landing(evolve="add", **WITH_SQL).evolve == "add"
        assert landing(evolve="add", **WITH_SQL, format="raw").evolve == "add", "the SQL tells what no record does"
        with pytest.raises(SpecError, match="LC1121"):
            landing(**EVOLVE, **WITH_SQL)

    def test_a_default_that_is_written_out_does_not(self) -> None:
        stated = landing(format="json", unknown_fields="ignore", timestamps={}, encodings={})
        assert stated.spec_version == landing().spec_version

    def test_the_order_of_timestamps_does_not(self) -> None:
        a, b = {"a": "iso8601", "b": "epoch_micros"}, {"b": "epoch_micros", "a": "iso8601"}
        assert landing(timestamps=a).spec_version == landing(timestamps=b).spec_version


class TestSchema:
    SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'

    def test_it_is_the_same_however_it_is_written(self, tmp_path: Path) -> None:
        (tmp_path / "r.avsc").write_text(json.dumps(json.loads(self.SCHEMA), indent=4))
        forms = (self.SCHEMA, json.loads(self.SCHEMA), json.dumps(json.loads(self.SCHEMA), indent=2))
        made = [landing(format="avro", schema=each) for each in forms]
        for n, stated in enumerate((*forms, "r.avsc")):
            spec = tmp_path / f"{n}.yaml"
            spec.write_text(yaml.safe_dump(nested(**LEAST, format="avro", schema=stated)))
            made.append(Landing.from_yaml(spec))
        assert len({each.spec_version for each in made}) == len({each.decoding.schema for each in made}) == 1
        assert landing(format="avro").spec_version not in {each.spec_version for each in made}

    def test_so_is_a_readers_and_it_changes_the_spec(self, tmp_path: Path) -> None:
        (tmp_path / "r.avsc").write_text(json.dumps(json.loads(self.SCHEMA), indent=4))
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(nested(**LEAST, format="avro", reader_schema="r.avsc")))
        made = landing(format="avro", reader_schema=json.loads(self.SCHEMA))
        assert Landing.from_yaml(tmp_path / "s.yaml") == made
        assert made.spec_version != landing(format="avro").spec_version
        assert made.decoding_hash != landing(format="avro").decoding_hash
        assert Landing.from_dict(made.to_dict()) == made

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"schema": "{"}, "schema: is not JSON"),
            ({"schema": "[1]"}, "is not the schema of a record"),
            (
                {"format": "json", "create": {"schema": "registry"}},
                "create.schema: `registry` needs a format whose records name their schema",
            ),
            ({"reader_schema": "{"}, "reader_schema: is not JSON"),
            ({"reader_schema": "[1]"}, "reader_schema: is not the schema of a record"),
            ({"reader_schema": 5}, "reader_schema: is not the schema of a record"),
            ({"format": "json", "reader_schema": SCHEMA}, "reader_schema: needs format avro"),
            ({"create": {"schema": "registry", "subject": ""}}, "create.subject: '' is not the name of a subject"),
            (
                {"create": {"schema": [{"name": "_deleted", "type": "boolean"}]}},
                "create.schema: column _deleted is a name that Iceberg reserves",
            ),
        ],
    )
    def test_what_it_cannot_be(self, values: dict[str, Any], message: str) -> None:
        with pytest.raises(SpecError, match=re.escape(message)):
            landing(**{"format": "avro", **values})

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        spec = tmp_path / "s.yaml"
        spec.write_text(yaml.safe_dump(nested(**LEAST, format="avro", schema="gone.avsc")))
        with pytest.raises(SpecError, match="LC1148"):
            Landing.from_yaml(spec)


class TestMistakes:
    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("name", "", "'' is not a name"),
            ("control_events", 1.1, "1.1 is not '1.12' or '1.10', as a text in quotes"),
            ("name", "a b", "'a b' is not a name"),
            ("name", "x" * 101, "at most 100"),
            ("name", None, "None is not a name"),
            ("topics", [], "() is not a topic name or a list"),
            ("topics", ["a", "a"], "list of different topic names"),
            ("topics", ["a", 1], "the number 1: put the name in quotes"),
            ("topics", "a/b", "'a/b' is not a topic name"),
            ("topics", "a,b", "'a,b' is not a topic name: several topics are a list, as in [a, b]"),
            ("topics", 5, "the number 5: put the name in quotes"),
            ("table", "orders", "'orders' is not a table name (namespace.table)"),
            ("table", "shop..orders", "is not a table name"),
            ("format", "xml", "'xml' is not one of json"),
            ("schema", {"type": "record"}, "schema: needs format avro"),
            ("timestamps", [1], "is not a mapping of column paths to rules"),
            ("timestamps", {1: "iso8601"}, "the number 1: put the name in quotes"),
            ("timestamps", {"ts": "millis"}, "ts: 'millis': allowed are iso8601, epoch_seconds"),
            ("encodings", ["hex"], "is not a mapping of column paths to encodings"),
            ("encodings", {"b": "base32"}, "b: 'base32': allowed are base64, base64url, hex, utf8"),
            ("start", "newest", "'newest' is not one of earliest, latest"),
            ("unknown_fields", "drop", "is not one of ignore, dead_letter"),
            ("evolve", "all", "'all' is not one of none, add, widen"),
            ("on_incompatible", "skip", "'skip' is not one of dead_letter, stop"),
            ("on_incompatible", "stop", "set `evolve` to add or widen, so that records are read before a window"),
            ("dead_letter_table", "dead", "'dead' is not a table name"),
            ("dead_letter_table", "shop.orders", "must differ from `table`"),
            ("dead_letter_max_records", -1, "is not a whole number of at least 0"),
            ("dead_letter_max_ratio", 1.1, "is not a number between 0 and 1"),
            ("dead_letter_max_ratio", True, "is not a number between 0 and 1"),
            ("dead_letter_max_ratio", float("nan"), "is not a number between 0 and 1"),
            ("metadata_columns", "yes", "'yes' is not true or false"),
            ("create", {}, "needs `schema`"),
            ("create", {"schema": [{"name": "a"}], "partition": []}, "unknown key 'partition'; allowed are schema"),
            ("groups", 0, "0 is not a whole number of at least 1"),
            ("groups", True, "True is not a whole number"),
            ("max_records", 1.5, "is not a whole number"),
            ("max_bytes", "1", "is not a whole number"),
            ("slice_records", None, "None is not a whole number"),
            ("target_window", 0, "is not a positive duration"),
            ("target_window", "soon", "'soon' is not a positive duration (30s, 5m, 1h30m or 2d"),
            ("target_file_size", 0, "0 is not a whole number of at least 1"),
            ("target_file_size", "128MB", "'128MB' is not a whole number of at least 1"),
            ("group_by", "topic", "'topic' is not one of partition, load"),
            ("replicas", 0, "0 is not an integer from 1 to 8"),
            ("speculation", 1, "1 is not a number above 1"),
            ("branch", "", "is not a name"),
            ("on_spec_change", "keep", "is not one of finish, void"),
            ("completion_timeout", 0, "is not a positive duration"),
            ("completion_timeout", float("inf"), "is not a positive duration"),
            ("completion_timeout", float("nan"), "is not a positive duration"),
            ("completion_timeout", "soon", "'soon' is not a positive duration (30s, 5m, 1h30m or 2d"),
            ("completion_timeout", "0s", "datetime.timedelta(0) is not a positive duration"),
            ("completion_timeout", "", "'' is not a positive duration"),
            ("control_topic", "a b", "'a b' is not a topic name"),
        ],
    )
    def test_a_wrong_value_is_named_with_its_key(self, key: str, value: Any, message: str) -> None:
        with pytest.raises(SpecError) as refused:
            landing(**{key: value})
        assert f"{label(key)}: " in str(refused.value)
        assert message in str(refused.value)

    @pytest.mark.parametrize("stated", ["1h30m", "90m", "1h 30m", "89m59s1000ms", 5400, 5400.0, timedelta(minutes=90)])
    def test_a_time_may_be_reported_in_many_ways(self, stated: Any) -> None:
        assert landing_of(**LEAST, completion_timeout=stated).window.completion_timeout == timedelta(minutes=90)
        assert landing(completion_timeout=stated).to_dict()["window"] == {"completion_timeout": 5400}

    def test_mistakes_in_arguments_and_in_the_table_are_reported_together(self) -> None:
        create = {
            "schema": [{"name": "id", "type": "int64"}, {"name": "ts", "type": "date"}],
            "partition_by": "day(tz)",
        }
        with pytest.raises(SpecError) as refused:
            Landing(nmae="orders", topics="orders", table="orders", create=create, max_record=5, csv={})  # type: ignore[call-arg]
        for fact in (
            "unknown key 'nmae' (did you mean 'name'?)",
            "unknown key 'csv' (it is `format: {name: …, csv: …}`)",
            "unknown key 'max_record' (did you mean `window: max_records`?)",
            "missing key 'name'",
            "table: 'orders' is not a table name",
            "create.schema: column id: 'int64' is not a type",
            "use 'long'",
            "create.partition_by: 'day(tz)': there is no column 'tz'; columns are id, ts",
        ):
            assert fact in str(refused.value)

    def test_a_partition_may_be_of_a_column_that_the_landing_fills(self) -> None:
        create = {"schema": [{"name": "id", "type": "long"}], "partition_by": ["hour(kafka_timestamp)"]}
        assert landing(create=create, metadata_columns=True).create == create
        with pytest.raises(SpecError, match="LC1174"):
            landing(create=create)

    def test_several_mistakes_are_reported_together(self) -> None:
        with pytest.raises(SpecError, match="LC1001") as refused:
            landing(table="x", groups=0, branch="")
        lines = [line.partition(":")[0] for line in str(refused.value).splitlines()[1:]]
        assert lines == ["- table", "- window.groups", "- publish.branch"]

    def test_an_unknown_key_comes_with_the_nearest_known_one(self) -> None:
        with pytest.raises(SpecError, match="LC1125"):
            landing(slice_record=5)

    def test_missing_keys_are_all_named(self) -> None:
        with pytest.raises(SpecError) as refused:
            Landing.from_dict({"name": "x"})
        assert refused.value.mistakes == ("missing key 'topics' [LC1220]", "missing key 'table' [LC1220]")


def spec(tmp_path: Path, text: str | bytes) -> LandingSpec:
    path = tmp_path / "orders.yaml"
    path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
    return load_spec(path)


class TestYaml:
    def test_a_spec_is_a_landing_and_three_sections(self, tmp_path: Path) -> None:
        found = spec(
            tmp_path,
            """
            name: orders
            topics: [orders, orders.v2]
            table: shop.orders
            timestamps: {ts: epoch_millis}
            window: {completion_timeout: 60}
            kafka: {bootstrap.servers: "127.0.0.1:9092"}
            catalog: {type: sql}
            spark: {master: "local[2]"}
            """,
        )
        assert found.landing == landing(
            topics=["orders", "orders.v2"], timestamps={"ts": "epoch_millis"}, completion_timeout=60
        )
        assert found.kafka == {"bootstrap.servers": "127.0.0.1:9092"}
        assert found.catalog == {"type": "sql"}
        assert found.spark == {"master": "local[2]"}

    def test_sections_that_are_left_out_are_empty(self, tmp_path: Path) -> None:
        found = spec(tmp_path, json.dumps({**LEAST, "kafka": {"bootstrap.servers": "x"}}))
        assert (found.catalog, found.spark) == ({}, {})

    def test_from_yaml_gives_the_landing_alone(self, tmp_path: Path) -> None:
        spec(tmp_path, json.dumps({**nested(**FULL), "kafka": {"bootstrap.servers": "x"}}))
        assert Landing.from_yaml(tmp_path / "orders.yaml") == landing_of(**FULL)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            pytest.param("a: [", "is not YAML", id="no YAML"),
            pytest.param("table: a.b\nname: x\ntable: a.c", r"line 3, column 1: key table is given twice", id="twice"),
            pytest.param("kafka: {a: 1, a: 2}", r"line 1, column 15: key a is given twice", id="twice inside"),
            pytest.param(b"\xff\xfe\x00", "is not YAML", id="no text"),
            pytest.param("- a", "expected a mapping of keys to values, as in `name: orders`; found list", id="a list"),
            pytest.param("", "as in `name: orders`; the file is empty", id="empty"),
            pytest.param("1: a", "as the number 1: put the name in quotes", id="a key that is no text"),
            pytest.param("name: a", "section 'kafka' lacks 'bootstrap.servers'", id="no broker"),
            pytest.param(
                "kafka: {bootstrap_servers: b}",
                "lacks 'bootstrap.servers', it has 'bootstrap_servers'",
                id="another broker",
            ),
            pytest.param("kafka: [a]", "section 'kafka' must be a mapping", id="a section that is a list"),
            pytest.param(
                "kafka: {bootstrap.servers: x}\ncatalogue: {}",
                "unknown key 'catalogue' (did you mean 'catalog'?)",
                id="a section mistyped",
            ),
            pytest.param("kafka: {bootstrap.servers: x}\nname: a", "missing key 'topics'", id="keys left out"),
        ],
    )
    def test_a_mistake_is_named(self, tmp_path: Path, text: str | bytes, message: str) -> None:
        with pytest.raises(SpecError) as refused:
            spec(tmp_path, text)
        assert message in str(refused.value)

    def test_all_mistakes_are_named_together(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError) as refused:
            spec(
                tmp_path,
                """
                name: orders
                topics: []
                window: {start: middle}
                start: latest
                slice_record: 5
                catalogue: {}
                spark: [a]
                """,
            )
        assert str(refused.value).splitlines() == [
            f"spec {tmp_path / 'orders.yaml'} has 8 mistakes [LC1001]",
            "- section 'spark' must be a mapping [LC1126]",
            "- section 'kafka' lacks 'bootstrap.servers' [LC1221]",
            "- unknown key 'start' (it is `window: start`) [LC1125]",
            "- unknown key 'slice_record' (did you mean `window: slice_records`?) [LC1125]",
            "- unknown key 'catalogue' (did you mean 'catalog'?) [LC1125]",
            "- missing key 'table' [LC1220]",
            "- topics: () is not a topic name or a list of different topic names [LC1104]",
            "- window.start: 'middle' is not one of earliest, latest [LC1102]",
        ]

    def test_a_misspelt_rule_or_key_is_reported_once_with_the_nearest(self) -> None:
        with pytest.raises(SpecError) as refused:
            Landing(
                name="orders",
                topics="orders",
                table="shop.orders",
                timestamps={"ts": "epoch_milliseconds"},
                create={"schema": [{"name": "a", "typ": "long"}]},
            )
        text = str(refused.value)
        assert "or a strptime pattern (did you mean 'epoch_millis'?)" in text
        assert "unknown key 'typ'" in text
        assert "is not a type" not in text

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="LC1011"):
            load_spec(tmp_path / "missing.yaml")
