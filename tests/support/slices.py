# SPDX-License-Identifier: Apache-2.0
"""A slice of a job, done here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from airflow_provider_lakecommit.spark.slices import SliceOutcome, run_slice


def land_slice(job: WindowJob, bootstrap: str, io: Mapping[str, Any], **how: Any) -> SliceOutcome:
    """Do the first slice of the job."""
    secrets = Secrets(kafka={"bootstrap.servers": bootstrap}, io=io)
    return run_slice(job, secrets, job.plan.slices[0], uuid4(), **how)
