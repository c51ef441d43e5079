# SPDX-License-Identifier: Apache-2.0
"""Before anything is planned or published: do the source's logs still hold what was read of them?

Contract: :func:`check_logs` asks only where a partition has another leader epoch than the one under which it was last
read; what is asked is :mod:`~airflow_provider_lakecommit.planning.truncation`'s decision. :func:`truncated` asks only
where what waits to be published was read under several epochs, so that no two readings of different logs are published
together; of a topic that is gone there is nothing to ask. Both write nothing.

Failure story: a log that has other records where some were landed is a
:class:`~airflow_provider_lakecommit.exceptions.SourceError` that names the partition, its epochs, the offset from which
it differs, the rows that the log no longer has, and the ways on.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.state import LandingState
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceState
from airflow_provider_lakecommit.planning.missing import Watermark
from airflow_provider_lakecommit.planning.truncation import (
    Truncation,
    first_offsets_of,
    goes_on_at,
    in_doubt,
    known_positions,
    lost_rows,
    outdated,
)
from airflow_provider_lakecommit.reset_commands import RESET_OFFSETS
from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["check_logs", "truncated"]


def check_logs(session: LandingSession, landing_state: LandingState, source: SourceState) -> None:
    """Whether the logs still hold all that was read of them.

    :raises SourceError: one has other records now
    :raises SourceUnavailableError: the brokers do not say in time
    """
    found = session.source.diverged(in_doubt(known_positions(landing_state), source.partitions))
    if found:
        raise SourceError(_text(landing_state, found, source.partitions))


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
        where = "nobody can tell where" if t.end is None else f"offset {t.end}"
        if any(t.concerns(p, at) for p, at in section.positions.items()):
            raise SourceError(
                f"{table} was landed from another log of {t.partition}, which differs from {where} on: nothing is "
                "published; the next plan says how to go on"
            )
        for a in accepted:
            if any(s.position is not None and t.concerns(s.span.partition, s.position) for s in a.report.spans):
                out[a.report.attempt] = f"{a.coverage}: the log of {t.partition} is another one from {where} on"
    return out


def _text(landing_state: LandingState, found: list[Truncation], watermarks: Mapping[SourcePartition, Watermark]) -> str:
    told = "; ".join(_differs(d, watermarks[d.partition]) for d in found)
    first = first_offsets_of(found)
    rows = "; ".join(f"{table} has rows of {c}" for table, c in lost_rows(landing_state, first).items())
    offsets = ",".join(f"{p.topic}:{p.partition}={o}" for p, o in goes_on_at(landing_state, first).items())
    return (
        f"{told}: the log lost its end and grew again, or was put back from a copy. Of what it no longer has, "
        f"{rows or 'nothing is in a table'}; what it has in its place is not landed. After checking: `{RESET_OFFSETS} "
        f"SPEC --from {offsets}` goes on with its new records (the rows stay where they are), `--from latest` without "
        "them"
    )


def _differs(d: Truncation, mark: Watermark) -> str:
    read = f"{d.partition} was read up to {d.position.offset} under leader epoch {d.position.leader_epoch}"
    if d.end is None:
        return f"{read}, its log knows no epoch as old (it is at {mark.leader_epoch}), so it is another one"
    return f"{read}, and is another log from offset {d.end} on (leader epoch {mark.leader_epoch}, end {mark.high})"
