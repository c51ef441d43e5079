# SPDX-License-Identifier: Apache-2.0
"""What writers are reported of a table, and when a table is checked for whether they can fill it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField

from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.model import Cycle, Plan, TableTarget
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import CycleState, LandingState
from airflow_provider_lakecommit.cycle.session.tables import check_fit, check_unless_filled, target_of
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.landing import Landing
from tests.fakes.lake import BY_BUCKET, SCHEMA

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EPOCH, OTHER_EPOCH = UUID(int=1), UUID(int=2)
LANDING = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.dead")
BYTES = Schema(NestedField(1, "id", LongType()), NestedField(2, "raw", BinaryType()), NestedField(3, "b", BinaryType()))


def table(
    schema: Schema = SCHEMA,
    spec: PartitionSpec = BY_BUCKET,
    order: SortOrder = UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] | None = None,
) -> Table:
    metadata = new_table_metadata(schema, spec, order, "s3://lake/orders", {**(properties or {})})
    return Table(("shop", "orders"), metadata, "", load_file_io({}, "file:///x"), NoopCatalog("none"))


def target(schema: Schema = SCHEMA, name: str = "shop.orders", epoch: UUID = EPOCH, **more: Any) -> TableTarget:
    return target_of(name, table(schema, **more), epoch)


def state(cycle_target: TableTarget, *, finished: bool, spec_version: str = LANDING.spec_version) -> LandingState:
    """A log with one cycle that was planned for that target."""
    plan = Plan(
        landing="orders",
        lane="live",
        spec_version=spec_version,
        window_id=UUID(int=3),
        slices=(),
        targets=(cycle_target,),
        ends={},
        requested_at=NOON,
    )
    cycle = CycleState(
        offset=0,
        since=0,
        at=NOON,
        cycle=Cycle(commit_id=UUID(int=4), dag="d", run="r", number=0, slot=0),
        plan=plan,
        claim=Coverage(),
        timeout=timedelta(hours=1),
        finished=frozenset([UUID(int=5)] if finished else []),
    )
    return replace(fold((), (), timedelta(hours=1)), cycles={cycle.cycle.commit_id: cycle})


def test_writers_are_reported_the_layout_and_of_properties_only_what_is_about_writing() -> None:
    own = {"write.parquet.compression-codec": "zstd", "schema.name-mapping.default": "[]"}
    made = table(properties={**own, "owner": "me", "lakecommit.keep-snapshots": "5", "rewrite.x": "y"})
    target = target_of("shop.orders", made, EPOCH)
    assert target.properties == own
    assert Schema.model_validate_json(target.schema) == made.schema()
    assert PartitionSpec.model_validate_json(target.spec) == made.spec()
    assert (target.table, target.uuid, target.location, target.epoch) == (
        "shop.orders",
        made.metadata.table_uuid,
        "s3://lake/orders",
        EPOCH,
    )
    assert (target.schema_id, target.spec_id, target.format_version) == (0, 0, 2)


def test_an_unsorted_table_has_no_order_and_a_sorted_one_has_its_own() -> None:
    order = SortOrder(SortField(2, IdentityTransform()))
    assert target().sort_order == ""
    assert SortOrder.model_validate_json(target(order=order).sort_order).fields == order.fields


def test_all_columns_that_are_against_a_landing_are_named_at_once() -> None:
    with pytest.raises(TableError, match="LC4004") as caught:
        check_fit(LANDING, target(BYTES, spec=PartitionSpec()))
    assert "column b is binary" in str(caught.value)


def test_a_dead_letter_table_is_not_requested_what_records_can_fill() -> None:
    # It keeps keys and values as bytes, which JSON could not give.
    check_fit(LANDING, target(DEAD_LETTER_SCHEMA, "shop.dead", spec=PartitionSpec()))
    with pytest.raises(TableError, match="LC4004"):
        check_fit(LANDING, target(DEAD_LETTER_SCHEMA, "shop.orders", spec=PartitionSpec()))


@pytest.mark.parametrize("name", ["shop.orders", "shop.dead"])
def test_a_table_that_requests_files_that_are_not_written_is_refused(name: str) -> None:
    schema = SCHEMA if name == "shop.orders" else DEAD_LETTER_SCHEMA
    with pytest.raises(TableError, match="LC3323"):
        check_fit(LANDING, target(schema, name, spec=PartitionSpec(), properties={"write.format.default": "orc"}))


UNFIT = target(BYTES, spec=PartitionSpec())


def test_a_table_that_was_filled_as_it_is_now_is_not_checked_again_whatever_its_epoch() -> None:
    check_unless_filled(LANDING, [replace(UNFIT, epoch=OTHER_EPOCH)], state(UNFIT, finished=True))


@pytest.mark.parametrize(
    "known",
    [
        fold((), (), timedelta(hours=1)),
        state(UNFIT, finished=False),
        state(UNFIT, finished=True, spec_version="of other fields"),
        state(replace(UNFIT, schema_id=7), finished=True),
        state(replace(UNFIT, spec_id=7), finished=True),
        state(replace(UNFIT, properties={"write.x": "y"}), finished=True),
        state(replace(UNFIT, sort_order="{}"), finished=True),
        state(replace(UNFIT, uuid=UUID(int=7)), finished=True),
        state(replace(UNFIT, table="shop.other"), finished=True),
    ],
    ids=["no cycle", "nothing finished", "spec", "schema", "partitions", "properties", "order", "uuid", "name"],
)
def test_a_table_of_which_the_log_shows_anything_else_is_checked(known: LandingState) -> None:
    with pytest.raises(TableError, match="LC4004"):
        check_unless_filled(LANDING, [UNFIT], known)


def test_of_several_tables_only_those_that_are_not_known_are_checked() -> None:
    wrong = target(DEAD_LETTER_SCHEMA, "shop.dead", spec=PartitionSpec(), properties={"write.format.default": "orc"})
    with pytest.raises(TableError, match="LC3323"):
        check_unless_filled(LANDING, [UNFIT, wrong], state(UNFIT, finished=True))
