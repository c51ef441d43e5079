# SPDX-License-Identifier: Apache-2.0
"""A read of the source that is at least as new as the tables it is compared with.

Contract: the source is read before the tables, and meanwhile another run may land new records; a read shared by many
landings may be seconds old. If a table has more than the read, the source is read again, so that only a log that is
shorter *now* counts as one that lost records.

Failure story: that of the read.
"""

from __future__ import annotations

from airflow_provider_lakecommit.core import LandingState
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.kafka import SourceState


def as_new_as_tables(session: LandingSession, landing_state: LandingState, source: SourceState) -> SourceState:
    """Return the read, or a newer one if a table has landed more.

    :raises SourceError: the topics cannot be read
    :raises SourceUnavailableError: the brokers do not answer
    """
    ledgers = landing_state.ledgers.values()
    older = any(ledger.end(p) > mark.high for ledger in ledgers for p, mark in source.partitions.items())
    return session.source.watermarks() if older else source
