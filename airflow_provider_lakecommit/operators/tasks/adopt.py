# SPDX-License-Identifier: Apache-2.0
"""`connect adopt`: a landing continues in the table of a Kafka Connect sink, or hands it back.

Contract: over
:mod:`~airflow_provider_lakecommit.operations.kafka_connect.take_over` and
:mod:`~airflow_provider_lakecommit.operations.kafka_connect.hand_back`. A preview can be outdated: a running connector
reads on until it is stopped. The approval covers the connector, the direction and the known loss; any further loss is
refused.

Failure story: killed anywhere, the next attempt continues. Objections fail the task for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import CONNECT_ADOPT, VERIFY, spoken
from airflow_provider_lakecommit.exceptions import ConnectorError
from airflow_provider_lakecommit.operations import NothingToDoError, Operation, Proposal, not_as_previewed

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.operations import KnownConnector


@dataclass(frozen=True, kw_only=True)
class Adopt(Operation):
    """Continue for a Kafka Connect sink in its table from exactly where it has committed, or hand the table back.

    :param connector: name of the connector
    :param back: hand the table back: the connector is resumed, and continues where the landing ends
    :param kafka_connect_conn_id: connection of type `http` to its Kafka Connect. ``None``: you state that the connector
        no longer exists
    :param control_topic: of a connector that no longer exists; others report theirs
    :param group: likewise the group in its events, `connect-NAME` by default
    """

    name: ClassVar[str] = spoken(CONNECT_ADOPT)
    connector: str
    back: bool = False
    kafka_connect_conn_id: str | None = "kafka_connect_default"
    control_topic: str | None = None
    group: str | None = None

    def propose(self, session: LandingSession) -> Proposal:
        """Return where the landing would continue, or the connector."""
        from airflow_provider_lakecommit.operations import adoption_preview, hand_back_preview

        connector = self._known(session)
        if self.back:
            values, lines = hand_back_preview(session, connector)
            return {**values, "back": True}, lines
        preview = adoption_preview(session, connector)
        if preview.done:
            raise NothingToDoError(f"landing {preview.landing} has already taken over from connector {connector.name}")
        if preview.against:
            raise ConnectorError("LC8311", f"connector {connector.name}: {'; '.join(preview.against)}")
        return {**preview.to_dict(), "back": False}, list(preview.lines())

    def apply_agreed(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Take it over, or hand it back."""
        from airflow_provider_lakecommit.operations import adopt, adoption_preview, hand_back

        if (agreed.get("connector"), agreed.get("back")) != (self.connector, self.back):
            raise not_as_previewed(f"connector {self.connector}, back={self.back}")
        connector = self._known(session)
        if self.back:
            return _checked(hand_back(session, connector, decision=decision))
        preview = adoption_preview(session, connector)
        if preview.against:
            raise ConnectorError("LC8311", f"connector {connector.name}: {'; '.join(preview.against)}")
        removed = preview.to_dict()["removed"]
        if removed and removed != agreed.get("removed"):
            raise not_as_previewed(f"removed by retention before it was read: {removed}")
        return _checked(adopt(session, connector, decision=decision))

    def _known(self, session: LandingSession) -> KnownConnector:
        from airflow_provider_lakecommit.hooks import KafkaConnectHook
        from airflow_provider_lakecommit.operations import known_connector

        conn_id = self.kafka_connect_conn_id
        rest = None if conn_id is None else KafkaConnectHook(conn_id).rest
        return known_connector(session.kafka, self.connector, rest, control_topic=self.control_topic, group=self.group)


def _checked(done: dict[str, Any]) -> dict[str, Any]:
    """:raises ConnectorError: `verify` finds problems"""
    if done["wrong"]:
        raise ConnectorError("LC8312", f"done, but `{VERIFY}` finds problems: {'; '.join(done['wrong'])}")
    return done
