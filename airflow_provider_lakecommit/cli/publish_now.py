# SPDX-License-Identifier: Apache-2.0
"""`lakecommit publish-now`: what the running windows of a landing have read is in its tables, without waiting for them.

Contract: one JSON value of what came of it with `--json`. See
:mod:`~airflow_provider_lakecommit.repair.publish_now`. Nothing is imported for it before it runs.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import timedelta

from airflow_provider_lakecommit.cli.arguments import Command, duration
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["PublishNowCommand"]


class PublishNowCommand(Command):
    says = "have the windows that are under way end behind the record in hand, and be published"
    examples = (
        "publish-now orders.yaml",
        'publish-now --dag land_orders --wait 5m --reason "the month ends"',
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--wait",
            type=duration,
            default=timedelta(minutes=1),
            metavar="TIME",
            help="for the runs to publish their windows; what they have not is published here (default: 1m)",
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="why, for logs and the notes of the runs")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from uuid import uuid4

        from airflow_provider_lakecommit.repair.publish_now import publish_now
        from airflow_provider_lakecommit.runs.process import identity
        from airflow_provider_lakecommit.session.landing_session import LandingSession
        from airflow_provider_lakecommit.terminal.confirm import decision_of

        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            who = decision_of("publish-now", spec.landing.name, options.reason).actor
            why = f"{who} wants it published now{options.reason and f': {options.reason}'}"
            done = publish_now(session, identity(uuid4()), why, wait=options.wait.total_seconds())
        output.log(str(done))
        if output.as_json:
            output.result({"landing": spec.landing.name, **done.to_dict()})
        return Exit.DONE
