# SPDX-License-Identifier: Apache-2.0
"""`lakecommit adopt` as a task: a landing goes on in the table of a Kafka Connect sink, or hands it back.

Contract: thin over the functions of the command line, :mod:`~airflow_provider_lakecommit.adopt.take_over` and
:mod:`~airflow_provider_lakecommit.adopt.hand_back`; what a task needs of a person is in
:mod:`~airflow_provider_lakecommit.operators.decision`. What was shown is of that moment: a connector that runs reads on
until it is stopped. Agreed to are the connector, the direction, and what is lost already; another loss
than was shown is refused.

Failure story: killed anywhere, the next attempt goes on. What speaks against it fails the task for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.exceptions import ConnectorError
from airflow_provider_lakecommit.operators.decision import DecisionTask, NothingToDoError, Shown, not_as_shown

if TYPE_CHECKING:
    from airflow_provider_lakecommit.adopt.connector import KnownConnector
    from airflow_provider_lakecommit.core.decisions import Decision
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["AdoptConnectorOperator"]


class AdoptConnectorOperator(DecisionTask):
    """Go on for a Kafka Connect sink in its table, from exactly where it has committed; or hand the table back to it.

    :param connector: its name (templated)
    :param back: hand the table back: the connector is resumed, and goes on where the landing ends
    :param kafka_connect_conn_id: connection of type `http` to its Kafka Connect. ``None``: you state that the connector
        is gone (templated)
    :param control_topic: of a connector that is gone; any other tells it itself (templated)
    :param group: likewise the group in its events, `connect-NAME` by default (templated)

    .. seealso:: :ref:`howto/operator:AdoptConnectorOperator`
    """

    template_fields: Sequence[str] = (
        *DecisionTask.template_fields,
        "connector",
        "kafka_connect_conn_id",
        "control_topic",
        "group",
    )
    command: ClassVar[str] = "adopt"

    def __init__(
        self,
        *,
        connector: str,
        back: bool = False,
        kafka_connect_conn_id: str | None = "kafka_connect_default",
        control_topic: str | None = None,
        group: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.connector = connector
        self.back = back
        self.kafka_connect_conn_id = kafka_connect_conn_id
        self.control_topic = control_topic
        self.group = group

    def show(self, session: LandingSession) -> Shown:
        """Where the landing would go on, or the connector."""
        from airflow_provider_lakecommit.adopt.hand_back import hand_back_preview
        from airflow_provider_lakecommit.adopt.look import adoption_preview

        connector = self._known(session)
        if self.back:
            seen = hand_back_preview(session, connector)
            return Shown(values={**seen.to_dict(), "back": True}, lines=list(seen.lines()))
        preview = adoption_preview(session, connector)
        if preview.done:
            raise NothingToDoError(f"landing {preview.landing} goes on after connector {connector.name} already")
        if preview.against:
            raise ConnectorError(f"connector {connector.name}: {'; '.join(preview.against)}")
        return Shown(values={**preview.to_dict(), "back": False}, lines=list(preview.lines()))

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Take it over, or hand it back."""
        from airflow_provider_lakecommit.adopt.hand_back import hand_back
        from airflow_provider_lakecommit.adopt.look import adoption_preview
        from airflow_provider_lakecommit.adopt.take_over import adopt

        if (agreed.get("connector"), agreed.get("back")) != (self.connector, self.back):
            raise not_as_shown(f"connector {self.connector}, back={self.back}")
        connector = self._known(session)
        if self.back:
            return _checked(hand_back(session, connector, decision=decision).to_dict())
        preview = adoption_preview(session, connector)
        if preview.against:
            raise ConnectorError(f"connector {connector.name}: {'; '.join(preview.against)}")
        removed = preview.to_dict()["removed"]
        if removed and removed != agreed.get("removed"):
            raise not_as_shown(f"removed by retention before it was read: {removed}")
        return _checked(adopt(session, connector, decision=decision).to_dict())

    def _known(self, session: LandingSession) -> KnownConnector:
        from airflow_provider_lakecommit.adopt.connector import known_connector
        from airflow_provider_lakecommit.hooks.kafka_connect import KafkaConnectHook

        conn_id = self.kafka_connect_conn_id
        rest = None if conn_id is None else KafkaConnectHook(conn_id).rest
        return known_connector(session.kafka, self.connector, rest, control_topic=self.control_topic, group=self.group)


def _checked(done: dict[str, Any]) -> dict[str, Any]:
    """:raises ConnectorError: `verify` finds something off"""
    if done["wrong"]:
        raise ConnectorError(f"it is done, and `lakecommit verify` says: {'; '.join(done['wrong'])}")
    return done
