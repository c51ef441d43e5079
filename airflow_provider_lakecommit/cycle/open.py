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
    Limits,
    Missing,
    choose,
    cut,
    find_missing,
    mean_size,
    window_of,
    worth_a_look,
)
from airflow_provider_lakecommit.core.pressure import only_holes, pressure_of
from airflow_provider_lakecommit.core.view import View
from airflow_provider_lakecommit.cycle.headroom import ask, plan_lines, plan_threshold
from airflow_provider_lakecommit.cycle.past import Past, look_back, seen, ticket_of
from airflow_provider_lakecommit.cycle.prepare import Prepared, prepare
from airflow_provider_lakecommit.cycle.renew import SpecWaits
from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.cycle.rim import Look, Rim, RunIdentity, cycle_id_of
from airflow_provider_lakecommit.cycle.secrets import vended_of
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


def open_cycle(rim: Rim, who: RunIdentity, *, retry: bool = False, release: Release = lambda _: False) -> Opened:
    """Open, or continue, the cycle of a run.

    :param retry: look through the whole log for this run's cycle first; without it, one that is over and that no ledger
        needs any more is not found, and is opened anew under its id
    :param release: tells which open cycles are of dead processes, so that their claims end
    :raises SourceError: offsets are gone, the topic is another one
    :raises SourceUnavailableError: the source brokers do not answer
    :raises TableError: a table is missing or cannot take the rows
    :raises LedgerError: a ledger needs a person
    :raises ControlTopicError: the control topic cannot be read or written
    """
    commit_id = cycle_id_of(rim, who)
    rim.source.ask_retention()
    source = rim.source.watermarks()
    rim.control.ensure()
    past = look_back(rim, commit_id) if retry else None
    for _ in range(MAX_RACES):
        try:
            prepared = prepare(rim, source)
        except (CatalogError, CommitUnknownError) as e:
            if past is not None:
                rim.say(f"the catalog is away, what this run planned before is all that is known: {e}")
                return past.opened(rim, None)
            rim.say(f"the catalog is away, the cycle opens with an empty plan: {e}")
            return start_without_tables(rim, who, catalog_away(e), release)
        except SpecWaits as e:
            rim.say(f"the cycle opens with an empty plan: {e}")
            return (
                past.opened(rim, None) if past else start_without_tables(rim, who, spec_waits(e.table, str(e)), release)
            )
        look = rim.look(prepared.ledgers)
        if (before := seen(rim, look, commit_id) or past) is not None:
            return before.opened(rim, look.view)
        check_unless_filled(rim.landing, prepared.targets, look.view)
        gone = _gone(look.view, release)
        decision = _decide(rim, prepared, look, source, gone)
        cycle = new_cycle(rim, who, look.view, gone)
        headroom = ask(rim, look.view, source, plan_threshold(rim, look))
        try:
            sent = send_start(rim, look.partition, cycle, decision.plan, Directives(released=gone))
        except FencedError:
            rim.say("another planner of this landing was faster; looking again")
            continue
        after = rim.look(prepared.ledgers, since=look, until=sent)
        explain = (*decision.explain, *plan_lines(rim, headroom))
        return replace(_just_opened(rim, after, commit_id), explain=explain)
    raise _fenced(rim)


def _fenced(rim: Rim) -> ControlTopicError:
    return ControlTopicError(f"landing {rim.landing.name}: fenced {MAX_RACES} times while opening a cycle; try again")


def preview(rim: Rim) -> Opened:
    """The plan that a cycle would make now. Nothing is said in the control topic, which is made if it is missing."""
    rim.source.ask_retention()
    source = rim.source.watermarks()
    rim.control.ensure()
    prepared = prepare(rim, source, dry=True)
    look = rim.look(prepared.ledgers)
    check_unless_filled(rim.landing, prepared.targets, look.view)
    headroom = ask(rim, look.view, source, plan_threshold(rim, look))
    decision = _decide(rim, prepared, look, source, _gone(look.view, lambda _: False))
    explain = (*decision.explain, *plan_lines(rim, headroom))
    ticket = CycleTicket(
        landing=rim.landing.name,
        lane=rim.lane,
        commit_id=UUID(int=0),
        slot=0,
        partition=look.partition,
        read_from=look.read_from,
    )
    return Opened(ticket=ticket, plan=decision.plan, slices=decision.plan.slices, explain=explain)


def start_without_tables(rim: Rim, who: RunIdentity, why: str | Refuse, release: Release = lambda _: False) -> Opened:
    """Open a cycle with an empty plan where no ledger can be read.

    :param release: as for :func:`open_cycle`
    """
    commit_id = cycle_id_of(rim, who)
    for _ in range(MAX_RACES):
        look = rim.look(())
        if (before := seen(rim, look, commit_id)) is not None:
            return before.opened(rim, None)
        gone = tuple(c.cycle.commit_id for c in look.view.open_cycles() if not c.released and release(c.cycle))
        cycle = new_cycle(rim, who, look.view, gone)
        try:
            sent = send_start(rim, look.partition, cycle, empty_plan(rim, why), Directives(released=gone))
        except FencedError:
            continue
        return _just_opened(rim, rim.look((), since=look, until=sent), commit_id)
    raise _fenced(rim)


def _gone(view: View, release: Release) -> tuple[UUID, ...]:
    """Open cycles whose claims end with this one: of dead processes, and those whose epochs are all over."""
    epochs = {t: ledger.section.epoch for t, ledger in view.ledgers.items()}
    return tuple(
        c.cycle.commit_id
        for c in view.open_cycles()
        if (not c.released and release(c.cycle))
        or (c.plan.epochs and all(epochs.get(t) != e for t, e in c.plan.epochs.items()))
    )


def _decide(rim: Rim, prepared: Prepared, look: Look, source: SourceState, gone: tuple[UUID, ...]) -> _Decision:
    landing = rim.landing
    missing = find_missing(look.view, source.partitions, look.view.claims(rim.now(), gone))
    landed_bytes = max((t.section.record_bytes for t in prepared.ledgers), default=0)
    whole = missing.coverage
    seen_sizes = _sizes(rim, whole, landed_bytes)
    record_bytes = mean_size(whole, seen_sizes) or landed_bytes
    holes = only_holes(missing, look.view)
    pressure = pressure_of(look.view, rim.now(), released=gone, record_bytes=record_bytes, holes=len(holes))
    admitted = admit(pressure, _terms(landing))
    if isinstance(admitted, Refuse):
        return _refused(rim, admitted, source, len(missing))
    limits = Limits(
        groups=landing.groups or 1,
        slice_records=landing.slice_records,
        max_records=_allowed(landing.max_records, admitted, missing),
        max_bytes=landing.max_bytes,
        record_bytes=record_bytes,
        sizes=seen_sizes,
    )
    chosen = choose(holes if admitted.holes_only else missing, source.partitions, limits)
    slices = cut(chosen, look.view, limits, landing=landing.name, lane=rim.lane, spec_version=landing.spec_version)
    most = min(n for n in (MAX_SLICES, admitted.slices) if n is not None)
    kept = slices[:most]
    left = len(missing) - sum(len(s) for s in kept)
    plan = Plan(
        landing=landing.name,
        lane=rim.lane,
        spec_version=landing.spec_version,
        window_id=window_of(chosen, look.view, landing=landing.name, lane=rim.lane, spec_version=landing.spec_version),
        slices=kept,
        targets=_used(prepared.targets, kept),
        ends={p: w.stable for p, w in source.partitions.items()},
        asked_at=source.asked_at,
        left=left,
        reason=None if kept else _why_nothing(look.view, chosen, missing.notes),
        vended=vended_of(rim.tables, (t.table for t in _used(prepared.targets, kept))),
    )
    cut_off = (f"{len(slices) - most} slices are left: {most} of {len(slices)} are admitted",) if slices[most:] else ()
    return _Decision(plan=plan, explain=(*chosen.explain, *admitted.notes, *cut_off))


def _sizes(rim: Rim, missing: Coverage, landed_bytes: int) -> dict[SourcePartition, int]:
    """Bytes of the records to be read, where it matters. What landed before says little of a large backlog."""
    limits = Limits(slice_records=rim.landing.slice_records, record_bytes=landed_bytes)
    return sizes(rim.kafka, missing) if worth_a_look(missing, limits) else {}


def _terms(landing: Landing) -> Terms:
    return Terms(budget=landing.pending_budget, stalled_cycles=landing.stalled_cycles, slow_down=landing.slow_down)


def _allowed(max_records: int | None, admitted: Admit, missing: Missing) -> int | None:
    """Records of a window, by the landing and by its admission."""
    share = None if admitted.share == 1 else max(1, math.ceil(len(missing) * admitted.share))
    return min((n for n in (max_records, admitted.records, share) if n is not None), default=None)


def _refused(rim: Rim, refused: Refuse, source: SourceState, left: int) -> _Decision:
    """An empty plan that says what there is to read."""
    rim.say(f"no window is planned: {refused}")
    ends = {p: w.stable for p, w in source.partitions.items()}
    return _Decision(plan=replace(empty_plan(rim, refused), ends=ends, asked_at=source.asked_at, left=left), explain=())


def _used(targets: Iterable[TableTarget], slices: Iterable[object]) -> tuple[TableTarget, ...]:
    """An empty plan needs no schemas."""
    return tuple(targets) if slices else ()


def _why_nothing(view: View, chosen: Chosen, notes: Mapping[SourcePartition, str]) -> str:
    if view.blocked:
        return "blocked: " + "; ".join(f"{b.coverage}: {b.reason}" for b in view.blocked)
    if notes:
        return "; ".join(f"{p}: {note}" for p, note in sorted(notes.items()))
    waiting = [c for c in view.open_cycles() if c.claim]
    held = Coverage.of(item for c in waiting for item in c.claim.items())
    return f"nothing new; other open cycles claim {held}" if held else "nothing new"


def empty_plan(rim: Rim, why: str | Refuse) -> Plan:
    """The plan of a cycle that has nothing to do, and why."""
    return Plan(
        landing=rim.landing.name,
        lane=rim.lane,
        spec_version=rim.landing.spec_version,
        window_id=window_id(rim.landing.name, rim.lane, rim.landing.spec_version, {}, ()),
        slices=(),
        targets=(),
        ends={},
        asked_at=rim.now(),
        reason=str(why),
        held=why.state if isinstance(why, Refuse) else None,
    )


def new_cycle(rim: Rim, who: RunIdentity, view: View, released: tuple[UUID, ...] = ()) -> Cycle:
    """The cycle of a run, in the smallest slot that no open cycle uses; a released one's slot is free, so that its
    zombies are fenced.
    """
    commit_id = cycle_id_of(rim, who)
    used = {c.cycle.slot for c in view.open_cycles() if not c.released and c.cycle.commit_id not in released}
    slot = next(n for n in range(len(used) + 1) if n not in used)
    return Cycle(commit_id=commit_id, dag=who.dag, run=who.run, number=who.number, slot=slot)


def send_start(rim: Rim, partition: int, cycle: Cycle, plan: Plan, directives: Directives) -> int:
    """Send the START_COMMIT; returns its offset."""
    start = rim.sender("plan", cycle.commit_id).opened(rim.new_id(), rim.now(), cycle, plan, directives)
    return rim.send("plan", cycle.slot, partition, [start])


def _just_opened(rim: Rim, look: Look, commit_id: UUID) -> Opened:
    state = look.view.cycles[commit_id]
    past = Past(state=state, ticket=ticket_of(rim, state, look.partition, look.read_from))
    return Opened(ticket=past.ticket, plan=state.plan, slices=past.granted, explain=())
