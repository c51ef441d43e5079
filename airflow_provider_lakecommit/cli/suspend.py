# SPDX-License-Identifier: Apache-2.0
"""`lakecommit suspend`, `resume` and `drain`: a landing that plans no windows, whoever runs it.

Contract: one JSON value of what came of it with `--json`. See :mod:`~airflow_provider_lakecommit.repair.suspend`.
Nothing is imported for it before it runs.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import timedelta
from typing import ClassVar

from airflow_provider_lakecommit.cli.arguments import Command, duration
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["DrainCommand", "ResumeCommand", "SuspendCommand"]


class SuspendCommand(Command):
    says = "plan no more windows of a landing, whoever runs it; what is reported is published"
    examples = ('suspend orders.yaml --reason "the table is restored"', "suspend --dag land_orders")
    word: ClassVar[str] = "suspend"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the table's history")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.repair import suspend
        from airflow_provider_lakecommit.session.landing_session import LandingSession
        from airflow_provider_lakecommit.terminal.confirm import decision_of

        say = suspend.resume if self.word == "resume" else suspend.suspend
        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            said = say(session, decision_of(self.word, spec.landing.name, options.reason))
            output.log(f"landing {spec.landing.name} {said}")
            more = self.then(session, options, output)
        if output.as_json:
            output.result({"landing": spec.landing.name, **said.to_dict(), **more})
        return Exit.DONE

    def then(self, session: object, options: Namespace, output: Output) -> dict[str, object]:
        """What else is done, while the landing plans nothing."""
        return {}


class ResumeCommand(SuspendCommand):
    says = "plan windows again"
    examples = ("resume orders.yaml", 'resume --dag land_orders --reason "restored"')
    word = "resume"


class DrainCommand(SuspendCommand):
    says = "plan no more windows, and publish what has been read of those under way"
    examples = ("drain orders.yaml", 'drain --dag land_orders --wait 5m --reason "the cluster moves"')
    word = "drain"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        wait = "for the runs to publish their windows; what they have not is published here (default: 1m)"
        parser.add_argument("--wait", type=duration, default=timedelta(minutes=1), metavar="TIME", help=wait)

    def then(self, session: object, options: Namespace, output: Output) -> dict[str, object]:
        from uuid import uuid4

        from airflow_provider_lakecommit.repair.publish_now import publish_now
        from airflow_provider_lakecommit.runs.process import identity
        from airflow_provider_lakecommit.session.landing_session import LandingSession

        assert isinstance(session, LandingSession)
        why = f"the landing is drained{options.reason and f': {options.reason}'}"
        done = publish_now(session, identity(uuid4()), why, wait=options.wait.total_seconds())
        output.log(str(done))
        return {"published": done.to_dict()}
