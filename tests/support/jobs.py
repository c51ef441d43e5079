# SPDX-License-Identifier: Apache-2.0
"""Jobs for slices that no cycle planned."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from airflow_provider_lakecommit.core.model import Plan, Slice, TableTarget
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.job import WindowJob

NOBODY = UUID(int=0)


def plan_of(landing: Landing, slices: Sequence[Slice], targets: Sequence[TableTarget]) -> Plan:
    """Return a plan of these slices."""
    return Plan(
        landing=landing.name,
        lane="live",
        spec_version=landing.spec_version,
        window_id=NOBODY,
        slices=tuple(slices),
        targets=tuple(targets),
        ends={},
        requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def slice_job(landing: Landing, plan: Plan, commit_id: UUID = NOBODY) -> WindowJob:
    """Return a job of all slices of a plan."""
    return WindowJob(
        landing=landing,
        plan=plan,
        group=0,
        numbers=tuple(range(len(plan.slices))),
        commit_id=commit_id,
        slot=0,
        catalog="test",
        control_topic="control",
        control_partition=0,
    )
