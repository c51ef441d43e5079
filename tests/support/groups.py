# SPDX-License-Identifier: Apache-2.0
"""The write step of one group, as the tests ask it."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.table import Table

from airflow_provider_lakecommit.cycle.jobs.write import GroupWrite
from airflow_provider_lakecommit.cycle.results import GroupResult, GroupTicket
from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.job import WindowJob


def no_table(name: str) -> Table:
    """The plan is in the ticket: no table is read."""
    raise AssertionError(f"asked for table {name}")


def group_write(
    landing: Landing,
    control: ControlPort,
    ticket: GroupTicket,
    catalog: str = "test",
    load: Callable[[str], Table] = no_table,
    log: Callable[[str], None] = print,
) -> GroupWrite:
    return GroupWrite(landing=landing, control=control, ticket=ticket, catalog=catalog, load=load, log=log)


def group_job(
    landing: Landing, control: ControlPort, ticket: GroupTicket, catalog: str, load: Callable[[str], Table] = no_table
) -> WindowJob | None:
    """The job for what is left of a group."""
    return group_write(landing, control, ticket, catalog, load).left()


def group_result(landing: Landing, control: ControlPort, ticket: GroupTicket) -> GroupResult:
    return group_write(landing, control, ticket).result()
