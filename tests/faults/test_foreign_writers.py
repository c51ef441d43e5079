# SPDX-License-Identifier: Apache-2.0
"""Another writer at the same table at the worst moments of the one compare-and-swap: between the look and the request,
after a request that was applied in secret, and after one that was not.

Whatever it does and whatever the catalog answers: each slice is in the table once or is refused by name, the ledger is
carried with all its sections, and what the other one did is not undone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, PublishOutcome
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, ancestry, tag_name
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import renew_epochs
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import Grounds
from tests.fakes.catalog import Fault
from tests.fakes.lake import Lake, at, coverage, data_file, section, staged
from tests.support.world import own_columns

pytestmark = pytest.mark.faults

TAG = tag_name("main")


class Moment(Enum):
    """When the other writer comes."""

    BEFORE_THE_REQUEST = auto()
    AFTER_A_LOST_ANSWER = auto()
    AFTER_A_REFUSAL = auto()
    AT_TWO_REQUESTS = auto()


@dataclass
class Table:
    """A table with two landings, each with one window landed, and a foreign file; what is sent is the next window."""

    lake: Lake
    sections: dict[str, LedgerSection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lake.create()
        self.lake.append_foreign()
        self.sections = {
            "orders": self.lake.join(section(starts={at(0): 0})),
            "returns": self.lake.join(section("returns", starts={at(5): 0})),
        }
        self.publish("returns", (5, 0, 3))
        self.publish("orders", (0, 0, 10))

    def publish(self, landing: str, *ranges: tuple[int, int, int]) -> PublishOutcome:
        return self.lake.publish(self.request(landing, *ranges))

    def request(self, landing: str, *ranges: tuple[int, int, int]) -> AppendRequest:
        return self.lake.request(staged(*ranges, epoch=self.sections[landing].epoch), landing=landing)

    @property
    def metadata(self) -> TableMetadata:
        return self.lake.load().metadata

    def line(self) -> list[int]:
        return [s.snapshot_id for s in ancestry(self.metadata, "main")]

    def landed(self) -> list[str]:
        return [p for p in self.lake.paths() if p.startswith("file:///data/")]


def append(table: Table) -> None:
    table.lake.append_foreign()


def delete_file(table: Table) -> None:
    """A file of a landing is taken out by a delete that met all its rows."""
    loaded = table.lake.load()
    with loaded.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(_files(table)[0])


def compact(table: Table) -> None:
    """All data files replaced by one with as many rows."""
    loaded, files = table.lake.load(), _files(table)
    with loaded.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        for file in files:
            overwrite.delete_data_file(file)
        overwrite.append_data_file(
            data_file(f"file:///data/compacted-{uuid4()}.parquet", sum(f.record_count for f in files))
        )


def _files(table: Table) -> list[object]:
    loaded = table.lake.load()
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    entries = (e for m in snapshot.manifests(loaded.io) for e in m.fetch_manifest_entry(loaded.io))
    return [e.data_file for e in entries if e.data_file.file_path.startswith("file:///data/")]


def expire(table: Table) -> None:
    """All snapshots that nothing refers to."""
    metadata = table.metadata
    pinned = {ref.snapshot_id for ref in metadata.refs.values()}
    expired = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in pinned]
    with suppress(CommitFailedException):
        table.lake.load().maintenance.expire_snapshots().by_ids(expired).commit()


def roll_back(table: Table) -> None:
    table.lake.roll_back(table.line()[1])


def there_and_back(table: Table) -> None:
    """Rolled back, and back again to where it was."""
    head = table.line()[0]
    roll_back(table)
    table.lake.load().manage_snapshots().set_current_snapshot(head).commit()


def pick_over_a_foreign_snapshot(table: Table) -> None:
    head, before, *_ = table.line()
    table.lake.roll_back(before)
    table.lake.append_foreign()
    table.lake.cherry_pick(head)


def drop_tag(table: Table) -> None:
    table.lake.load().manage_snapshots().remove_tag(TAG).commit()


def move_tag(table: Table) -> None:
    table.lake.load().manage_snapshots().create_tag(table.line()[1], TAG).commit()


def other_references(table: Table) -> None:
    head = table.line()[0]
    table.lake.load().manage_snapshots().create_branch(head, f"side-{uuid4()}").create_tag(head, str(uuid4())).commit()


def add_column(table: Table) -> None:
    with table.lake.load().update_schema() as schema:
        schema.add_column(f"c{uuid4().hex}", StringType())


def drop_column(table: Table) -> None:
    with table.lake.load().update_schema() as schema:
        if "note" in {f.name for f in own_columns(table.metadata.schema())}:
            schema.delete_column("note")


def evolve_spec(table: Table) -> None:
    with table.lake.load().update_spec() as spec:
        if not table.metadata.spec().fields:
            spec.add_identity("id")


def order_rows(table: Table) -> None:
    with table.lake.load().update_sort_order() as order:
        order.asc("id", IdentityTransform())


def set_properties(table: Table) -> None:
    with table.lake.load().transaction() as change:
        change.set_properties({"owner": str(uuid4()), "commit.retry.num-retries": "0"})


def empty_branch(table: Table) -> None:
    """As REPLACE TABLE leaves it."""
    with table.lake.another() as catalog:
        catalog.commit_table(catalog.load_table(table.lake.name), (), (RemoveSnapshotRefUpdate(ref_name="main"),))


def make_anew(table: Table) -> None:
    with table.lake.another() as catalog:
        schema = catalog.load_table(table.lake.name).schema()
        catalog.drop_table(table.lake.name)
        catalog.create_table(table.lake.name, schema)


def rename(table: Table) -> None:
    with table.lake.another() as catalog:
        catalog.rename_table(table.lake.name, "shop.elsewhere")


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What another writer does.

    :param grounds: of the refusal, where the slice cannot be appended then
    :param error: that ends the call
    """

    act: Callable[[Table], None]
    grounds: Grounds | None = None
    error: type[Exception] | None = None

    def __str__(self) -> str:
        return self.act.__name__.replace("_", "-")


WRITERS = (
    *(Foreign(act=act) for act in (append, delete_file, compact, expire, there_and_back, other_references)),
    *(Foreign(act=act) for act in (add_column, drop_column, order_rows, set_properties)),
    Foreign(act=evolve_spec, grounds=Grounds.SPEC),
    Foreign(act=roll_back, grounds=Grounds.EPOCH),
    Foreign(act=drop_tag, grounds=Grounds.EPOCH),
    Foreign(act=move_tag),
    Foreign(act=pick_over_a_foreign_snapshot, error=LedgerError),
    Foreign(act=empty_branch, error=LedgerError),
    Foreign(act=make_anew, error=LedgerError),
    Foreign(act=rename, error=TableError),
)


def arrange(table: Table, act: Callable[[Table], None], moment: Moment) -> None:
    """Have the other writer come then."""
    catalog, clock = table.lake.catalog, table.lake.clock
    if moment in (Moment.BEFORE_THE_REQUEST, Moment.AT_TWO_REQUESTS):
        times = [None] * (2 if moment is Moment.AT_TWO_REQUESTS else 1)

        def interfere() -> None:
            if times:
                times.pop()
                act(table)

        catalog.before_commit = interfere
        return
    catalog.faults.append(Fault.LOST_ANSWER if moment is Moment.AFTER_A_LOST_ANSWER else Fault.CONFLICT)

    def once() -> None:
        clock.during = lambda: None
        act(table)

    clock.during = once


CASES = [
    pytest.param(writer, moment, id=f"{writer}-{moment.name.lower().replace('_', '-')}")
    for writer in WRITERS
    for moment in Moment
    if writer.error is None or moment is not Moment.AT_TWO_REQUESTS
]


@pytest.mark.heavy(but=("*-after-a-lost-answer",))
@pytest.mark.parametrize(("writer", "moment"), CASES)
def test_another_writer_at_the_worst_moment(tmp_path: Path, writer: Foreign, moment: Moment) -> None:
    table = Table(Lake(tmp_path))
    request = table.request("orders", (0, 10, 14))
    (path,) = (f.file_path for s in request.slices for f in s.files)
    arrange(table, writer.act, moment)
    if writer.error is not None:
        with pytest.raises(writer.error):
            table.lake.publish(request)
    else:
        _check_outcome(table, table.lake.publish(request), writer, path)
    if writer.act is rename:
        with table.lake.another() as catalog:
            catalog.rename_table("shop.elsewhere", table.lake.name)
    assert table.landed().count(path) <= 1
    # Whoever tries again, whatever became of it, doubles nothing.
    with suppress(LedgerError):
        table.lake.publish(request)
    assert table.landed().count(path) <= 1
    _check_ledger(table, writer)


def _check_outcome(table: Table, outcome: PublishOutcome, writer: Foreign, path: str) -> None:
    """What is said is what is there, but for what the other writer took away itself."""
    there = table.landed().count(path)
    if outcome.published:
        assert outcome.snapshot_id in table.line()
        assert there == 1 or writer.act in (compact, delete_file)
        assert outcome.refused == ()
    else:
        assert [r.grounds for r in outcome.refused] == [writer.grounds]
        assert there == 0


def _check_ledger(table: Table, writer: Foreign) -> None:
    """All sections are there, and the rows of landings are those that the ledger counts."""
    state = table.lake.state()
    if state.condition in (Condition.LOST, Condition.ABSENT, Condition.PICKED):
        assert writer.error is not None
        return
    assert {s.landing for s in state.sections} == {"orders", "returns"}
    if writer.act is delete_file:
        return
    loaded = table.lake.load()
    head = loaded.current_snapshot()
    assert head is not None
    entries = (e.data_file for m in head.manifests(loaded.io) for e in m.fetch_manifest_entry(loaded.io))
    rows = sum(f.record_count for f in entries if f.file_path.startswith("file:///data/"))
    assert rows == len(state.covered())


@pytest.mark.heavy
@pytest.mark.parametrize(
    "answers", [(Fault.CONFLICT,) * 3, (Fault.NOT_APPLIED, Fault.FALSE_SUCCESS, Fault.LOST_ANSWER)]
)
def test_others_between_many_tries_are_all_kept(tmp_path: Path, answers: tuple[Fault, ...]) -> None:
    table = Table(Lake(tmp_path))
    request = table.request("orders", (0, 10, 14))
    table.lake.catalog.faults.extend(answers)
    acts = iter((append, add_column, compact, set_properties, append, append))

    def interfere() -> None:
        next(acts, append)(table)

    table.lake.clock.during = interfere
    outcome = table.lake.publish(request)
    assert outcome.published == request.slices
    assert table.lake.state().covered() == coverage((0, 0, 14), (5, 0, 3))
    assert sum(1 for p in table.lake.paths() if p.startswith("file:///foreign/")) >= 2
    assert len(own_columns(table.metadata.schema())) == 3


def test_what_was_published_in_secret_and_rolled_back_is_read_again_under_a_new_epoch(tmp_path: Path) -> None:
    table = Table(Lake(tmp_path))
    request = table.request("orders", (0, 10, 14))
    arrange(table, roll_back, Moment.AFTER_A_LOST_ANSWER)
    assert [r.grounds for r in table.lake.publish(request).refused] == [Grounds.EPOCH]
    renew_epochs(table.lake.tables, table.lake.name, "orders", "live")
    state = table.lake.state()
    assert state.condition is Condition.PRESENT
    assert state.covered() == coverage((0, 0, 10), (5, 0, 3))
    assert [r.grounds for r in table.lake.publish(request).refused] == [Grounds.EPOCH]
    ours = state.section("orders", "live")
    assert ours is not None
    again = table.lake.publish(table.lake.request(staged((0, 10, 14), epoch=ours.epoch)))
    assert again.published
    assert table.lake.state().covered() == coverage((0, 0, 14), (5, 0, 3))
