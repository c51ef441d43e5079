# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec, sort_order_from_spec
from airflow_provider_lakecommit.landing.table import wrong_with_table


def type_of(stated: Any) -> IcebergType:
    create = {"schema": [{"name": "c", "type": stated}]}
    assert wrong_with_table(create, {}) == []
    schema, _, _ = create_from_spec(create)
    return schema.fields[0].field_type


def field(field_id: int, name: str, kind: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(field_id, name, kind, required=required)


def test_columns_partitioning_and_properties_become_a_table() -> None:
    create = {
        "schema": [
            {"name": "id", "type": "long", "required": True, "doc": "the order"},
            {"name": "ts", "type": "timestamptz"},
            {"name": "amount", "type": "decimal(12, 2)"},
        ],
        "partition_by": ["day(ts)", "bucket(16, id)"],
        "properties": {"write.target-file-size-bytes": 1000, "a": True},
    }
    assert create_from_spec(create) == (
        Schema(
            NestedField(1, "id", LongType(), required=True, doc="the order"),
            field(2, "ts", TimestamptzType()),
            field(3, "amount", DecimalType(12, 2)),
        ),
        PartitionSpec(
            PartitionField(2, 1000, DayTransform(), "ts_day"), PartitionField(1, 1001, BucketTransform(16), "id_bucket")
        ),
        {"write.target-file-size-bytes": "1000", "a": "true"},
    )


@pytest.mark.parametrize(
    ("stated", "kind"),
    [
        ("boolean", BooleanType()),
        ("date", DateType()),
        ("decimal(38,0)", DecimalType(38, 0)),
        ("decimal( 5 , 5 )", DecimalType(5, 5)),
        ("fixed[16]", FixedType(16)),
        ("fixed( 3 )", FixedType(3)),
        ("time", TimeType()),
        ("uuid", UUIDType()),
        ("timestamp_ns", TimestampNanoType()),
        (
            "map<uuid, struct<t: list<time>>>",
            MapType(
                4,
                UUIDType(),
                5,
                StructType(field(2, "t", ListType(3, TimeType(), element_required=False))),
                value_required=False,
            ),
        ),
        ("list<string>", ListType(2, StringType(), element_required=False)),
        ("map<string, long>", MapType(2, StringType(), 3, LongType(), value_required=False)),
        ("struct<a: long, b: string>", StructType(field(2, "a", LongType()), field(3, "b", StringType()))),
        (
            "struct<a: list<decimal(4, 1)>>",
            StructType(field(2, "a", ListType(3, DecimalType(4, 1), element_required=False))),
        ),
        ({"list": "long", "required": True}, ListType(2, LongType(), element_required=True)),
        (
            {"map": {"key": "string", "value": "long", "required": True}},
            MapType(2, StringType(), 3, LongType(), value_required=True),
        ),
        (
            {"struct": [{"name": "a", "type": {"list": "long"}, "required": True}]},
            StructType(field(2, "a", ListType(3, LongType(), element_required=False), required=True)),
        ),
    ],
)
def test_types_may_be_nested_as_text_or_as_mappings(stated: Any, kind: IcebergType) -> None:
    assert type_of(stated) == kind


def test_all_fields_of_nested_types_have_numbers_of_their_own() -> None:
    columns = [
        {"name": "a", "type": "struct<x: map<string, list<long>>, y: long>"},
        {"name": "b", "type": {"struct": [{"name": "x", "type": "list<long>"}, {"name": "y", "type": "long"}]}},
    ]
    schema, _, _ = create_from_spec({"schema": columns})
    assert len(schema.field_ids) == 10


@pytest.mark.parametrize(
    ("message", "transform", "name"),
    [
        ("note", IdentityTransform(), "note"),
        ("identity(note)", IdentityTransform(), "note"),
        ("identity note", IdentityTransform(), "note"),
        ("year(ts)", YearTransform(), "ts_year"),
        ("month( ts )", MonthTransform(), "ts_month"),
        ("DAY(ts)", DayTransform(), "ts_day"),
        ("hour(ts)", HourTransform(), "ts_hour"),
        ("truncate(4, note)", TruncateTransform(4), "note_trunc"),
        ("bucket(8,part.id)", BucketTransform(8), "part_id_bucket"),
    ],
)
def test_every_way_of_partitioning(message: str, transform: Transform[Any, Any], name: str) -> None:
    columns = [
        {"name": "note", "type": "string"},
        {"name": "ts", "type": "timestamptz"},
        {"name": "part", "type": "struct<id: long>"},
    ]
    create = {"schema": columns, "partition_by": [message]}
    assert wrong_with_table(create, {}) == []
    _, spec, _ = create_from_spec(create)
    assert [(f.transform, f.name) for f in spec.fields] == [(transform, name)]


LONG = {"name": "a", "type": "long"}


@pytest.mark.parametrize(
    ("create", "message"),
    [
        ({}, "create.schema: a list of columns"),
        ({"schema": []}, "a list of columns"),
        ({"schema": [LONG], "partitions": []}, "unknown key 'partitions'; allowed are schema"),
        ({"schema": ["a"]}, "entry 1 of the columns must be .* \\[LC1161"),
        ({"schema": [{"type": "long"}]}, "LC1161"),
        ({"schema": [LONG, LONG]}, "column a is given twice"),
        ({"schema": [LONG, {**LONG, "name": "A"}]}, "columns A, a differ only in case.*LC1366"),
        ({"schema": [{**LONG, "nullable": True}]}, "column a: unknown key 'nullable'"),
        ({"schema": [{**LONG, "required": "yes"}]}, "column a: required 'yes'"),
        ({"schema": [{**LONG, "doc": 1}]}, "column a: doc 1"),
        ({"schema": [{"name": "a", "type": "varchar"}]}, "column a: 'varchar' is not a type: use 'string'"),
        ({"schema": [{"name": "a"}]}, "column a: None is not a type"),
        ({"schema": [{"name": "a", "type": "decimal(39, 2)"}]}, "precision 1 to 38"),
        ({"schema": [{"name": "a", "type": "fixed[0]"}]}, "allowed are boolean"),
        ({"schema": [{"name": "a", "type": "map<string>"}]}, "',' expected, found '>'"),
        ({"schema": [{"name": "a", "type": "variant"}]}, "'variant' is not a type: JSON cannot be landed in it"),
        ({"schema": [{"name": "a", "type": "list<geometry(EPSG:1)>"}]}, "JSON has no agreed form of it"),
        ({"schema": [{"name": "a", "type": "unknown"}]}, "it holds no values"),
        ({"schema": [{"name": "a", "type": "list<" * 10_000}]}, "is not a type: it is nested too deep"),
        (
            {"schema": [{"name": "a", "type": "list<timestamp_ns>"}], "properties": {"format-version": 2}},
            r"format-version 2: column a\.element is timestamp_ns, which needs version 3",
        ),
        ({"schema": [LONG], "properties": {"format-version": "two"}}, "format-version two"),
        ({"schema": [{"name": "a", "type": "decimal(3, 4)"}]}, "a scale up to it"),
        ({"schema": [{"name": "a", "type": "list<long"}]}, "'>' expected, found the end"),
        ({"schema": [{"name": "a", "type": "long>"}]}, "'>' after the end of the type"),
        ({"schema": [{"name": "a", "type": "struct<b long>"}]}, "':' expected, found 'long'"),
        ({"schema": [{"name": "a", "type": "struct<b: long, b: long>"}]}, "'b' is the name of an earlier field too"),
        ({"schema": [{"name": "a", "type": "struct<b: long;"}]}, "'long;' is not a type|allowed are"),
        ({"schema": [{"name": "a", "type": {"array": "long"}}]}, r"allowed are \{struct"),
        ({"schema": [{"name": "a", "type": {"struct": "b"}}]}, "column a: struct needs a list"),
        ({"schema": [{"name": "a", "type": {"struct": [{"name": "b", "type": "x"}]}}]}, r"column a\.b: 'x'"),
        ({"schema": [{"name": "a", "type": {"map": {"key": "long"}}}]}, "map needs key and value"),
        ({"schema": [{"name": "a", "type": {"list": "x"}}]}, r"column a\.element"),
        ({"schema": [LONG], "partition_by": ["day(a)"]}, "column a is long; day takes date"),
        ({"schema": [LONG], "partition_by": ["b"]}, "there is no column 'b'; columns are a"),
        ({"schema": [LONG], "partition_by": ["bucket(a)"]}, "is not one of: a column, identity"),
        ({"schema": [LONG], "partition_by": ["bucket(0, a)"]}, "is not one of"),
        ({"schema": [LONG], "partition_by": ["weekly(a)"]}, "is not one of"),
        ({"schema": [LONG], "partition_by": ["a b c"]}, "is not one of"),
        ({"schema": [LONG], "partition_by": ["a", "a"]}, "'a' is given twice"),
        ({"schema": [LONG], "partition_by": [3]}, "is not a list of"),
        (
            {"schema": [LONG, {"name": "a_bucket", "type": "long"}], "partition_by": ["bucket(2, a)"]},
            "name of a column",
        ),
        ({"schema": [LONG], "properties": ["x"]}, "create.properties"),
        ({"schema": [LONG], "properties": {"x": None}}, "'x': None is not a text"),
    ],
)
def test_every_mistake_names_the_position_and_what_is_allowed(create: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        create_from_spec(create)
    # What is left to the maker of the table: values of properties, and names and numbers of partition fields.
    later = (
        "properties" in create
        or ("is given twice" in message and "partition_by" in create)
        or message == "name of a column"
    )
    assert wrong_with_table(create, {}) or later


ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST


@pytest.mark.parametrize(
    ("stated", "order"),
    [
        (None, UNSORTED_SORT_ORDER),
        ([], UNSORTED_SORT_ORDER),
        ("a", SortOrder(SortField(1, IdentityTransform(), ASC, FIRST))),
        ("a DESC", SortOrder(SortField(1, IdentityTransform(), DESC, LAST))),
        ("identity a nulls last", SortOrder(SortField(1, IdentityTransform(), ASC, LAST))),
        (
            [" bucket(4, a) desc Nulls First ", "hour(ts)", "a", "s.b asc"],
            SortOrder(
                SortField(1, BucketTransform(4), DESC, FIRST),
                SortField(2, HourTransform(), ASC, FIRST),
                SortField(1, IdentityTransform(), ASC, FIRST),
                SortField(4, IdentityTransform(), ASC, FIRST),
            ),
        ),
    ],
)
def test_a_sort_order_is_stated_like_a_partitioning(stated: Any, order: SortOrder) -> None:
    columns = [LONG, {"name": "ts", "type": "timestamptz"}, {"name": "s", "type": "struct<b: string>"}]
    create = {"schema": columns, "sort_order": stated}
    assert wrong_with_table(create, {}) == []
    assert sort_order_from_spec(create, create_from_spec(create)[0]) == order


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (["b"], "create.sort_order: 'b': there is no column 'b'; columns are a"),
        (["day(a)"], "create.sort_order: 'day(a)': column a is long; day takes date"),
        (["a up"], "create.sort_order: 'a up' is not one of: a column"),
        (["asc"], "there is no column 'asc'"),
        (["a", "bucket(2, a)", "a desc"], "'a desc' is given twice"),
        ([{"a": "desc"}], "is not a list of"),
    ],
)
def test_a_wrong_sort_order_names_the_entry_and_what_is_allowed(stated: Any, message: str) -> None:
    create = {"schema": [LONG], "sort_order": stated}
    with pytest.raises(SpecError, match=message.replace("(", r"\(").replace(")", r"\)")):
        sort_order_from_spec(create, create_from_spec(create)[0])
    # That an order names a field twice is reported where the table is made.
    assert wrong_with_table(create, {}) or "twice" in message


def test_types_that_need_a_newer_format_version_get_it() -> None:
    columns = [LONG, {"name": "b", "type": "map<string, timestamptz_ns>"}]
    assert create_from_spec({"schema": columns})[2] == {"format-version": "3"}
    assert create_from_spec({"schema": columns, "properties": {"format-version": 3}})[2] == {"format-version": "3"}
    assert create_from_spec({"schema": [LONG], "properties": {"format-version": 3}})[2] == {"format-version": "3"}
