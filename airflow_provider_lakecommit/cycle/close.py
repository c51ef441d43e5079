# SPDX-License-Identifier: Apache-2.0
"""Closing a cycle: announce what a crash left, publish what is settled, table by table, and say that it is complete.

Contract: runs in every run, whatever became of its writers. Each table is settled by its own ledger; one that fails
delays no other and is never hidden. COMMIT_COMPLETE is sent only if no table operation failed, and reading a table's
metadata is one of them.

Durable steps, in order: table snapshot, COMMIT_TO_TABLE, (next chunk or table), COMMIT_COMPLETE. After a crash between
any two, the next commit task of any run finds the snapshot by its token and announces it, and publishes the rest.

Failure story: a failure is sent as evidence (START_COMMIT again with ``failed``), then raised. A slice that contradicts
its table or whose files are gone is voided by name: its range is planned again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from airflow_provider_lakecommit.committer.trim import trim_snapshots
from airflow_provider_lakecommit.core.log import Directives, SliceReported
from airflow_provider_lakecommit.core.settle import passed_ends, settle, valid_through
from airflow_provider_lakecommit.core.view import AcceptedSlice, CycleState, View, granted
from airflow_provider_lakecommit.cycle.open import cycle_id_of, start_without_tables
from airflow_provider_lakecommit.cycle.past import Past, look_back, look_up, where_it_is
from airflow_provider_lakecommit.cycle.prepare import prepare_for_commit
from airflow_provider_lakecommit.cycle.publish import TablePublisher, published_before
from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket, PublishedSnapshot
from airflow_provider_lakecommit.cycle.rim import Look, Rim, RunIdentity
from airflow_provider_lakecommit.exceptions import ControlTopicError, LakecommitError

__all__ = ["close_cycle"]


@dataclass(slots=True, kw_only=True)
class _Progress:
    """What this attempt has done so far."""

    published: list[PublishedSnapshot] = field(default_factory=list)
    voided: dict[UUID, str] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)

    @property
    def directives(self) -> Directives:
        return Directives(voided=tuple(self.voided))


def close_cycle(
    rim: Rim, who: RunIdentity, ticket: CycleTicket | None, *, retry: bool = False, retell: bool = False
) -> Closed:
    """Publish what is settled and close the cycle of a run.

    :param ticket: of the cycle, or ``None`` when the plan task did not get that far
    :param retry: look through the whole log for this run's cycle first
    :param retell: a cycle that was closed before told nobody what it had published: that is told now
    :raises LakecommitError: the first table's failure, after the evidence was sent
    """
    past = _past(rim, who, ticket) if retry or ticket is None else None
    if past is not None and past.state.complete:
        return _finished_before(rim, past, retell=retell)
    if ticket is None:
        # Its plan task failed before the START: opened empty, so that the log shows the run.
        ticket = past.ticket if past else start_without_tables(rim, who, "the plan task did not open this cycle").ticket
    progress = _Progress()
    try:
        closed = _close(rim, ticket, progress)
    except Exception as e:
        _send_evidence(rim, who, ticket, e, progress)
        raise
    _trim(rim, closed)
    return closed


def _trim(rim: Rim, closed: Closed) -> None:
    """Expire old snapshots of tables that ask for it; whatever comes of it, the cycle is closed."""
    for name in dict.fromkeys(p.table for p in closed.published):
        try:
            if gone := trim_snapshots(rim.tables, name, rim.landing.branch):
                rim.say(f"{name}: {gone} old snapshots were expired")
        except LakecommitError as e:
            rim.say(f"{name}: old snapshots stay for now: {e}")


def _past(rim: Rim, who: RunIdentity, ticket: CycleTicket | None) -> Past | None:
    rim.control.ensure()
    return look_back(rim, ticket.commit_id if ticket else cycle_id_of(rim, who))


def _finished_before(rim: Rim, past: Past, *, retell: bool) -> Closed:
    """A run that was cleared, or died with its work done: what of its window the tables lack is told, not done."""
    prepared = prepare_for_commit(rim)
    if prepared.failures:
        raise next(iter(prepared.failures.values()))
    closed = _finished(rim, past.ticket, rim.look(prepared.ledgers), past.state)
    published = tuple(p for t in prepared.tables for p in published_before(rim, t, past.state)) if retell else ()
    if not published:
        return closed
    return replace(
        closed, table=rim.landing.table, published=published, valid_through=past.valid_through, finished=False
    )


def _finished(rim: Rim, ticket: CycleTicket, look: Look, state: CycleState) -> Closed:
    lacking = look.view.lacking(granted(state.plan, state.claim))
    note, missing = where_it_is(rim, state, lacking), tuple(map(str, lacking))
    return Closed(commit_id=ticket.commit_id, finished=True, note=note, missing=missing)


def _own(rim: Rim, ticket: CycleTicket, look: Look) -> CycleState | None:
    """The run's cycle. A later cycle may have closed it, so that no ledger needs its part of the log any more."""
    return look.view.cycles.get(ticket.commit_id) or look_up(rim, ticket)


def _close(rim: Rim, ticket: CycleTicket, progress: _Progress) -> Closed:
    prepared = prepare_for_commit(rim)
    progress.failures.update(prepared.failures)
    look = rim.look(prepared.ledgers)
    state = _own(rim, ticket, look)
    if state is not None and state.complete:
        return _finished(rim, ticket, look, state)
    for table in prepared.tables:
        publisher = TablePublisher(rim=rim, ticket=ticket, table=table, whole=not prepared.failures)
        try:
            look = publisher.run(look, progress.published, progress.voided)
        except LakecommitError as e:
            rim.say(f"{table.name}: {e}")
            progress.failures[table.name] = e
    if progress.failures:
        raise next(iter(progress.failures.values()))
    return _complete(rim, ticket, look, progress)


def _complete(rim: Rim, ticket: CycleTicket, look: Look, progress: _Progress) -> Closed:
    look = rim.look(look.ledgers, since=look)
    view, state = look.view, _own(rim, ticket, look)
    ends = {p: end for c in view.cycles.values() for p, end in c.plan.ends.items()}
    standing = {t: [a for a in some if a.report.attempt not in progress.voided] for t, some in view.accepted.items()}
    reached = [passed_ends(t, standing[t.table], ends) for t in look.ledgers]
    common = {p: min(r[p] for r in reached) for p in ends} if reached else {}
    own = [] if state is None else [state]
    through = valid_through(view.cycles.values(), common) if valid_through(own, common) else None
    record = rim.sender("commit", ticket.commit_id).closed(rim.new_id(), rim.now(), through, progress.directives)
    rim.send("commit", ticket.slot, look.partition, [record])
    waiting, missing = tuple(_waiting(look, standing)), _missing(view, state, progress.voided)
    blocked = tuple(f"{b.coverage}: {b.reason}" for b in view.blocked)
    return Closed(
        commit_id=ticket.commit_id,
        table=rim.landing.table,
        published=tuple(progress.published),
        waiting=waiting,
        missing=missing,
        blocked=blocked,
        voided=tuple(progress.voided.values()),
        left=state.plan.left if state else 0,
        valid_through=through,
        reason=None if progress.published or waiting or missing or blocked else _why_idle(ticket, state),
        ignored_fields=_ignored(look, ticket.commit_id),
    )


def _waiting(look: Look, standing: Mapping[str, Sequence[AcceptedSlice]]) -> Iterable[str]:
    for ledger in look.ledgers:
        waiting = settle(standing[ledger.table], ledger.section).waiting
        yield from (f"{ledger.table}: {w}" for w in waiting if w.slice.file_count(ledger.table))


def _missing(view: View, state: CycleState | None, voided: Collection[UUID] = ()) -> tuple[str, ...]:
    return tuple(map(str, view.lacking(granted(state.plan, state.claim), voided))) if state else ()


def _why_idle(ticket: CycleTicket, state: CycleState | None) -> str:
    """Why there was nothing to publish, and nothing of the window waits, is blocked or is missing."""
    if state is None:
        return f"the plan of cycle {ticket.commit_id} is no more in the control log; what it lacked is planned again"
    return state.plan.reason or f"its window {state.plan.coverage} is in the tables already, by other runs"


def _ignored(look: Look, commit_id: UUID) -> dict[str, int]:
    """Fields that the table lacks, over the reports of this cycle."""
    out: Counter[str] = Counter()
    for e in look.entries:
        if isinstance(e, SliceReported) and e.commit_id == commit_id:
            out.update(e.report.ignored_fields)
    return dict(out)


def _send_evidence(rim: Rim, who: RunIdentity, ticket: CycleTicket, error: Exception, progress: _Progress) -> None:
    """Tell observers that a commit attempt failed; the failure itself matters more than a log that is away too."""
    reason = f"{type(error).__name__}: {error}"[:2000]
    record = rim.sender("commit", ticket.commit_id).commit_failed(
        rim.new_id(), rim.now(), reason, who.attempt, progress.directives
    )
    with suppress(ControlTopicError):
        rim.send("commit", ticket.slot, ticket.partition, [record])
