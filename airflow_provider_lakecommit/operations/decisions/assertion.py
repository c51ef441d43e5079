# SPDX-License-Identifier: Apache-2.0
"""Assert what a table holds if its metadata no longer shows it: `lakecommit reset assert`.

Contract: :func:`from_snapshot`, :func:`from_log` and :func:`from_offsets` only read. :func:`assert_tables` writes, by
one compare-and-swap per table that fails if its ledger has changed. The written entry has a new epoch, so nothing
pending is committed to it, and its snapshot records the source. Unlike ``reset offsets``, an assertion may also move
a ledger *back*: the operator answers for the rows, and the preview shows the offsets to read again and those never
read.

A log does not record later changes of a table: if the metadata has a ledger with less, or the table has fewer rows than
the log reports, the log is not used. Reported slices that the source no longer has are not voided: they are published
first, or the entry keeps its epoch if the assertion equals the newest ledger; otherwise they must be given up
explicitly.

Failure story: after a kill, some tables have the asserted ledger and some do not; run the same command again. An
impossible assertion (offsets past the end of the log, another topic) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.core import (
    LAND,
    RESET_ASSERT,
    RESET_OFFSETS,
    Coverage,
    Decision,
    LedgerSection,
    OffsetRange,
    RangeSet,
    Role,
    SourcePartition,
    Unreadable,
    irreplaceable,
    losses,
    positions_up_to,
    removed,
    role_of,
)
from airflow_provider_lakecommit.cycle import (
    BEYOND,
    LandingSession,
    all_sections,
    endangered,
    initial_position,
    known_section,
    known_state,
    ledger_states,
    new_section,
    own_partition,
    unsigned_ranges,
    unsigned_text,
)
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import Condition, OtherSections, assert_section, has_ledger, sections_of
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.operations.decisions.asserted import AssertedTable, Assertion
from airflow_provider_lakecommit.operations.decisions.observed_table import (
    KnownTable,
    check_log,
    check_topics,
    first_known,
    known_table,
    with_ledger,
)
from airflow_provider_lakecommit.operations.decisions.operation import Proposal, not_as_previewed
from airflow_provider_lakecommit.operations.decisions.requests import ResetAssert
from airflow_provider_lakecommit.operations.decisions.starts import check_no_open_lane

Asserted = tuple[str, Mapping[SourcePartition, int], Coverage, tuple[LedgerSection, ...] | None, Coverage]
"""The source of an assertion, the first offsets, what is landed, entries of others, and what no stream has landed."""
AssertionSource = Callable[[KnownTable, SourceState], Asserted]


def from_snapshot(session: LandingSession, snapshot_id: int) -> Assertion:
    """Assert that the table with this snapshot has what the ledger in it shows: a snapshot on the branch's ancestry, or
    the newest of a branch whose ancestry was cut behind it. The rows of any other snapshot are not on the branch.

    :raises LedgerError: no table of the landing has such a snapshot, its rows are not on the branch, or it has no
        ledger
    :raises WireError: the ledger in it is corrupt
    """
    tables = [(name, t) for name in session.landing.tables if (t := session.tables.find(name)) is not None]
    name = next((n for n, t in tables if t.metadata.snapshot_by_id(snapshot_id) is not None), None)
    if name is None:
        raise LedgerError(
            "LC7001",
            f"no table of landing {session.landing.name} has a snapshot {snapshot_id}; snapshots with a ledger: "
            f"{'; '.join(f'{n}: {with_ledger(t.metadata)}' for n, t in tables) or 'none'}",
        )

    def assertion(known: KnownTable, _: SourceState) -> Asserted:
        snapshot = known.table.metadata.snapshot_by_id(snapshot_id)
        sections = sections_of(snapshot) if snapshot is not None and has_ledger(snapshot) else ()
        own = next((s for s in sections if s.key == (session.landing.name, session.lane)), None)
        if own is None:
            raise LedgerError(
                "LC7002",
                f"snapshot {snapshot_id} of {name} holds no ledger of landing {session.landing.name}; use one of: "
                f"{with_ledger(known.table.metadata)}",
            )
        if snapshot_id not in known.on_branch:
            raise LedgerError(
                "LC7003",
                f"{name}: the rows of snapshot {snapshot_id} are not on branch {known.state.branch}, so its ledger "
                "does not describe the table. Roll the branch to that snapshot, or state the offsets that the table "
                f"really holds with `{RESET_ASSERT} SPEC --at TOPIC:PARTITION=OFFSET,…`, or the offsets to continue "
                f"from with `{RESET_OFFSETS} SPEC --from OFFSETS`",
            )
        others = tuple(s for s in sections if s is not own)
        return f"snapshot {snapshot_id}", own.starts, own.covered, others, Coverage()

    return _asserted(session, (name,), assertion)


def preview(session: LandingSession, request: ResetAssert) -> Assertion:
    """Return the statement about each table, and what is read again."""
    tables, offsets = request.chosen(session.landing)
    if request.from_log:
        return from_log(session, tables)
    if offsets is not None:
        return from_offsets(session, offsets, tables)
    return from_snapshot(session, int(str(request.snapshot_id)))


def propose(session: LandingSession, request: ResetAssert) -> Proposal:
    found = preview(session, request)
    return _values(found), [*found.lines()]


def confirm(session: LandingSession, request: ResetAssert, agreed: Mapping[str, Any]) -> Assertion:
    """Return the statement if it is the agreed one."""
    found = preview(session, request)
    now, before = _without_rows(_values(found)), _without_rows(agreed)
    if different := [str(t) for t in now if t not in before]:
        raise not_as_previewed("; ".join(different))
    return found


def _values(found: Assertion) -> dict[str, Any]:
    return {"topic_ids": {p.topic: p.topic_id for p in found.marks}, **found.to_dict()}


def _without_rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the statement about each table. Rows and reports are for display only: other writers may add some at any
    time, and ``lost`` covers reports that cannot be read again.
    """
    tables = [{name: v for name, v in t.items() if name not in ("rows", "reported")} for t in values["tables"]]
    return [{"topic_ids": values.get("topic_ids"), **t} for t in tables]


def apply(session: LandingSession, request: ResetAssert, found: Assertion, decision: Decision) -> dict[str, Any]:
    """Write the statement."""
    give_up, others = request.give_up_reported, OtherSections(request.others)
    return assert_tables(session, found, decision=decision, give_up_reported=give_up, rows_of_others=others)


def from_log(session: LandingSession, tables: Sequence[str] | None = None) -> Assertion:
    """Assert what the control log reports as published in a table. Ranges that the log no longer has count as present:
    everything before the oldest range of a partition in the log.

    :param tables: by default those whose ledger is not in order
    :raises LedgerError: the log has nothing of them, or has unreadable records
    """

    def assertion(known: KnownTable, source: SourceState) -> Asserted:
        if unread := next((e for e in known.all_entries if isinstance(e, Unreadable)), None):
            raise LedgerError(
                "LC7004",
                f"{known.name}: a record of {session.control.name} at offset {unread.offset} cannot be read, and may "
                f"report a commit ({unread.reason}): state what the table holds with `{RESET_ASSERT} SPEC --snapshot "
                "ID` or `--at TOPIC:PARTITION=OFFSET,…`",
            )
        if not known.announced and role_of(session.landing.destinations, known.name) is Role.ROWS:
            raise LedgerError(
                "LC7005",
                f"control topic {session.control.name} has no commit of landing {session.landing.name} to "
                f"{known.name}: state what the table holds with `{RESET_ASSERT} SPEC --at TOPIC:PARTITION=OFFSET,…`",
            )
        landed = Coverage({p: s for p, s in known.announced.parts.items() if p in source.partitions})
        own = known.own.starts if known.own else {}
        starts = {p: first_known(p, known, own.get(p)) for p in source.partitions}
        if unknown := sorted(p for p, start in starts.items() if start is None and source.partitions[p].high):
            raise LedgerError(
                "LC7006",
                f"{known.name}: the log of {session.control.name} was cut by retention and has nothing about "
                f"{', '.join(map(str, unknown))}: state what the table holds with `{RESET_ASSERT} SPEC --at "
                "TOPIC:PARTITION=OFFSET,…`",
            )
        check_log(session, known, landed)
        return f"the log of {session.control.name}", {p: s or 0 for p, s in starts.items()}, landed, None, Coverage()

    return _asserted(session, tables, assertion)


def from_offsets(
    session: LandingSession, at: Mapping[tuple[str, int], int], tables: Sequence[str] | None = None
) -> Assertion:
    """Assert that a table holds everything below these offsets, by (topic, partition).

    :param tables: by default those whose ledger is not in order
    :raises SourceError: the partition does not exist
    :raises LedgerError: a partition is not named, and no ledger has it
    """

    def assertion(known: KnownTable, source: SourceState) -> Asserted:
        partitions = {(p.topic, p.partition): p for p in source.partitions}
        if strange := [f"{t}[{n}]" for t, n in at if (t, n) not in partitions]:
            raise SourceError("LC7007", f"{', '.join(strange)}: the source has no such partition; check `--at`")
        starts = {p: known.own.starts.get(p, 0) if known.own else 0 for p in source.partitions}
        unnamed = [p for key, p in partitions.items() if key not in at]
        if unnamed and known.own is None:
            raise LedgerError(
                "LC7008",
                f"{known.name} has no ledger entry for {', '.join(map(str, sorted(unnamed)))}: name them too, with "
                f"0 where nothing is landed",
            )
        parts = {p: known.own.covered[p] for p in unnamed} if known.own else {}
        for (topic, number), offset in at.items():
            p = partitions[topic, number]
            starts[p] = min(starts[p], offset)
            parts[p] = RangeSet.of(OffsetRange(starts[p], offset))
        behind = Coverage({partitions[key]: RangeSet.of((offset, BEYOND)) for key, offset in at.items()})
        return "the operator's offsets", starts, Coverage(parts), None, behind

    return _asserted(session, tables, assertion)


def assert_tables(
    session: LandingSession,
    asserted: Assertion,
    *,
    decision: Decision | None = None,
    give_up_reported: bool = False,
    rows_of_others: OtherSections = OtherSections.ASK,
) -> dict[str, Any]:
    """Write the assertion.

    :param decision: the user who decided, for the tables' history
    :param give_up_reported: also give up reported slices that the source no longer has
    :param rows_of_others: the user's statement about them, if the ledger is lost
    :raises LedgerError: the ledger of a table has changed since the preview, or reported slices would be lost
    :raises CatalogError: the catalog is unreachable
    """
    if not give_up_reported and (lost := [t for t in asserted.tables if t.loses]):
        raise LedgerError(
            "LC7009",
            f"{'; '.join(f'{t.table}: {t.loses}' for t in lost)} is reported and no longer in the source, and "
            f"a new epoch would lose it: nothing is changed. If the ledger is in order, publish it first with "
            f"`{LAND}`; if the ledger was cut, keep it with `--snapshot` and its newest snapshot; to give it up, use "
            f"`--give-up-reported`",
        )
    for rehearse in (True, False):
        for t in asserted.tables:
            what = f"holds {t.section.covered}, by {t.source}; reads {t.again} again, never reads {t.never_read}"
            if t.unpublished:
                what += f", never publishes {t.unpublished}, which is reported"
            state = assert_section(
                session.tables,
                t.table,
                t.written,
                known=t.state,
                others=t.others,
                rows_of_others=rows_of_others,
                removed=t.removed,
                keep=t.endangered.keys(),
                source=t.source,
                branch=session.landing.branch,
                decision=decision and replace(decision, what=what),
                rehearse=rehearse,
            )
            if not rehearse:
                session.log(f"{t.table}: set the ledger to the asserted offsets in snapshot {state.snapshot_id}")
    return {"attested": {t.table: {str(p): t.section.end(p) for p in sorted(asserted.marks)} for t in asserted.tables}}


def _asserted(session: LandingSession, tables: Sequence[str] | None, assertion: AssertionSource) -> Assertion:
    session.control.ensure()
    source = session.source.watermarks()
    log = session.control.read(own_partition(session), None)
    known = [known_table(session, name, log) for name in tables or session.landing.tables]
    if tables is None:
        known = [k for k in known if k.own is None or k.state.condition is not Condition.PRESENT]
        if not known:
            raise LedgerError(
                "LC7010",
                f"every table of landing {session.landing.name} has its ledger; to set one anyway, name it with "
                f"`--table {session.landing.table}` (in an operator: `tables`)",
            )
    every = all_sections(ledger_states(session).values())
    return Assertion(tables=tuple(_one(session, k, source, assertion, every) for k in known), marks=source.partitions)


def _one(
    session: LandingSession,
    known: KnownTable,
    source: SourceState,
    assertion: AssertionSource,
    every: Collection[LedgerSection],
) -> AssertedTable:
    source_of_word, starts, covered, others, lacking = assertion(known, source)
    check_topics(known.name, starts, covered, source)
    old, landing = known_section(session, known.state), session.landing.name
    sections = known.state.known_sections
    check_no_open_lane(landing, known.name, known.state, lacking)
    filled = Coverage.union(s.covered for s in sections if s.landing == landing and s.lane != session.lane)
    section = new_section(session, source, starts, covered, initial_position(session), before=old, known=every)
    if old is not None and old.cluster_id == source.cluster_id:
        there = {p: section.end(p) for p in source.partitions}
        section = replace(section, positions=positions_up_to(old.positions, there))
    pending = known_state(session, {known.name: known.state})
    accepted = pending.accepted[known.name] if pending else ()
    kept = irreplaceable(accepted, source.partitions, known.name)
    doubted = removed(unsigned_ranges(session, known.name, old), source.partitions) - covered if old else Coverage()
    return AssertedTable(
        table=known.name,
        source=source_of_word,
        state=known.state,
        section=section,
        before=filled | known.own.covered if known.own else filled,
        announced=known.announced,
        reported=Coverage.union(a.coverage for a in accepted if a.matters(known.name)),
        others=others,
        old=old,
        endangered={} if known.state.condition is Condition.PRESENT else endangered(session, known.name, known.state),
        rows=known.rows,
        filled=filled - lacking,
        removed=filled & lacking,
        lost=losses((a for a in kept if a.coverage - covered), source.partitions),
        doubted=unsigned_text(session, doubted, old) if doubted and old else "",
    )
