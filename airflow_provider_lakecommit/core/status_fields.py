# SPDX-License-Identifier: Apache-2.0
"""Fields that `status --json`, `history --json` and the page's status API share: one name, meaning and unit each.

Offsets are one past the last.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecommit.core.model import Counts


def account_fields(counts: Counts) -> dict[str, Any]:
    """Return how many source offsets were read and what became of them; ``read`` is the sum."""
    return {"read": counts.total, **counts.to_dict()}


def pending_fields(*, slices: int, files: int, bytes: int) -> dict[str, Any]:
    """Return what was reported and waits for its commit, in bytes of source records."""
    return {"slices": slices, "files": files, "bytes": bytes}


def lag_fields(*, read_lag: int | None, commit_lag: int | None, valid_through: Any) -> dict[str, Any]:
    """Return unread offsets, read offsets without a snapshot, and up to when the tables are complete."""
    return {"read_lag": read_lag, "commit_lag": commit_lag, "valid_through": valid_through}


def cycle_fields(*, commit_id: str, dag: str | None, run: str | None) -> dict[str, Any]:
    return {"commit_id": commit_id, "dag": dag, "run": run}


def partition_fields(
    *, partition: str, landed: int | None, reported: int | None, stable: int | None, lag: int | None
) -> dict[str, Any]:
    """Return a partition's offset in the slowest table, by reports and at its last stable offset; ``lag`` is what is
    missing.
    """
    return {"partition": partition, "landed": landed, "reported": reported, "stable": stable, "lag": lag}
