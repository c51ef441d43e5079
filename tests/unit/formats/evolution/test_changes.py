# SPDX-License-Identifier: Apache-2.0
"""The decision what is changed in a table: each row of its table of types, and what holds for any two schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema, promote, sanitize_column_names
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    UnknownType,
)

from airflow_provider_lakecommit.formats.column_names import RESERVED
from airflow_provider_lakecommit.formats.evolution.changes import (
    Change,
    Evolution,
    Limits,
    TableSide,
    evolution,
    lacking,
)
from airflow_provider_lakecommit.formats.evolution.paths import Path, dotted, parts_of, paths_in
from airflow_provider_lakecommit.formats.evolution.schema import evolved_schema
from tests.support.effort import examples

LAST = 1_000


def optional(name: str, kind: IcebergType, number: int = 1) -> NestedField:
    return NestedField(number, name, kind, required=False)


def evolve(table: IcebergType, inferred: IcebergType, **options: Any) -> Evolution:
    """One column on both sides."""
    return evolution(Schema(optional("c", table)), StructType(optional("c", inferred)), **{"widen": True, **options})


@pytest.mark.parametrize(
    ("table", "inferred", "becomes"),
    [
        (IntegerType(), LongType(), LongType()),
        (FloatType(), DoubleType(), DoubleType()),
        (DecimalType(6, 2), DecimalType(9, 2), DecimalType(9, 2)),
        (DecimalType(6, 2), DecimalType(9, 0), DecimalType(11, 2)),
        (DecimalType(6, 2), DecimalType(38, 2), DecimalType(38, 2)),
    ],
    ids=str,
)
def test_a_narrow_type_is_widened_where_that_is_allowed(
    table: IcebergType, inferred: IcebergType, becomes: IcebergType
) -> None:
    (change,) = evolve(table, inferred).changes
    assert change == Change(path=("c",), kind=becomes, before=table)
    found = evolve(table, inferred, widen=False)
    assert found.changes == ()
    assert f'evolve="widen" would make it {becomes}' in str(found.misfits)


@pytest.mark.parametrize(
    ("table", "inferred"),
    [
        (LongType(), IntegerType()),
        (DoubleType(), FloatType()),
        (DecimalType(9, 2), DecimalType(6, 2)),
        (DecimalType(9, 2), DecimalType(7, 0)),
        (StringType(), StringType()),
        (StringType(), UnknownType()),
        (ListType(2, LongType(), False), ListType(9, IntegerType(), True)),
        (MapType(2, LongType(), 3, StringType()), MapType(8, IntegerType(), 9, StringType())),
    ],
    ids=str,
)
def test_what_a_column_holds_already_changes_nothing(table: IcebergType, inferred: IcebergType) -> None:
    assert evolve(table, inferred) == Evolution()


@pytest.mark.parametrize(
    ("table", "inferred"),
    [
        (IntegerType(), StringType()),
        (IntegerType(), DoubleType()),
        (LongType(), DoubleType()),
        (StringType(), LongType()),
        (DecimalType(6, 2), DecimalType(7, 3)),
        (DecimalType(6, 2), DecimalType(38, 0)),
        (DateType(), StringType()),
        (StructType(optional("x", LongType(), 2)), LongType()),
        (LongType(), ListType(2, LongType(), False)),
        (ListType(2, LongType(), False), StructType(optional("x", LongType(), 2))),
        (MapType(2, StringType(), 3, LongType()), MapType(2, LongType(), 3, LongType())),
        (MapType(2, IntegerType(), 3, LongType()), MapType(2, LongType(), 3, LongType())),
    ],
    ids=str,
)
def test_what_no_change_makes_fit_is_named_with_both_types(table: IcebergType, inferred: IcebergType) -> None:
    found = evolve(table, inferred)
    assert found.changes == ()
    (misfit,) = found.misfits
    assert misfit.column in ("c", "c.key")
    assert str(misfit).startswith(f"column {misfit.column} is ")


@pytest.mark.parametrize(("one", "other"), [("1a", "_1a"), ("a b", "a_x20b"), ("😀", "_x1F600")])
@pytest.mark.parametrize("there", [True, False])
def test_of_names_that_are_one_in_a_file_the_first_is_added(one: str, other: str, there: bool) -> None:
    """A table with both would take no file any more: a record would have ended the landing."""
    table = Schema(optional("id", LongType()), *([optional(one, LongType(), 2)] if there else []))
    inner = StructType(optional(one, LongType(), 2), optional(other, LongType(), 3))
    inferred = StructType(optional(one, LongType()), optional(other, LongType(), 2), optional("s", inner, 4))
    found = evolution(table, inferred, widen=False)
    changed = evolved_schema(table, found.changes, last_id=max(table.field_ids), schema_id=1)
    sanitize_column_names(changed)
    assert {c.path for c in found.changes} == {("s",), *(() if there else ((one,),))}
    why = f"in a file it has the same name as column {one}"
    assert [(o.column, why in o.text) for o in found.left_out] == [(other, True), (f"s.{other}", True)]


def new(name: str, kind: IcebergType = LongType(), **options: Any) -> Evolution:  # noqa: B008
    table = Schema(optional("id", LongType()), optional("s", StructType(optional("Deep", LongType(), 3)), 2))
    return evolution(table, StructType(optional(name, kind)), **{"widen": False, **options})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (new("ID"), "ID is not added: its name differs from column id only in case"),
        (new("s", StructType(optional("deep", LongType()))), "s.deep is not added: its name differs from"),
        (new("a.b"), "has a dot"),
        (new(""), "its name is empty"),
        (new(" a"), "begins or ends with a blank"),
        (new("a\x00b"), r"a\x00b is not added: its name has characters that cannot be printed"),
        (new("\ud800"), r"\ud800 is not added: its name has characters"),
        (new("x" * 256), "longer than 255"),
        (new("u", UnknownType()), "its type is unknown"),
        (new("t", TimestampNanoType()), "needs format version 3, the table has 2"),
        (new("x", side=TableSide(gone=frozenset({("x",)}))), "the table once had it, and it was dropped or renamed"),
        (
            new("x", limits=Limits(columns=0)),
            "1 new columns exceed the limit of 0 in one window: if the names are not data",
        ),
        (new("x", limits=Limits(table=3)), "1 new columns exceed the limit of 3 in the table"),
        (
            new("x", ListType(2, StructType(optional("y", LongType())), False), limits=Limits(depth=2)),
            "nested more than 2 deep",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_that_is_not_added_is_named_with_the_reason(found: Evolution, why: str) -> None:
    assert found.changes == ()
    assert why in str(found.left_out[0])


def test_of_a_struct_that_is_new_only_what_can_be_a_column_is_added() -> None:
    inner = (optional("ok", LongType()), optional("OK", LongType()), optional("a.b", LongType()))
    found = new("x", StructType(*inner))
    assert [str(c) for c in found.changes] == ["add x struct<ok: optional long>"]
    assert [one.column for one in found.left_out] == ["x.OK", "x.a.b"]


@pytest.mark.parametrize("name", [*sorted(RESERVED), "_FILE"])
def test_a_name_that_iceberg_gives_to_metadata_is_left_out_at_the_top_alone(name: str) -> None:
    inferred = StructType(optional(name, LongType()), optional("s", StructType(optional(name, LongType()))))
    found = evolution(Schema(), inferred, widen=False)
    assert [str(change) for change in found.changes] == [f"add s struct<{name}: optional long>"]
    assert f"{name} is not added: Iceberg reserves that name for metadata" in str(found.left_out[0])


def test_a_name_that_a_partition_field_has_is_left_out() -> None:
    inferred = StructType(
        optional("id_bucket", LongType()), optional("s", StructType(optional("id_bucket", LongType())))
    )
    found = evolution(Schema(), inferred, widen=False, side=TableSide(parts=frozenset({"id_bucket"})))
    assert [str(change) for change in found.changes] == ["add s struct<id_bucket: optional long>"]
    assert "id_bucket is not added: a partition field of the table has that name" in str(found.left_out[0])


def test_required_columns_that_are_not_requested_are_named_at_every_level() -> None:
    inner = StructType(NestedField(2, "x", LongType(), required=True), optional("y", LongType(), 3))
    own = StructType(NestedField(1, "id", LongType(), required=True), optional("s", inner, 4), optional("t", inner, 5))
    found = list(lacking(own, StructType(optional("s", StructType()))))
    assert [misfit.column for misfit in found] == ["id", "s.x"]
    assert "column id is required long in the table and missing in the records (make it optional" in str(found[0])


def test_a_column_that_partitions_rest_on_is_not_widened() -> None:
    found = evolve(IntegerType(), LongType(), side=TableSide(bound=frozenset({1})))
    assert found.changes == ()
    assert "make it long by hand" in str(found.misfits)


def test_columns_that_are_filled_from_elsewhere_are_no_concern() -> None:
    assert new("kafka_offset", StringType(), skip=frozenset({"kafka_offset"})) == Evolution()


# -- any two schemas --------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "A", "x.y", ""])
USABLE = st.sampled_from(["a", "b", "c", "D"])
SCALARS = st.one_of(
    st.sampled_from([BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), DateType()]),
    st.tuples(st.integers(1, 38), st.integers(0, 10)).map(lambda d: DecimalType(max(d), min(d))),
)


def kinds(names: st.SearchStrategy[str]) -> st.SearchStrategy[IcebergType]:
    def grown(inner: st.SearchStrategy[IcebergType]) -> st.SearchStrategy[IcebergType]:
        return st.one_of(
            fields(names, inner).map(lambda some: StructType(*some)),
            st.builds(lambda e, r: ListType(1, e, r), inner, st.booleans()),
            st.builds(lambda k, v, r: MapType(1, k, 2, v, r), SCALARS, inner, st.booleans()),
        )

    return st.recursive(SCALARS, grown, max_leaves=6)


def fields(names: st.SearchStrategy[str], inner: st.SearchStrategy[IcebergType]) -> st.SearchStrategy[Any]:
    one = st.builds(lambda n, k, r: NestedField(1, n, k, required=r), names, inner, st.booleans())
    return st.lists(one, min_size=1, max_size=4, unique_by=lambda f: f.name)


def numbered(struct: StructType) -> Schema:
    """As a catalog numbers the columns of a new table."""
    ids = iter(range(1, LAST))

    def kind(of: IcebergType) -> IcebergType:
        match of:
            case StructType():
                return StructType(*(field(f) for f in of.fields))
            case ListType():
                return ListType(next(ids), kind(of.element_type), of.element_required)
            case MapType():
                return MapType(next(ids), of.key_type, next(ids), kind(of.value_type), of.value_required)
            case _:
                return of

    def field(of: NestedField) -> NestedField:
        return NestedField(next(ids), of.name, kind(of.field_type), required=of.required)

    return Schema(*(field(f) for f in struct.fields))


TABLES = fields(USABLE, kinds(USABLE)).map(lambda some: numbered(StructType(*some)))
INFERRED = fields(NAMES, kinds(NAMES)).map(lambda some: StructType(*some))


def by_id(schema: Schema) -> dict[int, tuple[Path, NestedField]]:
    return {field.field_id: (path, field) for path, field in paths_in(schema.fields)}


def leaves(fields: Any, above: Path = ()) -> Iterator[tuple[Path, IcebergType]]:
    for path, field in paths_in(fields, above):
        if not parts_of(field.field_type):
            yield path, field.field_type


@settings(max_examples=examples(900), deadline=None)
@given(table=TABLES, inferred=INFERRED, widen=st.booleans())
def test_changes_take_nothing_away_and_make_what_is_requested_fit(
    table: Schema, inferred: StructType, widen: bool
) -> None:
    found = evolution(table, inferred, widen=widen)
    after = evolved_schema(table, found.changes, last_id=LAST, schema_id=7)
    before, now = by_id(table), by_id(after)
    for number, (path, field) in before.items():
        assert now[number][0] == path
        same = now[number][1]
        assert (same.required, same.doc) == (field.required, field.doc)
        if isinstance(field.field_type, PrimitiveType) and same.field_type != field.field_type:
            assert widen
            assert promote(field.field_type, same.field_type) == same.field_type
    added = now.keys() - before.keys()
    assert min(added, default=LAST + 1) > LAST
    assert len(now) == len(list(paths_in(after.fields))), "an id is there twice"
    # The key of a map is required by definition.
    assert not [path for n in added for path, f in [now[n]] if f.required and path[-1] != "key"]
    assert widen or not any(not c.adds for c in found.changes)

    again = evolution(after, inferred, widen=widen)
    assert again.changes == ()
    assert set(again.misfits) == set(found.misfits)

    named = {m.column for m in found.misfits} | {one.column for one in found.left_out}
    there = {dotted(path) for path, _ in now.values()}
    # A key comes with its values, or not at all.
    for path, _kind in (one for one in leaves(inferred.fields) if one[0][-1] != "key"):
        above = {dotted(path[:n]) for n in range(1, len(path) + 1)}
        assert dotted(path) in there or above & named


@settings(max_examples=examples(300), deadline=None)
@given(table=TABLES, inferred=INFERRED)
def test_what_was_dropped_stays_so(table: Schema, inferred: StructType) -> None:
    removed = frozenset(path for path, _ in paths_in(inferred.fields))
    found = evolution(table, inferred, widen=True, side=TableSide(gone=removed))
    assert not any(c.adds for c in found.changes)
