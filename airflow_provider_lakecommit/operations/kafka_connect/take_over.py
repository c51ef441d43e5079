# SPDX-License-Identifier: Apache-2.0
"""Take a table over from a connector: `lakecommit connect adopt`.

Contract: the connector is stopped first, and nothing is written before everything it has begun is decided. Then, in
this order, each step durable before the next: its announced, uncommitted files are committed (as `lakecommit connect
rescue` does); the table tells the connector that everything it has announced is done; the ledger of the landing begins
at the offsets of the connector's consumer group, by one compare-and-swap. Finally all of this is checked again.

Invariants: the ledger is set only at offsets that were decided while no process worked for the connector, on a table in
which no announced file is missing. So rows before these offsets are the connector's, rows from them on the landing's:
no gap and no overlap. It may be repeated, or run twice at once.

Failure story: after a kill, the same command continues: a stopped connector stays stopped, a committed file is known by
its path, a ledger that already begins there is left alone. A connector that is started again meanwhile is named; the
same command then continues after what it has landed, unless the landing has landed the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.core import (
    AdoptedSink,
    ControlPosition,
    Coverage,
    Decision,
    LedgerSection,
    Provenance,
    added,
)
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    all_sections,
    initial_position,
    ledger_state,
    ledger_states,
    new_section,
    positions_at,
)
from airflow_provider_lakecommit.exceptions import ConnectorError, LedgerError
from airflow_provider_lakecommit.iceberg import set_section, was_handed
from airflow_provider_lakecommit.operations.kafka_connect.connector import KnownConnector, rescue_of, settled, stop
from airflow_provider_lakecommit.operations.kafka_connect.section import sink_section
from airflow_provider_lakecommit.operations.kafka_connect.sink_offsets import Turn, turn_after
from airflow_provider_lakecommit.operations.kafka_connect.sink_preview import AdoptionPreview, preview_of
from airflow_provider_lakecommit.status import Severity, check_landing, read_history


def adopt(
    session: LandingSession, connector: KnownConnector, *, decision: Decision, doubled_stay: bool = False
) -> dict[str, Any]:
    """Take the table over, and return where the landing continues, with the findings of `verify` afterwards.

    :param decision: the user who decided, for the table's history
    :param doubled_stay: accept duplicates in the table
    :raises ConnectorError: the connector cannot be adopted, or was started again
    :raises ConnectError: Kafka Connect does not complete a request
    :raises LakecommitError: a required part is unreachable
    """
    stop(connector)
    session.log(f"connector {connector.name} is stopped")
    settled(session, connector)
    connector = replace(connector, state="stopped", runs=False)
    session.log(f"connector {connector.name} has no active member and no open transaction")
    log = rescue_of(session, connector, decision.by)
    preview = preview_of(session, connector, log, doubled_stay=doubled_stay)
    offsets = preview.progress.offsets
    if preview.against:
        raise ConnectorError(
            "LC7526",
            f"connector {connector.name} is stopped, but landing {session.landing.name} cannot adopt it: "
            f"{'; '.join(preview.against)}. Nothing is written; resume the connector to continue where it was",
        )
    if preview.done:
        put_back(session, connector, decision)
        session.log(f"{preview.table}: landing {preview.landing} already continues after connector {connector.name}")
        return {**preview.to_dict(), "rescued_rows": 0, "wrong": list(off_things(session))}
    if preview.reads_again:
        put_back(session, connector, decision)
        log = rescue_of(session, connector, decision.by)
        offsets = connector.offsets(decided=True)
    rescued = 0
    for report in log.commit([preview.table]):
        rescued += sum(j.file.rows for j in report.committed)
        if report.committed:
            session.log(f"{report.table}: committed {len(report.committed)} announced files")
    sequence = log.end_turn(preview.table)
    session.log(f"{preview.table}: holds all files that connector {connector.name} has announced")
    _set_ledgers(session, preview, sequence, decision, doubled_stay=doubled_stay)
    _check_left_alone(session, connector, offsets)
    return {**preview.to_dict(), "rescued_rows": rescued, "wrong": list(off_things(session))}


def put_back(session: LandingSession, connector: KnownConnector, decision: Decision) -> None:
    """Put the connector's offsets back: nothing that it has read since the landing's turn, or its own, began is in the
    table, and its announcements since are left out. The landing reads all that.
    """
    ours = sink_section(session, session.landing.table)
    if not ours.has_nothing_of(connector.name):
        return
    now = connector.offsets(decided=True)
    # Offsets expire, and what was announced with them stays.
    read = {**rescue_of(session, connector).log.ends, **now}
    known = ours.known(session.source.watermarks().partitions)
    moved = {key: at for key, at in known.items() if read.get(key, at) != at}
    if moved:
        session.log(f"{connector.name}: moved its offsets back, because the table has no record that it read since")
        connector.move(moved)
    log = rescue_of(session, connector, decision.by)
    if any(j.announced.read_again for report in log.check([session.landing.table]) for j in report.files):
        log.end_turn(session.landing.table)


def _set_ledgers(
    session: LandingSession, preview: AdoptionPreview, sequence: int, decision: Decision, *, doubled_stay: bool
) -> None:
    """Set the ledgers that had an entry of the landing's last turn, and last that of the data table, which completes
    it.
    """
    control, known = initial_position(session), all_sections(ledger_states(session).values())
    others = (t for t in session.landing.tables if t != preview.table)
    for table in (*(t for t in others if sink_section(session, t).section is not None), preview.table):
        _set_ledger(session, preview, table, sequence, control, known, decision, doubled_stay=doubled_stay)
    ends = ", ".join(f"{p} {offset}" for p, offset in sorted(preview.next.items()))
    session.log(f"{preview.table}: landing {session.landing.name} continues at {ends}")


def _set_ledger(
    session: LandingSession,
    preview: AdoptionPreview,
    table: str,
    sequence: int,
    control: ControlPosition,
    every: Collection[LedgerSection],
    decision: Decision,
    *,
    doubled_stay: bool,
) -> None:
    connector, ends, read = preview.connector, preview.next, preview.read
    connected = AdoptedSink(connector=connector.name, group=connector.group, since=ends, sequence=sequence)
    made: list[LedgerSection] = []
    late = preview.sink_snapshots
    # The dead-letter table follows the data table, whose ledger has the turn.
    data = None if table == preview.table else sink_section(session, preview.table).section
    state = ledger_state(session, table)

    def turn_of(now: LedgerSection | None) -> Turn:
        whole = now if now is None or state is None else state.whole(now)
        return turn_after(connector.name, whole, ends, read, data=data)

    def make(now: LedgerSection | None) -> LedgerSection:
        if made and now is not None and now.epoch == made[-1].epoch:
            return now
        turn = turn_of(now)
        handed = now is not None and was_handed(now)
        if turn.done and now is not None and not late and not handed:
            return now
        if why := turn.refused or (f"{turn.twice} is now in it twice" if turn.twice and not doubled_stay else ""):
            raise LedgerError("LC7527", f"{table}: {why}; its ledger is not set: run the command again")
        # Of a partition that the connector has not read since, the log is known as it was before.
        before = {} if now is None else now.positions
        known = {p: at for p, at in before.items() if p in ends and p not in turn.gained.parts}
        positions = positions_at({p: o for p, o in ends.items() if p not in known}, preview.source.partitions) | known
        section = new_section(
            session, preview.source, turn.starts, turn.covered, control, before=now, positions=positions, known=every
        )
        if data is not None and now is not None:
            # A connector lands no dead letters.
            none = Provenance.counted(section.generation, turn.gained - now.covered, 0)
            section = replace(section, provenance=added(section.provenance, [none]))
        landed = section.sink.landed if section.sink else Coverage()
        sink = replace(connected, landed=landed | turn.gained | turn.twice)
        # A connector appends. A pause for its turn ends; a pause by a user stays.
        made.append(replace(section, sink=sink, suspended="" if handed else section.suspended, upsert_key=()))
        return made[-1]

    positions = ", ".join(f"{p} {offset}" for p, offset in sorted(ends.items()))
    twice = f"; {preview.turn.twice} is in the table twice" if preview.turn.twice else ""
    set_section(
        session.tables,
        table,
        session.landing.name,
        session.lane,
        make,
        passed=lambda now: turn_of(now).gained,
        branch=session.landing.branch,
        decision=replace(decision, what=f"continues after connector {connector.name} at {positions}{twice}"[:300]),
    )


def _check_left_alone(
    session: LandingSession, connector: KnownConnector, before: Mapping[tuple[str, int], int]
) -> None:
    """:raises ConnectorError: the connector was started again since its offsets were read"""
    now = connector.offsets()
    moved = [
        f"{t}[{n}] {before.get((t, n), 'none')} to {o}" for (t, n), o in sorted(now.items()) if before.get((t, n)) != o
    ]
    late = sink_section(session, session.landing.table).late
    try:
        connector.check_stopped()
    except ConnectorError as e:
        problem = str(e)
    else:
        problem = ""
    if moved or late or problem:
        why = [problem, f"its offsets moved from {', '.join(moved)}" if moved else ""]
        why += [f"it has committed snapshots {', '.join(str(s.snapshot_id) for s in late)}"] if late else []
        raise ConnectorError(
            "LC7528",
            f"connector {connector.name} was started again while landing {session.landing.name} took its table over "
            f"({'; '.join(filter(None, why))}). The ledger is set, but does not count commits after that: run "
            f"the same command again before the next run",
        )


def off_things(session: LandingSession) -> tuple[str, ...]:
    """Return the findings of `verify` in the tables."""
    landing = session.landing
    there = [t for t in landing.tables if session.tables.find(t) is not None]
    histories = [read_history(session.tables, t, landing.branch, files=False, progress=lambda _: None) for t in there]
    return tuple(str(f) for f in check_landing(landing, histories) if f.level is Severity.WRONG)
