# SPDX-License-Identifier: Apache-2.0
"""Before planning or publishing: check that the source's logs still contain what was read from them.

Contract: :func:`diverged_logs` asks only where a partition has another leader epoch than the one under which it was
last read; what is asked is :mod:`~airflow_provider_lakecommit.core.planning.truncation`'s decision. A plan leaves such
partitions out, and the others go on; where it would have none, :func:`check_logs` raises. :func:`truncated` asks only
where what waits to be published was read under several epochs, so that no two readings of different logs are published
together; of a topic that is gone there is nothing to ask. Both write nothing.

Failure story: a log that has other records where some were landed is a
:class:`~airflow_provider_lakecommit.exceptions.SourceError` that names the partition, its epochs, the offset from which
it differs, the rows that the log no longer has, and the ways on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from airflow_provider_lakecommit.core import (
    LAND,
    LIVE,
    RESET_OFFSETS,
    LandingState,
    LedgerSection,
    SourcePartition,
    Truncation,
    Watermark,
    first_offsets_of,
    goes_on_at,
    in_doubt,
    known_positions,
    lost_rows,
    reported_rows,
)
from airflow_provider_lakecommit.core.planning.truncation import outdated
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.ports import SourcePort
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka import SourceState

__all__ = ["DivergedLogs", "check_logs", "check_logs_of_lane", "diverged_logs", "truncated"]

MOST_TEXT = 2000
"""Characters of the text that a plan carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergedLogs:
    """Partitions whose logs have other records than were read; ``text`` tells where, what is lost, and the ways on."""

    partitions: frozenset[SourcePartition] = frozenset()
    text: str = ""


def diverged_logs(session: LandingSession, landing_state: LandingState, source: SourceState) -> DivergedLogs:
    """Return the partitions whose logs do not hold all that was read of them.

    :raises SourceError: a topic may not be read
    :raises SourceUnavailableError: the brokers do not answer in time
    """
    asked = in_doubt(known_positions(landing_state), source.partitions)
    if not (found := session.source.diverged(asked)):
        return DivergedLogs()
    ways = _ways(landing_state, found) if session.lane == LIVE else _way_of_lane(session.lane)
    text = f"{_what(found, source.partitions)}. {ways}"[:MOST_TEXT]
    return DivergedLogs(partitions=frozenset(d.partition for d in found), text=text)


def check_logs(session: LandingSession, landing_state: LandingState, source: SourceState) -> DivergedLogs:
    """Return what a plan leaves out.

    :raises SourceError: there is no other partition
    :raises SourceUnavailableError: the brokers do not answer in time
    """
    diverged = diverged_logs(session, landing_state, source)
    if diverged.text and not source.partitions.keys() - diverged.partitions:
        raise SourceError("LC6016", diverged.text)
    return diverged


def check_logs_of_lane(
    lane: str, bounded: SourcePort, sections: Iterable[LedgerSection], watermarks: Mapping[SourcePartition, Watermark]
) -> None:
    """Before a lane is opened.

    :param bounded: the source as far as the lane goes
    :param sections: of the landing
    :raises SourceError: a log has other records in the lane's range than the landing has read there
    :raises SourceUnavailableError: the brokers do not answer in time
    """
    if found := bounded.diverged(in_doubt((at for s in sections for at in s.positions.items()), watermarks)):
        raise SourceError("LC6017", f"{_what(found, watermarks)}. {_way_of_lane(lane)}"[:MOST_TEXT])


def truncated(session: LandingSession, landing_state: LandingState, table: str) -> dict[UUID, str]:
    """Attempts that wait for a table and are of logs that are other ones since, with the reason.

    :raises SourceError: what the table has is of another log, too
    :raises SourceUnavailableError: the brokers do not say in time
    """
    section, accepted = landing_state.ledgers[table].section, landing_state.accepted[table]
    places = [(s.span.partition, s.position) for a in accepted for s in a.report.spans if s.position is not None]
    asked = outdated([*section.positions.items(), *places])
    if asked:
        # Of a topic that is gone nobody can answer, and one of its name that was made anew has a log of its own.
        there = session.source.watermarks(missing_ok=True).partitions
        asked = [(p, at) for p, at in asked if p in there]
    out: dict[UUID, str] = {}
    for t in session.source.diverged(asked):
        where = "an unknown offset" if t.end is None else f"offset {t.end}"
        if any(t.concerns(p, at) for p, at in section.positions.items()):
            raise SourceError(
                "LC6018",
                f"{table} was landed from another log of {t.partition}, which differs from {where} on: nothing is "
                "published; the next plan reports how to continue",
            )
        for a in accepted:
            if any(s.position is not None and t.concerns(s.span.partition, s.position) for s in a.report.spans):
                out[a.report.attempt] = f"{a.coverage}: the log of {t.partition} differs from {where} on"
    return out


def _what(found: Iterable[Truncation], watermarks: Mapping[SourcePartition, Watermark]) -> str:
    differs = "; ".join(_differs(d, watermarks[d.partition]) for d in found)
    return f"{differs}: the log was truncated and grew again, or was restored from a copy"


def _ways(landing_state: LandingState, found: list[Truncation]) -> str:
    first = first_offsets_of(found)
    has = [f"{table} has rows of {c}" for table, c in lost_rows(landing_state, first).items()]
    gets = [f"{table} gets rows of {c}, by the next commit" for table, c in reported_rows(landing_state, first).items()]
    rows = "; ".join([*has, *gets])
    offsets = ",".join(f"{p.topic}:{p.partition}={o}" for p, o in goes_on_at(landing_state, first).items())
    return (
        f"Of the lost records, {rows or 'none is in a table'}; the records in their place are not landed. After "
        f"checking: `{RESET_OFFSETS} SPEC --from {offsets}` continues with the new records (the rows stay where they "
        "are), `--from latest` skips them"
    )


def _way_of_lane(lane: str) -> str:
    return f"Stream {lane} reads none of it: `{LAND} SPEC` reports how to continue"


def _differs(d: Truncation, mark: Watermark) -> str:
    read = f"{d.partition} was read up to {d.position.offset} under leader epoch {d.position.leader_epoch}"
    if d.end is None:
        return f"{read}, but its log only knows newer epochs (it is at {mark.leader_epoch}), so it is another log"
    return f"{read}, but is another log from offset {d.end} on (leader epoch {mark.leader_epoch}, end {mark.high})"
