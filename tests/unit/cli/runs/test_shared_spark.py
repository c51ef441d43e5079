# SPDX-License-Identifier: Apache-2.0
"""The Spark session that the landings of a set share."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.cli.runs.set_landings import SharedSpark
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark.launch.local import LocalSpark, SparkSection


def test_nothing_begins_in_a_shared_session_after_it_was_instructed_to_stop() -> None:
    shared = SharedSpark(LocalSpark(SparkSection({}), log=print, on_start=lambda: None))
    shared.stop()
    with pytest.raises(SparkJobError, match="LC8033"):
        shared.start()
