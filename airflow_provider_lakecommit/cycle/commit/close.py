# SPDX-License-Identifier: Apache-2.0
"""Close a cycle: announce what a crash left unannounced, publish settled slices table by table, and report completion.

Contract: runs in every run, whatever happened to its writers. Each table is settled by its own ledger, in turns (see
:mod:`~airflow_provider_lakecommit.cycle.commit.commit`); a failing table delays no other and is never hidden.
COMMIT_COMPLETE is sent only if no table operation failed, including reading a table's metadata. A run of several
windows may continue after failures of single tables (:mod:`~airflow_provider_lakecommit.cycle.commit.failing`).

Durable steps, in order: table snapshot, COMMIT_TO_TABLE, (next chunk or table), the publication of a branch
(:mod:`~airflow_provider_lakecommit.cycle.commit.audit`), COMMIT_COMPLETE. After a crash between any two, the next
commit task of any run finds the snapshot by its token, announces it, and publishes the rest.

Failure story: a failure is sent as evidence (START_COMMIT again with ``failed``), then raised; abandoned work sends
nothing. A slice that contradicts its table or whose files are missing is voided by name: its range is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from airflow_provider_lakecommit.control import Outgoing
from airflow_provider_lakecommit.core import (
    LIVE,
    AcceptedSlice,
    Counts,
    CycleState,
    Directives,
    Slice,
    TableLedger,
    done_reports,
    granted,
    passed_ends,
    summed,
    valid_through,
)
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.cycle.commit.audit import audit
from airflow_provider_lakecommit.cycle.commit.commit import TableCommits, own_cycle
from airflow_provider_lakecommit.cycle.commit.failing import FailingTables
from airflow_provider_lakecommit.cycle.jobs.write import causes_of
from airflow_provider_lakecommit.cycle.plan.resume import published_before
from airflow_provider_lakecommit.cycle.plan.start import FoundCycle, find_cycle, start_without_tables, where_it_is
from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket
from airflow_provider_lakecommit.cycle.session.landing_session import (
    FoldedLog,
    LandingSession,
    RunIdentity,
    cycle_id_of,
)
from airflow_provider_lakecommit.exceptions import ClosedError, ControlTopicError, LakecommitError
from airflow_provider_lakecommit.iceberg import CommitterThread, trim_snapshots


def close_cycle(
    session: LandingSession,
    run: RunIdentity,
    ticket: CycleTicket | None,
    *,
    retry: bool = False,
    in_events: Collection[int] | None = None,
    executor: CommitterThread | None = None,
    failing: FailingTables | None = None,
) -> Closed:
    """Publish settled slices and close the cycle of a run.

    :param ticket: the cycle's ticket, or ``None`` if the plan task did not get that far
    :param retry: search the whole log for this run's cycle first
    :param in_events: snapshots that observers know of; those of a closed cycle are returned if others are among them
    :param executor: a shared executor; by default one is made for this call
    :param failing: isolates failing tables; the cycle stays open while others succeed, and nothing is raised
    :raises LakecommitError: the first table's failure, after the evidence was sent
    """
    past = _past(session, run, ticket) if retry or ticket is None else None
    with CommitterThread() if executor is None else nullcontext(executor) as turns:
        if past is not None and past.state.complete:
            return _finished_before(session, past, turns, in_events)
        if ticket is None:
            # Its plan task failed before the START: opened empty, so that the log shows the run.
            opened = past or start_without_tables(session, run, "the plan task did not open this cycle")
            ticket = opened.ticket
        commits = TableCommits(session=session, ticket=ticket, logs=failing is None)
        if failing is not None:
            commits.left_out, commits.fast_fail = failing.begin()
        try:
            closed = _close(commits, turns, run, failing)
        except ClosedError:
            raise
        except Exception as e:
            # Errors of the log are ignored in favor of the failure itself.
            if not isinstance(e, ControlTopicError) or session.control.answers():
                record = _evidence(session, run, ticket, e, commits, tuple(commits.failures))
                with suppress(ControlTopicError, ClosedError):
                    session.send("commit", ticket, ticket.partition, [record])
            raise
        _trim(commits, closed, turns)
    return closed


def _trim(commits: TableCommits, closed: Closed, executor: CommitterThread) -> None:
    """Expire old snapshots of tables that want it; a failure does not affect the cycle."""
    session = commits.session
    trim = partial(trim_snapshots, session.tables, audited=bool(session.landing.checks))
    for name in dict.fromkeys(p.table for p in closed.published):
        expire = partial(trim, name, session.landing.branch)
        try:
            if expired := executor.run_exclusive(session.key(name), expire, about=commits.about(name, "trim")):
                session.log(f"{name}: expired {expired} old snapshots")
        except LakecommitError as e:
            session.log(f"{name}: could not expire old snapshots; the next commit tries again: {e}")


def _past(session: LandingSession, run: RunIdentity, ticket: CycleTicket | None) -> FoundCycle | None:
    session.control.ensure()
    return find_cycle(session, ticket.commit_id if ticket else cycle_id_of(session, run))


def _finished_before(
    session: LandingSession, past: FoundCycle, executor: CommitterThread, in_events: Collection[int] | None
) -> Closed:
    """Return the result of a run that was cleared or died with its work done; missing slices are only reported."""
    commits = TableCommits(session=session, ticket=past.ticket)
    tables = executor.run(commits.prepare)
    commits.check()
    closed = _finished(session, past.ticket, session.read_state([t.ledger for t in tables]), past.state)
    if in_events is None:
        return closed
    published = tuple(p for t in tables for p in published_before(session, t, past.state))
    if all(p.snapshot_id in in_events for p in published):
        return closed
    return replace(
        closed,
        table=session.landing.table,
        other_tables=session.landing.data_tables[1:],
        published=published,
        valid_through=past.valid_through,
        finished=False,
    )


def _finished(session: LandingSession, ticket: CycleTicket, folded: FoldedLog, state: CycleState) -> Closed:
    lacking = folded.state.lacking(granted(state.plan, state.claim))
    note, missing = where_it_is(session, state, lacking), tuple(map(str, lacking))
    return Closed(commit_id=ticket.commit_id, finished=True, note=note, missing=missing)


def _close(commits: TableCommits, executor: CommitterThread, run: RunIdentity, failing: FailingTables | None) -> Closed:
    session, ticket = commits.session, commits.ticket
    executor.run(commits.run)
    if failing is not None:
        failing.note(commits.failures, commits.done, others=commits.others_go_on)
    commits.check_exits()
    folded = commits.folded or commits.read_log(())
    if commits.state is not None and commits.state.complete:
        return _finished(session, ticket, folded, commits.state)
    if failing is None or not commits.others_go_on:
        commits.check()
    ledgers = [commits.ledgers[name] for name in session.landing.tables if name in commits.ledgers]
    folded = session.read_state(ledgers, since=folded)
    if failing and (lacking := {**commits.failures, **dict.fromkeys(commits.left_out)}):
        evidence = _evidence(session, run, ticket, failing.error(), commits, tuple(lacking))
        session.send("commit", ticket, folded.partition, [evidence])
        return _closed(commits, folded, None, failing.lines())

    def exclusive(name: str, move: Callable[[], bool]) -> bool:
        return executor.run_exclusive(session.key(name), move, about=commits.about(name, "audit"))

    commits.on_main = audit(session, commits.landed, exclusive)
    return _complete(commits, folded)


def _complete(commits: TableCommits, folded: FoldedLog) -> Closed:
    """Report that the cycle is complete, and up to when the tables are complete."""
    session, ticket, landing_state = commits.session, commits.ticket, folded.state
    state, standing = own_cycle(session, ticket, folded), _standing(commits, folded)
    ends = {p: end for c in landing_state.cycles.values() for p, end in c.plan.ends.items()}
    reached = [passed_ends(t, standing[t.table], ends) for t in folded.ledgers]
    common = {p: min(r[p] for r in reached) for p in ends} if reached else {}
    # A backfill says nothing about the age of the tables' newest rows.
    own = [] if state is None or session.lane != LIVE else [state]
    through = valid_through(landing_state.cycles.values(), common) if valid_through(own, common) else None
    record = session.sender("commit", ticket.commit_id).closed(
        session.new_id(), session.now(), through, Directives(voided=tuple(commits.voided))
    )
    session.send("commit", ticket, folded.partition, [record])
    return _closed(commits, folded, through)


def _standing(commits: TableCommits, folded: FoldedLog) -> dict[str, list[AcceptedSlice]]:
    """Return each table's accepted slices that were not given up."""
    given_up = {t: {**commits.voided, **commits.not_taken.get(t, {})} for t in folded.state.accepted}
    return {t: [a for a in some if a.report.attempt not in given_up[t]] for t, some in folded.state.accepted.items()}


def _closed(
    commits: TableCommits, folded: FoldedLog, through: datetime | None, failed: Mapping[str, str] | None = None
) -> Closed:
    """Return the cycle's result, read after its last step.

    :param failed: tables that have not taken it, and why
    """
    session, ticket, landing_state = commits.session, commits.ticket, folded.state
    state = own_cycle(session, ticket, folded)
    waiting = tuple(waiting_slices(folded.ledgers, _standing(commits, folded)))
    lacking = landing_state.lacking(granted(state.plan, state.claim), commits.refused) if state else ()
    # Slices left out on request are not lost: they are planned like later ones.
    early = sum(map(len, lacking)) if state and state.ended_early else 0
    forgotten = () if state else (_forgotten(ticket),)
    missing = forgotten if early or forgotten else tuple(map(str, lacking))
    blocked = tuple(map(str, landing_state.blocked))
    done = done_reports(landing_state, folded.entries, ticket.commit_id)
    most = max(done, key=lambda r: sum(r.rejects.values()), default=None)
    elsewhere = f"other runs have already published its window {state.plan.coverage}" if state else ""
    something = commits.published or waiting or missing or blocked or failed
    return Closed(
        commit_id=ticket.commit_id,
        table=session.landing.table,
        other_tables=session.landing.data_tables[1:],
        published=commits.published,
        waiting=waiting,
        missing=missing,
        blocked=blocked,
        voided=(*commits.refused.values(), *forgotten),
        left=(state.plan.left if state else 0) + early,
        valid_through=through,
        reason=None if state is None or something else state.plan.reason or elsewhere,
        stopped="" if state is None else state.plan.stopped,
        note=f"the cycle ended early ({state.ended_early}); the next run continues" if state and early else "",
        ignored_fields=summed(r.ignored_fields for r in done),
        counts=sum((s.counts for r in done for s in r.spans), Counts()),
        rejects=summed(r.rejects for r in done),
        reject_reason="" if most is None else most.reject_reason,
        redundant=len(state.redundant) if state else 0,
        causes=causes_of(folded.entries, ticket.commit_id, _undone(state)),
        failed={name: session.without_secrets(why) for name, why in (failed or {}).items()},
    )


def waiting_slices(ledgers: Iterable[TableLedger], accepted: Mapping[str, Sequence[AcceptedSlice]]) -> Iterable[str]:
    """Yield the slices with rows that cannot be published yet, with the offset that is missing before each."""
    for ledger in ledgers:
        waiting = settle(accepted[ledger.table], ledger.section, ledger.others).waiting
        yield from (f"{ledger.table}: {why}" for s, why in waiting if s.file_count(ledger.table))


def _forgotten(ticket: CycleTicket) -> str:
    """Return the message for a cycle whose START was removed, so that its plan is unknown."""
    return (
        f"the control topic no longer holds the plan of cycle {ticket.commit_id}, its retention may be shorter than a "
        "cycle; the unpublished ranges are planned again"
    )


def _undone(state: CycleState | None) -> list[Slice]:
    whole = granted(state.plan, state.claim) if state else ()
    return [rest for s in whole if state and (rest := state.left_of(s)) is not None]


def _evidence(
    session: LandingSession,
    run: RunIdentity,
    ticket: CycleTicket,
    error: Exception | None,
    commits: TableCommits,
    tables: tuple[str, ...],
) -> Outgoing:
    reason = session.without_secrets(f"{type(error).__name__}: {error}")[:2000]
    voided = Directives(voided=tuple(commits.voided))
    return session.sender("commit", ticket.commit_id).commit_failed(
        session.new_id(), session.now(), reason, run.attempt, voided, tables, session.landing.table
    )
