# SPDX-License-Identifier: Apache-2.0
"""The first offsets of topics that a landing has never landed.

Contract: reads only. A topic begins at ``start`` of the landing. With ``latest``, a topic that the landing's set has
landed before, in another table, begins where the set began it, or where the source begins now: so moving a topic to
another table omits no record.

Failure story: the set's other landings are found in the newest records of the control topic, and their offsets in their
tables' ledgers. A landing with a missing table or only older records is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_lakecommit.committer import read_ledger
from airflow_provider_lakecommit.core import SourcePartition, Watermark, set_of
from airflow_provider_lakecommit.cycle.plan.sections import first_offsets
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import TableError

Marks = Mapping[SourcePartition, Watermark]


def joining_offsets(session: LandingSession, partitions: Marks) -> dict[SourcePartition, int]:
    """Return the first offset of each of these partitions.

    :raises CatalogError: the catalog is unavailable
    :raises ControlTopicError: the control topic cannot be read
    """
    landing = session.landing
    firsts = first_offsets(partitions, landing.window.start)
    name = set_of(landing.name, landing.table)
    if landing.window.start == "earliest" or not partitions or not name:
        return firsts
    begun = _begun_by(session, f"{name}.")
    return {p: min(at, max(begun.get(p, at), partitions[p].start)) for p, at in firsts.items()}


def _begun_by(session: LandingSession, prefix: str) -> dict[SourcePartition, int]:
    """Return where the other landings of a set began each partition."""
    out: dict[SourcePartition, int] = {}
    for name in session.control.recent(prefix):
        if name != session.landing.name and "." in name.removeprefix(prefix):
            for p, start in _starts_of(session, name, name.removeprefix(prefix)):
                out[p] = min(start, out.get(p, start))
    return out


def _starts_of(session: LandingSession, landing: str, table: str) -> Iterator[tuple[SourcePartition, int]]:
    found = session.tables.find(table)
    if found is None:
        return
    try:
        state = read_ledger(found.metadata, session.landing.branch)
    except TableError as e:
        session.log(f"WARNING: the first offsets of landing {landing} are unknown: {e}")
        return
    for section in state.sections or state.remembered:
        if section.landing == landing:
            yield from section.starts.items()
