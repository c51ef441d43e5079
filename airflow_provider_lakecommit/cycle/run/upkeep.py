# SPDX-License-Identifier: Apache-2.0
"""Regular upkeep by a continuous run: expire its own old snapshots, and measure its records.

Contract: best effort, in turns with the commits of each table, and never while a window of this run is committed.
Appends already merge manifests.

Failure story: an unavailable table or catalog is logged and retried next time.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from airflow_provider_lakecommit.cycle.plan.known import ledger_state
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg import CommitterThread, expire_older


class Upkeep:
    """The upkeep of one landing's tables.

    :param keep: expire older snapshots of the landing; ``None``: none
    :ivar record_bytes: bytes of a source record by the ledger; 0 until first read
    """

    def __init__(self, session: LandingSession, executor: CommitterThread, keep: timedelta | None) -> None:
        self._session, self._executor, self._keep = session, executor, keep
        self.record_bytes = 0

    def run(self) -> None:
        """Run the upkeep once."""
        landing = self._session.landing
        try:
            if landing.window.max_bytes is not None:
                state = ledger_state(self._session, landing.table)
                section = state.section(landing.name, self._session.lane) if state else None
                self.record_bytes = section.record_bytes if section else 0
            if self._keep is None:
                return
            before = int((self._session.now() - self._keep).timestamp() * 1000)
            expire = partial(expire_older, landing=landing.name, before_ms=before, audited=bool(landing.checks))
            for name in landing.tables:
                own = partial(expire, self._session.tables, name, landing.branch)
                if gone := self._executor.run_exclusive(self._session.key(name), own):
                    self._session.log(f"{name}: expired {gone} old snapshots")
        except LakecommitError as e:
            self._session.log(f"WARNING: could not expire old snapshots: {e}")
