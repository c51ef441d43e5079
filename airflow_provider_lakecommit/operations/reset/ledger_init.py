# SPDX-License-Identifier: Apache-2.0
"""A person's word on where a ledger goes on: `lakecommit reset offsets`.

Contract: durable before it is reported. A ledger that is set gets a new epoch, so nothing that was pending can be
committed to it. What the word gives up is told by :mod:`~airflow_provider_lakecommit.operations.reset.init_preview`.
What is reported and the source no longer has is published first, over holes that the same word gives up; where it
cannot be, the word is refused unless it is about that too.

Failure story: killed in between, the word is in some tables, or only what is reported was published; the same command
can be given again. What would be lost beyond the preview that a person agreed to is refused: look again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.committer import OtherSections, SnapshotKind, change_section, set_section, turn_is_over
from airflow_provider_lakecommit.core import (
    BACKFILL,
    LAND,
    RESET_ASSERT,
    Coverage,
    Decision,
    LedgerSection,
    Provenance,
    Restart,
    added,
)
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    RunIdentity,
    drain,
    new_section,
    origin_position,
    table_of,
    unbelieved_text,
)
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError
from airflow_provider_lakecommit.operations.reset.init_preview import InitPreview, SectionInit, section_inits
from airflow_provider_lakecommit.operations.reset.word import PLAIN, Start, Way

__all__ = ["BEHIND", "ledger_init"]

BEHIND = (
    f"does not go back over {{}}, which it has; if its rows are not in the table, run `{RESET_ASSERT} SPEC --at "
    "TOPIC:PARTITION=OFFSET,…`"
)


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
    """Set the ledger of every table of the landing, under a new epoch. Where each partition goes on is decided by
    :mod:`~airflow_provider_lakecommit.core.planning.restart`. Nothing is written before all tables were asked.

    :param agreed: what a person was shown: more than that is not given up
    :param give_up_reported: also what is reported, cannot be published and the source has no more
    :param others: the person's word on rows of other landings, where the ledger is lost
    :param decision: who says it, for the tables' history
    :raises SourceError: an offset is stated for a partition that the topic lacks, that is past the end of the log, or
        that the source has removed
    :raises SourceUnavailableError: the brokers do not say whether their logs are those that were read
    :raises LedgerError: partitions are not named, and no ledger tells of them; or what is reported would be lost
    :raises TableError: a table is missing and may not be made, or cannot take the rows
    :raises CatalogError: the catalog is away
    """
    settings = section_inits(session, start, way)
    if any(s.rescued.published for s in settings.values()):
        settings = _published_first(session, start, way, decision)
    _check_lost(session, settings, give_up_reported)
    for name in settings:
        table_of(session, name)
    told = {
        name: None if decision is None else replace(decision, what=s.preview().what) for name, s in settings.items()
    }
    for name, s in settings.items():
        _set(session, s, agreed, others, told[name], rehearse=True)
    return {"ledger": {name: _set(session, s, agreed, others, told[name]) for name, s in settings.items()}}


def check_init(session: LandingSession, start: Start, way: Way = PLAIN) -> None:
    """Refuse what :func:`ledger_init` would refuse; nothing is written.

    :raises LakecommitError: as :func:`ledger_init`
    """
    _check_lost(session, section_inits(session, start, way), False)


def _check_lost(session: LandingSession, settings: Mapping[str, SectionInit], agreed: bool) -> None:
    """:raises LedgerError: what is reported would be lost, and nobody has agreed to that"""
    found = InitPreview(tables=tuple(s.preview() for s in settings.values()))
    _check_unbelieved(session, settings, found, agreed)
    if found.lost and not agreed:
        raise LedgerError(
            "LC7019",
            f"landing {session.landing.name}: the ledger is not set, because that would lose reported slices that "
            f"the source no longer has: {found.lost}. Run `{LAND}` to see what prevents their publication; to give "
            f"them up, use `--give-up-reported`",
        )


def _check_unbelieved(
    session: LandingSession, settings: Mapping[str, SectionInit], found: InitPreview, agreed: bool
) -> None:
    """:raises LedgerError: what would be given up may be reported, by records that are not believed"""
    for name, s in settings.items():
        section = s.old or s.remembered
        # Of a ledger that is gone nobody can tell what a word gives up of it.
        told = s.unbelieved if s.old is None else s.unbelieved & found.given_up(name)
        if section is not None and told and not agreed:
            raise LedgerError(
                "LC7020",
                f"{name}: the ledger is not set, because that would give up slices that may be reported: "
                f"{unbelieved_text(session, told, section)}. To give them up, use `--give-up-reported`",
            )


def _published_first(
    session: LandingSession, start: Start, way: Way, decision: Decision | None
) -> dict[str, SectionInit]:
    """Publish what the source has no more, over holes that the word gives up; what cannot be is told by a new look."""
    _drained(session)
    for name, setting in section_inits(session, start, way).items():
        if bridged := setting.rescued.bridged:
            session.log(f"{name}: gives up {bridged}, so that the slices reported after it can be published")
            _bridge(session, name, bridged, decision)
            _drained(session)
    # What is pending now could not be published.
    return {name: replace(s, publishable=False) for name, s in section_inits(session, start, way).items()}


def _drained(session: LandingSession) -> None:
    run = RunIdentity(deployment="person", dag_id="ledger init", run_id=str(session.new_id()))
    try:
        drain(session, run, "publishes reported slices before a ledger is set")
    except LakecommitError as e:
        session.log(f"could not publish all reported slices: {e}")


def _bridge(session: LandingSession, name: str, bridged: Coverage, decision: Decision | None) -> None:
    """Give up what nobody has reported, under the epoch of what is reported behind it."""
    change_section(
        session.tables,
        name,
        session.landing.name,
        session.lane,
        SnapshotKind.INIT,
        lambda s: replace(s, covered=s.covered | bridged) if bridged - s.covered else None,
        branch=session.landing.branch,
        decision=None if decision is None else replace(decision, what=f"gives up {bridged}"),
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
    """By one compare-and-swap that is decided on the section it finds.

    :param rehearse: decide it, and write nothing
    """
    name = setting.name
    made: list[tuple[LedgerSection, Restart]] = []
    beside: dict[str, LedgerSection] = {}
    control = origin_position(session)

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
        beside.clear()
        if found.filled:
            beside[setting.lane] = _lane(session, setting, found, section)
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
        beside=beside.values,
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
    """For people, what became of the ranges."""
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
    """Return the section with whom the landing goes on after. The turn of a connector ended with the topic that it
    read, and who handed the table to it had the landing wait.
    """
    known = now or setting.remembered
    if known is None or known.sink is None:
        return section
    if turn_is_over(known, setting.source.partitions):
        return replace(section, sink=None, suspended="")
    return replace(section, sink=replace(known.sink, landed=known.sink.landed & section.covered))


def _provenance(
    section: LedgerSection, before: LedgerSection | None, passed: Coverage, found: Restart
) -> tuple[Provenance, ...]:
    """Return the readings of a section that is set. Of what it newly covers no row was landed, unless a reading says
    so: it was given up, or the reading before has passed it without a row. Where a log has other records than those
    that were landed, and these are given up, the rows of before are of a reading that is past.
    """
    if before is None:
        return section.provenance
    known = Coverage.union(e.coverage for e in section.provenance)
    new = section.covered - before.covered - known
    given_up = new - passed | section.covered & found.given_up
    empty = {before.generation: new & passed - found.given_up, section.generation: given_up}
    return added(section.provenance, [Provenance.counted(g, ranges, 0) for g, ranges in empty.items()])


def _lane(session: LandingSession, setting: SectionInit, found: Restart, live: LedgerSection) -> LedgerSection:
    """Return the lane that is left what the word leads forward over."""
    parts = found.filled.parts
    starts = {p: ranges.ranges[0].start for p, ranges in parts.items()}
    ends = {p: ranges.ranges[-1].end for p, ranges in parts.items()}
    known = (*setting.sections, live)
    made = new_section(session, setting.source, starts, Coverage(), live.control, known=known)
    return replace(made, lane=setting.lane, ends=ends)
