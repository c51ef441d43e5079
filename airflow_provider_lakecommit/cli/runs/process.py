# SPDX-License-Identifier: Apache-2.0
"""The process of a command-line run: its identity on the control topic, and whether it has certainly ended."""

from __future__ import annotations

from uuid import UUID

from airflow_provider_lakecommit.core import Cycle
from airflow_provider_lakecommit.cycle import RunIdentity
from airflow_provider_lakecommit.spark import CLI, ProcessName


def identity(unique: UUID, number: int = 0) -> RunIdentity:
    return RunIdentity(deployment=CLI, dag_id=CLI, run_id=f"{CLI}|{ProcessName.own()}|{unique}", number=number)


def is_dead(cycle: Cycle) -> bool:
    """Return True if a cycle was opened by a command-line process that has certainly ended."""
    if cycle.dag != CLI:
        return False
    kind, _, rest = cycle.run.partition("|")
    name = ProcessName.parse(rest.rpartition("|")[0])
    return kind == CLI and name is not None and name.certainly_dead(ProcessName.own())
