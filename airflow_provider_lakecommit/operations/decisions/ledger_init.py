# SPDX-License-Identifier: Apache-2.0
"""Set where a ledger continues: `lakecommit reset offsets`.

Contract: durable before it is reported. A new ledger gets a new epoch, so nothing pending can be committed to it.
:mod:`~airflow_provider_lakecommit.operations.decisions.init_preview` shows what the decision gives up. Reported slices
that the source no longer has are published first, over gaps that the same decision gives up; if they cannot be, the
decision is refused unless it includes them.

Failure story: after a kill, some tables have the decision, or only the reported slices were published; run the same
command again. A loss beyond the approved preview is refused: preview again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_provider_lakecommit.core import (
    BACKFILL,
    LAND,
    Coverage,
    Decision,
    LedgerSection,
    Provenance,
    Restart,
    added,
)
from airflow_provider_lakecommit.cycle import LandingSession, initial_position, new_section, table_of, unsigned_text
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import OtherSections, SnapshotKind, change_section, set_section, turn_is_over
from airflow_provider_lakecommit.operations.backfill.level import drain_or_log
from airflow_provider_lakecommit.operations.backfill.request import lane_request
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview, section_inits
from airflow_provider_lakecommit.operations.decisions.operation import Proposal, not_as_previewed
from airflow_provider_lakecommit.operations.decisions.requests import ResetOffsets
from airflow_provider_lakecommit.operations.decisions.section_init import BEHIND, InitPreview, SectionInit
from airflow_provider_lakecommit.operations.decisions.starts import PLAIN, Start, Way
from airflow_provider_lakecommit.operations.decisions.stated import parse_offsets, parse_start, ranges_beyond


def preview(session: LandingSession, request: ResetOffsets) -> InitPreview:
    """Return where each table would continue, and what that gives up."""
    return init_preview(session, parse_start(request.start, "start:"), _way(request))


def propose(session: LandingSession, request: ResetOffsets) -> Proposal:
    found = preview(session, request)
    return _values(request, found), [*found.lines()]


def confirm(session: LandingSession, request: ResetOffsets, agreed: Mapping[str, Any]) -> InitPreview:
    """Return the effect if it gives up no more than the agreed one."""
    if agreed.get("from") != request.start:
        raise not_as_previewed(f"start={request.start!r}")
    stated = parse_start(request.start, "start:")
    if stated == "latest":
        # The end of the topic at the time of the preview: later records were not approved to be given up.
        ends = parse_offsets(",".join(f"{p}={o}" for p, o in agreed["tables"][0]["next"].items()), "")
        stated = {p: o for p, o in ends.items() if not request.only or p in request.only}
    found = init_preview(session, stated, _way(request))
    if more := _more(_values(request, found), agreed):
        raise not_as_previewed("; ".join(more))
    return found


def apply(session: LandingSession, request: ResetOffsets, found: InitPreview, decision: Decision) -> dict[str, Any]:
    """Set it, giving up no more than was previewed."""
    return ledger_init(
        session,
        found.start,
        _way(request),
        agreed=found,
        give_up_reported=request.give_up_reported,
        others=OtherSections(request.others),
        decision=decision,
    )


def _way(request: ResetOffsets) -> Way:
    fill = lane_request(name=request.fill).name if request.fill else ""
    return Way(only=request.only, fill=fill, again=request.again)


def _values(request: ResetOffsets, found: InitPreview) -> dict[str, Any]:
    ids = {p.topic: p.topic_id for t in found.tables for p in t.ends}
    return {"from": request.start, "topic_ids": ids, "tables": [t.to_dict() for t in found.tables]}


def _more(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> list[str]:
    """Return what a new ledger would give up beyond the preview."""
    if now["topic_ids"] != agreed.get("topic_ids"):
        return ["the topic was recreated, or another one is read"]
    before = {t["table"]: t for t in agreed["tables"]}
    found = []
    for t in now["tables"]:
        previewed = before.get(t["table"], {})
        for what in ("given_up", "back", "again"):
            more = ranges_beyond(t[what], previewed.get(what, {}))
            found += [f"{t['table']} {what.replace('_', ' ')} {text}" for text in more]
        if t["lost"] and t["lost"] != previewed.get("lost"):
            found.append(f"{t['table']} loses {t['lost']}")
    return found


def ledger_init(
    session: LandingSession,
    start: Start,
    way: Way = PLAIN,
    *,
    agreed: InitPreview | None = None,
    give_up_reported: bool = False,
    others: OtherSections = OtherSections.ASK,
    decision: Decision | None = None,
) -> dict[str, Any]:
    """Set the ledger of every table of the landing, under a new epoch.
    :mod:`~airflow_provider_lakecommit.core.planning.restart` decides where each partition continues. All tables are
    read before anything is written.

    :param agreed: the approved preview: nothing more is given up
    :param give_up_reported: also give up reported slices that cannot be published and that the source no longer has
    :param others: the user's statement about rows of other landings, if the ledger is lost
    :param decision: the user who decided, for the tables' history
    :raises SourceError: an offset is of a partition that the topic lacks, past the end of the log, or removed by the
        source
    :raises SourceUnavailableError: the brokers do not confirm that their logs are those that were read
    :raises LedgerError: partitions are not named, and no ledger has them; or reported slices would be lost
    :raises TableError: a table is missing and may not be created, or cannot take the rows
    :raises CatalogError: the catalog is unreachable
    """
    settings = section_inits(session, start, way)
    if any(s.rescued.published for s in settings.values()):
        settings = _published_first(session, start, way, decision)
    _check_lost(session, settings, give_up_reported)
    for name in settings:
        table_of(session, name)
    decisions = {name: decision and replace(decision, what=s.preview().what) for name, s in settings.items()}
    for name, s in settings.items():
        _set(session, s, agreed, others, decisions[name], rehearse=True)
    return {"ledger": {name: _set(session, s, agreed, others, decisions[name]) for name, s in settings.items()}}


def check_init(session: LandingSession, start: Start, way: Way = PLAIN) -> None:
    """Refuse what :func:`ledger_init` would refuse; nothing is written."""
    _check_lost(session, section_inits(session, start, way), False)


def _check_lost(session: LandingSession, settings: Mapping[str, SectionInit], agreed: bool) -> None:
    """:raises LedgerError: reported slices would be lost, and the user has not agreed to that"""
    found = InitPreview(tables=tuple(s.preview() for s in settings.values()))
    _check_unsigned(session, settings, found, agreed)
    if found.lost and not agreed:
        raise LedgerError(
            "LC7019",
            f"landing {session.landing.name}: the ledger is not set, because that would lose reported slices that "
            f"the source no longer has: {found.lost}. Run `{LAND}` to see what prevents their publication; to give "
            f"them up, use `--give-up-reported`",
        )


def _check_unsigned(
    session: LandingSession, settings: Mapping[str, SectionInit], found: InitPreview, agreed: bool
) -> None:
    """:raises LedgerError: what would be given up may be reported, by records that are not believed"""
    for name, s in settings.items():
        section = s.old or s.remembered
        # What a decision gives up of a lost ledger is unknown.
        unsigned = s.unsigned if s.old is None else s.unsigned & found.given_up(name)
        if section is not None and unsigned and not agreed:
            raise LedgerError(
                "LC7020",
                f"{name}: the ledger is not set, because that would give up slices that may be reported: "
                f"{unsigned_text(session, unsigned, section)}. To give them up, use `--give-up-reported`",
            )


def _published_first(
    session: LandingSession, start: Start, way: Way, decision: Decision | None
) -> dict[str, SectionInit]:
    """Publish what the source no longer has, over gaps that the decision gives up; a new preview shows the rest."""
    drain = partial(drain_or_log, session, "ledger init", "publishes reported slices before a ledger is set")
    drain()
    for name, setting in section_inits(session, start, way).items():
        if bridged := setting.rescued.bridged:
            session.log(f"{name}: gives up {bridged}, so that the slices reported after it can be published")
            _bridge(session, name, bridged, decision)
            drain()
    # What is pending now could not be published.
    return {name: replace(s, publishable=False) for name, s in section_inits(session, start, way).items()}


def _bridge(session: LandingSession, name: str, bridged: Coverage, decision: Decision | None) -> None:
    """Give up unreported ranges, under the epoch of the reported slices after them."""
    change_section(
        session.tables,
        name,
        session.landing.name,
        session.lane,
        SnapshotKind.INIT,
        lambda s: replace(s, covered=s.covered | bridged) if bridged - s.covered else None,
        branch=session.landing.branch,
        decision=decision and replace(decision, what=f"gives up {bridged}"),
    )


def _set(
    session: LandingSession,
    setting: SectionInit,
    agreed: InitPreview | None,
    others: OtherSections,
    decision: Decision | None,
    *,
    rehearse: bool = False,
) -> dict[str, int]:
    """Set the entry by one compare-and-swap, decided on the present one.

    :param rehearse: decide it, and write nothing
    """
    name = setting.name
    made: list[tuple[LedgerSection, Restart]] = []
    alongside: dict[str, LedgerSection] = {}
    control = initial_position(session)

    def make(now: LedgerSection | None) -> LedgerSection:
        if made and now is not None and now.epoch == made[-1][0].epoch:
            return now
        # Of a ledger that was cut the rows are in the table as they were.
        now = now or setting.old
        found = setting.restart(now)
        if agreed and (more := (found.given_up | found.back | found.again) - agreed.given_up(name)):
            raise LedgerError(
                "LC7021", f"{name}: this would now also give up {more}, which the preview did not show: run it again"
            )
        positions = setting.positions(now, found)
        section = new_section(
            session,
            setting.source,
            found.starts,
            found.covered,
            control,
            before=now,
            positions=positions,
            known=setting.sections,
        )
        before = None if now is None else setting.whole(now)
        section = _after_sink(
            setting, now, replace(section, provenance=_provenance(section, before, setting.passed_of(now), found))
        )
        made.append((section, found))
        alongside.clear()
        if found.filled:
            alongside[setting.lane] = _lane(session, setting, found, section)
        return section

    branch, landing = session.landing.branch, session.landing.name
    keep = setting.endangered.keys()
    set_section(
        session.tables,
        name,
        landing,
        session.lane,
        make,
        passed=setting.passed_of,
        branch=branch,
        others=others,
        keep=keep,
        decision=decision,
        alongside=alongside.values,
        # What is given up of records that are other ones now is no lane's any more.
        again=lambda: made[-1][1].back | made[-1][1].again | made[-1][1].given_up,
        rehearse=rehearse,
    )
    section, found = made[-1]
    ends = {str(p): section.end(p) for p in sorted(setting.source.partitions)}
    if not rehearse:
        session.log(f"{name}: continues at {', '.join(f'{p} {o}' for p, o in ends.items())}")
        for line in _lines(setting, found):
            session.log(f"{name}: {line}")
    return ends


def _lines(setting: SectionInit, found: Restart) -> Iterator[str]:
    """Yield what happens to the ranges, as lines of text."""
    if found.given_up:
        yield f"gives up {found.given_up}, which it has not landed"
    if found.filled:
        yield f"leaves {found.filled} to backfill {setting.lane}: `{BACKFILL}` lands it"
    if found.again:
        yield f"reads {found.again} again, although its rows are in the table"
    if found.behind:
        yield BEHIND.format(found.behind)
    if found.back:
        yield f"goes back over {found.back}, which now holds other records than the landed ones"


def _after_sink(setting: SectionInit, now: LedgerSection | None, section: LedgerSection) -> LedgerSection:
    """Return the entry with the owner of the next turn. A connector's turn ended with the topic that it read, and the
    user who handed it the table had paused the landing. A connector that continues nevertheless is still detected.
    """
    known = now or setting.remembered
    if known is None or known.sink is None:
        return section
    if turn_is_over(known, setting.source.partitions):
        ended = replace(
            known.sink, since=section.starts, sequence=setting.last_sequence, lands=False, landed=Coverage()
        )
        return replace(section, sink=ended, suspended="")
    return replace(section, sink=replace(known.sink, landed=known.sink.landed & section.covered))


def _provenance(
    section: LedgerSection, before: LedgerSection | None, passed: Coverage, found: Restart
) -> tuple[Provenance, ...]:
    """Return the readings of a new entry. Of its new ranges no row was landed, unless a reading has them: they were
    given up, or the reading before passed them without a row. If a log has other records than the landed ones, and
    these are given up, the earlier rows are of a past reading.
    """
    if before is None:
        return section.provenance
    known = Coverage.union(e.coverage for e in section.provenance)
    new = section.covered - before.covered - known
    given_up = new - passed | section.covered & found.given_up
    empty = {before.generation: new & passed - found.given_up, section.generation: given_up}
    return added(section.provenance, [Provenance.counted(g, ranges, 0) for g, ranges in empty.items()])


def _lane(session: LandingSession, setting: SectionInit, found: Restart, live: LedgerSection) -> LedgerSection:
    """Return the backfill that gets what the decision skips."""
    parts = found.filled.parts
    starts = {p: ranges.ranges[0].start for p, ranges in parts.items()}
    ends = {p: ranges.ranges[-1].end for p, ranges in parts.items()}
    known = (*setting.sections, live)
    made = new_section(session, setting.source, starts, Coverage(), live.control, known=known)
    return replace(made, lane=setting.lane, ends=ends)
