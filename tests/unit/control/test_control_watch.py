# SPDX-License-Identifier: Apache-2.0
"""The part of a watch that needs no broker."""

from __future__ import annotations

from airflow_provider_lakecommit.control.bounded_records import FETCH
from airflow_provider_lakecommit.control.control_watch import _GATHER


def test_brokers_are_not_requested_to_wait_for_more_than_a_fetch_may_bring() -> None:
    assert 0 < _GATHER["fetch.min.bytes"] < FETCH["fetch.message.max.bytes"]
