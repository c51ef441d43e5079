# SPDX-License-Identifier: Apache-2.0
"""A person's word on where a ledger goes on: `lakecommit ledger init`.

Contract: durable before it is reported. A ledger that is set gets a new epoch, so nothing that was pending can be
committed to it; it never goes back over offsets that it has, because their rows are in the table. :func:`init_preview`
writes nothing and tells what the word gives up. What is reported and the source no longer has is published first, over
holes that the same word gives up; where it cannot be, the word is refused unless it is about that too.

Failure story: killed in between, the word is in some tables, or only what is reported was published; the same command
can be given again. What would be lost beyond the preview that a person agreed to is refused: look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState
from airflow_provider_lakecommit.committer.ledger_by_hand import OtherSections, set_section
from airflow_provider_lakecommit.committer.ledger_updates import change_section
from airflow_provider_lakecommit.committer.summary import SnapshotKind
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.model import LedgerSection, ReadPosition
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning import Watermark
from airflow_provider_lakecommit.core.restart import Restart, StatedOffsets, restart
from airflow_provider_lakecommit.core.settle import passed_by_all
from airflow_provider_lakecommit.core.state import AcceptedSlice
from airflow_provider_lakecommit.core.truncation import first_offsets_of, in_doubt, positions_up_to
from airflow_provider_lakecommit.core.voiding import Rescued, gone, irreplaceable, losses, losses_text, rescued
from airflow_provider_lakecommit.cycle.drain import drain
from airflow_provider_lakecommit.cycle.pending import endangered, known_section, known_state
from airflow_provider_lakecommit.cycle.prepare import ledger_state, remembered
from airflow_provider_lakecommit.cycle.sections import first_offsets, new_section, origin_position
from airflow_provider_lakecommit.cycle.session import LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.tables import table_of
from airflow_provider_lakecommit.cycle.unbelieved import unbelieved, unbelieved_text
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError, SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceState

__all__ = ["BEHIND", "InitPreview", "InitTable", "init_preview", "ledger_init"]

Start = str | Mapping[tuple[str, int], int]
"""``earliest``, ``latest``, or an offset per (topic, partition)."""

BEHIND = (
    "does not go back over {}, which it has; `lakecommit ledger attest SPEC --at TOPIC:PARTITION=OFFSET,…` says that "
    "its rows are not there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitTable:
    """What a word comes to in one table. ``published`` is published first, ``reported`` is voided; ``lost`` of that
    cannot be read again. A table that ``begins`` has no ledger yet, and gives up nothing.
    """

    table: str
    begins: bool
    ends: Mapping[SourcePartition, int]
    given_up: Coverage
    behind: Coverage
    back: Coverage
    published: Coverage
    reported: Coverage
    lost: str = ""

    @property
    def loses(self) -> bool:
        return bool(self.given_up or self.back or self.lost)

    @property
    def what(self) -> str:
        """For the table's history."""
        parts = (("gives up", self.given_up), ("goes back over", self.back), ("loses, reported:", self.lost))
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
        return next((t.given_up | t.back for t in self.tables if t.table == table), Coverage())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
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

    def restart(self, section: LedgerSection | None) -> Restart:
        """:raises LakecommitError: the word leaves something open, or cannot be"""
        same = section is not None and self.old is not None and section.epoch == self.old.epoch
        passed = self.passed if same else Coverage()
        here = section if section is not None and section.cluster_id == self.source.cluster_id else None
        found = restart(
            self.word, self.source.partitions, here, passed=passed, firsts=self.firsts, diverged=self.diverged
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
        return InitTable(
            table=self.name,
            begins=self.old is None,
            ends=_ends(found, sorted(self.source.partitions)),
            given_up=found.given_up | saved.bridged,
            behind=found.behind,
            back=found.back,
            published=saved.published,
            reported=Coverage.union(a.coverage for a in self.pending) - saved.published,
            lost="; ".join(filter(None, (losses_text(saved.lost) if saved.lost else "", *self.others_lost))),
        )


def init_preview(session: LandingSession, start: Start) -> InitPreview:
    """What the word would come to; nothing is written.

    :raises LakecommitError: as :func:`ledger_init`
    """
    return InitPreview(tables=tuple(s.preview() for s in _look(session, start).values()))


def ledger_init(
    session: LandingSession,
    start: Start,
    *,
    agreed: InitPreview | None = None,
    give_up_reported: bool = False,
    others: OtherSections = OtherSections.ASK,
    decision: Decision | None = None,
) -> dict[str, Any]:
    """Set the ledger of every table of the landing, under a new epoch. Where each partition goes on is decided by
    :mod:`~airflow_provider_lakecommit.core.restart`. Nothing is written before all tables were asked.

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
    settings = _look(session, start)
    if any(s.rescued.published for s in settings.values()):
        settings = _published_first(session, start, decision)
    found = InitPreview(tables=tuple(s.preview() for s in settings.values()))
    _check_unbelieved(session, settings, found, give_up_reported)
    if found.lost and not give_up_reported:
        raise LedgerError(
            f"landing {session.landing.name}: the ledger is not set, as that would lose what is reported and the "
            f"source has no more: {found.lost}. `lakecommit land` says what keeps it from being published; to give it "
            f"up all the same: `--give-up-reported`"
        )
    for name in settings:
        table_of(session, name)
    what = {t.table: t.what for t in found.tables}
    told = {name: None if decision is None else replace(decision, what=what[name]) for name in settings}
    return {"ledger": {name: _set(session, s, agreed, others, told[name]) for name, s in settings.items()}}


def _check_unbelieved(
    session: LandingSession, settings: Mapping[str, _Setting], found: InitPreview, agreed: bool
) -> None:
    """:raises LedgerError: what would be given up may be reported, by records that are not believed"""
    for name, s in settings.items():
        section = s.old or s.remembered
        # Of a ledger that is gone nobody can tell what a word gives up of it.
        told = s.unbelieved if s.old is None else s.unbelieved & found.given_up(name)
        if section is not None and told and not agreed:
            raise LedgerError(
                f"{name}: the ledger is not set, as that would give up what may be reported: "
                f"{unbelieved_text(session, told, section)}. To give it up all the same: `--give-up-reported`"
            )


def _look(session: LandingSession, start: Start) -> dict[str, _Setting]:
    session.control.ensure()
    source = session.source.watermarks()
    word = _word(source.partitions, start)
    states = {name: ledger_state(session, name) for name in session.landing.tables}
    state = known_state(session, states)
    passed = passed_by_all(state) if state and _in_order(session, states) else {}
    diverged = _diverged(session, source, states)
    settings: dict[str, _Setting] = {}
    data: Restart | None = None
    for name, ledger in states.items():
        old = None if ledger is None else ledger.section(session.landing.name, session.lane)
        in_order = ledger is None or ledger.condition is Condition.PRESENT
        newest = None if ledger is None else known_section(session, ledger)
        if word.offsets.keys() >= source.partitions.keys():
            firsts: Mapping[SourcePartition, int] = {}
        else:
            firsts = _firsts(session, name, ledger, old, source) if data is None else _ends(data, source.partitions)
        settings[name] = _Setting(
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
            unbelieved=Coverage() if newest is None else gone(unbelieved(session, name, newest), source.partitions),
        )
        found = settings[name].restart(old)
        data = data or found
    return settings


def _same_topic(session: LandingSession, section: LedgerSection | None) -> bool:
    """Is what a ledger has pending in the control topic that the landing names?"""
    return section is None or section.control.topic == session.control.name


def _published_first(session: LandingSession, start: Start, decision: Decision | None) -> dict[str, _Setting]:
    """Publish what the source has no more, over holes that the word gives up; what cannot be is told by a new look."""
    _drained(session)
    for name, setting in _look(session, start).items():
        if bridged := setting.rescued.bridged:
            session.log(f"{name}: gives up {bridged}, so that what is reported behind it can be published")
            _bridge(session, name, bridged, decision)
            _drained(session)
    # What is pending now could not be published.
    return {name: replace(s, publishable=False) for name, s in _look(session, start).items()}


def _drained(session: LandingSession) -> None:
    run = RunIdentity(deployment="person", dag_id="ledger init", run_id=str(session.new_id()))
    try:
        drain(session, run, "publishes what is reported before a ledger is set")
    except LakecommitError as e:
        session.log(f"what is reported could not all be published: {e}")


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
    setting: _Setting,
    agreed: InitPreview | None,
    others: OtherSections,
    decision: Decision | None,
) -> dict[str, int]:
    """By one compare-and-swap that is decided on the section it finds."""
    name = setting.name
    made: list[tuple[LedgerSection, Restart]] = []
    control = origin_position(session)

    def make(now: LedgerSection | None) -> LedgerSection:
        if made and now is not None and now.epoch == made[-1][0].epoch:
            return now
        found = setting.restart(now)
        if agreed and (more := (found.given_up | found.back) - agreed.given_up(name)):
            raise LedgerError(f"{name}: by now this would give up {more} too, which was not shown: look again")
        positions = setting.positions(now, found)
        section = new_section(
            session, setting.source, found.starts, found.covered, control, before=now, positions=positions
        )
        made.append((section, found))
        return section

    branch, landing = session.landing.branch, session.landing.name
    keep = setting.endangered.keys()
    set_section(
        session.tables, name, landing, session.lane, make, branch=branch, others=others, keep=keep, decision=decision
    )
    section, found = made[-1]
    ends = {str(p): section.end(p) for p in sorted(setting.source.partitions)}
    session.log(f"{name}: goes on at {', '.join(f'{p} {o}' for p, o in ends.items())}")
    if found.given_up:
        session.log(f"{name}: gives up {found.given_up}, which it has not landed")
    if found.behind:
        session.log(f"{name}: {BEHIND.format(found.behind)}")
    if found.back:
        session.log(f"{name}: goes back over {found.back}, which are other records now than those it has landed")
    return ends


def _word(partitions: Mapping[SourcePartition, Watermark], start: Start) -> StatedOffsets:
    if isinstance(start, str):
        # Back to the earliest offset of a log that lost its end would be over rows that the table has.
        return StatedOffsets(offsets=first_offsets(partitions, start), back=start != "earliest")
    known = {(p.topic, p.partition): p for p in partitions}
    if unknown := [f"{t}[{n}]" for t, n in start if (t, n) not in known]:
        raise SourceError(f"{', '.join(unknown)}: the source has no such partition")
    # Every plan would be refused until the log is as long, and what comes up to there would never be read.
    ends = {known[place]: (offset, partitions[known[place]].high) for place, offset in start.items()}
    if beyond := [
        f"{p} ends at {high}, and not at {offset} or later" for p, (offset, high) in ends.items() if offset > high
    ]:
        raise SourceError(f"{'; '.join(beyond)}: nothing is changed; state offsets that the log has, or `latest`")
    return StatedOffsets(offsets={known[place]: offset for place, offset in start.items()})


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
