# SPDX-License-Identifier: Apache-2.0
"""Check before planning or publishing that the source's logs still contain what was read from them.

Contract: :func:`diverged_logs` asks only if a partition has another leader epoch than at its last read;
:mod:`~airflow_provider_lakecommit.core.planning.truncation` decides what to ask. A plan skips such partitions and
continues with the others; if none is left, :func:`check_logs` raises. :func:`truncated` asks only if pending slices
were read under several epochs, so that readings of different logs are not published together; of a missing topic there
is nothing to ask. Both write nothing.

Failure story: a log with other records than the landed ones is a
:class:`~airflow_provider_lakecommit.exceptions.SourceError` that names the partition, its epochs, the offset of the
first difference, the rows that the log no longer has, and the remedies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

MOST_TEXT = 2000
"""Most characters of the text in a plan."""


def diverged_logs(
    session: LandingSession, landing_state: LandingState, source: SourceState
) -> tuple[frozenset[SourcePartition], str]:
    """Return the partitions whose logs no longer hold all that was read of them; with offsets, losses and remedies.

    :raises SourceError: a topic cannot be read
    :raises SourceUnavailableError: the brokers do not answer in time
    """
    positions = in_doubt(known_positions(landing_state), source.partitions)
    if not (found := session.source.diverged(positions)):
        return frozenset(), ""
    ways = _ways(landing_state, found) if session.lane == LIVE else _way_of_lane(session.lane)
    text = f"{_what(found, source.partitions)}. {ways}"[:MOST_TEXT]
    return frozenset(d.partition for d in found), text


def check_logs(
    session: LandingSession, landing_state: LandingState, source: SourceState
) -> tuple[frozenset[SourcePartition], str]:
    """Return the partitions that a plan skips, and why.

    :raises SourceError: there is no other partition
    :raises SourceUnavailableError: the brokers do not answer in time
    """
    diverged, why = diverged_logs(session, landing_state, source)
    if why and not source.partitions.keys() - diverged:
        raise SourceError("LC6016", why)
    return diverged, why


def check_logs_of_lane(
    lane: str, bounded: SourcePort, sections: Iterable[LedgerSection], watermarks: Mapping[SourcePartition, Watermark]
) -> None:
    """Check the logs before a backfill is opened.

    :param bounded: the source within the backfill's range
    :param sections: entries of the landing
    :raises SourceError: a log has other records in the range than the landing has read there
    :raises SourceUnavailableError: the brokers do not answer in time
    """
    if found := bounded.diverged(in_doubt((at for s in sections for at in s.positions.items()), watermarks)):
        raise SourceError("LC6017", f"{_what(found, watermarks)}. {_way_of_lane(lane)}"[:MOST_TEXT])


def truncated(session: LandingSession, landing_state: LandingState, table: str) -> dict[UUID, str]:
    """Return the attempts waiting for a table whose logs were replaced since, with reasons.

    :raises SourceError: the table's own rows are of another log, too
    :raises SourceUnavailableError: the brokers do not answer in time
    """
    section, accepted = landing_state.ledgers[table].section, landing_state.accepted[table]
    positions = [(s.span.partition, s.position) for a in accepted for s in a.report.spans if s.position is not None]
    doubtful = outdated([*section.positions.items(), *positions])
    if doubtful:
        # A missing topic cannot answer, and a recreated one of its name has its own log.
        there = session.source.watermarks(missing_ok=True).partitions
        doubtful = [(p, at) for p, at in doubtful if p in there]
    out: dict[UUID, str] = {}
    for t in session.source.diverged(doubtful):
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
