# SPDX-License-Identifier: Apache-2.0
"""What tests of tasks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.spark.job import WindowJob
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job


@pytest.fixture
def job(tmp_path: Path) -> WindowJob:
    """The job of a window's first group, which has begun."""
    landing = FakeLanding(tmp_path, {})
    found = group_job(landing.session.landing, landing.control, landing.open().groups[0], "lake")
    landing.session.close()
    landing.catalog.close()
    assert found is not None
    return found.begun()
