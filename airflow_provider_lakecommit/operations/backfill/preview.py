# SPDX-License-Identifier: Apache-2.0
"""Preview a backfill, in offsets, before anything is written.

Contract: reads tables and source, and writes nothing. A backfill takes no offset that the live stream will land, and
none that another backfill is landing. Landed ranges stay, unless the backfill replaces them; ranges that the source has
removed are named. An open backfill keeps its original range, whatever the request now means.

Failure story: a request without a remaining offset is an error with the reason: everything is landed, removed, or the
live stream's. An open backfill of that name with another range is an error too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_provider_lakecommit.core import (
    BACKFILL,
    LIVE,
    Coverage,
    LedgerSection,
    OffsetRange,
    RangeSet,
    SourcePartition,
    Watermark,
    is_filled,
)
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    LedgerUpkeep,
    OpenLane,
    check_logs_of_lane,
    ledger_state,
    offsets_at,
    open_lanes,
)
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import check_no_other, check_turn
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.landing import Landing, require_appends, require_traces
from airflow_provider_lakecommit.operations.backfill.request import LaneRequest
from airflow_provider_lakecommit.operations.backfill.source import BoundedSource


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePreview:
    """A backfill's range, and facts about the request.

    ``there`` is in the data table already, and is landed again if it ``replaces``; ``removed`` was removed by the
    source, ``live`` is left to the live stream; ``later`` are partitions without a record at or after the end of the
    requested time.
    """

    name: str
    source: SourceState
    bounds: Mapping[SourcePartition, OffsetRange]
    there: Coverage
    opened: bool = False
    replaces: bool = False
    removed: Coverage = field(default_factory=Coverage)
    live: Coverage = field(default_factory=Coverage)
    later: tuple[SourcePartition, ...] = ()

    @property
    def missing(self) -> Coverage:
        """Return the ranges to read."""
        return _coverage(self.bounds) - (Coverage() if self.replaces else self.there)

    @property
    def done(self) -> bool:
        """Return True if nothing is left to land or close."""
        return not self.opened and not self.missing

    def lines(self) -> Iterator[str]:
        missing = self.missing
        yield f"backfill {self.name}{' (open)' if self.opened else ''}: {len(missing)} offsets to read"
        for p, r in sorted(self.bounds.items()):
            what = "in the table, to be replaced" if self.replaces else "already in the table"
            there = f", {self.there[p]} {what}" if self.there[p] else ""
            yield f"  {p} {r}: {missing[p]} to read{there}"
        if self.removed:
            stays = ", its rows stay in the table" if self.replaces else ""
            yield f"  the source has removed {self.removed}: it can no longer be landed{stays}"
        if self.live:
            yield f"  {self.live} is left to the live stream, which lands it next"
        if self.later:
            names = ", ".join(map(str, self.later))
            yield f"  {names}: no record is later than `until`, so the backfill ends at the current end"

    def to_dict(self) -> dict[str, object]:
        return {
            "lane": self.name,
            "open": self.opened,
            "replaces": self.replaces,
            "offsets": len(self.missing),
            "range": {str(p): [r.start, r.end] for p, r in sorted(self.bounds.items())},
            "to_read": self.missing.to_dict(),
            "there": self.there.to_dict(),
            "removed": self.removed.to_dict(),
            "live": self.live.to_dict(),
            "no_later_record": [str(p) for p in self.later],
        }


def lane_preview(session: LandingSession, request: LaneRequest) -> LanePreview:
    """Return the current preview. Its range may be empty, if everything is in the tables.

    :param session: of the live stream
    :raises SpecError: the landing's table cannot take older records
    :raises SourceError: a partition or an offset does not exist, or nothing of the range is left
    :raises SourceUnavailableError: the brokers do not answer
    :raises LedgerError: another backfill is landing some of it, or this one has another range
    :raises TableError: another landing lands these topics into the table
    :raises CatalogError: the catalog is unreachable
    """
    check_upsert(session.landing, replaces=request.replaces)
    source = session.source.watermarks()
    state = ledger_state(session, session.landing.table)
    own = [] if state is None else [s for s in state.sections if s.landing == session.landing.name]
    if state is not None:
        check_turn(state, session.landing.name, session.landing.table)
        check_no_other(session.landing.table, session.landing.name, state.sections, source.partitions)
    for section in own:
        if section.lane == request.name:
            _check_readable(section, source)
        elif section.lane == LIVE:
            LedgerUpkeep(session=session, name=session.landing.table).check_cluster(section, source.cluster_id)
    there = Coverage.union(s.covered for s in (() if state is None else state.sections))
    there = there - _lacking_alongside(session, own, there)
    lanes = {lane.name: lane for lane in open_lanes(session)}
    opened = lanes.get(request.name)
    if opened is None and any(s.lane == request.name for s in own):
        raise LedgerError(
            "LC7217",
            f"backfill {request.name} has lost its end: the ledger was written since it was opened, without that end. "
            "Choose another name; rows that it has landed stay",
        )
    if opened is None and request.by_name:
        raise LedgerError(
            "LC7218", f"landing {session.landing.name} has no open backfill {request.name}: name the range to land"
        )
    requested, later = ({}, ()) if request.by_name else _requested(session, request, source)
    if opened is not None:
        return _opened(request, requested, opened, source)
    removed, live, bounds = {}, {}, {}
    ends = _live_ends(own, there, source)
    for p, r in requested.items():
        first, end = source.partitions[p].start, min(r.end, ends.get(p, r.end))
        removed[p] = RangeSet.of((r.start, min(r.end, max(r.start, first))))
        live[p] = RangeSet.of((max(r.start, end), r.end)) if end < r.end else RangeSet()
        if max(r.start, first) < end:
            bounds[p] = OffsetRange(max(r.start, first), end)
    found = LanePreview(
        name=request.name,
        source=source,
        bounds=bounds,
        there=there & _coverage(bounds),
        replaces=request.replaces,
        removed=Coverage(removed) - (Coverage() if request.replaces else there),
        live=Coverage(live),
        later=later,
    )
    _check(session, request, found, lanes.values())
    bounded = BoundedSource(session.source, {p: r.end for p, r in bounds.items()})
    here = [s for s in own if s.cluster_id == source.cluster_id]
    check_logs_of_lane(request.name, bounded, here, {p: source.partitions[p] for p in bounds})
    return found


def check_upsert(landing: Landing, *, replaces: bool = False) -> None:
    """:raises SpecError: the landing's table cannot take older records"""
    if replaces:
        require_appends(landing, "replaying ranges")
    require_traces(landing)


def _lacking_alongside(session: LandingSession, data: Iterable[LedgerSection], there: Coverage) -> Coverage:
    """Return what another table lacks of the data table's ranges, and its live stream will not land. It was removed
    there, or one of the tables was rolled back, after both had landed it before the current first offset of the live
    stream: by a closed backfill, or by a reading in which the other table took part. A table that joined later lacks
    nothing.
    """
    entries, lacking = [e for s in data for e in s.provenance], Coverage()
    for name in session.landing.tables[1:]:
        state = ledger_state(session, name)
        own = [] if state is None else [s for s in state.sections if s.landing == session.landing.name]
        live = next((s for s in own if s.lane == LIVE), None)
        if state is None or live is None:
            continue
        readings = {e.generation for s in own for e in s.provenance}
        shared = Coverage.union(e.coverage for e in entries if e.generation in readings)
        closed = {p: start for s in own if is_filled(s.lane) for p, start in s.starts.items()}
        lanes = Coverage(
            {p: RangeSet.of((min(o, live.starts.get(p, 0)), live.starts.get(p, 0))) for p, o in closed.items()}
        )
        before = Coverage({p: RangeSet.of((0, start)) for p, start in live.starts.items()})
        lacking = lacking | (there & (lanes | shared & before) - state.covered())
    return lacking


def _check_readable(section: LedgerSection, source: SourceState) -> None:
    """:raises SourceError: the range of an open backfill is of another cluster, or of a topic that was recreated"""
    ids = source.topic_ids
    anew = sorted({p.topic for p in section.ends if ids.get(p.topic, p.topic_id) != p.topic_id})
    if section.cluster_id != source.cluster_id:
        why = f"it reads Kafka cluster {section.cluster_id}, and landing {section.landing} now reads another one"
    elif anew:
        why = f"topic {', '.join(anew)} was recreated since it was opened"
    else:
        return
    raise SourceError(
        "LC7219",
        f"backfill {section.lane} of landing {section.landing} is open, but cannot read further: {why}. "
        f"Run `{BACKFILL} SPEC --close {section.lane}` to give up the rest; landed rows stay",
    )


def _opened(
    request: LaneRequest, requested: Mapping[SourcePartition, OffsetRange], lane: OpenLane, source: SourceState
) -> LanePreview:
    if lane.replaces != request.replaces:
        how = f"`{BACKFILL} --replace`" if lane.replaces else f"`{BACKFILL}`"
        raise LedgerError("LC7220", f"backfill {request.name} is open, and was opened by {how}: choose another name")
    bounds = lane.bounds
    # It was opened with what the source and the live lane left of it then.
    if request.ranges and _coverage(bounds) - _coverage(requested):
        raise LedgerError(
            "LC7221", f"backfill {request.name} is open with {_coverage(bounds)} instead of {request}: use another name"
        )
    there, again = _coverage(bounds) - lane.lacking, lane.replaces
    return LanePreview(name=request.name, source=source, bounds=bounds, there=there, opened=True, replaces=again)


def _check(session: LandingSession, request: LaneRequest, found: LanePreview, lanes: Iterable[OpenLane]) -> None:
    landing = session.landing.name
    if not found.bounds and found.live:
        raise LedgerError(
            "LC7222", f"landing {landing}: the next live run lands {found.live}: nothing is left to backfill"
        )
    if found.removed and not found.bounds:
        raise SourceError(
            "LC7223", f"landing {landing}: the source has removed the whole range, {found.removed}: choose a later one"
        )
    if found.replaces and not found.there:
        raise LedgerError(
            "LC7224",
            f"landing {landing}: the table has nothing of {request}, so there is nothing to replace: run `{BACKFILL}` "
            "without `--replace` to land it",
        )
    for lane in lanes:
        # After a kill between two tables, one of them still waits for what the other has.
        under_way = lane.lacking if lane.replaces else _coverage(lane.bounds) - found.there
        if both := under_way & found.missing:
            raise LedgerError(
                "LC7225",
                f"landing {landing}: backfill {lane.name} is still landing {both}: run the command that started it "
                f"again to finish it, or give it up with `{BACKFILL} SPEC --close {lane.name}`",
            )


def _live_ends(own: list[LedgerSection], there: Coverage, source: SourceState) -> dict[SourcePartition, int]:
    """Return the ends for backfills: the live stream lands everything after them. Without one, there is no end."""
    live = next((s for s in own if s.lane == LIVE), None)
    if live is None:
        return {}
    topics = {p.topic_id for p in live.starts}
    return {
        p: (live.covered[p] | there[p]).reach(live.starts.get(p, 0)) for p in source.partitions if p.topic_id in topics
    }


def _requested(
    session: LandingSession, request: LaneRequest, source: SourceState
) -> tuple[dict[SourcePartition, OffsetRange], tuple[SourcePartition, ...]]:
    if request.ranges:
        return _stated(request.ranges, source.partitions), ()
    marks = source.partitions
    begins: Mapping[SourcePartition, int | None] = {p: m.start for p, m in marks.items()}
    ends: Mapping[SourcePartition, int | None] = {p: m.stable for p, m in marks.items()}
    if request.since is not None:
        begins = offsets_at(session.source, marks, request.since)
    if request.until is not None:
        ends = offsets_at(session.source, marks, request.until)
    # If no record is late enough, later ones may still be of that time.
    later = tuple(sorted(p for p, end in ends.items() if end is None)) if request.until else ()
    found = {}
    for p, mark in marks.items():
        begin, end = begins[p], ends[p]
        start = mark.stable if begin is None else begin
        found[p] = OffsetRange(
            min(start, mark.stable), max(min(start, mark.stable), mark.stable if end is None else end)
        )
    return found, later


def _stated(
    ranges: Mapping[tuple[str, int], RangeSet], marks: Mapping[SourcePartition, Watermark]
) -> dict[SourcePartition, OffsetRange]:
    known = {(p.topic, p.partition): p for p in marks}
    if unknown := [f"{t}[{n}]" for t, n in ranges if (t, n) not in known]:
        raise SourceError("LC7226", f"{', '.join(unknown)}: the source has no such partition; it has {_names(known)}")
    found = {known[key]: r.ranges[0] for key, r in ranges.items()}
    if beyond := [
        f"{p} ends at {marks[p].stable}, not at {r.end}" for p, r in found.items() if r.end > marks[p].stable
    ]:
        raise SourceError("LC7227", f"{'; '.join(beyond)}: nothing is written; name offsets that can be read")
    return found


def _names(known: Mapping[tuple[str, int], SourcePartition]) -> str:
    topics: dict[str, int] = {}
    for topic, _ in known:
        topics[topic] = topics.get(topic, 0) + 1
    return ", ".join(f"{topic} with {n} partitions" for topic, n in sorted(topics.items()))


def _coverage(bounds: Mapping[SourcePartition, OffsetRange]) -> Coverage:
    return Coverage({p: RangeSet.of(r) for p, r in bounds.items()})
