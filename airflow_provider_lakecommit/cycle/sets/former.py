# SPDX-License-Identifier: Apache-2.0
"""Former landings of a set: its rules, its template or its name changed, or a topic was deleted.

Contract: pure. The control topic names them: every landing of a set is called ``<set>.<table>``. Their reported slices
without a table are published (:mod:`~airflow_provider_lakecommit.cycle.sets.former_scan`), and named until then. A
former landing with existing topics and nothing left to publish is not mentioned.

Failure story: the brokers do not list deleted topics, so the landing is named, and whether all offsets of its newest
cycle were landed. Excluded topics are not named unless something is pending.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_lakecommit.core import (
    BACKFILL,
    PUBLISH_NOW,
    RESET_OFFSETS,
    Coverage,
    CycleClosed,
    CycleOpened,
    Entry,
    SliceReported,
    TablePublished,
    set_of,
)
from airflow_provider_lakecommit.cycle.sets.expansion import options_of
from airflow_provider_lakecommit.landing import Landing, LandingSet


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerLanding:
    """A former landing. ``pending`` is reported and not in its tables, ``lanes`` are open. ``topics_missing``: none of
    its topics exists any more; ``whole``: its tables have all offsets of its newest cycle. ``own``: it has the set's
    name. ``dropped``: its table no longer exists.
    """

    landing: Landing
    pending: Coverage = field(default_factory=Coverage)
    lanes: tuple[str, ...] = ()
    topics_missing: bool = False
    whole: bool = True
    own: bool = True
    dropped: bool = False

    @property
    def name(self) -> str:
        return self.landing.name

    @property
    def publishes(self) -> bool:
        """Return True if the next run of the set has slices of it to publish."""
        return self.own and bool(self.pending) and not self.dropped

    @property
    def is_open(self) -> bool:
        """Return True if it has slices or backfills that no run of the set's landings finishes."""
        return bool(self.pending or self.lanes)

    def __str__(self) -> str:
        parts = [*self._open(), *self._missing()]
        return f"{self.name}: {'the set no longer has this landing; ' if self.is_open else ''}{'; '.join(parts)}"

    def _open(self) -> Sequence[str]:
        named, parts = f"--landing {self.name}", []
        if self.pending and self.dropped:
            parts.append(f"{self.pending} was reported for {self.landing.table}, which no longer exists")
        elif self.pending:
            how = "the next run publishes it" if self.own else f"`{PUBLISH_NOW} SPEC {named}` publishes it"
            how += f"; if it waits for missing records, `{RESET_OFFSETS} SPEC {named} --from earliest` gives those up"
            parts.append(f"{self.pending} is reported but not in {', '.join(self.landing.tables)}: {how}")
        parts += [
            f"backfill {lane} is open: `{BACKFILL} SPEC {named} --close {lane}` publishes its reported slices"
            for lane in self.lanes
        ]
        return parts

    def _missing(self) -> Sequence[str]:
        if not self.topics_missing:
            return ()
        topics = ", ".join(self.landing.topic_names)
        lost = "" if self.whole else ", and not all of their records that the newest cycle observed were landed"
        return (
            f"its topics are missing, or this principal can no longer see them ({topics}){lost}; "
            f"{self.landing.table} stays as it is; list the topics in `exclude` to silence this",
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "landing": self.name,
            "topics": list(self.landing.topic_names),
            "tables": list(self.landing.tables),
            "pending": self.pending.to_dict(),
            "lanes": list(self.lanes),
            "gone": self.topics_missing,
        }


def landings_to_publish(former: Iterable[FormerLanding]) -> tuple[Landing, ...]:
    """Return those with slices to publish."""
    return tuple(each.landing for each in former if each.publishes)


def format_former(former: FormerLanding) -> str:
    """Return its line in a list of all landings."""
    return f"{'FORMER' if former.is_open else 'GONE'} {former}"


def former_landing(
    declared: LandingSet, name: str, table: str, topics: Collection[str], tables: Collection[str]
) -> Landing:
    """Return a former landing, as far as publishing needs it, with the options that its table would get now.

    :param tables: all tables that its slices were written for
    :raises SpecError: the current options do not fit these tables
    """
    values: dict[str, Any] = {**options_of(declared, table), "name": name, "topics": sorted(topics), "table": table}
    landing = Landing.from_dict(values)
    others = sorted({*tables} - {*landing.data_tables})
    if {*tables} == {*landing.tables}:
        return landing
    values |= {"dead_letter_table": others[0] if len(others) == 1 else None}
    if len(others) > 1:
        # Publishing does not depend on which of them takes dead letters.
        values |= {"route": {"field": "table", "tables": {t: t for t in sorted({table, *tables})}}, "transform": None}
    return Landing.from_dict(values)


def topics_of_plan(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the topics of the newest plan that reached the brokers; empty if there is none."""
    opened = _newest(entries)
    return () if opened is None else tuple(sorted({p.topic for p in opened.plan.ends}))


def tables_of(entries: Sequence[Entry]) -> frozenset[str]:
    """Return the tables that slices were planned or reported for."""
    planned = {t.table for e in entries if isinstance(e, CycleOpened) for t in e.plan.targets}
    reported = {t.table for e in entries if isinstance(e, SliceReported) for t in e.report.tables}
    return frozenset(planned | reported)


def was_complete(entries: Sequence[Entry]) -> bool:
    """Return True if all offsets of the newest plan were landed."""
    if (opened := _newest(entries)) is None:
        return True
    ends = (e.valid_through for e in entries if isinstance(e, CycleClosed) and e.commit_id == opened.commit_id)
    through = next(ends, None)
    return through is not None and through >= opened.plan.requested_at


def are_missing(declared: LandingSet, topics: Collection[str], known: Collection[str]) -> bool:
    """Return True if none of these topics exists, and the set excludes none of them.

    :param known: all existing topics; empty if the set has no pattern: then a missing named topic is the failure of a
        landing
    """
    excluded = any(re.fullmatch(each, t) for t in topics for each in declared.exclude)
    return bool(topics and known) and not excluded and not any(t in known for t in topics)


def table_of_name(declared: LandingSet, name: str, entries: Sequence[Entry]) -> tuple[str, bool] | None:
    """Return the table of a landing, and whether the landing has the set's name; ``None`` if it belongs to no set."""
    tables = sorted(tables_of(entries))
    own = [t for t in tables if declared.landing_name(t) == name]
    named = own or [t for t in tables if set_of(name, t)]
    if tables:
        return (named[0], bool(own)) if named else None
    table = name.removeprefix(declared.landing_name(""))
    return (table, True) if table != name and "." in table else None


def reported_in(entries: Sequence[Entry], table: str) -> Coverage:
    """Return what was reported with rows for a table and never published there."""
    reports = (e.report for e in entries if isinstance(e, SliceReported))
    reported = Coverage.union(r.coverage for r in reports if (t := r.table(table)) is not None and t.rows)
    published = (e.coverage for e in entries if isinstance(e, TablePublished) and e.table == table)
    return reported - Coverage.union(published)


def _newest(entries: Sequence[Entry]) -> CycleOpened | None:
    return next((e for e in reversed(entries) if isinstance(e, CycleOpened) and e.plan.ends), None)
