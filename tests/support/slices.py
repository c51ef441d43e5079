# SPDX-License-Identifier: Apache-2.0
"""Jobs for slices that no cycle planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.core.model import Plan, Slice, TableTarget
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from airflow_provider_lakecommit.spark.slices import SliceOutcome, run_slice


def slice_job(landing: Landing, slices: Sequence[Slice], targets: Sequence[TableTarget]) -> WindowJob:
    """Return a job of these slices."""
    plan = Plan(
        landing=landing.name,
        lane="live",
        spec_version=landing.spec_version,
        window_id=UUID(int=0),
        slices=tuple(slices),
        targets=tuple(targets),
        ends={},
        requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return WindowJob(
        landing=landing,
        plan=plan,
        group=0,
        numbers=tuple(range(len(slices))),
        commit_id=UUID(int=0),
        slot=0,
        catalog="test",
        control_topic="control",
        control_partition=0,
    )


def land_slice(job: WindowJob, bootstrap: str, io: Mapping[str, Any], **how: Any) -> SliceOutcome:
    """Do the first slice of the job."""
    secrets = Secrets(kafka={"bootstrap.servers": bootstrap}, io=io)
    return run_slice(job, secrets, job.plan.slices[0], uuid4(), **how)
