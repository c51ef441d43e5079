# SPDX-License-Identifier: Apache-2.0
"""`lakecommit verify` as a task: check that ledger, counts and files of a landing's tables agree over their history.

Contract: reads the tables only, and with ``source`` their records again, by Spark jobs that report nothing. Fails,
without further retries, if it finds a problem; notes (commits of other writers, expired history, ranges that cannot be
compared) are no problem. A callback or a notifier of the task gets the problems as its exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import SparkTask, no_retry_in_vain

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.operations import Proof
    from airflow_provider_lakecommit.status import Finding

__all__ = ["VerifyOperator"]

MOST_NOTED = 5
"""Findings in the error; the log has all of them."""


class VerifyOperator(SparkTask):
    """Check the tables of a landing, and fail if there is a problem.

    Returns the output of `lakecommit verify --json`; a failed task leaves it as its XCom too.

    :param landing: the landing, or the path of its YAML spec
    :param files: check that every file exists; by default only if the files are on a local disk
    :param rows: read the record position of each row: each landed record must be present once. The tables must have
        metadata columns
    :param keys: read the key of each row: no key of `upsert` may have two rows
    :param source: read the records again, and compare every column of their rows
    :param sample: with ``source``: compare a share such as ``1%``, or ranges such as ``orders:0=1500-2000`` (templated)
    :param spark_conn_id: with ``source``: connection of type `spark` or `spark_connect` (templated)
    :param spark_conf: with ``source``: Spark settings of the jobs (templated)

    .. seealso:: :ref:`howto/operator:VerifyOperator`
    """

    template_fields: Sequence[str] = ("landing_name", "sample", "spark_conn_id", "spark_conf")
    template_fields_renderers: ClassVar[dict[str, str]] = {"spark_conf": "json"}
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        files: bool | None = None,
        rows: bool = False,
        keys: bool = False,
        source: bool = False,
        sample: str | Sequence[str] | None = None,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, spark_conn_id=spark_conn_id, spark_conf=spark_conf, **kwargs)
        if sample and not source:
            raise SpecError("LC8369", f"VerifyOperator {self.task_id!r}: `sample` needs `source=True`")
        self.files = files
        self.rows = rows
        self.keys = keys
        self.source = source
        self.sample = sample

    def execute(self, context: Context) -> dict[str, Any]:
        """Check."""
        from airflow_provider_lakecommit.hooks import catalog_properties
        from airflow_provider_lakecommit.iceberg import Tables
        from airflow_provider_lakecommit.status import Severity, verified_text, verified_to_dict, verify_tables

        landing, more = self.landing, dict[str, Any]()
        with no_retry_in_vain(self):
            tables = Tables(catalog_properties(landing.connections.iceberg))
            try:
                histories, findings = verify_tables(
                    landing, tables, self.log.info, files=self.files, rows=self.rows, keys=self.keys
                )
                if self.source:
                    proof, more_findings = self._prove()
                    findings, more = [*findings, *more_findings], {"source": proof.to_dict()}
            finally:
                tables.close()
        for line in verified_text(landing, histories, findings):
            self.log.info("%s", line)
        values = {**verified_to_dict(landing, histories, findings), **more}
        wrong = [str(f) for f in findings if f.level is Severity.WRONG]
        if wrong:
            # A failed task returns nothing.
            context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=values)
            rest = f"; and {len(wrong) - MOST_NOTED} more, see the log" if len(wrong) > MOST_NOTED else ""
            raise AirflowFailException(
                f"landing {landing.name}: {len(wrong)} problems: {'; '.join(wrong[:MOST_NOTED])}{rest}"
            )
        return values

    def _prove(self) -> tuple[Proof, list[Finding]]:
        from airflow_provider_lakecommit.operations import parse_ranges, sample_of, source_findings

        texts = [self.sample] if isinstance(self.sample, str) else [*(self.sample or ())]
        sample = sample_of(texts, parse_ranges)
        self._engine = engine = self.engine("verify")
        try:
            with self.session() as session:
                return source_findings(session, sample, engine, self.log.info)
        finally:
            engine.close()

    def on_kill(self) -> None:
        """Stop the Spark job; scratch files that are left are removed by the sweep."""
        if self._engine is not None:
            self._engine.stop()
