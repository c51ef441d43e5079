# SPDX-License-Identifier: Apache-2.0
"""Opening a cycle: look, decide what is missing, claim it with a START_COMMIT, read back what was granted.

Contract: one START_COMMIT per cycle, also when there is nothing to do (its plan then says why). Two planners may race:
the log orders them, the later one keeps what the earlier did not claim. A retry of the same run continues its open
cycle with the same plan; a run whose cycle is over opens none, and is told what of its window no table has.

How much is planned, and whether anything is, is for :mod:`~airflow_provider_lakecommit.core.admission` to say: a cycle
that it refuses opens with an empty plan, so that its commit can drain what is pending.

Failure story: with the catalog away the cycle still opens, with an empty plan, so that the failure is counted; a source
that is away or has lost offsets raises and opens nothing. A planner that is fenced (another one took the same slot)
looks again and takes the next slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from airflow_provider_lakecommit.core.admission import (
    Admit,
    Refuse,
    Terms,
    admit,
    catalog_away,
    spec_waits,
)
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import Cycle, Plan, TableTarget, window_id
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning import (
    Chosen,
    Missing,
    WindowLimits,
    choose,
    cut,
    find_missing,
    mean_size,
    window_of,
    worth_a_look,
)
from airflow_provider_lakecommit.core.pressure import only_holes, pressure_of
from airflow_provider_lakecommit.core.state import LandingState
from airflow_provider_lakecommit.cycle.epochs import SpecWaits
from airflow_provider_lakecommit.cycle.headroom import ask, plan_lines, plan_threshold
from airflow_provider_lakecommit.cycle.prepare import Prepared, prepare
from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.cycle.resume import FoundCycle, look_back, seen, ticket_of
from airflow_provider_lakecommit.cycle.secrets import vended_of
from airflow_provider_lakecommit.cycle.session import FoldedLog, LandingSession, RunIdentity, cycle_id_of
from airflow_provider_lakecommit.cycle.targets import check_unless_filled
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError, ControlTopicError, FencedError
from airflow_provider_lakecommit.kafka.sample import sizes
from airflow_provider_lakecommit.kafka.source_topic import SourceState
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.wire.plan import MAX_SLICES

__all__ = [
    "empty_plan",
    "new_cycle",
    "open_cycle",
    "preview",
    "send_start",
    "start_without_tables",
]

MAX_RACES = 8
"""How often a planner that was fenced looks again before it gives up."""

Release = Callable[[Cycle], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    plan: Plan
    explain: tuple[str, ...]


def open_cycle(
    session: LandingSession, run: RunIdentity, *, retry: bool = False, release: Release = lambda _: False
) -> Opened:
    """Open, or continue, the cycle of a run.

    :param retry: look through the whole log for this run's cycle first; without it, one that is over and that no ledger
        needs any more is not found, and is opened anew under its id
    :param release: tells which open cycles are of dead processes, so that their claims end
    :raises SourceError: offsets are abandoned, the topic is another one
    :raises SourceUnavailableError: the source brokers do not answer
    :raises TableError: a table is missing or cannot take the rows
    :raises LedgerError: a ledger needs a person
    :raises ControlTopicError: the control topic cannot be read or written
    """
    commit_id = cycle_id_of(session, run)
    session.source.ask_retention()
    source = session.source.watermarks()
    session.control.ensure()
    past = look_back(session, commit_id) if retry else None
    for _ in range(MAX_RACES):
        try:
            prepared = prepare(session, source)
        except (CatalogError, CommitUnknownError) as e:
            if past is not None:
                session.log(f"the catalog is away, what this run planned before is all that is known: {e}")
                return past.opened(session, None)
            session.log(f"the catalog is away, the cycle opens with an empty plan: {e}")
            return start_without_tables(session, run, catalog_away(e), release)
        except SpecWaits as e:
            session.log(f"the cycle opens with an empty plan: {e}")
            return (
                past.opened(session, None)
                if past
                else start_without_tables(session, run, spec_waits(e.table, str(e)), release)
            )
        folded = session.read_state(prepared.ledgers)
        if (before := seen(session, folded, commit_id) or past) is not None:
            return before.opened(session, folded.state)
        check_unless_filled(session.landing, prepared.targets, folded.state)
        abandoned = _abandoned(folded.state, release)
        decision = _decide(session, prepared, folded, source, abandoned)
        cycle = new_cycle(session, run, folded.state, abandoned)
        headroom = ask(session, folded.state, source, plan_threshold(session, folded))
        try:
            sent = send_start(session, folded.partition, cycle, decision.plan, Directives(released=abandoned))
        except FencedError:
            session.log("another planner of this landing was faster; looking again")
            continue
        after = session.read_state(prepared.ledgers, since=folded, until=sent)
        explain = (*decision.explain, *plan_lines(session, headroom))
        return replace(_just_opened(session, after, commit_id), explain=explain)
    raise _fenced(session)


def _fenced(session: LandingSession) -> ControlTopicError:
    return ControlTopicError(
        f"landing {session.landing.name}: fenced {MAX_RACES} times while opening a cycle; try again"
    )


def preview(session: LandingSession) -> Opened:
    """The plan that a cycle would make now. Nothing is said in the control topic, which is made if it is missing."""
    session.source.ask_retention()
    source = session.source.watermarks()
    session.control.ensure()
    prepared = prepare(session, source, dry=True)
    folded = session.read_state(prepared.ledgers)
    check_unless_filled(session.landing, prepared.targets, folded.state)
    headroom = ask(session, folded.state, source, plan_threshold(session, folded))
    decision = _decide(session, prepared, folded, source, _abandoned(folded.state, lambda _: False))
    explain = (*decision.explain, *plan_lines(session, headroom))
    ticket = CycleTicket(
        landing=session.landing.name,
        lane=session.lane,
        commit_id=UUID(int=0),
        slot=0,
        partition=folded.partition,
        read_from=folded.read_from,
    )
    return Opened(ticket=ticket, plan=decision.plan, slices=decision.plan.slices, explain=explain)


def start_without_tables(
    session: LandingSession, run: RunIdentity, why: str | Refuse, release: Release = lambda _: False
) -> Opened:
    """Open a cycle with an empty plan where no ledger can be read.

    :param release: as for :func:`open_cycle`
    """
    commit_id = cycle_id_of(session, run)
    for _ in range(MAX_RACES):
        folded = session.read_state(())
        if (before := seen(session, folded, commit_id)) is not None:
            return before.opened(session, None)
        abandoned = tuple(c.cycle.commit_id for c in folded.state.open_cycles() if not c.released and release(c.cycle))
        cycle = new_cycle(session, run, folded.state, abandoned)
        try:
            sent = send_start(
                session, folded.partition, cycle, empty_plan(session, why), Directives(released=abandoned)
            )
        except FencedError:
            continue
        return _just_opened(session, session.read_state((), since=folded, until=sent), commit_id)
    raise _fenced(session)


def _abandoned(landing_state: LandingState, release: Release) -> tuple[UUID, ...]:
    """Open cycles whose claims end with this one: of dead processes, and those whose epochs are all over."""
    epochs = {t: ledger.section.epoch for t, ledger in landing_state.ledgers.items()}
    return tuple(
        c.cycle.commit_id
        for c in landing_state.open_cycles()
        if (not c.released and release(c.cycle))
        or (c.plan.epochs and all(epochs.get(t) != e for t, e in c.plan.epochs.items()))
    )


def _decide(
    session: LandingSession, prepared: Prepared, folded: FoldedLog, source: SourceState, abandoned: tuple[UUID, ...]
) -> _Decision:
    landing = session.landing
    missing = find_missing(folded.state, source.partitions, folded.state.claims(session.now(), abandoned))
    landed_bytes = max((t.section.record_bytes for t in prepared.ledgers), default=0)
    whole = missing.coverage
    seen_sizes = _sizes(session, whole, landed_bytes)
    record_bytes = mean_size(whole, seen_sizes) or landed_bytes
    holes = only_holes(missing, folded.state)
    pressure = pressure_of(folded.state, session.now(), released=abandoned, record_bytes=record_bytes, holes=len(holes))
    admitted = admit(pressure, _terms(landing))
    if isinstance(admitted, Refuse):
        return _refused(session, admitted, source, len(missing))
    limits = WindowLimits(
        groups=landing.groups or 1,
        slice_records=landing.slice_records,
        max_records=_allowed(landing.max_records, admitted, missing),
        max_bytes=landing.max_bytes,
        record_bytes=record_bytes,
        sizes=seen_sizes,
    )
    chosen = choose(holes if admitted.holes_only else missing, source.partitions, limits)
    slices = cut(
        chosen, folded.state, limits, landing=landing.name, lane=session.lane, spec_version=landing.spec_version
    )
    most = min(n for n in (MAX_SLICES, admitted.slices) if n is not None)
    kept = slices[:most]
    left = len(missing) - sum(len(s) for s in kept)
    plan = Plan(
        landing=landing.name,
        lane=session.lane,
        spec_version=landing.spec_version,
        window_id=window_of(
            chosen, folded.state, landing=landing.name, lane=session.lane, spec_version=landing.spec_version
        ),
        slices=kept,
        targets=_used(prepared.targets, kept),
        ends={p: w.stable for p, w in source.partitions.items()},
        asked_at=source.asked_at,
        left=left,
        reason=None if kept else _why_nothing(folded.state, chosen, missing.notes),
        vended=vended_of(session.tables, (t.table for t in _used(prepared.targets, kept))),
    )
    cut_off = (f"{len(slices) - most} slices are left: {most} of {len(slices)} are admitted",) if slices[most:] else ()
    return _Decision(plan=plan, explain=(*chosen.explain, *admitted.notes, *cut_off))


def _sizes(session: LandingSession, missing: Coverage, landed_bytes: int) -> dict[SourcePartition, int]:
    """Bytes of the records to be read, where it matters. What landed before says little of a large backlog."""
    limits = WindowLimits(slice_records=session.landing.slice_records, record_bytes=landed_bytes)
    return sizes(session.kafka, missing) if worth_a_look(missing, limits) else {}


def _terms(landing: Landing) -> Terms:
    return Terms(budget=landing.pending_budget, stalled_cycles=landing.stalled_cycles, slow_down=landing.slow_down)


def _allowed(max_records: int | None, admitted: Admit, missing: Missing) -> int | None:
    """Records of a window, by the landing and by its admission."""
    share = None if admitted.share == 1 else max(1, math.ceil(len(missing) * admitted.share))
    return min((n for n in (max_records, admitted.records, share) if n is not None), default=None)


def _refused(session: LandingSession, refused: Refuse, source: SourceState, left: int) -> _Decision:
    """An empty plan that says what there is to read."""
    session.log(f"no window is planned: {refused}")
    ends = {p: w.stable for p, w in source.partitions.items()}
    return _Decision(
        plan=replace(empty_plan(session, refused), ends=ends, asked_at=source.asked_at, left=left), explain=()
    )


def _used(targets: Iterable[TableTarget], slices: Iterable[object]) -> tuple[TableTarget, ...]:
    """An empty plan needs no schemas."""
    return tuple(targets) if slices else ()


def _why_nothing(landing_state: LandingState, chosen: Chosen, notes: Mapping[SourcePartition, str]) -> str:
    if landing_state.blocked:
        return "blocked: " + "; ".join(f"{b.coverage}: {b.reason}" for b in landing_state.blocked)
    if notes:
        return "; ".join(f"{p}: {note}" for p, note in sorted(notes.items()))
    waiting = [c for c in landing_state.open_cycles() if c.claim]
    held = Coverage.of(item for c in waiting for item in c.claim.items())
    return f"nothing new; other open cycles claim {held}" if held else "nothing new"


def empty_plan(session: LandingSession, why: str | Refuse) -> Plan:
    """The plan of a cycle that has nothing to do, and why."""
    return Plan(
        landing=session.landing.name,
        lane=session.lane,
        spec_version=session.landing.spec_version,
        window_id=window_id(session.landing.name, session.lane, session.landing.spec_version, {}, ()),
        slices=(),
        targets=(),
        ends={},
        asked_at=session.now(),
        reason=str(why),
        refused=why.state if isinstance(why, Refuse) else None,
    )


def new_cycle(
    session: LandingSession, run: RunIdentity, landing_state: LandingState, released: tuple[UUID, ...] = ()
) -> Cycle:
    """The cycle of a run, in the smallest slot that no open cycle uses; a released one's slot is free, so that its
    zombies are fenced.
    """
    commit_id = cycle_id_of(session, run)
    used = {c.cycle.slot for c in landing_state.open_cycles() if not c.released and c.cycle.commit_id not in released}
    slot = next(n for n in range(len(used) + 1) if n not in used)
    return Cycle(commit_id=commit_id, dag=run.dag_id, run=run.run_id, number=run.number, slot=slot)


def send_start(session: LandingSession, partition: int, cycle: Cycle, plan: Plan, directives: Directives) -> int:
    """Send the START_COMMIT; returns its offset."""
    start = session.sender("plan", cycle.commit_id).opened(session.new_id(), session.now(), cycle, plan, directives)
    return session.send("plan", cycle.slot, partition, [start])


def _just_opened(session: LandingSession, folded: FoldedLog, commit_id: UUID) -> Opened:
    state = folded.state.cycles[commit_id]
    past = FoundCycle(state=state, ticket=ticket_of(session, state, folded.partition, folded.read_from))
    return Opened(ticket=past.ticket, plan=state.plan, slices=past.granted, explain=())
