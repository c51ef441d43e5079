# SPDX-License-Identifier: Apache-2.0
"""`lakecommit verify`: do ledger, accounting and files of a landing's tables add up, over their whole history?

Contract: exit code 1 when anything is off, 0 otherwise; notes (commits of other writers, expired history) are no fault.
Reads the tables only; neither source nor control topic is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from airflow_provider_lakecommit.cli.output import Exit, Output
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.inspect.history import read_history
from airflow_provider_lakecommit.inspect.verify import Finding, Severity, TableHistory, check_landing, totals
from airflow_provider_lakecommit.landing import Landing, LandingSpec

__all__ = ["verify"]


def verify(spec: LandingSpec, output: Output, *, files: bool | None) -> int:
    """Check and report.

    :param files: look whether each file exists; None does so where they are on a local disk
    :raises CatalogError: the catalog is away
    """
    landing, tables = spec.landing, Tables(spec.catalog)
    histories = [read_history(tables, t, landing.branch, files=files, progress=output.log) for t in landing.tables]
    findings = check_landing(landing, histories)
    wrong = [f for f in findings if f.level is Severity.WRONG]
    if output.as_json:
        output.result(_to_dict(landing, histories, findings))
    else:
        output.lines(_text(landing, histories, findings))
    if wrong:
        output.log(f"lakecommit: {landing.name}: {len(wrong)} things are off")
    return Exit.REFUSED if wrong else Exit.DONE


def _to_dict(landing: Landing, histories: Iterable[TableHistory], findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "landing": landing.name,
        "ok": not any(f.level is Severity.WRONG for f in findings),
        "tables": [{"table": h.table, "whole": h.whole, **asdict(totals(h, landing.name))} for h in histories],
        "findings": [
            {"level": f.level.value, "table": f.table, "snapshot_id": f.snapshot_id, "text": f.text} for f in findings
        ],
    }


def _text(landing: Landing, histories: Iterable[TableHistory], findings: Sequence[Finding]) -> Iterable[str]:
    for history in histories:
        t = totals(history, landing.name)
        c = t.counts
        yield (
            f"{history.table}: {t.snapshots} snapshots, {t.offsets} offsets = {c.landed} landed + {c.rejected} "
            f"rejected + {c.filtered} filtered + {c.gaps} gaps + {c.skipped} skipped; {t.rows} rows in {t.files} files"
        )
    yield from (f"  {finding}" for finding in findings)
    yield f"{landing.name}: " + ("NOT all right" if any(f.level is Severity.WRONG for f in findings) else "all right")
