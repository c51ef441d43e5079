# SPDX-License-Identifier: Apache-2.0
"""What `lakecommit reset offsets` would come to: in each table of a landing, in offsets, before anything is written.

Contract: reads tables, log and source, and writes nothing. A ledger never goes back over offsets that it has, because
their rows are in the table, except where the source's log lost them and holds other records there. What is reported
and the source no longer has counts as published where it can be published first, and as lost where it cannot.

Failure story: a word that leaves a partition open, or names offsets that the log does not have, is refused with what
the log has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState
from airflow_provider_lakecommit.core.model import LedgerSection, ReadPosition
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.settle import passed_by_all
from airflow_provider_lakecommit.core.state import AcceptedSlice
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceState
from airflow_provider_lakecommit.planning.missing import Watermark
from airflow_provider_lakecommit.planning.restart import Restart, StatedOffsets, restart
from airflow_provider_lakecommit.planning.truncation import first_offsets_of, in_doubt, positions_up_to
from airflow_provider_lakecommit.planning.voiding import Rescued, gone, irreplaceable, losses, losses_text, rescued
from airflow_provider_lakecommit.prepare.absent import remembered
from airflow_provider_lakecommit.prepare.pending import endangered, known_section, known_state
from airflow_provider_lakecommit.prepare.sections import first_offsets
from airflow_provider_lakecommit.prepare.tables import ledger_state
from airflow_provider_lakecommit.prepare.unbelieved import unbelieved
from airflow_provider_lakecommit.repair.published_before import PublishedBefore, published_before
from airflow_provider_lakecommit.repair.word import PLAIN, Start, Way, check_lane, offsets_of
from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["InitPreview", "InitTable", "SectionInit", "init_preview", "section_inits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitTable:
    """What a word comes to in one table. ``published`` is published first, ``reported`` is voided; ``lost`` of that
    cannot be read again. A table that ``begins`` has no ledger: ``not_again`` was in it before, by the log, and is not
    read again by a ledger that begins there.
    """

    table: str
    begins: bool
    ends: Mapping[SourcePartition, int]
    given_up: Coverage
    behind: Coverage
    back: Coverage
    published: Coverage
    reported: Coverage
    not_again: Coverage = field(default_factory=Coverage)
    lost: str = ""
    again: Coverage = field(default_factory=Coverage)
    filled: Coverage = field(default_factory=Coverage)
    lane: str = ""
    record_bytes: int = 0

    @property
    def loses(self) -> bool:
        return bool(self.given_up or self.back or self.not_again or self.lost or self.again)

    @property
    def what(self) -> str:
        """For the table's history."""
        parts = (
            ("gives up", self.given_up),
            ("goes back over", self.back),
            ("does not read again", self.not_again),
            ("reads again, beside the rows that are there,", self.again),
            (f"leaves to lane {self.lane}", self.filled),
            ("loses, reported:", self.lost),
        )
        return "; ".join(f"{said} {ranges}" for said, ranges in parts if ranges) or "gives up nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitPreview:
    tables: tuple[InitTable, ...]

    @property
    def loses(self) -> bool:
        """Is anything given up, so that a person has to agree?"""
        return any(t.loses for t in self.tables)

    @property
    def lost(self) -> str:
        """What is reported and can neither be published nor read again."""
        return "; ".join(f"{t.table}: {t.lost}" for t in self.tables if t.lost)

    def given_up(self, table: str) -> Coverage:
        return next((t.given_up | t.back | t.again for t in self.tables if t.table == table), Coverage())


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionInit:
    """What a person's word makes of the section of one table, whatever has landed there since it was looked at."""

    name: str
    source: SourceState
    word: StatedOffsets
    old: LedgerSection | None
    passed: Coverage
    firsts: Mapping[SourcePartition, int]
    diverged: Mapping[SourcePartition, int]
    pending: tuple[AcceptedSlice, ...]
    publishable: bool
    remembered: LedgerSection | None = None
    rolled_back: bool = False
    endangered: Mapping[UUID, str] = field(default_factory=dict)
    unbelieved: Coverage = field(default_factory=Coverage)
    before: PublishedBefore = field(default_factory=PublishedBefore)
    lane: str = ""
    others: Coverage = field(default_factory=Coverage)

    def passed_of(self, section: LedgerSection | None) -> Coverage:
        """What the table has passed without a row beyond this section, which may not be the one that was looked at."""
        same = section is not None and self.old is not None and section.epoch == self.old.epoch
        return self.passed if same else Coverage()

    def restart(self, section: LedgerSection | None) -> Restart:
        """:raises LakecommitError: the word leaves something open, or cannot be"""
        here = section if section is not None and section.cluster_id == self.source.cluster_id else None
        found = restart(
            self.word,
            self.source.partitions,
            here,
            # What other lanes have lies before where it goes on, as what was passed without a row does.
            passed=self.passed_of(section) | self.others,
            firsts=self.firsts,
            diverged=self.diverged,
        )
        _check(self.name, found, self.source.partitions)
        return found

    def positions(self, section: LedgerSection | None, found: Restart) -> dict[SourcePartition, ReadPosition]:
        """Those that a word leaves as they are: what it says of a log that is another one is taken for it. Who names
        offsets because a ledger is gone says nothing of the log.
        """
        if section is None and (gone := self.remembered) and gone.cluster_id == self.source.cluster_id:
            return positions_up_to(gone.positions, _ends(found, self.source.partitions))
        said = self.diverged.keys() & self.word.offsets.keys() | found.back.parts.keys()
        known = section.positions if section and section.cluster_id == self.source.cluster_id else {}
        return {p: at for p, at in known.items() if p not in said and p in self.source.partitions}

    @property
    def rescued(self) -> Rescued:
        """What of the pending slices can be published before the word is given."""
        marks = self.source.partitions
        if self.old is None or not self.publishable:
            return Rescued(lost=losses(irreplaceable(self.pending, marks, self.name), marks))
        return rescued(self.name, self.old, self.pending, marks, lambda s: self.restart(s).given_up)

    @property
    def others_lost(self) -> Iterable[str]:
        """Sections that come back keep their epochs, those of a table that was rolled back cannot."""
        return self.endangered.values() if self.rolled_back else ()

    def preview(self) -> InitTable:
        saved = self.rescued
        after = None if self.old is None else replace(self.old, covered=self.old.covered | saved.covered)
        found = self.restart(after)
        reported = self.before.lost(self.source.partitions)
        lost = (losses_text(saved.lost) if saved.lost else "", str(reported) if reported else "", *self.others_lost)
        return InitTable(
            table=self.name,
            begins=self.old is None,
            ends=_ends(found, sorted(self.source.partitions)),
            given_up=found.given_up | saved.bridged,
            behind=found.behind,
            back=found.back,
            published=saved.published,
            reported=Coverage.union(a.coverage for a in self.pending) - saved.published,
            not_again=self.before.not_again(found.starts, self.source.partitions),
            lost="; ".join(filter(None, lost)),
            again=found.again,
            filled=found.filled,
            lane=self.lane,
            record_bytes=0 if self.old is None else self.old.record_bytes,
        )


def init_preview(session: LandingSession, start: Start, way: Way = PLAIN) -> InitPreview:
    """What the word would come to; nothing is written.

    :raises LakecommitError: as :func:`~airflow_provider_lakecommit.repair.ledger_init.ledger_init`
    """
    return InitPreview(tables=tuple(s.preview() for s in section_inits(session, start, way).values()))


def section_inits(session: LandingSession, start: Start, way: Way = PLAIN) -> dict[str, SectionInit]:
    """By table, in the order of the landing.

    :raises LakecommitError: as :func:`~airflow_provider_lakecommit.repair.ledger_init.ledger_init`
    """
    session.control.ensure()
    source = session.source.watermarks()
    word = offsets_of(session, source.partitions, start, way)
    states = {name: ledger_state(session, name) for name in session.landing.tables}
    check_lane(session, states, way.fill)
    state = known_state(session, states)
    passed = passed_by_all(state) if state and _in_order(session, states) else {}
    diverged = _diverged(session, source, states)
    settings: dict[str, SectionInit] = {}
    data: Restart | None = None
    for name, ledger in states.items():
        old = None if ledger is None else ledger.section(session.landing.name, session.lane)
        in_order = ledger is None or ledger.condition is Condition.PRESENT
        newest = None if ledger is None else known_section(session, ledger)
        if word.offsets.keys() >= source.partitions.keys():
            firsts: Mapping[SourcePartition, int] = {}
        else:
            firsts = _firsts(session, name, ledger, old, source) if data is None else _ends(data, source.partitions)
        settings[name] = SectionInit(
            name=name,
            source=source,
            word=word,
            old=old,
            passed=passed.get(name, Coverage()),
            firsts=firsts,
            diverged=diverged,
            pending=state.accepted.get(name, ()) if state else (),
            publishable=ledger is not None and ledger.newest and _same_topic(session, old),
            remembered=newest,
            rolled_back=ledger is not None and ledger.condition in (Condition.ROLLED_BACK, Condition.PICKED),
            endangered={} if ledger is None or in_order else endangered(session, name, ledger),
            before=PublishedBefore() if old is not None else published_before(session, name, newest),
            unbelieved=Coverage() if newest is None else gone(unbelieved(session, name, newest), source.partitions),
            lane=way.fill,
            others=Coverage() if ledger is None else ledger.covered(exclude=(session.landing.name, session.lane)),
        )
        found = settings[name].restart(old)
        data = data or found
    return settings


def _diverged(
    session: LandingSession, source: SourceState, states: Mapping[str, LedgerState | None]
) -> dict[SourcePartition, int]:
    """From where the logs hold other records than those that the tables have of them."""
    sections = (s.section(session.landing.name, session.lane) for s in states.values() if s is not None)
    places = [item for s in sections if s and s.cluster_id == source.cluster_id for item in s.positions.items()]
    return first_offsets_of(session.source.diverged(in_doubt(places, source.partitions)))


def _in_order(session: LandingSession, states: Mapping[str, LedgerState | None]) -> bool:
    """What a table has no rows of, only the log tells: a table without rows is brought forward rarely. Nothing of that
    is known where a table has no ledger that holds.
    """
    return all(
        s and s.condition is Condition.PRESENT and s.section(session.landing.name, session.lane)
        for s in states.values()
    )


def _same_topic(session: LandingSession, section: LedgerSection | None) -> bool:
    """Is what a ledger has pending in the control topic that the landing names?"""
    return section is None or section.control.topic == session.control.name


def _firsts(
    session: LandingSession, name: str, state: LedgerState | None, old: LedgerSection | None, source: SourceState
) -> dict[SourcePartition, int]:
    """Where partitions begin of which the data table's ledger does not tell, as in a plan: a topic that joins, and a
    landing that never ran, where the landing says; a topic that was made anew with its first record. Nobody knows where
    the rows of a ledger that is gone end.
    """
    lost = state is not None and state.condition in (Condition.LOST, Condition.CUT)
    if old is None and (lost or remembered(session, name)):
        return {}
    joined = first_offsets(source.partitions, session.landing.start)
    topics = set() if old is None else {p.topic for p in old.starts}
    return {p: mark.start if p.topic in topics else joined[p] for p, mark in source.partitions.items()}


def _ends(data: Restart, partitions: Iterable[SourcePartition]) -> dict[SourcePartition, int]:
    """A table that joins goes on where the data table's ledger ends."""
    return {p: data.covered[p].reach(data.starts.get(p, 0)) for p in partitions}


def _check(name: str, found: Restart, marks: Mapping[SourcePartition, Watermark]) -> None:
    if found.untold:
        raise LedgerError(
            f"{name} has no ledger that tells of {', '.join(map(str, found.untold))}: name "
            f"{'it' if len(found.untold) == 1 else 'them'} too, or say `earliest` or `latest`; nothing is changed"
        )
    if found.removed:
        gone = "; ".join(f"{p} begins at {marks[p].start}, and not at {r.start}" for p, r in found.removed.items())
        raise SourceError(
            f"{gone}: nothing is changed; {name} would have to read there, so state offsets that the log has, or "
            f"`earliest`"
        )
