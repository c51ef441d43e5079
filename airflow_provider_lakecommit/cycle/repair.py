# SPDX-License-Identifier: Apache-2.0
"""What a person decides: where a ledger goes on, and how a blocked range goes on.

Contract: each decision is durable before it is reported. A ledger that is set gets a new epoch, so nothing that was
pending can be committed to it; it never goes back over offsets that it has, because their rows are in the table. An
unblock is a cycle of its own in the control log.

Failure story: killed in between, a decision is either in the table (or log) or not made at all; the same command can be
given again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.committer.ledger import read_ledger
from airflow_provider_lakecommit.committer.marks import set_section
from airflow_provider_lakecommit.core.log import Directives, Raised
from airflow_provider_lakecommit.core.model import (
    Budget,
    Counts,
    Cycle,
    LedgerSection,
    SliceReport,
    Span,
    SpanReport,
    TableReport,
    TableTarget,
    slice_id,
    window_id,
)
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning import Watermark
from airflow_provider_lakecommit.core.view import Blocked
from airflow_provider_lakecommit.cycle.open import empty_plan, new_cycle, send_start
from airflow_provider_lakecommit.cycle.prepare import Prepared, prepare_for_commit
from airflow_provider_lakecommit.cycle.renew import first_offsets, new_section, origin_position
from airflow_provider_lakecommit.cycle.rim import Look, Rim, RunIdentity
from airflow_provider_lakecommit.cycle.tables import table_of
from airflow_provider_lakecommit.exceptions import BlockedRangeError, SourceError

__all__ = ["ledger_init", "unblock"]

Start = str | Mapping[tuple[str, int], int]
"""``earliest``, ``latest``, or an offset per (topic, partition)."""


def ledger_init(rim: Rim, start: Start) -> dict[str, Any]:
    """Set the ledger of every table of the landing.

    A partition whose topic the ledger knows goes on at the stated offset only if that is ahead; otherwise it goes on
    where it is.

    :raises SourceError: an offset is stated for a partition that the topic lacks, or that is past the end of the log
    :raises CatalogError: the catalog is away
    """
    rim.control.ensure()
    source = rim.source.watermarks()
    wanted = _wanted(source.partitions, start)
    out: dict[str, Any] = {}
    for name in rim.landing.tables:
        table = table_of(rim, name)
        state = read_ledger(table.metadata, rim.landing.branch)
        old = state.section(rim.landing.name, rim.lane)
        starts = {p: _start(p, o, old) for p, o in wanted.items()}
        covered = Coverage.of((p, r) for p, o in wanted.items() for r in _covered(p, o, source.partitions[p], old))
        new = new_section(rim, source, starts, covered, origin_position(rim), before=old)
        set_section(rim.tables, name, new, branch=rim.landing.branch)
        out[name] = {str(p): new.end(p) for p in sorted(wanted)}
        rim.say(f"{name}: goes on at {', '.join(f'{p} {o}' for p, o in out[name].items())}")
    return {"ledger": out}


def _wanted(partitions: Mapping[SourcePartition, Watermark], start: Start) -> dict[SourcePartition, int]:
    if isinstance(start, str):
        return first_offsets(partitions, start)
    known = {(p.topic, p.partition): p for p in partitions}
    if unknown := [f"{t}[{n}]" for t, n in start if (t, n) not in known]:
        raise SourceError(f"{', '.join(unknown)}: the source has no such partition")
    # Every plan would be refused until the log is as long, and what comes up to there would never be read.
    ends = {known[place]: (offset, partitions[known[place]].high) for place, offset in start.items()}
    if beyond := [
        f"{p} ends at {high}, and not at {offset} or later" for p, (offset, high) in ends.items() if offset > high
    ]:
        raise SourceError(f"{'; '.join(beyond)}: nothing is changed; state offsets that the log has, or `latest`")
    return {p: start.get(place, partitions[p].start) for place, p in known.items()}


def _start(p: SourcePartition, offset: int, old: LedgerSection | None) -> int:
    return old.starts[p] if old is not None and p in old.starts else offset


def _covered(p: SourcePartition, offset: int, mark: Watermark, old: LedgerSection | None) -> Iterable[OffsetRange]:
    """What counts as landed: the old ledger up to its end or the stated offset, never less, but for a log that is
    shorter.
    """
    if old is None or p not in old.starts:
        return
    end = max(old.end(p), offset) if old.end(p) <= mark.high else offset
    if end > old.starts[p]:
        yield OffsetRange(old.starts[p], end)


def unblock(
    rim: Rim,
    partitions: Collection[tuple[str, int]] | None = None,
    *,
    raise_to: Budget | None = None,
    skip: bool = False,
) -> dict[str, Any]:
    """Say how blocked ranges go on: read again under ``raise_to``, or given up (``skip``).

    :param partitions: only those; all that are blocked by default
    :raises BlockedRangeError: nothing is blocked there
    """
    prepared = prepare_for_commit(rim)
    for failure in prepared.failures.values():
        raise failure
    look = rim.look(prepared.ledgers)
    chosen = [b for b in look.view.blocked if _touches(b, partitions)]
    coverage = Coverage.of(
        (p, r)
        for b in chosen
        for p, r in b.coverage.items()
        if partitions is None or (p.topic, p.partition) in partitions
    )
    if not coverage:
        raise BlockedRangeError(
            f"landing {rim.landing.name}: nothing is blocked there; `lakecommit status` lists what is"
        )
    who = RunIdentity(deployment="person", dag="unblock", run=str(rim.new_id()))
    cycle = new_cycle(rim, who, look.view)
    send_start(rim, look.partition, cycle, empty_plan(rim, f"unblock {coverage}"), Directives())
    if skip:
        _give_up(rim, prepared, look, coverage, cycle)
    raised = (Raised(coverage=coverage, budget=raise_to),) if raise_to and not skip else ()
    closed = rim.sender("commit", cycle.commit_id).closed(rim.new_id(), rim.now(), None, Directives(raised=raised))
    rim.send("commit", cycle.slot, look.partition, [closed])
    rim.say(f"{'given up' if skip else 'to be read again'}: {coverage}")
    return {"unblocked": {str(p): [[r.start, r.end] for r in s] for p, s in coverage.parts.items()}, "skipped": skip}


def _touches(b: Blocked, partitions: Collection[tuple[str, int]] | None) -> bool:
    return partitions is None or any((p.topic, p.partition) in partitions for p in b.coverage.parts)


def _give_up(rim: Rim, prepared: Prepared, look: Look, coverage: Coverage, cycle: Cycle) -> None:
    """Report each range as done with all of its offsets skipped; the next commit settles it like any other slice."""
    sender, version = rim.sender("write", cycle.commit_id), rim.landing.spec_version
    window = window_id(rim.landing.name, rim.lane, version, prepared.epochs, (Span(p, r) for p, r in coverage.items()))
    records = []
    for p, r in coverage.items():
        span = Span(p, r)
        report = SliceReport(
            slice_id=slice_id(window, (span,), rim.landing.tables),
            attempt=rim.new_id(),
            window_id=window,
            spec_version=version,
            spans=(SpanReport(span=span, counts=Counts(skipped=len(r))),),
            tables=tuple(_untouched(t) for t in prepared.targets),
        )
        records.append(sender.reported(rim.new_id(), rim.now(), report))
    rim.send("skip", cycle.slot, look.partition, records)


def _untouched(t: TableTarget) -> TableReport:
    return TableReport(
        table=t.table, uuid=t.uuid, epoch=t.epoch, schema_id=t.schema_id, spec_id=t.spec_id, events=0, files=0, rows=0
    )
