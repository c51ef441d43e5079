# SPDX-License-Identifier: Apache-2.0
"""`reset migrate`: a landing whose topics moved to another Kafka cluster continues there.

Contract: over
:mod:`~airflow_provider_lakecommit.operations.decisions.migrate`. The approval covers offsets: `latest` is the end of
the topic at the time of the preview.

Failure story: skipping records or reading them twice beyond the preview is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import RESET_MIGRATE, spoken
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations import Operation, Proposal, not_as_previewed, parse_offsets, parse_start

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operations import MigrationPreview, Start


@dataclass(frozen=True, kw_only=True)
class Migrate(Operation):
    """Continue with topics that were copied to another Kafka cluster. The landing's connection already points to it.

    :param start: ``earliest``, ``latest``, ``same``, a time, or offsets such as `orders:0=1500,orders:1=0`. By default
        derived from the records of the old cluster
    :param old_kafka_config_id: connection of the old cluster, to compare records with
    :param topics: new names of topics, by their old ones
    """

    name: ClassVar[str] = spoken(RESET_MIGRATE)
    start: str | None = None
    old_kafka_config_id: str | None = None
    topics: Mapping[str, str] | None = None

    def check(self, landing: Landing) -> None:
        """Check that a start is known."""
        if not (self.start or self.old_kafka_config_id):
            raise SpecError("LC8315", "give `start`, `old_kafka_config_id`, or both to compare them")

    def propose(self, session: LandingSession) -> Proposal:
        """Return where each partition would continue."""
        start = self.start if self._by_old_offsets else parse_start(str(self.start), "start")
        preview = self._preview(session, start)
        return preview.to_dict(), list(preview.lines())

    def apply_agreed(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Continue at the previewed offsets."""
        from airflow_provider_lakecommit.operations import migrate_landing

        start = self.start if self._by_old_offsets else parse_offsets(json.dumps(agreed["next"]), "agreed")
        preview = self._preview(session, start)
        now, same = preview.to_dict(), ("old_cluster", "cluster", "next", "apart", "skipped", "read_twice")
        if changed := [k for k in same if now[k] != agreed.get(k)]:
            raise not_as_previewed("; ".join(f"{what} {now[what]}" for what in changed))
        return migrate_landing(session, preview, decision=decision)

    @property
    def _by_old_offsets(self) -> bool:
        """Return True if each table continues where it was on the old cluster."""
        from airflow_provider_lakecommit.operations import SAME

        return self.start in (None, SAME)

    def _preview(self, session: LandingSession, start: Start | None) -> MigrationPreview:
        from airflow_provider_lakecommit.hooks import kafka_settings
        from airflow_provider_lakecommit.operations import migration_preview

        old = None if self.old_kafka_config_id is None else kafka_settings(self.old_kafka_config_id)
        return migration_preview(session, start, old=old, topics=self.topics)
