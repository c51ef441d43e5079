# SPDX-License-Identifier: Apache-2.0
"""The checks of `verify` on a landing's tables, in their order: histories first, then rows and keys if requested.

Reads only the tables. What checks rows or keys is loaded on demand.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.table_history import Finding, TableHistory
from airflow_provider_lakecommit.status.verify import check_landing


def verify_tables(
    landing: Landing,
    tables: Tables,
    progress: Callable[[str], None],
    *,
    files: bool | None = None,
    rows: bool = False,
    keys: bool = False,
) -> tuple[list[TableHistory], list[Finding]]:
    """Return the histories of a landing's tables, and all findings.

    :param files: check that every file exists; by default only if the files are on a local disk
    :param rows: read the record position of each row
    :param keys: read the key of each row
    :raises CatalogError: the catalog or the storage is unreachable
    """
    histories = [read_history(tables, t, landing.branch, files=files, progress=progress) for t in landing.tables]
    findings = check_landing(landing, histories)
    if rows:
        from airflow_provider_lakecommit.status.record_rows import check_rows

        findings += check_rows(landing, histories, tables, progress)
    if keys:
        from airflow_provider_lakecommit.status.upserted import check_keys

        findings += check_keys(landing, tables, progress)
    return histories, findings
