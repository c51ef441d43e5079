# SPDX-License-Identifier: Apache-2.0
"""`lakecommit verify`: do ledger, accounting and files of a landing's tables add up, over their whole history?

Contract: exit code 1 when anything is off, 0 otherwise; notes (commits of other writers, expired history) are no fault.
Reads the tables only; neither source nor control topic is asked.
"""

from __future__ import annotations

from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.inspect.history import read_history
from airflow_provider_lakecommit.inspect.verify import Severity, check_landing
from airflow_provider_lakecommit.inspect.wording import verified_text, verified_to_dict
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["verify"]


def verify(spec: LandingSpec, output: Output, *, files: bool | None, rows: bool = False) -> int:
    """Check and report.

    :param files: look whether each file exists; None does so where they are on a local disk
    :param rows: read of each row which record it is of
    :raises CatalogError: the catalog is away
    """
    landing, tables = spec.landing, Tables(spec.catalog)
    histories = [read_history(tables, t, landing.branch, files=files, progress=output.log) for t in landing.tables]
    findings = check_landing(landing, histories)
    if rows:
        from airflow_provider_lakecommit.inspect.record_rows import check_rows

        findings += check_rows(landing, histories, tables, output.log)
    wrong = [f for f in findings if f.level is Severity.WRONG]
    if output.as_json:
        output.result(verified_to_dict(landing, histories, findings))
    else:
        output.lines(verified_text(landing, histories, findings))
    if wrong:
        output.log(f"lakecommit: {landing.name}: {len(wrong)} things are off")
    return Exit.REFUSED if wrong else Exit.DONE
