# SPDX-License-Identifier: Apache-2.0
"""`lakecommit maintain columns`: add the columns of a landing's records to its tables now.

Contract: see :mod:`~airflow_provider_lakecommit.cycle.plan.evolve_now`.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

from airflow_provider_lakecommit.cli.terminal.confirm import decision_of
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import MAINTAIN_COLUMNS, spoken
from airflow_provider_lakecommit.cycle import LandingSession, evolve_now
from airflow_provider_lakecommit.landing import LandingSpec

__all__ = ["columns"]


def columns(spec: LandingSpec, options: Namespace, output: Output) -> int:
    """Add missing columns, whatever ``evolve`` of the landing is.

    :raises LakecommitError: an error that would also prevent planning
    """
    landing = replace(spec.landing, evolve="widen" if options.widen else "add")
    decision = None if options.dry_run else decision_of(spoken(MAINTAIN_COLUMNS), landing.name, options.reason)
    with LandingSession.connect(landing, spec.kafka, spec.catalog, log=output.log) as session:
        lines, changes = evolve_now(session, decision)
    made = {table: [str(change) for change in some] for table, some in changes.items() if some}
    tables = {"tables": made} if len(landing.data_tables) > 1 else {}
    values = {"landing": landing.name, "table": landing.table, "changed": made.get(landing.table, []), **tables}
    done = (f"{table}: {change}" for table, some in made.items() for change in some)
    output.answer({**values, "found": list(lines)}, [*done, *lines] or ["no column is missing"])
    return Exit.DONE
