# SPDX-License-Identifier: Apache-2.0
"""`lakecommit verify` as a task: check that ledger, counts and files of a landing's tables agree over their history.

Contract: reads the tables only. Fails, without further retries, if it finds a problem; notes (commits of other writers,
expired history) are no problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["VerifyOperator"]

MOST_TOLD = 5
"""Findings in the error; the log has all of them."""


class VerifyOperator(LandingTask):
    """Check the tables of a landing, and fail if there is a problem.

    Returns the output of `lakecommit verify --json`.

    :param landing: the landing, or the path of its YAML spec
    :param files: check that every file exists; by default only if the files are on a local disk
    :param rows: read the record position of each row: each landed record must be present once. The tables must have
        metadata columns

    .. seealso:: :ref:`howto/operator:VerifyOperator`
    """

    template_fields: Sequence[str] = ("landing_name",)
    ui_color = "#e6edf0"

    def __init__(
        self, *, landing: Landing | str | Path, files: bool | None = None, rows: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        self.files = files
        self.rows = rows

    def execute(self, context: Context) -> dict[str, Any]:
        """Check."""
        from airflow_provider_lakecommit.hooks import catalog_properties
        from airflow_provider_lakecommit.iceberg import Tables
        from airflow_provider_lakecommit.status import (
            Severity,
            check_landing,
            check_rows,
            read_history,
            verified_text,
            verified_to_dict,
        )

        landing = self.landing
        with no_retry_in_vain(self):
            tables = Tables(catalog_properties(landing.connections.iceberg))
            try:
                histories = [
                    read_history(tables, name, landing.branch, files=self.files, progress=self.log.info)
                    for name in landing.tables
                ]
                findings = check_landing(landing, histories)
                findings += check_rows(landing, histories, tables, self.log.info) if self.rows else []
            finally:
                tables.close()
        for line in verified_text(landing, histories, findings):
            self.log.info("%s", line)
        wrong = [str(f) for f in findings if f.level is Severity.WRONG]
        if wrong:
            rest = f"; and {len(wrong) - MOST_TOLD} more, see the log" if len(wrong) > MOST_TOLD else ""
            raise AirflowFailException(
                f"landing {landing.name}: {len(wrong)} problems: {'; '.join(wrong[:MOST_TOLD])}{rest}"
            )
        return verified_to_dict(landing, histories, findings)
