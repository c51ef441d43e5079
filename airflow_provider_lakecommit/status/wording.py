# SPDX-License-Identifier: Apache-2.0
"""The findings of `verify` as lines of text and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.verify import Finding, Severity, TableHistory, totals

__all__ = ["verified_text", "verified_to_dict"]


def verified_to_dict(
    landing: Landing, histories: Iterable[TableHistory], findings: Sequence[Finding]
) -> dict[str, Any]:
    """Return the findings of `verify` for JSON."""
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
    """Return the findings of `verify` as text."""
    fewer = 0
    for history in histories:
        t = totals(history, landing.name)
        fewer += history.fewer
        yield (
            f"{history.table}: {t.snapshots} snapshots, {t.offsets} offsets = "
            + " + ".join(f"{n} {name}" for name, n in t.counts.to_dict().items())
            + f"; {t.rows} rows in {t.files} files"
            + "".join(
                f", of which {n} were {what}"
                for what, n in (("replaced", t.replaced), ("superseded", t.superseded), ("deleted", t.deleted))
                if n
            )
        )
    yield from (f"  {finding}" for finding in findings)
    standing = "NOT all right" if any(f.level is Severity.WRONG for f in findings) else "all right"
    yield f"{landing.name}: {standing}" + (f", except {fewer} rows that other writers removed" if fewer else "")
