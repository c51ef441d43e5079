# SPDX-License-Identifier: Apache-2.0
"""`lakecommit evolve`: the columns that a landing's records have are made in its table now, by a person's word.

Contract: one JSON value of what came of it with `--json`. See :mod:`~airflow_provider_lakecommit.prepare.evolve_now`.
Nothing is imported for it before it runs.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from airflow_provider_lakecommit.cli.arguments import Command
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["EvolveCommand"]


class EvolveCommand(Command):
    says = "add the columns that a landing's records have and its tables lack, whatever `evolve` says"
    examples = ("evolve orders.yaml --dry-run", 'evolve orders.yaml --widen --reason "ids outgrew their int"')

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--widen", action="store_true", help="widen types that are too narrow, too")
        parser.add_argument("--dry-run", action="store_true", help="say what would be changed; nothing is written")
        parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the table's history")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.prepare.evolve_now import evolve_now
        from airflow_provider_lakecommit.session.landing_session import LandingSession
        from airflow_provider_lakecommit.terminal.confirm import decision_of

        landing = replace(spec.landing, evolve="widen" if options.widen else "add")
        said = None if options.dry_run else decision_of("evolve", landing.name, options.reason)
        with LandingSession.connect(landing, spec.kafka, spec.catalog, log=output.log) as session:
            lines, changes = evolve_now(session, said)
        made = {table: [str(change) for change in some] for table, some in changes.items() if some}
        if output.as_json:
            leading = made.get(landing.table, [])
            output.result(
                {"landing": landing.name, "table": landing.table, "changed": leading, "found": list(lines)}
                | ({"tables": made} if len(landing.data_tables) > 1 else {})
            )
        else:
            told = (f"{table}: {change}" for table, some in made.items() for change in some)
            output.lines([*told, *lines] or ["no column is lacking"])
        return Exit.DONE
