# SPDX-License-Identifier: Apache-2.0
"""Change the key by which the rows of a table are unique: `lakecommit reset key`.

Contract: the spec says what is wanted, the ledger what the table has. A table that was appended to gets one row per
key: the newest row stays, unless it records a delete in the source. Without ``upsert`` in the spec, rows stay, and
later records are appended again. If both say the same, rows of other writers with the same key go.

Failure story: rows and ledger change in one snapshot, or nothing does. Slices that were reported under the former rule
are read again; if the source no longer has them, the operation is refused until they are published. Keys without a
known newest row refuse it too: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from uuid import uuid4

from pyiceberg.table import Table

from airflow_provider_lakecommit.core import LAND, LIVE, RESET_KEY, RESET_OFFSETS, Decision
from airflow_provider_lakecommit.cycle import LandingSession, check_fit, endangered, ledger_state, target_of
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg import KeyRows, Superseded, UpsertRule, key_text, rekey_table, require_ledger
from airflow_provider_lakecommit.operations.decisions.operation import Proposal
from airflow_provider_lakecommit.operations.decisions.requests import ResetKey


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """What changes: the keys before and after, and of how many ``rows`` how many go. No key: one row per record."""

    table: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    rows: int = 0
    superseded: int = 0
    deleted: int = 0
    tombstones: bool = False
    """Whether earlier deletes in the source have left no row."""

    def lines(self) -> Iterator[str]:
        yield f"{self.table} has {key_text(self.old)}, and gets {key_text(self.new)}"
        if not self.new:
            yield "  its rows stay; rows that newer ones have replaced do not come back"
            return
        yield (
            f"  DELETES {self.superseded + self.deleted} of {self.rows} rows: {self.superseded} with a newer row of "
            f"their key, {self.deleted} of keys that the source deleted"
        )
        if self.tombstones:
            yield (
                "  tombstones that were landed before have left no row: keys that they deleted stay. To delete them, "
                f"read the topic again afterwards: `{RESET_OFFSETS} SPEC --from earliest --again`"
            )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "old": list(self.old), "new": list(self.new)}


def preview(session: LandingSession, _: ResetKey) -> KeyChange:
    """Return what would change; writes nothing.

    :raises LedgerError: the table has no ledger of the landing, or reported slices would be lost
    :raises TableError: the table cannot have one row per key, or does not show which row is the newest
    """
    change = _requested_change(session)
    if not change.new:
        return change
    table = session.tables.load(change.table)
    return _with_rows(change, _scan(session, table, write=False)(table))


def propose(session: LandingSession, request: ResetKey) -> Proposal:
    found = preview(session, request)
    return found.to_dict(), [*found.lines()]


def confirm(session: LandingSession, _: ResetKey, agreed: Mapping[str, Any]) -> KeyChange:
    """Return the agreed change; its rows are counted again when they are deleted."""
    known = {each.name: agreed[each.name] for each in fields(KeyChange)}
    return KeyChange(**{**known, "old": (*known["old"],), "new": (*known["new"],)})


def apply(session: LandingSession, _: ResetKey, agreed: KeyChange, decision: Decision) -> dict[str, Any]:
    """Change what the preview showed.

    :raises LakecommitError: as :func:`preview`; or more rows would go by now
    """
    landing, change = session.landing, _requested_change(session)
    most = agreed.superseded + agreed.deleted

    def check(rows: int) -> None:
        if rows > most or change.new != agreed.new:
            raise LedgerError(
                "LC7052",
                f"landing {landing.name}: {rows} rows of {change.table} would be deleted now, {rows - most} more than "
                f"in the preview. Nothing is changed; run `{RESET_KEY}` again to see the new preview",
            )

    check(0)

    excess = _scan(session, session.tables.load(change.table), check, write=True) if change.new else lambda _: None

    def scan(loaded: Table) -> tuple[Superseded | None, Decision]:
        found = excess(loaded)
        rows = 0 if found is None else found.superseded + found.deleted
        return found, replace(decision, what=f"{key_text(change.new)}: deletes {rows} rows")

    found, snapshot = rekey_table(
        session.tables, change.table, landing=landing.name, branch=landing.branch, key=change.new, scan=scan
    )
    return {**(change if found is None else _with_rows(change, found)).to_dict(), "snapshot": snapshot}


def _requested_change(session: LandingSession) -> KeyChange:
    """Return the keys before and after, without the rows that go."""
    landing, name = session.landing, session.landing.table
    state = ledger_state(session, name)
    live = None if state is None else state.section(landing.name, LIVE)
    if state is not None:
        require_ledger(state, name)
    if state is None or live is None:
        raise LedgerError(
            "LC7050", f"landing {landing.name} has landed nothing in {name} yet: its first run sets the key"
        )
    own = {s.key for s in state.sections if s.landing == landing.name}
    if lost := endangered(session, name, state, own):
        raise LedgerError(
            "LC7051",
            f"{name}: changing the key starts a new epoch, which would lose reported slices that the source no longer "
            f"has: {'; '.join(lost.values())}. Nothing is changed. Set `upsert` as it was, and run `{LAND}` to publish "
            "them first",
        )
    left_none = landing.transform.unwrap is None and not landing.upsert.ignores_deletes
    new = (*landing.upsert.key,)
    tombstones = bool(new) and not live.upsert_key and left_none
    return KeyChange(table=name, old=live.upsert_key, new=new, tombstones=tombstones)


def _with_rows(change: KeyChange, found: Superseded) -> KeyChange:
    return replace(change, rows=found.rows_read, superseded=found.superseded, deleted=found.deleted)


def _scan(
    session: LandingSession, table: Table, check: Callable[[int], None] = lambda _: None, *, write: bool
) -> Callable[[Table], Superseded]:
    """Return the search of rows, for one head after the other."""
    landing = session.landing
    check_fit(landing, target_of(landing.table, table, uuid4()))
    there = {f.name for f in table.schema().fields}
    deletes = {c: v for c, v in landing.delete_values.items() if c in there}
    if landing.transform.unwrap is not None and not deletes:
        raise TableError(
            "LC7054",
            f"{landing.table} has none of the columns {', '.join(landing.delete_values)}, so it is unknown which of "
            "its rows are deletes in the source. Land the topic from its beginning in a new table",
        )
    rows = KeyRows(
        landing.table,
        landing.branch,
        landing.name,
        UpsertRule(key=(*landing.upsert.key,), order=landing.upsert.order_column),
        deletes,
        kept=landing.upsert.keeps_deletes,
        ignored=landing.upsert.ignores_deletes,
        progress=lambda n, of: session.log(f"{landing.table}: reading the key of each row ({n} of {of})"),
    )

    def decided(found: Superseded) -> None:
        if found.undecided:
            raise TableError(
                "LC7053",
                f"{landing.table}: which row is the newest is unknown for {found.undecided} keys: their rows are of "
                "several partitions, or of other writers. Set `upsert.order_by` to [column, offset] with a column that "
                "orders the changes, or delete the rows that are too many",
            )
        check(found.superseded + found.deleted)

    return lambda head: rows.on(head, decided, write=write)
