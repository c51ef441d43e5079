# SPDX-License-Identifier: Apache-2.0
"""What others may do to a table while a landing works on it, and what is expected then: the rows of the fault matrix.

Contract: a :class:`Mess` is done to a world by pyiceberg as another writer would do it. With ``cure`` None the landing
gets over it by its next runs. Otherwise its runs end with that error, and go on after that remedy. ``adds`` and
``removes`` are what the other writer itself does to the rows: the landing neither undoes nor repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import ancestry, tag_name
from airflow_provider_lakecommit.iceberg.ledger.summary import sections_of
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from tests.support.world import World

TABLE = "shop.rows"
ELSEWHERE = "shop.elsewhere"
TAG = tag_name("main")
FOREIGN = tuple(range(900, 905))
CREATE: dict[str, Any] = {
    "schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "name", "type": "string"},
        {"name": "n", "type": "int"},
    ],
    "partition_by": ["bucket(2, id)"],
}
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "n", IntegerType(), required=False),
)


class Cure(NamedTuple):
    """A named error with its remedy."""

    error: type[LakecommitError]
    message: str
    remedy: Callable[[World], None]
    remedy_text: str
    """The remedy in a reader's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mess:
    """One thing that another writer does."""

    name: str
    act: Callable[[World], None]
    cure: Cure | None = None
    adds: tuple[int, ...] = ()
    removes: tuple[int, ...] = ()
    before: Callable[[World], None] = lambda _: None
    """Done before the landing's first run."""


def table_of(world: World, name: str = TABLE) -> Table:
    with world.session() as session:
        return session.tables.catalog.load_table(name)


def foreign_rows(table: Table, ids: tuple[int, ...] = FOREIGN) -> pa.Table:
    schema = table.schema().as_arrow()
    columns = {
        f.name: list(ids) if f.name == "id" else [f"x{i}" if f.name == "name" else None for i in ids] for f in schema
    }
    return pa.table(columns, schema=schema)


# -- rows -----------------------------------------------------------------------------------------------------------


def append(world: World) -> None:
    table = table_of(world)
    table.append(foreign_rows(table))


def delete(world: World) -> None:
    table_of(world).delete("id < 10")


def rewrite(world: World) -> None:
    """All files replaced by others with the same rows, as a compaction does."""
    table = table_of(world)
    table.overwrite(table.scan().to_arrow())


def overwrite_all(world: World) -> None:
    """INSERT OVERWRITE: the landed rows go, one other row comes."""
    table = table_of(world)
    table.overwrite(foreign_rows(table))


# -- snapshots ------------------------------------------------------------------------------------------------------


def expire(world: World) -> None:
    """Every snapshot that no branch or tag refers to."""
    table = table_of(world)
    pinned = {ref.snapshot_id for ref in table.refs().values()}
    table.maintenance.expire_snapshots().by_ids(
        [s.snapshot_id for s in table.snapshots() if s.snapshot_id not in pinned]
    ).commit()


def expire_under_others(world: World) -> None:
    """Others append twice, then all but the heads expires: the line from head to ledger is cut."""
    append(world)
    table = table_of(world)
    table.append(foreign_rows(table, (990,)))
    expire(world)


def roll_back(world: World) -> None:
    table = table_of(world)
    line = list(ancestry(table.metadata, "main"))
    table.manage_snapshots().rollback_to_snapshot(line[1].snapshot_id).commit()


def to_the_first_snapshot(world: World) -> None:
    table = table_of(world)
    line = list(ancestry(table.metadata, "main"))
    table.manage_snapshots().set_current_snapshot(line[-1].snapshot_id).commit()


def there_and_back(world: World) -> None:
    """Rolled back and forward again."""
    table = table_of(world)
    head = table.current_snapshot()
    assert head is not None
    to_the_first_snapshot(world)
    table_of(world).manage_snapshots().set_current_snapshot(head.snapshot_id).commit()


def branch_and_tag_back(world: World) -> None:
    """A user puts the branch back, and the tag with it."""
    table = table_of(world)
    line = list(ancestry(table.metadata, "main"))
    to = line[1].snapshot_id
    table.manage_snapshots().set_current_snapshot(to).create_tag(to, TAG).commit()


def create_with_foreign_rows(world: World) -> None:
    with world.session() as session:
        session.tables.create(TABLE, SCHEMA)
    append(world)


# -- references -----------------------------------------------------------------------------------------------------


def drop_tag(world: World) -> None:
    table_of(world).manage_snapshots().remove_tag(TAG).commit()


def move_tag(world: World) -> None:
    table = table_of(world)
    line = list(ancestry(table.metadata, "main"))
    table.manage_snapshots().create_tag(line[1].snapshot_id, TAG).commit()


def drop_tag_and_roll_back(world: World) -> None:
    drop_tag(world)
    roll_back(world)


def drop_tag_and_expire(world: World) -> None:
    """Nothing of the ledger is left, neither on the branch nor under a tag."""
    world.noted = ledger_ends(world)
    drop_tag(world)
    expire_under_others(world)


def ledger_ends(world: World) -> dict[tuple[str, int], int]:
    """Per topic and partition, where the ledger under the tag ends."""
    metadata = table_of(world).metadata
    pinned = metadata.snapshot_by_id(metadata.refs[TAG].snapshot_id)
    assert pinned is not None
    (section,) = sections_of(pinned)
    return {(p.topic, p.partition): section.end(p) for p in section.starts}


def fast_forward(world: World) -> None:
    """Others write to a branch, and main goes there."""
    _by_a_branch(world, 0)


def replace_branch(world: World) -> None:
    """Others write to a branch that left main before the newest snapshot, and main goes there."""
    _by_a_branch(world, 1)


def _by_a_branch(world: World, back: int) -> None:
    table = table_of(world)
    line = list(ancestry(table.metadata, "main"))
    table.manage_snapshots().create_branch(line[back].snapshot_id, "side").commit()
    table = table_of(world)
    table.append(foreign_rows(table), branch="side")
    table = table_of(world)
    table.manage_snapshots().set_current_snapshot(table.refs()["side"].snapshot_id).commit()


# -- the table itself -----------------------------------------------------------------------------------------------


def drop_and_make_anew(world: World) -> None:
    with world.session() as session:
        session.tables.catalog.drop_table(TABLE)
        session.tables.create(TABLE, SCHEMA)


def purge_and_make_anew(world: World) -> None:
    with world.session() as session:
        session.tables.catalog.purge_table(TABLE)
        session.tables.create(TABLE, SCHEMA)


def drop(world: World) -> None:
    with world.session() as session:
        session.tables.catalog.drop_table(TABLE)


def rename_away(world: World) -> None:
    with world.session() as session:
        session.tables.catalog.rename_table(TABLE, ELSEWHERE)


def rename_back(world: World) -> None:
    with world.session() as session:
        session.tables.catalog.rename_table(ELSEWHERE, TABLE)


def replace_table(world: World) -> None:
    """What CREATE OR REPLACE TABLE leaves: the same uuid, another schema and spec, and a branch without a snapshot."""
    table = table_of(world)
    with table.transaction() as change:
        with change.update_schema() as schema:
            schema.add_column("added", StringType())
        with change.update_spec() as spec:
            spec.add_identity("name")
    table = table_of(world)
    with world.session() as session:
        session.tables.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name="main"),))


# -- schema, spec, properties ---------------------------------------------------------------------------------------


def add_column(world: World) -> None:
    with table_of(world).update_schema() as schema:
        schema.add_column("added", StringType())


def rename_column(world: World) -> None:
    with table_of(world).update_schema() as schema:
        schema.rename_column("name", "title")


def drop_column(world: World) -> None:
    with table_of(world).update_schema() as schema:
        schema.delete_column("n")


def widen_column(world: World) -> None:
    with table_of(world).update_schema() as schema:
        schema.update_column("n", LongType())


def loosen_column(world: World) -> None:
    with table_of(world).update_schema() as schema:
        schema.update_column("id", required=False)


def require_column(world: World) -> None:
    with table_of(world).update_schema(allow_incompatible_changes=True) as schema:
        schema.update_column("name", required=True)


def evolve_spec(world: World) -> None:
    table = table_of(world)
    with table.update_spec() as spec:
        for field in table.spec().fields:
            spec.remove_field(field.name)
        spec.add_identity("name")


def sort_rows(world: World) -> None:
    with table_of(world).update_sort_order() as order:
        order.asc("name", IdentityTransform())


def set_properties(world: World) -> None:
    with table_of(world).transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "gzip", "owner": "somebody"})


# -- remedies -------------------------------------------------------------------------------------------------------


def from_earliest(world: World) -> None:
    with world.session() as session:
        ledger_init(session, "earliest")


def from_the_tag(world: World) -> None:
    """`reset offsets` with the offsets of the ledger that the tag still pins."""
    ends = ledger_ends(world)
    with world.session() as session:
        ledger_init(session, ends)


def from_what_was_noted(world: World) -> None:
    """`reset offsets` with the offsets that the last commit told."""
    with world.session() as session:
        ledger_init(session, world.noted)


INIT = r"reset offsets"
ANEW = Cure(LedgerError, INIT, from_earliest, "``lakecommit reset offsets --from earliest``")
FOLLOW_THE_MESSAGE = Cure(
    LedgerError, INIT, from_what_was_noted, "``lakecommit reset offsets --from`` the offsets that the last commit told"
)
AT_THE_TAG = Cure(
    LedgerError, INIT, from_the_tag, "``lakecommit reset offsets --from`` the offsets of the ledger under the tag"
)

MESSES = (
    Mess(name="append", act=append, adds=FOREIGN),
    Mess(name="delete", act=delete, removes=tuple(range(10))),
    Mess(name="rewrite of all files", act=rewrite),
    Mess(name="expiry of all snapshots", act=expire),
    Mess(name="expiry under foreign snapshots", act=expire_under_others, cure=AT_THE_TAG, adds=(*FOREIGN, 990)),
    Mess(name="rollback", act=roll_back),
    Mess(name="set_current_snapshot", act=to_the_first_snapshot),
    Mess(name="rollback and back again", act=there_and_back),
    Mess(name="branch and tag put back", act=branch_and_tag_back),
    Mess(
        name="rollback past the origin",
        act=to_the_first_snapshot,
        before=create_with_foreign_rows,
        cure=ANEW,
        adds=FOREIGN,
    ),
    Mess(name="tag dropped", act=drop_tag),
    Mess(name="tag moved", act=move_tag),
    Mess(name="tag dropped and rollback", act=drop_tag_and_roll_back),
    Mess(name="tag dropped, all else expired", act=drop_tag_and_expire, cure=FOLLOW_THE_MESSAGE, adds=(*FOREIGN, 990)),
    Mess(name="fast-forward", act=fast_forward, adds=FOREIGN),
    Mess(name="branch replaced", act=replace_branch, adds=FOREIGN),
    Mess(name="table dropped", act=drop, cure=ANEW),
    Mess(name="table dropped and recreated", act=drop_and_make_anew, cure=ANEW),
    Mess(name="table purged and recreated", act=purge_and_make_anew, cure=ANEW),
    Mess(name="table renamed away", act=rename_away, cure=Cure(LedgerError, INIT, rename_back, "rename it back")),
    Mess(name="table replaced", act=replace_table, cure=ANEW),
    Mess(name="column added", act=add_column),
    Mess(name="column renamed", act=rename_column),
    Mess(name="column dropped", act=drop_column),
    Mess(name="column widened", act=widen_column),
    Mess(name="column made optional", act=loosen_column),
    Mess(name="column made required", act=require_column),
    Mess(name="partition spec evolved", act=evolve_spec),
    Mess(name="sort order set", act=sort_rows),
    Mess(name="properties changed", act=set_properties),
)
