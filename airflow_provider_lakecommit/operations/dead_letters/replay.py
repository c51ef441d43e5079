# SPDX-License-Identifier: Apache-2.0
"""Replay dead letters: open ones become rows of the data table, each exactly once.

Contract: dead letters are read from their table (the source may have lost the records), decoded with the current
landing and columns, and appended in batches. One compare-and-swap on the data table appends the rows of a batch and
adds its offsets to ``replayed`` of the landing's entry, so table and open set never differ; before each request the
ledger of that very head is checked for offsets that another process replayed. Records that are rejected again stay
open. The dead-letter table is not written. The offsets may be of any stream of the landing; replayed ones are in the
entry of the live stream, or of another one if there is none.

A batch is bounded in records and bytes. It runs in this process: dead letters are rare by their budget, and starting
Spark takes longer than decoding a hundred thousand of them.

Failure story: after a kill, a batch is in the table with its offsets, or not at all; the same command continues with
the open ones. With concurrent replays, each batch is applied by one of them; the other rebuilds its batch from the
rest. A range that is landed again meanwhile has its own dead letters: those that were read before are left alone. A
rollback of the data table reopens what it removed. A request with an unknown outcome leaves its files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.control import LEDGER_LIMIT, encode_ledger
from airflow_provider_lakecommit.core import (
    BACKFILL,
    MAINTAIN,
    MOST_TEXT,
    Coverage,
    Decision,
    LedgerSection,
    added,
    shares_of,
)
from airflow_provider_lakecommit.core.provenance import without
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import CommitUnknownError, LakecommitError, LedgerError, SpecError
from airflow_provider_lakecommit.iceberg import (
    REPLAYED,
    Change,
    SnapshotKind,
    SnapshotRecord,
    ancestry,
    compare_and_swap,
    ledger_change,
    record_of,
    replaced_of,
    replay_to_text,
)
from airflow_provider_lakecommit.landing import Landing, require_appends
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import WHOLE, DeadLetter, Selection, select
from airflow_provider_lakecommit.operations.dead_letters.decoded_rows import Rows, made_of
from airflow_provider_lakecommit.operations.dead_letters.ledgers import Ledgers, closed_in, landing_sections, ledgers
from airflow_provider_lakecommit.operations.dead_letters.open_set import State, readings_by
from airflow_provider_lakecommit.operations.dead_letters.passed import bring_forward, to_be_published, with_readings
from airflow_provider_lakecommit.operations.decisions.operation import NothingToDoError, Proposal
from airflow_provider_lakecommit.operations.decisions.requests import ReplayDeadLetters
from airflow_provider_lakecommit.operations.decisions.stated import parse_ranges, texts_of

BATCH_RECORDS = 50_000
BATCH_BYTES = 64 << 20
MOST_ROOM = 0.6
"""The most of a ledger's room to use after a replay; less than that at which landings warn."""
TRIES = 20
"""Attempts at a batch if the table, or the open set, changes meanwhile."""


class _Overtaken(Exception):
    """The table has changed since the batch was made."""


@dataclass(slots=True, kw_only=True)
class Replayed:
    """The result of a replay, or its preview. ``refused`` stay open, with a reason for each kind in ``reasons``."""

    dead_letters: int = 0
    rows: int = 0
    filtered: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    snapshots: list[int] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    """Selected dead letters that are not open, by state."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "replayed": self.dead_letters,
            "rows": self.rows,
            "filtered": self.filtered,
            "offsets": self.coverage.to_dict(),
            "snapshots": self.snapshots,
            "refused": [{"kind": k, "count": n, "reason": self.reasons[k]} for k, n in self.refused.most_common()],
            "not_open": dict(self.others),
        }

    def add(self, made: Rows) -> None:
        self.dead_letters += len(made.done)
        self.rows += made.rows
        self.filtered += len(made.filtered)
        self.coverage |= made.coverage
        self.refused += made.refused
        self.reasons = {**made.reasons, **self.reasons}


def propose(session: LandingSession, request: ReplayDeadLetters) -> Proposal:
    """Return how many can become rows, and why others cannot."""
    found = replay(session, _selection(request), table=request.table or None)
    refused = [(n, f"{kind}: {found.reasons[kind]}") for kind, n in found.refused.most_common()]
    if not found.dead_letters:
        why = "; ".join(f"{n} {text}" for n, text in refused)
        raise NothingToDoError(f"no dead letter of {session.landing.name} can become a row{why and f': {why}'}")
    lines = [f"{found.dead_letters} dead letters can become rows: {found.coverage}"[:2000]]
    ranges = [f"{p.topic}:{p.partition}={r.start}-{r.end}" for p, r in found.coverage.items()]
    return {"letters": found.dead_letters, "ranges": ranges}, [*lines, *(f"{n} stay open, {t}" for n, t in refused)]


def confirm(_: LandingSession, request: ReplayDeadLetters, agreed: Mapping[str, Any]) -> Selection:
    """Return the previewed dead letters: those that are not open any more are left alone."""
    return replace(_selection(request), ranges=parse_ranges(agreed["ranges"], "agreed"))


def apply(session: LandingSession, request: ReplayDeadLetters, chosen: Selection, decision: Decision) -> dict[str, Any]:
    done = replay(session, chosen, table=request.table or None, decision=decision)
    if not done.dead_letters:
        raise NothingToDoError(f"no previewed dead letter is open any more: {done.to_dict()['not_open']}")
    session.log(f"Replayed {done.dead_letters} dead letters as {done.rows} rows")
    return {"landing": session.landing.name, **done.to_dict()}


def _selection(request: ReplayDeadLetters) -> Selection:
    return Selection(
        kinds=tuple(texts_of(request.kinds)),
        ranges=parse_ranges(texts_of(request.ranges), "ranges"),
        since=_moment(request.since),
        until=_moment(request.until),
        limit=request.limit,
    )


def _moment(text: str | None) -> datetime | None:
    found = datetime.fromisoformat(text) if text else None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def replay(
    session: LandingSession,
    selection: Selection,
    *,
    table: str | None = None,
    decision: Decision | None = None,
    progress: Callable[[Replayed], None] = lambda _: None,
) -> Replayed:
    """Replay the selected open dead letters; without a decision, only preview it.

    :param table: a former dead-letter table of the landing
    :param decision: the user who decided, for the table's history; without it nothing is written
    :param progress: gets the sums after each batch
    :raises SpecError: the landing has no dead-letter table, or several tables of rows
    :raises LedgerError: a ledger does not show what is in its table, or has no room for so many ranges
    :raises TableError: the landing cannot fill the data table
    :raises CommitUnknownError: the outcome of a request stays unknown; run it again to continue
    :raises CatalogError: the catalog or the storage is unreachable
    """
    require_appends(session.landing, "replaying dead letters")
    if session.landing.routing is not None:
        raise SpecError(
            "LC7404",
            f"landing {session.landing.name} has several tables of rows (`route`), and a dead letter cannot move "
            f"between them in one commit. Read its range again with `{BACKFILL} SPEC --replace` or a ReplayOperator, "
            "which replaces it in all tables, or land the dead letters with a landing of one table",
        )
    if decision is not None:
        bring_forward(session)
    out, known = Replayed(), ledgers(session, table)
    if decision is None:
        known = replace(known, readings=with_readings(known.readings, to_be_published(session)))
    open_set = known.open_set
    for batch in _batches(known, session.landing, selection, out):
        if decision is None:
            out.add(made_of(session, known.data, batch, open_set, write=False))
        else:
            _published(session, known, batch, table, decision, out)
        progress(out)
    return out


def _batches(known: Ledgers, landing: Landing, selection: Selection, out: Replayed) -> Iterator[list[DeadLetter]]:
    open_set, batch, size, left = known.open_set, list[DeadLetter](), 0, selection.limit
    for letter in select(known.dead, landing, selection, WHOLE):
        if left == 0:
            break
        if (state := open_set.state(letter)) is not State.OPEN:
            out.others[state.value] += 1
            continue
        batch.append(letter)
        size += letter.size
        left = None if left is None else left - 1
        if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _published(
    session: LandingSession,
    first: Ledgers,
    batch: Sequence[DeadLetter],
    table: str | None,
    decision: Decision,
    out: Replayed,
) -> None:
    """Publish one batch, rebuilt as long as another process is faster."""
    for _ in range(TRIES):
        known = ledgers(session, table)
        anew = _landed_anew(session, known.data.metadata, first)
        known = replace(known, readings={g: coverage - anew for g, coverage in known.readings.items()})
        open_set = known.open_set
        left = [letter for letter in batch if open_set.state(letter) is State.OPEN]
        made = made_of(session, known.data, left, open_set, write=True)
        try:
            snapshot_id = _swapped(session, first, known.lane, made, decision) if made.coverage else None
        except _Overtaken as e:
            made.abort()
            session.log(f"{session.landing.table}: {e}; read this batch of dead letters again")
            continue
        except CommitUnknownError:
            raise
        except LakecommitError:
            # Nothing of it is in the table, and nothing will be. After any other exception, the outcome is unknown.
            made.abort()
            raise
        out.add(made)
        out.others[State.REPLAYED.value] += len(batch) - len(left)
        out.snapshots += [] if snapshot_id is None else [snapshot_id]
        return
    raise LedgerError(
        "LC7406",
        f"{session.landing.table}: other writers changed it {TRIES} times during the replay. Replayed dead letters "
        "stay replayed; run the command again for the rest",
    )


def _landed_anew(session: LandingSession, metadata: TableMetadata, first: Ledgers) -> Coverage:
    """Return what was removed from the data table, or landed again, since a batch was read: its dead letters have
    changed.
    """
    landing, found = session.landing, Coverage()
    head = next(ancestry(first.data.metadata, landing.branch)).snapshot_id
    for snapshot in ancestry(metadata, landing.branch):
        if snapshot.snapshot_id == head:
            return found
        record = record_of(snapshot)
        if record is not None and record.landing == landing.name and (taken := replaced_of(record)) is not None:
            found |= taken.ranges
    raise LedgerError(
        "LC7407",
        f"{landing.table}: snapshot {head}, the head when the dead letters were read, is no longer on the branch. "
        "Replayed dead letters stay replayed; run the command again for the rest",
    )


def _swapped(session: LandingSession, first: Ledgers, lane: str, made: Rows, decision: Decision) -> int | None:
    """Append the rows and record them in the ledger, in one request."""
    landing, target, coverage = session.landing, made.target, made.coverage
    record = SnapshotRecord(
        kind=SnapshotKind.CARRY,
        branch=landing.branch,
        landing=landing.name,
        lane=lane,
        rows=made.rows,
        extra={REPLAYED: replay_to_text(coverage, len(made.filtered)), "files": str(len(made.files))},
        decisions=(replace(decision, what=f"replays {len(made.done)} dead letters: {coverage}"[:MOST_TEXT]),),
    )

    def decide(loaded: Table) -> Change[None] | None:
        metadata = loaded.metadata
        state, now = landing_sections(session, landing.table, metadata)
        section = state.section(landing.name, lane)
        anew = _landed_anew(session, metadata, first) | closed_in(session, metadata, now)
        if section is None or coverage.overlaps(anew) or coverage - Coverage.union(readings_by(now).values()):
            raise _Overtaken("its open dead letters have changed")
        if target is not None and (
            metadata.table_uuid != target.uuid
            or metadata.current_schema_id != target.schema_id
            or metadata.default_spec_id != target.spec_id
        ):
            raise _Overtaken("its columns or its partitioning have changed")
        own = replace(section, replayed=section.replayed | coverage)
        sections = tuple(own if s is section else s for s in state.sections)
        sections = tuple(_gained(s, made) if s.landing == landing.name else s for s in sections)
        _check_room(landing.table, sections)
        return ledger_change(landing.table, state, record, sections, None, files=made.files)

    return compare_and_swap(session.tables, landing.table, landing.branch, decide).snapshot_id


def _gained(section: LedgerSection, made: Rows) -> LedgerSection:
    """Return a section whose provenance has the rows that rejected records became."""
    for entry in made.provenance(section.covered):
        shares = shares_of(section.provenance, entry.coverage)
        # A rejected record had no row: the others' rows are all rows.
        rest = without(section.provenance, shares, [s.entry.rows for s in shares])
        section = replace(section, provenance=added(rest, [entry]))
    return section


def _check_room(table: str, sections: tuple[LedgerSection, ...]) -> None:
    """Check that a replay leaves room: a full ledger stops every landing of its table."""
    if len(encode_ledger(sections)) > MOST_ROOM * LEDGER_LIMIT:
        raise LedgerError(
            "LC7408",
            f"{table}: its ledger would be full of single replayed offsets. Replayed dead letters stay replayed. "
            "Replay contiguous dead letters (`--range`), or prune deleted topics from the ledger with "
            f"`{MAINTAIN} SPEC --only ledger`",
        )
