# SPDX-License-Identifier: Apache-2.0
"""Closing a cycle: announce what a crash left, publish what is settled, table by table, and say that it is complete.

Contract: runs in every run, whatever became of its writers. Each table is settled by its own ledger, in turns (see
:mod:`~airflow_provider_lakecommit.cycle.commit`); one that fails delays no other and is never hidden. COMMIT_COMPLETE
is sent only if no table operation failed, and reading a table's metadata is one of them.

Durable steps, in order: table snapshot, COMMIT_TO_TABLE, (next chunk or table), COMMIT_COMPLETE. After a crash between
any two, the next commit task of any run finds the snapshot by its token and announces it, and publishes the rest.

Failure story: a failure is sent as evidence (START_COMMIT again with ``failed``), then raised; work that was let go of
says nothing. A slice that contradicts its table or whose files are gone is voided by name: its range is planned again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

from airflow_provider_lakecommit.committer.desk import CommitterThread
from airflow_provider_lakecommit.committer.trim import trim_snapshots
from airflow_provider_lakecommit.core.accounting import add_names
from airflow_provider_lakecommit.core.log import Directives, SliceReported
from airflow_provider_lakecommit.core.settle import passed_ends, settle, valid_through
from airflow_provider_lakecommit.core.view import AcceptedSlice, CycleState, View, granted
from airflow_provider_lakecommit.cycle.commit import TableCommit, TableCommits, own_cycle
from airflow_provider_lakecommit.cycle.open import start_without_tables
from airflow_provider_lakecommit.cycle.past import Past, look_back, where_it_is
from airflow_provider_lakecommit.cycle.publish import published_before
from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket
from airflow_provider_lakecommit.cycle.rim import Look, Rim, RunIdentity, cycle_id_of
from airflow_provider_lakecommit.exceptions import ClosedError, ControlTopicError, LakecommitError

__all__ = ["close_cycle"]


def close_cycle(
    rim: Rim,
    who: RunIdentity,
    ticket: CycleTicket | None,
    *,
    retry: bool = False,
    retell: bool = False,
    desk: CommitterThread | None = None,
) -> Closed:
    """Publish what is settled and close the cycle of a run.

    :param ticket: of the cycle, or ``None`` when the plan task did not get that far
    :param retry: look through the whole log for this run's cycle first
    :param retell: a cycle that was closed before told nobody what it had published: that is told now
    :param desk: where others commit too; without one, it is made for this call
    :raises LakecommitError: the first table's failure, after the evidence was sent
    """
    past = _past(rim, who, ticket) if retry or ticket is None else None
    with CommitterThread() if desk is None else nullcontext(desk) as turns:
        if past is not None and past.state.complete:
            return _finished_before(rim, past, turns, retell=retell)
        if ticket is None:
            # Its plan task failed before the START: opened empty, so that the log shows the run.
            opened = past or start_without_tables(rim, who, "the plan task did not open this cycle")
            ticket = opened.ticket
        commits = TableCommits(rim=rim, ticket=ticket)
        try:
            closed = _close(commits, turns)
        except ClosedError:
            raise
        except Exception as e:
            _send_evidence(rim, who, ticket, e, commits)
            raise
        _trim(rim, closed, turns)
    return closed


def _trim(rim: Rim, closed: Closed, desk: CommitterThread) -> None:
    """Expire old snapshots of tables that ask for it; whatever comes of it, the cycle is closed."""
    for name in dict.fromkeys(p.table for p in closed.published):
        landing = rim.landing.name
        about = TableCommit(landing=landing, lane=rim.lane, commit_id=closed.commit_id, name=name, step="trim")
        try:
            if gone := desk.change(
                rim.key(name), partial(trim_snapshots, rim.tables, name, rim.landing.branch), about=about
            ):
                rim.say(f"{name}: {gone} old snapshots were expired")
        except LakecommitError as e:
            rim.say(f"{name}: old snapshots stay for now: {e}")


def _past(rim: Rim, who: RunIdentity, ticket: CycleTicket | None) -> Past | None:
    rim.control.ensure()
    return look_back(rim, ticket.commit_id if ticket else cycle_id_of(rim, who))


def _finished_before(rim: Rim, past: Past, desk: CommitterThread, *, retell: bool) -> Closed:
    """A run that was cleared, or died with its work done: what of its window the tables lack is told, not done."""
    commits = TableCommits(rim=rim, ticket=past.ticket)
    tables = desk.run(commits.prepare)
    commits.check()
    closed = _finished(rim, past.ticket, rim.look([t.ledger for t in tables]), past.state)
    published = tuple(p for t in tables for p in published_before(rim, t, past.state)) if retell else ()
    if not published:
        return closed
    return replace(
        closed, table=rim.landing.table, published=published, valid_through=past.valid_through, finished=False
    )


def _finished(rim: Rim, ticket: CycleTicket, look: Look, state: CycleState) -> Closed:
    lacking = look.view.lacking(granted(state.plan, state.claim))
    note, missing = where_it_is(rim, state, lacking), tuple(map(str, lacking))
    return Closed(commit_id=ticket.commit_id, finished=True, note=note, missing=missing)


def _close(commits: TableCommits, desk: CommitterThread) -> Closed:
    rim, ticket = commits.rim, commits.ticket
    desk.run(commits.run)
    commits.check_exits()
    look = commits.look or commits.look_at(())
    if commits.state is not None and commits.state.complete:
        return _finished(rim, ticket, look, commits.state)
    commits.check()
    ledgers = [commits.ledgers[name] for name in rim.landing.tables if name in commits.ledgers]
    return _complete(commits, rim.look(ledgers, since=look))


def _complete(commits: TableCommits, look: Look) -> Closed:
    rim, ticket = commits.rim, commits.ticket
    view, state = look.view, own_cycle(rim, ticket, look)
    ends = {p: end for c in view.cycles.values() for p, end in c.plan.ends.items()}
    standing = {t: [a for a in some if a.report.attempt not in commits.voided] for t, some in view.accepted.items()}
    reached = [passed_ends(t, standing[t.table], ends) for t in look.ledgers]
    common = {p: min(r[p] for r in reached) for p in ends} if reached else {}
    own = [] if state is None else [state]
    through = valid_through(view.cycles.values(), common) if valid_through(own, common) else None
    record = rim.sender("commit", ticket.commit_id).closed(rim.new_id(), rim.now(), through, _directives(commits))
    rim.send("commit", ticket.slot, look.partition, [record])
    waiting, missing = tuple(_waiting(look, standing)), _missing(view, state, commits.voided)
    blocked = tuple(f"{b.coverage}: {b.reason}" for b in view.blocked)
    return Closed(
        commit_id=ticket.commit_id,
        table=rim.landing.table,
        published=commits.published,
        waiting=waiting,
        missing=missing,
        blocked=blocked,
        voided=tuple(commits.voided.values()),
        left=state.plan.left if state else 0,
        valid_through=through,
        reason=None if commits.published or waiting or missing or blocked else _why_idle(ticket, state),
        ignored_fields=_ignored(look, ticket.commit_id),
    )


def _directives(commits: TableCommits) -> Directives:
    return Directives(voided=tuple(commits.voided))


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
            add_names(out, e.report.ignored_fields)
    return dict(out)


def _send_evidence(rim: Rim, who: RunIdentity, ticket: CycleTicket, error: Exception, commits: TableCommits) -> None:
    """Tell observers that a commit attempt failed; the failure itself matters more than a log that is away too."""
    reason = f"{type(error).__name__}: {error}"[:2000]
    record = rim.sender("commit", ticket.commit_id).commit_failed(
        rim.new_id(), rim.now(), reason, who.attempt, _directives(commits), tuple(commits.failures), rim.landing.table
    )
    with suppress(ControlTopicError, ClosedError):
        rim.send("commit", ticket.slot, ticket.partition, [record])
