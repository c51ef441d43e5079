# SPDX-License-Identifier: Apache-2.0
"""Names of the fields that `lakecommit status --json`, `history --json` and the status API of the page share.

Contract: what both tell, they tell under the same name, with the same meaning and unit, and it is here and nowhere else
that they take that name from. Offsets are one past the last. Who shows them makes texts of times.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecommit.core.model import Counts

__all__ = ["account_fields", "cycle_fields", "lag_fields", "partition_fields", "pending_fields"]


def account_fields(counts: Counts) -> dict[str, Any]:
    """Source offsets that were read, and what became of them: ``read`` is the sum of the others."""
    return {"read": counts.total, **counts.to_dict()}


def pending_fields(*, slices: int, files: int, bytes: int) -> dict[str, Any]:
    """What was reported and waits for its commit; bytes are those of source records."""
    return {"slices": slices, "files": files, "bytes": bytes}


def lag_fields(*, read_lag: int | None, commit_lag: int | None, valid_through: Any) -> dict[str, Any]:
    """Offsets that nobody has read, offsets that were read and that no snapshot holds, and up to when all is there."""
    return {"read_lag": read_lag, "commit_lag": commit_lag, "valid_through": valid_through}


def cycle_fields(*, commit_id: str, dag: str | None, run: str | None) -> dict[str, Any]:
    """Whose a commit cycle is."""
    return {"commit_id": commit_id, "dag": dag, "run": run}


def partition_fields(
    *, partition: str, landed: int | None, reported: int | None, stable: int | None, lag: int | None
) -> dict[str, Any]:
    """How far a partition, as in `orders[0]`, is: in the slowest table, by reports, and at its last stable offset.
    ``lag`` is what the table lacks.
    """
    return {"partition": partition, "landed": landed, "reported": reported, "stable": stable, "lag": lag}
