# SPDX-License-Identifier: Apache-2.0
"""The age outlives every lease."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operations.maintenance.sweep import least_age
from tests.support.declared import landing_of

HOUR = timedelta(hours=1)


def landing(timeout: timedelta) -> Landing:
    return landing_of(name="orders", topics="orders", table="shop.orders", completion_timeout=timeout)


def test_no_request_is_shorter_than_a_task_may_take() -> None:
    with pytest.raises(SpecError, match="LC7712"):
        least_age(landing(2 * HOUR), HOUR)
    assert least_age(landing(2 * HOUR), 2 * HOUR) == 2 * HOUR
    assert least_age(landing(2 * HOUR), None) == timedelta(days=3)
    assert least_age(landing(timedelta(days=4)), None) == timedelta(days=8)
