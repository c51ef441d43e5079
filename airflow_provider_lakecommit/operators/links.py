# SPDX-License-Identifier: Apache-2.0
"""Links from a task in Airflow's page to the table, the snapshot, Spark's page and the help for its error.

Contract: the deployment states the addresses (`[lakecommit] table_url`, `spark_url`, `docs_url`); without one there is
no link. Links are made on the worker when the task has ended, from what the task knows; no connection is read.

Failure story: an address with an unknown field is logged by the task, and changes nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

__all__ = ["ErrorLink", "SnapshotLink", "SparkLink", "TableLink"]


class _Link(BaseOperatorLink):
    """A link by an option of the deployment."""

    option = ""

    def fields(self, operator: Any) -> dict[str, Any] | None:
        """Return the fields of the address, or ``None`` if there is nothing to link to."""
        if operator.landing_set is not None:
            return None
        landing = operator.landing
        return {"landing": landing.name, "table": landing.table, "catalog": landing.connections.iceberg}

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or an empty text."""
        from airflow.sdk.configuration import conf

        address, known = conf.get("lakecommit", self.option, fallback=""), self.fields(operator)
        if not address or known is None:
            return ""
        return str(address).format_map({name: quote(str(value), safe="") for name, value in known.items()})


class TableLink(_Link):
    """The landing's table."""

    name = "Table"
    option = "table_url"

    def fields(self, operator: Any) -> dict[str, Any] | None:
        known = super().fields(operator)
        return None if known is None else {**known, "snapshot_id": ""}


class SnapshotLink(_Link):
    """The newest snapshot that the task published."""

    name = "Snapshot"
    option = "table_url"

    def fields(self, operator: Any) -> dict[str, Any] | None:
        known, published = super().fields(operator), (operator.result or {}).get("published") or []
        mine = [p["snapshot_id"] for p in published if known is not None and p["table"] == known["table"]]
        return {**known, "snapshot_id": mine[-1]} if known is not None and mine else None


class SparkLink(_Link):
    """Spark's own page."""

    name = "Spark"
    option = "spark_url"

    def fields(self, operator: Any) -> dict[str, Any] | None:
        if operator.landing_set is not None:
            return {"landing": operator.landing_name, "table": "", "catalog": "", "connection": operator.spark_conn_id}
        return {**(super().fields(operator) or {}), "connection": operator.spark_conn_id}


class ErrorLink(_Link):
    """The help for the task's error."""

    name = "What helps"
    option = "docs_url"

    def fields(self, operator: Any) -> dict[str, Any] | None:
        return None if operator.trouble is None else {"error": operator.trouble, "anchor": operator.trouble.lower()}
