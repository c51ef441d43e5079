# SPDX-License-Identifier: Apache-2.0
"""The commands on the landing of a spec, each with what it is asked (`add_arguments`) and what it does (`run`); and all
of them by name.

Contract: nothing is imported for a command before it runs, so that help and mistakes are answered at once, also where
only guards are installed.
"""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping

from airflow_provider_lakecommit.cli.adopt import AdoptCommand
from airflow_provider_lakecommit.cli.arguments import (
    Command,
    add_every,
    duration,
    natural,
    positive,
    spec_files,
)
from airflow_provider_lakecommit.cli.dead_letter_commands import (
    DeadLettersListCommand,
    DeadLettersReplayCommand,
    DeadLettersShowCommand,
)
from airflow_provider_lakecommit.cli.env_commands import EnvPackCommand
from airflow_provider_lakecommit.cli.evolve import EvolveCommand
from airflow_provider_lakecommit.cli.follow_arguments import add_follow, follow_of
from airflow_provider_lakecommit.cli.from_airflow import load, load_dag, load_file, load_set_file
from airflow_provider_lakecommit.cli.kafka_commands import (
    ControlLogCommand,
    InferSchemaCommand,
    RescueCommand,
    StallCommand,
)
from airflow_provider_lakecommit.cli.lane_commands import (
    BackfillCommand,
    LanesCloseCommand,
    LanesListCommand,
    ReplayCommand,
)
from airflow_provider_lakecommit.cli.ledger_commands import (
    LedgerPruneCommand,
    LedgerShowCommand,
    RenamedCommand,
    ResetAttestCommand,
    ResetBlockedCommand,
    ResetHardCommand,
    ResetOffsetsCommand,
)
from airflow_provider_lakecommit.cli.maintenance_commands import ExpireCommand, SweepCommand
from airflow_provider_lakecommit.cli.publish_now import PublishNowCommand
from airflow_provider_lakecommit.cli.rebind import RebindCommand
from airflow_provider_lakecommit.cli.suspend import DrainCommand, ResumeCommand, SuspendCommand
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.reset_commands import RESET_ATTEST, RESET_BLOCKED, RESET_HARD, RESET_OFFSETS
from airflow_provider_lakecommit.terminal.output import Output, results_only

__all__ = ["COMMANDS"]


class LandCommand(Command):
    says = "land what is new; one JSON line per cycle"
    spec = "many"
    runs_spark = True
    examples = (
        "land orders.yaml",
        "land specs/ --cycles 1 > cycles.jsonl",
        "land orders.yaml --follow --window-age 2s",
        "land --dag land_orders",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cycles", type=positive, metavar="N", help="at most N cycles (default: until caught up)")
        add_follow(parser)

    def run(self, options: Namespace, output: Output) -> int:
        follow = follow_of(options)
        if (declared := load_set_file(options, output)) is not None:
            from airflow_provider_lakecommit.runs.land_set import land_set

            with results_only(output):
                return land_set(declared, output, cycles=options.cycles, follow=follow)
        specs, wrong = self._specs(options, output)
        if len(specs) + len(wrong) > 1:
            from airflow_provider_lakecommit.runs.land_many import land_many

            with results_only(output):
                return land_many(specs, wrong, output, cycles=options.cycles, follow=follow)
        from airflow_provider_lakecommit.runs.land import land

        with results_only(output):
            return land(next(iter(specs.values())), output, cycles=options.cycles, follow=follow)

    def _specs(self, options: Namespace, output: Output) -> tuple[dict[str, LandingSpec], dict[str, SpecError]]:
        """Those that can be used, by their landing, and of several the others by their file."""
        if options.dag:
            return {spec.landing.name: spec for spec in load_dag(options, output)}, {}
        paths = spec_files(options.spec)
        if len(paths) == 1:
            only = load_file(paths[0], options, output)
            return {only.landing.name: only}, {}
        from airflow_provider_lakecommit.runs.land_many import load_all

        return load_all(paths, lambda path: load_file(path, options, output))


class PlanCommand(Command):
    says = "what the next cycle would do; no table is written"
    examples = (
        "plan orders.yaml --explain",
        "plan --dag land_orders --json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--explain", action="store_true", help="why each partition's window ends where it does")

    def run(self, options: Namespace, output: Output) -> int:
        if (declared := load_set_file(options, output)) is not None:
            from airflow_provider_lakecommit.runs.plan_set import plan_set

            return plan_set(declared, output, explain=options.explain)
        spec = load(options, output)
        from airflow_provider_lakecommit.runs.plan import plan

        return plan(spec, output, explain=options.explain)


class StatusCommand(Command):
    says = "how far the tables are, what waits, what is open or blocked; exit code 0 only when all is well"
    examples = (
        "status orders.yaml --every 5m",
        "status --dag land_shop --task-group orders",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_every(parser)
        add = parser.add_argument
        add("--max-lag", type=natural, metavar="N", help="so many offsets that are not landed are well (default 0)")
        add("--files", action="store_true", help="count the small files of the tables, which reads all manifests")
        add("--max-age", type=duration, metavar="TIME", help="well is what is valid through less than that ago")

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.inspect.status_rules import StatusLimits

        allowed = StatusLimits(lag=options.max_lag, age=options.max_age)
        if (declared := load_set_file(options, output)) is not None:
            from airflow_provider_lakecommit.cli.status_set import status_set

            return status_set(declared, output, every=options.every, allowed=allowed, files=options.files)
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.status import status

        return status(spec, output, every=options.every, allowed=allowed, files=options.files)


class DoctorCommand(Command):
    says = "check everything that a landing needs, all in one run"
    runs_spark = True
    examples = (
        "doctor orders.yaml",
        "doctor --dag land_orders --no-spark",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_every(parser)
        parser.add_argument("--no-spark", dest="spark", action="store_false", help="start no Spark job")
        roles = "what the Kafka connection is for (may be repeated; default: plan, write and commit)"
        parser.add_argument("--role", action="append", choices=["plan", "write", "commit", "sensor"], help=roles)
        deployment = "try a transactional id of that deployment, as its rights may name it"
        parser.add_argument("--deployment", default="", metavar="NAME", help=deployment)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.doctor import doctor
        from airflow_provider_lakecommit.doctor.roles import LANDING_ROLES, Role

        roles = tuple(Role(name) for name in dict.fromkeys(options.role or ())) or LANDING_ROLES
        with results_only(output):
            return doctor(
                spec, output, every=options.every, spark=options.spark, roles=roles, deployment=options.deployment
            )


class VerifyCommand(Command):
    says = "check ledger, accounting and files over the tables' history"
    examples = (
        "verify orders.yaml --files",
        "verify orders.yaml --rows",
        "verify --dag land_orders --json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--files",
            action=BooleanOptionalAction,
            help="look whether every file exists (default: only where the files are on a local disk)",
        )
        rows_help = "read of each row which record it is of: each that was landed is there, once (metadata_columns)"
        parser.add_argument("--rows", action="store_true", help=rows_help)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.verify import verify

        return verify(spec, output, files=options.files, rows=options.rows)


class HistoryCommand(Command):
    says = "the newest windows, spec versions, epochs, and what persons decided, as the tables tell"
    examples = (
        "history orders.yaml",
        "history --dag land_orders --json",
    )

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.history import history

        return history(spec, output)


def _action(command: str) -> str:
    return command.rsplit(" ", 1)[1]


COMMANDS: Mapping[str, Command | Mapping[str, Command]] = {
    "land": LandCommand(),
    "backfill": BackfillCommand(),
    "replay": ReplayCommand(),
    "lanes": {"list": LanesListCommand(), "close": LanesCloseCommand()},
    "plan": PlanCommand(),
    "status": StatusCommand(),
    "publish-now": PublishNowCommand(),
    "suspend": SuspendCommand(),
    "resume": ResumeCommand(),
    "drain": DrainCommand(),
    "doctor": DoctorCommand(),
    "infer-schema": InferSchemaCommand(),
    "evolve": EvolveCommand(),
    "verify": VerifyCommand(),
    "history": HistoryCommand(),
    "control-log": ControlLogCommand(),
    "stall": StallCommand(),
    "rescue": RescueCommand(),
    "adopt": AdoptCommand(),
    "ledger": {
        "show": LedgerShowCommand(),
        "init": RenamedCommand(ResetOffsetsCommand(), RESET_OFFSETS),
        "attest": RenamedCommand(ResetAttestCommand(), RESET_ATTEST),
        "prune": LedgerPruneCommand(),
    },
    "unblock": RenamedCommand(ResetBlockedCommand(), RESET_BLOCKED),
    "reset": {
        _action(RESET_OFFSETS): ResetOffsetsCommand(),
        _action(RESET_HARD): ResetHardCommand(),
        _action(RESET_ATTEST): ResetAttestCommand(),
        _action(RESET_BLOCKED): ResetBlockedCommand(),
    },
    "rebind": RebindCommand(),
    "dead-letters": {
        "list": DeadLettersListCommand(),
        "show": DeadLettersShowCommand(),
        "replay": DeadLettersReplayCommand(),
    },
    "sweep": SweepCommand(),
    "expire": ExpireCommand(),
    "env": {"pack": EnvPackCommand()},
}
