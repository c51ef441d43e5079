# SPDX-License-Identifier: Apache-2.0
"""Decide how a blocked range continues: `lakecommit reset blocked`.

Contract: a decision is durable before it is reported. An unblock is a cycle of its own in the control log: its START
has the decision, and it is closed like any other, so its COMMIT_COMPLETE shows that commits get through. Only the named
ranges, or all, are affected. Readable records are given up only if the whole range is requested: otherwise a range
whose bad records were counted is read again, with a budget of exactly these; if they were not counted to the end of the
range, the budget is the number of its records.

Failure story: after a kill, a decision is either in the log or was not made; run the same command again. If the commit
of an unblock fails, the decision is valid, and the next successful commit publishes it. User and reason are in the log
with the decision, and with the next rows in the table's history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_lakecommit.core import (
    MOST_TEXT,
    RESET_BLOCKED,
    STATUS,
    Budget,
    Counts,
    Coverage,
    Cycle,
    Decision,
    Directives,
    RangeSet,
    SliceReport,
    SliceReported,
    Span,
    SpanReport,
    TableReport,
    TableTarget,
    own_budget,
    slice_id,
    window_id,
)
from airflow_provider_lakecommit.cycle import (
    FoldedLog,
    LandingSession,
    Prepared,
    RunIdentity,
    close_cycle,
    empty_plan,
    ledger_states,
    new_cycle,
    prepare_for_commit,
    send_start,
    ticket_of,
    unknown_text,
)
from airflow_provider_lakecommit.exceptions import BlockedRangeError, LakecommitError
from airflow_provider_lakecommit.iceberg import refresh_ledger
from airflow_provider_lakecommit.operations.decisions.operation import NothingToDoError, Proposal, not_as_previewed
from airflow_provider_lakecommit.operations.decisions.requests import ResetBlocked
from airflow_provider_lakecommit.operations.decisions.stated import ranges_of

Named = Mapping[tuple[str, int], RangeSet]
"""Ranges by (topic, partition)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPart:
    """One blocked range, as far as it was named. ``bad`` and ``good`` records are known where its slice was read to its
    end; ``least_bad`` where that was stopped, because its budget was surely exceeded.
    """

    span: Span
    reason: str
    bad: int | None = None
    good: int | None = None
    least_bad: int | None = None

    @property
    def argument(self) -> str:
        """Return it as `--range` takes it."""
        p, r = self.span.partition, self.span.range
        return f"{p.topic}:{p.partition}={r.start}-{r.end}"

    def __str__(self) -> str:
        known = "unknown number of good records" if self.good is None else f"{self.good} good records"
        bad = "" if self.bad is None else f", {self.bad} bad"
        least = "" if self.least_bad is None else f", at least {self.least_bad} are bad"
        return f"{self.span} ({known}{bad}{least}): {self.reason}"

    @property
    def most_bad(self) -> int | None:
        """Return how many records are given up without the bad ones; ``None`` if the bad ones are unknown."""
        return len(self.span) if self.bad is None and self.least_bad is not None else self.bad


def blocked_parts(
    session: LandingSession, partitions: Collection[tuple[str, int]] | None = None, ranges: Named | None = None
) -> tuple[BlockedPart, ...]:
    """Return what is blocked; nothing is written.

    :param partitions: only those
    :param ranges: only these offsets
    :raises BlockedRangeError: nothing is blocked there
    """
    _, folded = _read_log(session)
    return _parts(session, folded, partitions, ranges)


def preview(session: LandingSession, request: ResetBlocked) -> tuple[BlockedPart, ...]:
    return blocked_parts(session, *request.chosen())


def propose(session: LandingSession, request: ResetBlocked) -> Proposal:
    """Return the blocked ranges and the effect on them."""
    values = request.values()
    try:
        found = preview(session, request)
    except BlockedRangeError as e:
        raise NothingToDoError(str(e)) from None
    blocked = {"blocked": [str(p) for p in found], "ranges": _coverage(found).to_dict()}
    return {**values, **blocked}, [f"{_becomes(request, p)}: {p}" for p in found]


def _becomes(request: ResetBlocked, part: BlockedPart) -> str:
    match request.way:
        case "raise":
            return f"READS AGAIN, with up to {request.budget} dead letters"
        case "retry":
            return "READS AGAIN, under the landing's current budget"
        case "skip" if part.good is None:
            return "CANNOT be skipped without its good records (how='skip whole' gives up all of it)"
        case "skip" if part.good:
            return f"READS AGAIN, without its {part.bad} bad records"
        case _:
            return "GIVES UP all of"


def confirm(session: LandingSession, request: ResetBlocked, agreed: Mapping[str, Any]) -> tuple[BlockedPart, ...]:
    """Return what was previewed and is still blocked."""
    request.check_agreed(agreed)
    try:
        found = blocked_parts(session, None, ranges_of(agreed["ranges"]))
    except BlockedRangeError:
        raise NothingToDoError("no agreed range is blocked any more: already done") from None
    if changed := [str(p) for p in found if str(p) not in agreed["blocked"]]:
        raise not_as_previewed("; ".join(changed))
    return found


def apply(
    session: LandingSession, request: ResetBlocked, found: Sequence[BlockedPart], decision: Decision
) -> dict[str, Any]:
    """Decide about what was previewed."""
    landing = session.landing
    own = own_budget(landing.budget, landing.dead_letter_table) if request.way == "retry" else None
    return unblock(
        session,
        ranges={(p.topic, p.partition): ranges for p, ranges in _coverage(found).parts.items()},
        raise_to=own or request.raise_to(),
        skip=request.way in ("skip", "skip whole"),
        only_bad=request.way != "skip whole",
        decision=decision,
    )


def unblock(
    session: LandingSession,
    *,
    ranges: Named | None = None,
    raise_to: Budget | None = None,
    skip: bool = False,
    only_bad: bool = False,
    decision: Decision | None = None,
) -> dict[str, Any]:
    """Decide how blocked ranges continue: read again under ``raise_to``, or given up (``skip``).

    :param ranges: only these offsets; all blocked ones by default
    :param only_bad: give up no good record: a range with good records is read again, with a budget of its bad ones
    :param decision: the user who decided, for the tables' history
    :raises BlockedRangeError: nothing is blocked there, or its bad records are unknown
    """
    prepared, folded = _read_log(session)
    parts = _parts(session, folded, None, ranges)
    given_up = [p for p in parts if skip and (not only_bad or p.good == 0)]
    again = [p for p in parts if p not in given_up]
    if unknown := [p for p in again if skip and p.most_bad is None]:
        named = " ".join(f"--range {p.argument}" for p in unknown)
        raise BlockedRangeError(
            "LC7042",
            f"{'; '.join(map(str, unknown))}: only the whole range can be given up, with `{RESET_BLOCKED} "
            f"SPEC --skip --whole {named}`",
        )
    budgets = {p: raise_to or Budget(max_records=p.most_bad or 0, max_ratio=1.0) for p in again}
    raised = tuple((_coverage([p]), budget) for p, budget in budgets.items())
    coverage = _coverage(parts)
    run = RunIdentity(deployment="person", dag_id="unblock", run_id=_run_id(session, decision))
    cycle = new_cycle(session, run, folded.state)
    plan = empty_plan(session, f"unblock {coverage}")
    decided = decision and replace(decision, what=_what(given_up, again))
    directives = Directives(raised=raised, decided=() if decided is None else (decided,))
    sent = send_start(session, folded.partition, cycle, plan, directives)
    if given_up:
        _give_up(session, prepared, folded, _coverage(given_up), cycle)
    session.log(f"{'given up' if given_up and not again else 'to be read again'}: {coverage}")
    committed = _commit(session, run, folded, cycle, sent)
    if committed and decided is not None:
        _record(session, prepared, decided)
    return {
        "unblocked": coverage.to_dict(),
        "skipped": skip,
        "read_again": _coverage(again).to_dict(),
        "committed": committed,
    }


def _read_log(session: LandingSession) -> tuple[Prepared, FoldedLog]:
    prepared = prepare_for_commit(session)
    for failure in prepared.failures.values():
        raise failure
    return prepared, session.read_state(prepared.ledgers)


def _parts(
    session: LandingSession, folded: FoldedLog, partitions: Collection[tuple[str, int]] | None, ranges: Named | None
) -> tuple[BlockedPart, ...]:
    reports = [e.report for e in folded.entries if isinstance(e, SliceReported) and e.report.blocked is not None]
    found: list[BlockedPart] = []
    for b in folded.state.blocked:
        for p, whole in b.coverage.parts.items():
            key = (p.topic, p.partition)
            if partitions is not None and key not in partitions:
                continue
            selected = whole if ranges is None else whole & ranges.get(key, RangeSet())
            found += (_part(Span(p, r), b.reason, reports) for r in selected)
    if not found:
        unknown = unknown_text(session, ledger_states(session))
        raise BlockedRangeError(
            "LC7043",
            f"landing {session.landing.name}: nothing is blocked there; `{STATUS}` lists blocked ranges"
            f"{f'; {unknown}' if unknown else ''}",
        )
    return tuple(found)


def _part(span: Span, reason: str, reports: Sequence[SliceReport]) -> BlockedPart:
    """Return a blocked part with the counts of the newest report on its range; without one, with unknown counts."""
    for report in reversed(reports):
        spans = (s for s in report.spans if s.span.partition == span.partition)
        counted = next((s for s in spans if RangeSet.of(s.span.range).covers(span.range)), None)
        if counted is None:
            continue
        counts = counted.counts
        if not counts.rejected:
            break
        if counts.total != len(counted.span):
            return BlockedPart(span=span, reason=reason, least_bad=counts.rejected if counted.span == span else None)
        if counted.span == span or not counts.good:
            bad = counts.rejected if counted.span == span else None
            return BlockedPart(span=span, reason=reason, bad=bad, good=counts.good)
    return BlockedPart(span=span, reason=reason)


def _coverage(parts: Sequence[BlockedPart]) -> Coverage:
    return Coverage.of((p.span.partition, p.span.range) for p in parts)


def _run_id(session: LandingSession, decision: Decision | None) -> str:
    """Return the id of the cycle, with the user and the reason for readers of the control log."""
    unique = str(session.new_id())
    return unique if decision is None else f"{unique} by {decision.actor} on {decision.host}: {decision.reason}"[:300]


def _commit(session: LandingSession, run: RunIdentity, folded: FoldedLog, cycle: Cycle, sent: int) -> bool:
    """Close the cycle like any other: it is complete only when all settled slices are published."""
    after = session.read_state(folded.ledgers, since=folded, until=sent)
    ticket = ticket_of(session, after.just_opened(cycle.commit_id), folded.partition, folded.read_from)
    try:
        close_cycle(session, run, ticket)
    except LakecommitError as e:
        session.log(f"recorded the decision in the control log; its commit failed, the next one applies it: {e}")
        return False
    return True


def _what(given_up: Sequence[BlockedPart], again: Sequence[BlockedPart]) -> str:
    changes = [f"gives up {_coverage(given_up)}"] if given_up else []
    return "; ".join([*changes, *([f"reads {_coverage(again)} again"] if again else [])])[:MOST_TEXT]


def _record(session: LandingSession, prepared: Prepared, decision: Decision) -> None:
    """Add it to the history of each table that can be written now; otherwise the next snapshot with rows records it."""
    for t in prepared.tables:
        try:
            refresh_ledger(
                session.tables,
                t.name,
                session.landing.name,
                session.lane,
                branch=session.landing.branch,
                decision=decision,
            )
        except LakecommitError as e:
            session.log(f"{t.name}: recorded the decision only in the control log, not in the table history: {e}")


def _give_up(session: LandingSession, prepared: Prepared, folded: FoldedLog, coverage: Coverage, cycle: Cycle) -> None:
    """Report each range as done with all of its offsets skipped; the next commit settles it like any other slice."""
    sender, version = session.sender("write", cycle.commit_id), session.landing.spec_version
    window = window_id(
        session.landing.name, session.lane, version, prepared.epochs, (Span(p, r) for p, r in coverage.items())
    )
    records = []
    for p, r in coverage.items():
        span = Span(p, r)
        report = SliceReport(
            slice_id=slice_id(window, (span,), session.landing.tables),
            attempt=session.new_id(),
            window_id=window,
            spec_version=version,
            spans=(SpanReport(span=span, counts=Counts(skipped=len(r))),),
            tables=tuple(_untouched(t) for t in prepared.targets),
        )
        records.append(sender.reported(session.new_id(), session.now(), report))
    session.send("skip", cycle, folded.partition, records)


def _untouched(t: TableTarget) -> TableReport:
    return TableReport(
        table=t.table, uuid=t.uuid, epoch=t.epoch, schema_id=t.schema_id, spec_id=t.spec_id, events=0, files=0, rows=0
    )
