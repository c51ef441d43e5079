# SPDX-License-Identifier: Apache-2.0
"""Reports in unverified control records, shown before something is given up for good.

Contract: reads only, and decides only whether an operator is asked. If a signing key is introduced, changed or removed
too early, earlier reports are unverified. Their ranges are read again, which loses nothing while the source has them.
Otherwise their rows may be in storage: the remedy is to accept these records, not to give up their offsets.

Failure story: any writer of the topic can forge such records. The operator's ``--give-up-reported`` overrides them, and
a plan refused for lost offsets is refused without them, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from airflow_provider_lakecommit.control import entry_of
from airflow_provider_lakecommit.core import (
    Coverage,
    LandingState,
    LedgerSection,
    Missing,
    SliceReported,
    SourcePartition,
    find_missing,
    removed,
)
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession
from airflow_provider_lakecommit.cycle.session.named_log import log_of
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.signing import OTHER_KEY, UNSIGNED_BELOW


def unbelieved(session: LandingSession, table: str, section: LedgerSection) -> Coverage:
    """Return the ranges that unverified records report for a table, under an entry's epoch, and that it lacks. Topics
    of other entries are ignored.

    :raises ControlTopicError: the entry's control topic cannot be read
    """
    if not session.signed:
        return Coverage()
    with log_of(session, section.control) as control:
        records = control.read(section.control.partition, section.control.read_from).records if control else ()
    told = Coverage()
    for record in records:
        if record.doubt is None:
            continue
        entry = entry_of(replace(record, doubt=None), section.landing, section.lane)
        of = entry.report.table(table) if isinstance(entry, SliceReported) else None
        if isinstance(entry, SliceReported) and of is not None and of.epoch == section.epoch:
            told = told | entry.report.coverage
    return Coverage({p: told[p] for p in section.starts}) - section.covered


def unbelieved_text(session: LandingSession, ranges: Coverage, section: LedgerSection) -> str:
    """Return what to do about them."""
    at = section.control
    with log_of(session, at) as control:
        end = control.read(at.partition, BEYOND).end if control else at.read_from
    return (
        f"unverified records of {at.topic} report {ranges}. If they are from the "
        f"time before the signing key, accept them with `{UNSIGNED_BELOW}: {at.topic_id}/{at.partition}:{end}`"
        f"; if they are signed with an earlier key, state it as `{OTHER_KEY}`"
    )


def missing_or_told(
    session: LandingSession,
    landing_state: LandingState,
    source: SourceState,
    claims: Coverage,
    diverged: Collection[SourcePartition] = (),
) -> Missing:
    """Return the missing ranges; if they are lost, the error includes unverified reports on them.

    :param diverged: partitions of which nothing is planned
    :raises SourceError: the source has removed what the data table lacks
    """
    try:
        return find_missing(landing_state, source.partitions, claims, diverged)
    except SourceError as e:
        for name, ledger in landing_state.ledgers.items():
            told = unbelieved(session, name, ledger.section)
            if told := removed(told, source.partitions):
                raise SourceError(
                    "LC6019", f"{e}. Before that: {unbelieved_text(session, told, ledger.section)}"
                ) from e
        raise
