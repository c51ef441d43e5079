# SPDX-License-Identifier: Apache-2.0
"""`lakecommit rebind` as a task: a landing whose topics moved to another Kafka cluster goes on there.

Contract: thin over :mod:`~airflow_provider_lakecommit.repair.rebind`; what a task needs of a person is in
:mod:`~airflow_provider_lakecommit.operators.decision`. Agreed to are offsets: `latest` is where the topic ended when it
was shown.

Failure story: what would be skipped or read twice beyond what was shown is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operators.decision import DecisionTask, Shown, not_as_shown
from airflow_provider_lakecommit.repair.stated import parse_offsets, parse_start

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core.decisions import Decision
    from airflow_provider_lakecommit.repair.rebind import Word
    from airflow_provider_lakecommit.repair.word import Start
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["RebindOperator"]


class RebindOperator(DecisionTask):
    """Go on with topics that were copied to another Kafka cluster, to which the landing's connection points by now.

    :param start: ``earliest``, ``latest``, ``same``, a time, or offsets as `orders:0=1500,orders:1=0`. Without it the
        records of the old cluster say it (templated)
    :param old_kafka_config_id: connection of the old cluster, to compare records with (templated)
    :param topics: new names of topics, by their old ones

    .. seealso:: :ref:`howto/operator:RebindOperator`
    """

    template_fields: Sequence[str] = (*DecisionTask.template_fields, "start", "old_kafka_config_id")
    command: ClassVar[str] = "rebind"

    def __init__(
        self,
        *,
        start: str | None = None,
        old_kafka_config_id: str | None = None,
        topics: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.start = start
        self.old_kafka_config_id = old_kafka_config_id
        self.topics = topics
        if not (start or old_kafka_config_id):
            raise SpecError("say where it goes on: start, or old_kafka_config_id, or both to compare")

    def show(self, session: LandingSession) -> Shown:
        """Where each partition would go on."""
        from airflow_provider_lakecommit.repair.rebind import SAME, rebind_preview

        start = self.start if self.start in (None, SAME) else parse_start(str(self.start), "start")
        preview = rebind_preview(session, self._word(start))
        return Shown(values={"landing": session.landing.name, **preview.to_dict()}, lines=list(preview.lines()))

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Go on at the offsets that were shown."""
        from airflow_provider_lakecommit.repair.rebind import rebind, rebind_preview

        preview = rebind_preview(session, self._word(parse_offsets(json.dumps(agreed["next"]), "agreed")))
        now = preview.to_dict()
        if changed := [k for k in ("old_cluster", "cluster", "skipped", "read_twice") if now[k] != agreed.get(k)]:
            raise not_as_shown("; ".join(f"{what} {now[what]}" for what in changed))
        return rebind(session, preview, decision=decision)

    def _word(self, start: Start | None) -> Word:
        from airflow_provider_lakecommit.repair.rebind import Word

        return Word(start=start, old=self._old(), topics=self.topics or {})

    def _old(self) -> Mapping[str, Any] | None:
        if self.old_kafka_config_id is None:
            return None
        from airflow_provider_lakecommit.hooks.connections import kafka_settings

        return kafka_settings(self.old_kafka_config_id)
