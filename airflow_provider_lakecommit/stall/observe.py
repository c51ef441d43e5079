# SPDX-License-Identifier: Apache-2.0
"""The fold of :mod:`.stall`: how each event of a control topic changes the state of an observer.

:func:`observe` is pure, and cheap: frequent events, announcements and answers, are only noted, and folded in when a
cycle starts or completes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_lakecommit.core import FAILURES_TO_BLOCK, Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.stall.group_state import (
    EventKind,
    ObservedEvent,
    OpenCycle,
    Partition,
    PassedOver,
    PendingFiles,
    StallRules,
    State,
    Table,
    items,
    merged,
    remembered,
    silence_limit,
    waiting,
)

LEARNED = 9
"""Number of remembered intervals."""
SENDERS = 4
"""Number of START_COMMITs whose senders are compared."""


def observe(state: State, event: ObservedEvent, rules: StallRules) -> State:
    return _OBSERVE[event.kind](state, event, rules)


def _start(state: State, event: ObservedEvent, rules: StallRules) -> State:
    known = next((b for b in state.begun if b.commit == event.commit), None)
    if known is not None:
        # Repeated: a commit attempt failed, or its run was restarted.
        again = replace(known, deadline=event.deadline or known.deadline)
        if event.failed:
            again = replace(again, failed=event.failed, beside=event.beside)
        begun = tuple(again if b is known else b for b in state.begun)
        return _settled(state, event.covers)._replace(begun=begun, last=_later(state.last, event.at))
    number = state.starts + 1
    one = OpenCycle(
        commit=event.commit,
        at=event.at,
        number=number,
        sender=event.sender,
        deadline=event.deadline,
        failed=event.failed,
        beside=event.beside,
        full=event.full,
    )
    changed = bool(state.senders) and (event.sender or b"") != state.senders[-1]
    # The time between two coordinators depends on when the loss was noticed.
    gap = () if state.last_start is None or changed else (max(0.0, event.at - state.last_start),)
    settled = _settled(state, event.covers)
    return settled._replace(
        begun=_kept((*_passed_by(state, event, rules), one), rules),
        starts=number,
        last=_later(state.last, event.at),
        last_start=event.at,
        intervals=(*state.intervals, *gap)[-LEARNED:],
        senders=(*state.senders, event.sender or b"")[-SENDERS:],
        fresh=state.fresh or changed,
        heard=frozenset() if changed else state.heard,
        # An incomplete cycle leaves its answers and announcements: they are kept once, not once per cycle.
        answers=merged(state.answers) if state.begun else state.answers,
        journal=None,
        noted=0,
        waiting=waiting(state),
        deferred=(state.deferred[0] if state.deferred else event.at, event.deferred) if event.deferred else None,
        blocked=_left_blocked(settled, event),
    )


def _written(state: State, event: ObservedEvent, _rules: StallRules) -> State:
    if event.table is None or not event.files:
        return state
    table = (event.table, event.table_id)
    if _was_published(state, event, table):
        # From another control partition, and read after its snapshot; its sender's clock may be ahead.
        return state
    one = PendingFiles(table=table, commit=event.commit, files=event.files, at=event.at, starts=state.starts)
    return state._replace(journal=(one, state.journal), noted=state.noted + one.files)


def _was_published(state: State, event: ObservedEvent, table: Table) -> bool:
    """Return True if the cycle of this event is the last complete one, and has published the table after it."""
    if state.done is None:
        return False
    completed, tables = state.done
    # A cycle with a valid-through time has waited for all.
    before = completed.valid_through is not None or event.at < completed.at
    return completed.commit == event.commit and table in tables and before


def _answered(state: State, event: ObservedEvent, _rules: StallRules) -> State:
    if event.tried is not None and event.covers:
        return _tried(state, event, event.covers)
    if event.blocked is not None and event.covers:
        return _blocked(state, event.covers, event.blocked, event.at)
    if event.partitions is None:
        return state if state.only_heads else state._replace(only_heads=True)
    return state._replace(answers=(event, state.answers))


def _tried(state: State, event: ObservedEvent, covers: Coverage) -> State:
    """Return the state after a slice failed: a range that has failed alone, and in enough cycles, is blocked."""
    commit, before = state.tried_in
    before = before if commit == event.commit else Coverage()
    new, below, after = covers - before, covers, []
    for tried in state.tried or (Coverage(),) * FAILURES_TO_BLOCK:
        after.append(tried | (below & new))
        below = tried
    state = state._replace(tried=tuple(after), tried_in=(event.commit, before | covers))
    often = after[-1] & covers
    if not event.alone or not often:
        return state
    return _blocked(state, often, f"failed in {FAILURES_TO_BLOCK} cycles: {event.tried}", event.at)


def _blocked(state: State, covers: Coverage, reason: str, at: float) -> State:
    new = covers - Coverage.union(c for c, _, _ in state.blocked)
    return state._replace(blocked=(*state.blocked, (new, reason, at))) if new else state


def _published(state: State, event: ObservedEvent, _rules: StallRules) -> State:
    state = _settled(state, event.covers)._replace(last=_later(state.last, event.at))
    if event.table is None:
        return state
    table = (event.table, event.table_id)
    over = {
        t: p for t, p in state.over.items() if not (_same(t, table) or (t[0] == table[0] and p.sender != event.sender))
    }
    return state._replace(journal=(table, state.journal), over=over if len(over) < len(state.over) else state.over)


def _completed(state: State, event: ObservedEvent, rules: StallRules) -> State:
    cycle = next((b for b in state.begun if b.commit == event.commit), None)
    state = _settled(state, event.covers)._replace(
        begun=_still_open(state.begun, cycle) if rules.landing else (),
        last=_later(state.last, event.at),
        completed=state.completed + 1,
        completed_at=event.at,
        valid_through=state.valid_through if event.valid_through is None else event.valid_through,
    )
    return state if rules.landing else _worked_in(state, event, rules, cycle)


def _worked_in(state: State, event: ObservedEvent, rules: StallRules, cycle: OpenCycle | None) -> State:
    """Return the state after the answers and files of a connector's complete cycle."""
    answers = tuple(items(state.answers))
    # Only a cycle that waited for all has a time, if each partition has one.
    everybody = event.valid_through is not None
    answered = frozenset[Partition]().union(*(a.partitions for a in answers))
    missing, fresh = _missing(state, answered, everybody)
    heard = state.heard if answered <= state.heard else state.heard | answered
    announced = waiting(state)

    def was_read(a: PendingFiles) -> bool:
        return (cycle is not None and a.starts < cycle.number) or (everybody and a.commit == event.commit)

    # If the log begins in the middle of a cycle, the result of that cycle's files is unknown.
    read = [a for a in announced if was_read(a) and (a.starts or a.commit == event.commit)]
    published = frozenset(item for item in items(state.journal) if not isinstance(item, PendingFiles))
    return state._replace(
        senders=state.senders or (event.sender or b"",),
        answers=None,
        unanswered=0 if answers or state.only_heads else state.unanswered + 1,
        partial=_partial(state, event, cycle, answers, missing),
        missing=missing,
        unheard=_unheard(state, missing, heard, rules),
        fresh=fresh,
        heard=heard,
        journal=None,
        noted=0,
        waiting=tuple(a for a in announced if not was_read(a)),
        over=_passed_over(state, event, read, {n for n, _ in published}, {a.table for a in announced}, rules),
        lost_files=state.lost_files + sum(a.files for a in read),
        done=(event, published),
    )


_OBSERVE = {
    EventKind.START: _start,
    EventKind.WRITTEN: _written,
    EventKind.ANSWERED: _answered,
    EventKind.PUBLISHED: _published,
    EventKind.COMPLETED: _completed,
}


def _later(known: float | None, at: float) -> float:
    """Return the later time: several senders have several clocks."""
    return at if known is None or at > known else known


def _kept(begun: tuple[OpenCycle, ...], rules: StallRules) -> tuple[OpenCycle, ...]:
    """Return only as many cycles as the count of failures needs; the oldest that have not failed are dropped first."""
    spare = len(begun) - remembered(rules)
    if spare <= 0:
        return begun
    going = [b for b in begun[:-1] if not b.failed and not b.overtaken][:spare]
    return tuple(b for b in begun if b not in going)[-remembered(rules) :]


def _passed_by(state: State, event: ObservedEvent, rules: StallRules) -> tuple[OpenCycle, ...]:
    """Return the open cycles when the next one starts."""
    if rules.landing:
        return tuple(
            replace(b, overtaken=b.overtaken + 1) if b.deadline is not None and event.at > b.deadline else b
            for b in state.begun
        )
    if not state.begun or state.begun[-1].sender == event.sender or state.only_heads:
        return state.begun
    # After a rebalance. With all answers present the old coordinator must have tried to commit, and failed.
    last = state.begun[-1]
    answered, heard = _answered_in(state, last.commit), (a.partitions for a in items(state.answers))
    # Including those that were late in the cycle before, and were observed then for the first time.
    expected = frozenset(state.missing).union(*heard)
    return (*state.begun[:-1], replace(last, cut=not answered or not answered >= expected))


def _answered_in(state: State, commit: bytes) -> frozenset[Partition]:
    return frozenset[Partition]().union(*(a.partitions for a in items(state.answers) if a.commit == commit))


def _still_open(begun: tuple[OpenCycle, ...], completed: OpenCycle | None) -> tuple[OpenCycle, ...]:
    """Return the running cycles of other runs. An older one's deadline is irrelevant now: commits get through."""
    return tuple(
        b if completed is not None and b.number > completed.number else replace(b, deadline=None)
        for b in begun
        if b is not completed and not b.failed and not b.overtaken
    )


def _settled(state: State, covers: Coverage | None) -> State:
    """Return the state once a range is in the table, or is read again."""
    if not covers or not (state.blocked or state.tried):
        return state
    return state._replace(
        blocked=tuple((left, reason, at) for c, reason, at in state.blocked if (left := c - covers)),
        tried=tuple(c - covers for c in state.tried),
        tried_in=(state.tried_in[0], state.tried_in[1] - covers),
    )


def _left_blocked(state: State, event: ObservedEvent) -> tuple[tuple[Coverage, str, float], ...]:
    """Return the blocked ranges once a cycle is planned. Nothing beyond a blocked range is planned, so a later plan
    that reads beyond it shows that a user has passed it (`reset offsets`); so does one of a topic that was recreated,
    and a plan that reads nothing and names no blocked range.
    """
    if not state.blocked or event.reads is None:
        return state.blocked
    asked_at, spans = event.reads
    if not spans:
        return tuple(one for one in state.blocked if one[2] >= asked_at)
    furthest = {(s.partition.topic, s.partition.partition): s for s in sorted(spans)}

    def left(p: SourcePartition, ranges: RangeSet) -> RangeSet:
        if (s := furthest.get((p.topic, p.partition))) is None:
            return ranges
        return ranges - RangeSet.of((0, s.range.start)) if s.partition == p else RangeSet()

    kept = (
        (c if at >= asked_at else Coverage({p: left(p, ranges) for p, ranges in c.parts.items()}), why, at)
        for c, why, at in state.blocked
    )
    return tuple(one for one in kept if one[0])


def _same(one: Table, other: Table) -> bool:
    return one[0] == other[0] and (one[1] == other[1] or one[1] is None or other[1] is None)


def _missing(state: State, answered: frozenset[Partition], everybody: bool) -> tuple[dict[Partition, int], bool]:
    """Return the number of cycles without an answer per partition. Removed partitions are not counted: a partition
    without answer in a cycle that waited for all, and a topic without any answer since the coordinator changed, while
    others are answered.
    """
    missing = {} if everybody else {p: n + 1 for p, n in state.missing.items()}
    missing.update(dict.fromkeys(answered, 0))
    if not (state.fresh and answered):
        return missing, state.fresh
    topics = {topic for topic, _ in answered}
    return {p: n for p, n in missing.items() if p[0] in topics}, False


def _unheard(
    state: State, missing: Mapping[Partition, int], heard: frozenset[Partition], rules: StallRules
) -> tuple[Partition, ...]:
    late = [(p, n) for p, n in missing.items() if n >= rules.unanswered_cycles]
    if not late:
        return ()
    limit, first = (silence_limit(state, rules, starting=starting) for starting in (False, True))
    return tuple(p for p, n in late if n >= (limit if p in heard else first))


def _partial(
    state: State,
    event: ObservedEvent,
    cycle: OpenCycle | None,
    answers: tuple[ObservedEvent, ...],
    missing: Mapping[Partition, int],
) -> int:
    """Return how many complete cycles in a row waited for a partition that has never answered.

    A complete cycle has no valid-through time if a partition had nothing to report, or if the coordinator did not wait
    for all. If each answer gave a time it is the latter; if answers were late, the wait was for one of these.
    """
    in_vain = event.valid_through is None and bool(answers) and all(a.timed for a in answers)
    half = None if cycle is None else (cycle.at + event.at) / 2
    early = half is not None and all(a.at <= half for a in answers)
    silent_before = {p for p, n in state.missing.items() if n} if state.missing else set()
    news = any(p not in state.missing or p in silent_before for a in answers for p in a.partitions or ())
    if any(a.commit != event.commit for a in answers) or any(missing.values()):
        # A partition that was heard before is late or missing.
        return 0
    pending = 0 if news or state.fresh or event.valid_through is not None else state.partial
    return pending + (in_vain and early)


def _passed_over(
    state: State,
    event: ObservedEvent,
    read: list[PendingFiles],
    published: set[str],
    written: set[Table],
    rules: StallRules,
) -> dict[Table, PassedOver]:
    """Return the tables with skipped files. Tables without writers since another coordinator took over are dropped:
    they were removed from the connector. Tables that were replaced by a new table of the same name are dropped once
    the new one has snapshots and nothing is written for the old one.
    """
    over: dict[Table, PassedOver] = {}
    for table, held in state.over.items():
        quiet = held.quiet + 1 if held.sender != event.sender else 0
        if table in written or (quiet < rules.unanswered_cycles and table[0] not in published):
            over[table] = replace(held, quiet=quiet)
    for a in read:
        file = over.get(a.table)
        files = a.files + (file.files if file else 0)
        over[a.table] = PassedOver(files=files, at=file.at if file else a.at, sender=event.sender)
    return over
