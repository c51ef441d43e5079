# SPDX-License-Identifier: Apache-2.0
"""The fold of :mod:`.stall`: how each event of a control topic changes the state of an observer.

:func:`observe` is pure, and cheap: frequent events, announcements and answers, are only noted, and folded in when a
cycle starts or completes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_lakecommit.core import Coverage
from airflow_provider_lakecommit.stall.state import (
    Done,
    EventKind,
    OpenCycle,
    Partition,
    PassedOver,
    PendingFiles,
    Seen,
    StallRules,
    State,
    Table,
    WorkerAnswer,
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


def observe(state: State, seen: Seen, rules: StallRules) -> State:
    return _OBSERVE[seen.kind](state, seen, rules)


def _start(state: State, seen: Seen, rules: StallRules) -> State:
    known = next((b for b in state.begun if b.commit == seen.commit), None)
    if known is not None:
        # Repeated: a commit attempt failed, or its run was restarted.
        again = replace(known, deadline=seen.deadline or known.deadline)
        if seen.failed:
            again = replace(again, failed=seen.failed, beside=seen.beside)
        return state._replace(
            begun=tuple(again if b is known else b for b in state.begun), last=_later(state.last, seen.at)
        )
    number = state.starts + 1
    one = OpenCycle(
        commit=seen.commit,
        at=seen.at,
        number=number,
        sender=seen.sender,
        deadline=seen.deadline,
        failed=seen.failed,
        beside=seen.beside,
        full=seen.full,
    )
    changed = bool(state.senders) and (seen.sender or b"") != state.senders[-1]
    # The time between two coordinators depends on when the loss was noticed.
    gap = () if state.last_start is None or changed else (max(0.0, seen.at - state.last_start),)
    return state._replace(
        begun=_kept((*_passed_by(state, seen, rules), one), rules),
        starts=number,
        last=_later(state.last, seen.at),
        last_start=seen.at,
        intervals=(*state.intervals, *gap)[-LEARNED:],
        senders=(*state.senders, seen.sender or b"")[-SENDERS:],
        fresh=state.fresh or changed,
        heard=frozenset() if changed else state.heard,
        # An incomplete cycle leaves its answers and announcements: they are kept once, not once per cycle.
        answers=merged(state.answers) if state.begun else state.answers,
        journal=None,
        noted=0,
        waiting=waiting(state),
        blocked=_settled(state.blocked, seen.covers),
        deferred=(state.deferred[0] if state.deferred else seen.at, seen.deferred) if seen.deferred else None,
    )


def _written(state: State, seen: Seen, _rules: StallRules) -> State:
    if seen.table is None or not seen.files:
        return state
    table = (seen.table, seen.table_id)
    done = state.done
    if done is not None and done.commit == seen.commit and table in done.tables and (done.full or seen.at < done.at):
        # From another control partition, and read after its snapshot; its sender's clock may be ahead.
        return state
    one = PendingFiles(table=table, commit=seen.commit, files=seen.files, at=seen.at, starts=state.starts)
    return state._replace(journal=(one, state.journal), noted=state.noted + one.files)


def _answered(state: State, seen: Seen, _rules: StallRules) -> State:
    if seen.blocked is not None and seen.covers:
        known = any(reason == seen.blocked and not seen.covers - c for c, reason in state.blocked)
        return state if known else state._replace(blocked=(*state.blocked, (seen.covers, seen.blocked)))
    if seen.partitions is None:
        return state if state.only_heads else state._replace(only_heads=True)
    one = WorkerAnswer(commit=seen.commit, at=seen.at, partitions=seen.partitions, timed=seen.timed)
    return state._replace(answers=(one, state.answers))


def _published(state: State, seen: Seen, _rules: StallRules) -> State:
    state = state._replace(last=_later(state.last, seen.at), blocked=_settled(state.blocked, seen.covers))
    if seen.table is None:
        return state
    table = (seen.table, seen.table_id)
    over = {
        t: p for t, p in state.over.items() if not (_same(t, table) or (t[0] == table[0] and p.sender != seen.sender))
    }
    return state._replace(journal=(table, state.journal), over=over if len(over) < len(state.over) else state.over)


def _completed(state: State, seen: Seen, rules: StallRules) -> State:
    cycle = next((b for b in state.begun if b.commit == seen.commit), None)
    state = state._replace(
        begun=_still_open(state.begun, cycle) if rules.landing else (),
        last=_later(state.last, seen.at),
        completed=state.completed + 1,
        completed_at=seen.at,
        valid_through=state.valid_through if seen.valid_through is None else seen.valid_through,
        blocked=_settled(state.blocked, seen.covers),
    )
    return state if rules.landing else _worked_in(state, seen, rules, cycle)


def _worked_in(state: State, seen: Seen, rules: StallRules, cycle: OpenCycle | None) -> State:
    """Return the state after the answers and files of a connector's complete cycle."""
    answers = tuple(items(state.answers))
    # Only a cycle that waited for all has a time, if each partition has one.
    everybody = seen.valid_through is not None
    answered = frozenset[Partition]().union(*(a.partitions for a in answers))
    missing, fresh = _missing(state, answered, everybody)
    heard = state.heard if answered <= state.heard else state.heard | answered
    announced = waiting(state)

    def was_read(a: PendingFiles) -> bool:
        return (cycle is not None and a.starts < cycle.number) or (everybody and a.commit == seen.commit)

    # If the log begins in the middle of a cycle, the result of that cycle's files is unknown.
    read = [a for a in announced if was_read(a) and (a.starts or a.commit == seen.commit)]
    published = frozenset(item for item in items(state.journal) if not isinstance(item, PendingFiles))
    return state._replace(
        senders=state.senders or (seen.sender or b"",),
        answers=None,
        unanswered=0 if answers or state.only_heads else state.unanswered + 1,
        partial=_partial(state, seen, cycle, answers, missing),
        missing=missing,
        unheard=_unheard(state, missing, heard, rules),
        fresh=fresh,
        heard=heard,
        journal=None,
        noted=0,
        waiting=tuple(a for a in announced if not was_read(a)),
        over=_passed_over(state, seen, read, {n for n, _ in published}, {a.table for a in announced}, rules),
        lost_files=state.lost_files + sum(a.files for a in read),
        done=Done(
            commit=seen.commit,
            at=seen.at,
            full=everybody,
            tables=published,
        ),
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


def _passed_by(state: State, seen: Seen, rules: StallRules) -> tuple[OpenCycle, ...]:
    """Return the open cycles when the next one starts."""
    if rules.landing:
        return tuple(
            replace(b, overtaken=b.overtaken + 1) if b.deadline is not None and seen.at > b.deadline else b
            for b in state.begun
        )
    if not state.begun or state.begun[-1].sender == seen.sender or state.only_heads:
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


def _settled(blocked: tuple[tuple[Coverage, str], ...], covers: Coverage | None) -> tuple[tuple[Coverage, str], ...]:
    if not blocked or not covers:
        return blocked
    return tuple((left, reason) for c, reason in blocked if (left := c - covers))


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
    seen: Seen,
    cycle: OpenCycle | None,
    answers: tuple[WorkerAnswer, ...],
    missing: Mapping[Partition, int],
) -> int:
    """Return how many complete cycles in a row waited for a partition that has never answered.

    A complete cycle has no valid-through time if a partition had nothing to report, or if the coordinator did not wait
    for all. If each answer gave a time it is the latter; if answers were late, the wait was for one of these.
    """
    in_vain = seen.valid_through is None and bool(answers) and all(a.timed for a in answers)
    half = None if cycle is None else (cycle.at + seen.at) / 2
    early = half is not None and all(a.at <= half for a in answers)
    silent_before = {p for p, n in state.missing.items() if n} if state.missing else set()
    news = any(p not in state.missing or p in silent_before for a in answers for p in a.partitions)
    if any(a.commit != seen.commit for a in answers) or any(missing.values()):
        # A partition that was heard before is late or missing.
        return 0
    held = 0 if news or state.fresh or seen.valid_through is not None else state.partial
    return held + (in_vain and early)


def _passed_over(
    state: State, seen: Seen, read: list[PendingFiles], published: set[str], written: set[Table], rules: StallRules
) -> dict[Table, PassedOver]:
    """Return the tables with skipped files. Tables without writers since another coordinator took over are dropped:
    they were removed from the connector. So are tables whose name has a new table with snapshots, once nothing is
    written for the old one.
    """
    over: dict[Table, PassedOver] = {}
    for table, held in state.over.items():
        quiet = held.quiet + 1 if held.sender != seen.sender else 0
        if table in written or (quiet < rules.unanswered_cycles and table[0] not in published):
            over[table] = replace(held, quiet=quiet)
    for a in read:
        held_or_none = over.get(a.table)
        files = a.files + (held_or_none.files if held_or_none else 0)
        over[a.table] = PassedOver(files=files, at=held_or_none.at if held_or_none else a.at, sender=seen.sender)
    return over
