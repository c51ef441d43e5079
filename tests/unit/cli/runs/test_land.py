# SPDX-License-Identifier: Apache-2.0
"""The line that standard output gets of a cycle."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_lakecommit.cli.runs.land import line_of
from tests.unit.cycle.test_run_outcome import NOON, SNAPSHOT, WINDOW, outcome


def test_the_line_of_a_cycle_counts_the_data_table_alone() -> None:
    dead = replace(SNAPSHOT, table="shop.dead", rows=1)
    cycle = outcome(table="shop.orders", published=(SNAPSHOT, dead), valid_through=NOON)
    line = line_of(cycle, ["shop.orders"])
    assert line["rows"] == 9
    assert line["counts"] == {"landed": 9, "rejected": 0, "filtered": 1, "gaps": 0, "skipped": 0}
    assert line["offsets"] == {"orders[0]": [[0, 10]]}
    assert line["window"] == {"window_id": str(WINDOW), "slices": 2, "offsets": {"orders[0]": [[0, 10]]}}
    assert line["seconds"] == {"open": 0.123}
    assert line["valid_through"].startswith("2026-01-01T12:00:00")
