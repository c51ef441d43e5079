# SPDX-License-Identifier: Apache-2.0
"""The commands that show a ledger, and those by which a person decides of one, or of blocked ranges.

Contract: as in :mod:`~airflow_provider_lakecommit.cli.commands`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from airflow_provider_lakecommit.cli.arguments import (
    Command,
    add_confirmation,
    add_others,
    budget,
    positive,
)
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.reset_commands import RESET_ATTEST, RESET_BLOCKED, RESET_HARD, RESET_OFFSETS, spoken
from airflow_provider_lakecommit.terminal.output import Output

__all__ = [
    "LedgerPruneCommand",
    "LedgerShowCommand",
    "RenamedCommand",
    "ResetAttestCommand",
    "ResetBlockedCommand",
    "ResetHardCommand",
    "ResetOffsetsCommand",
]


FEWER = "with rows to delete: a table has fewer of them than were landed, since others deleted some"


class LedgerShowCommand(Command):
    says = "what is in the tables, as the tables say"
    examples = (
        "ledger show orders.yaml",
        "ledger show --dag land_orders --json",
    )

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.ledger_show import ledger_show

        return ledger_show(spec, output)


class ResetOffsetsCommand(Command):
    says = "begin a ledger, or begin it anew, under a new epoch"
    examples = (
        f'{spoken(RESET_OFFSETS)} orders.yaml --from latest --reason "the old topic is done with"',
        f"{spoken(RESET_OFFSETS)} --dag land_orders --from orders:0=1500,orders:1=0",
        f"{spoken(RESET_OFFSETS)} orders.yaml --from latest --fill the-hole --dry-run",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--from",
            dest="start",
            required=True,
            metavar="earliest|latest|TIME|TOPIC:PARTITION=OFFSET,…",
            help="where reading goes on; partitions that are not named keep their place",
        )
        add = parser.add_argument
        only = "with a time, earliest or latest: only this one (may be repeated)"
        add("--partition", action="append", metavar="TOPIC:PARTITION", help=only)
        add("--fill", metavar="LANE", help="leave what it goes forward over to a lane, which `backfill` lands")
        back = parser.add_mutually_exclusive_group().add_argument
        back("--again", action="store_true", help="go back over what is landed, too: its rows are there twice then")
        back("--delete", action="store_true", help="go back over what is landed, and delete its rows in the same step")
        add("--fewer", action="store_true", help=FEWER)
        add("--dry-run", action="store_true", help="say what it comes to; nothing is written")
        add_confirmation(parser)
        reported = "also what is reported, cannot be published, and the source has no more"
        parser.add_argument("--give-up-reported", action="store_true", help=reported)
        add_others(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        if options.delete:
            from airflow_provider_lakecommit.cli.repair import delete_back

            return delete_back(
                spec,
                output,
                start=options.start,
                partitions=options.partition,
                fewer=options.fewer,
                dry=options.dry_run,
                yes=options.yes,
                reason=options.reason,
            )
        from airflow_provider_lakecommit.cli.repair import ledger_init

        return ledger_init(
            spec,
            output,
            start=options.start,
            partitions=options.partition,
            fill=options.fill,
            again=options.again,
            dry=options.dry_run,
            yes=options.yes,
            reason=options.reason,
            give_up_reported=options.give_up_reported,
            others=options.others,
        )


class ResetHardCommand(Command):
    says = "delete all rows of a landing, and have it begin where its declaration says"
    examples = (
        f"{spoken(RESET_HARD)} orders.yaml --dry-run",
        f'{spoken(RESET_HARD)} orders.yaml --yes --reason "test data"',
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--fewer", action="store_true", help=FEWER)
        parser.add_argument("--dry-run", action="store_true", help="say what it comes to; nothing is written")
        add_confirmation(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.repair import delete_back

        return delete_back(
            spec,
            output,
            start=None,
            partitions=None,
            fewer=options.fewer,
            dry=options.dry_run,
            yes=options.yes,
            reason=options.reason,
        )


class ResetAttestCommand(Command):
    says = "say what the tables hold, where their ledger cannot"
    examples = (
        f"{spoken(RESET_ATTEST)} orders.yaml --from-log",
        f'{spoken(RESET_ATTEST)} --dag land_orders --snapshot 8126360687799756521 --yes --reason "restored"',
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        how = parser.add_mutually_exclusive_group(required=True).add_argument
        how("--snapshot", type=positive, metavar="ID", help="what the ledger in this snapshot says")
        how("--from-log", action="store_true", help="what the control topic says was published")
        how("--at", metavar="TOPIC:PARTITION=OFFSET,…", help="everything below these offsets; also as JSON")
        only = "only this table (default: those whose ledger is not in order)"
        parser.add_argument("--table", action="append", metavar="TABLE", help=only)
        add_confirmation(parser)
        reported = "also what is reported, and the source has no more"
        parser.add_argument("--give-up-reported", action="store_true", help=reported)
        add_others(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.repair import ledger_attest

        return ledger_attest(
            spec,
            output,
            snapshot=options.snapshot,
            log=options.from_log,
            at=options.at,
            tables=options.table,
            yes=options.yes,
            reason=options.reason,
            give_up_reported=options.give_up_reported,
            others=options.others,
        )


class LedgerPruneCommand(Command):
    says = "drop from the tables' ledgers what is gone for good"
    examples = (
        "ledger prune orders.yaml",
        "ledger prune --dag land_orders --yes",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_confirmation(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.prune import ledger_prune

        return ledger_prune(spec, output, yes=options.yes, reason=options.reason)


class ResetBlockedCommand(Command):
    says = "say how to go on with blocked ranges"
    examples = (
        f"{spoken(RESET_BLOCKED)} orders.yaml --raise 500:0.2",
        f'{spoken(RESET_BLOCKED)} --dag land_orders --skip --partition orders:3 --reason "test data"',
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument(
            "--raise",
            dest="raise_to",
            type=budget,
            metavar="N[:RATIO]",
            help="read them again with up to N dead letters, at most RATIO of the records (default 1)",
        )
        how.add_argument("--skip", action="store_true", help="go on without their bad records; recorded as skipped")
        again = "read them again under the landing's own budget, after records, table or spec were mended"
        how.add_argument("--retry", action="store_true", help=again)
        add = parser.add_argument
        add("--partition", action="append", metavar="TOPIC:PARTITION", help="only of this partition (may be repeated)")
        add("--range", action="append", metavar="TOPIC:PARTITION=FROM-TO", help="only these offsets (may be repeated)")
        add("--whole", action="store_true", help="with --skip: also without the good records of these ranges")
        add_confirmation(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.repair import unblock

        return unblock(
            spec,
            output,
            raise_to=options.raise_to,
            skip=options.skip,
            retry=options.retry,
            partitions=options.partition,
            ranges=options.range,
            whole=options.whole,
            yes=options.yes,
            reason=options.reason,
        )


class RenamedCommand(Command):
    """A command under the name that it had before, which it says."""

    def __init__(self, command: Command, now: str) -> None:
        self._command, self._now = command, now
        self.says = f"the former name of `{spoken(now)}`"
        self.examples = command.examples

    def add_arguments(self, parser: ArgumentParser) -> None:
        self._command.add_arguments(parser)

    def run(self, options: Namespace, output: Output) -> int:
        output.log(f"this is `{self._now}` now: the former name goes with the release after next")
        return self._command.run(options, output)
