# SPDX-License-Identifier: Apache-2.0
"""The findings of `verify` as lines of text and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.verify import Finding, Severity, TableHistory, totals


def verified_to_dict(
    landing: Landing, histories: Iterable[TableHistory], findings: Sequence[Finding]
) -> dict[str, Any]:
    return {
        "landing": landing.name,
        "ok": not any(f.level is Severity.WRONG for f in findings),
        "tables": [
            {"table": h.table, "whole": h.whole, "taken_by_others": h.fewer, **asdict(totals(h, landing.name))}
            for h in histories
        ],
        "findings": [
            {"level": f.level.value, "table": f.table, "snapshot_id": f.snapshot_id, "text": f.text} for f in findings
        ],
    }


def verified_text(landing: Landing, histories: Iterable[TableHistory], findings: Sequence[Finding]) -> Iterable[str]:
    fewer = 0
    for history in histories:
        t = totals(history, landing.name)
        c = t.counts
        fewer += history.fewer
        yield (
            f"{history.table}: {t.snapshots} snapshots, {t.offsets} offsets = {c.landed} landed + {c.rejected} "
            f"rejected + {c.filtered} filtered + {c.gaps} gaps + {c.skipped} skipped; {t.rows} rows in {t.files} files"
            + (f", of which {t.replaced} were replaced" if t.replaced else "")
        )
    yield from (f"  {finding}" for finding in findings)
    standing = "NOT all right" if any(f.level is Severity.WRONG for f in findings) else "all right"
    yield f"{landing.name}: {standing}" + (f", except {fewer} rows that other writers removed" if fewer else "")
