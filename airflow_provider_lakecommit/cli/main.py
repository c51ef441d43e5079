# SPDX-License-Identifier: Apache-2.0
"""The command line's face: arguments, and how a command's end becomes an exit code.

Contract: 0 done; 1 refused or failed, with one line that says why; 2 bad usage or a bad spec; 128 + n when signal n
ended it. Nothing is imported for a command before that command runs, so that help and mistakes are answered at once.
Only what nobody foresaw ends in a traceback, and a library that is not installed is not of that; like all text it is
free of the spec's secrets.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit import __version__
from airflow_provider_lakecommit.cli.arguments import (
    control_log_arguments,
    every_argument,
    positive,
    rescue_arguments,
    stall_arguments,
    unblock_arguments,
)
from airflow_provider_lakecommit.cli.output import Exit, Output, results_only, start_logging
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.landing import LandingSpec, load_spec

__all__ = ["main"]

Command = Callable[[argparse.Namespace, Output], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    output = Output(as_json=options.json)
    start_logging(output, verbose=options.verbose)
    command: Command = options.command
    try:
        return int(command(options, output))
    except SpecError as e:
        output.error(e)
        return Exit.USAGE
    except LakecommitError as e:
        output.error(e)
        return Exit.REFUSED
    except KeyboardInterrupt as e:
        return int(getattr(e, "code", 130))
    except BrokenPipeError:
        # Whoever read our results has gone; so has the place to say so, also for the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.REFUSED
    except ModuleNotFoundError as e:
        if (e.name or "").startswith("airflow_provider_lakecommit"):
            return _unforeseen(e, output)
        # Left out on purpose where only guards are installed.
        output.error(ModuleNotFoundError(f"{e}: this command needs it, and it is not installed here"))
        return Exit.REFUSED
    except Exception as e:
        return _unforeseen(e, output)


def _unforeseen(error: Exception, output: Output) -> int:
    output.log("".join(traceback.format_exception(error)))
    output.error(error)
    return Exit.REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lakecommit",
        description="Land Kafka topics in Iceberg tables in batch windows, exactly once.",
        epilog="Exit codes: 0 done, 1 refused or failed with a reason, 2 bad usage or spec.",
    )
    parser.add_argument("--version", action="version", version=f"lakecommit {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    land = _command(commands, "land", "land what is new; one JSON line per cycle", _land, spec="many")
    land.add_argument("--cycles", type=positive, metavar="N", help="at most N cycles (default: until caught up)")

    plan = _command(commands, "plan", "what the next cycle would do; no table is written", _plan)
    plan.add_argument("--explain", action="store_true", help="why each partition's window ends where it does")

    status = _command(commands, "status", "how far the tables are, what waits, what is open or blocked", _status)
    every_argument(status)

    doctor = _command(commands, "doctor", "check everything that a landing needs, all in one run", _doctor)
    every_argument(doctor)
    doctor.add_argument("--no-spark", dest="spark", action="store_false", help="start no Spark job")

    infer = _command(
        commands,
        "infer-schema",
        "sample a topic and print a landing with a `create` section",
        _infer_schema,
        spec="none",
    )
    infer.add_argument("source", metavar="TOPIC|SPEC", help="a topic, with --bootstrap; or a YAML file of a landing")
    infer.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers of the topic, in place of a spec")
    infer.add_argument("--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings")
    infer.add_argument("--records", type=positive, default=1000, metavar="N", help="how many to sample (default 1000)")
    infer.add_argument("--examples", action="store_true", help="show values of records in the comments")

    verify = _command(commands, "verify", "check ledger, accounting and files over the tables' history", _verify)
    verify.add_argument(
        "--files",
        action=argparse.BooleanOptionalAction,
        help="look whether every file exists (default: only where the files are on a local disk)",
    )

    control_log_arguments(
        _command(commands, "control-log", "every record of a control topic, decoded", _control_log, spec="optional")
    )
    stall_arguments(
        _command(commands, "stall", "how commits are doing, after every event of a control topic", _stall, spec="none")
    )
    rescue_arguments(
        _command(
            commands, "rescue", "commit what a Kafka Connect sink announced and never committed", _rescue, spec="none"
        )
    )
    _ledger_arguments(commands)
    unblock_arguments(_command(commands, "unblock", "say how to go on with blocked ranges", _unblock))
    return parser


def _command(commands: Any, name: str, what: str, run: Command, *, spec: str = "required") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    parser.set_defaults(command=run)
    if spec != "none":
        nargs = {"optional": "?", "many": "+"}.get(spec)
        told = "YAML file: a landing, kafka, catalog, spark" + ("; or a folder of them" if spec == "many" else "")
        parser.add_argument("spec", metavar="SPEC", nargs=nargs, help=told)
    parser.add_argument("--json", action="store_true", help="results, and errors too, as JSON on standard output")
    parser.add_argument("--verbose", action="store_true", help="more of what happens, on standard error")
    return parser


def _ledger_arguments(commands: Any) -> None:
    ledger = commands.add_parser("ledger", help="show or set the ledger of the tables")
    actions = ledger.add_subparsers(metavar="ACTION", required=True)
    _command(actions, "show", "what is in the tables, as the tables say", _ledger_show)
    init = _command(actions, "init", "begin a ledger, or begin it anew, under a new epoch", _ledger_init)
    init.add_argument(
        "--from",
        dest="start",
        required=True,
        metavar="earliest|latest|TOPIC:PARTITION=OFFSET,…",
        help="where reading goes on; partitions that are not named keep their place",
    )
    attest = _command(actions, "attest", "say what the tables hold, where their ledger cannot", _ledger_attest)
    how = attest.add_mutually_exclusive_group(required=True)
    how.add_argument("--snapshot", type=positive, metavar="ID", help="what the ledger in this snapshot says")
    how.add_argument("--from-log", action="store_true", help="what the control topic says was published")
    how.add_argument("--at", metavar="TOPIC:PARTITION=OFFSET,…", help="everything below these offsets; also as JSON")
    attest.add_argument(
        "--table",
        action="append",
        metavar="TABLE",
        help="only this table (default: those whose ledger is not in order)",
    )
    attest.add_argument("--yes", action="store_true", help="write it; without, it is only shown")


def _spec(options: argparse.Namespace, output: Output) -> LandingSpec:
    return _load(options.spec, output)


def _load(path: str, output: Output) -> LandingSpec:
    spec = load_spec(path)
    output.keep(spec.kafka, spec.catalog, spec.spark)
    if not spec.catalog:
        raise SpecError(f"spec {path}: the section 'catalog' is missing: say where the tables are")
    return spec


def _land(options: argparse.Namespace, output: Output) -> int:
    paths = _spec_files(options.spec)
    if len(paths) > 1:
        from airflow_provider_lakecommit.cli.land_many import land_many, load_all

        specs, wrong = load_all(paths, lambda path: _load(path, output))
        with results_only(output):
            return land_many(specs, wrong, output, cycles=options.cycles)
    spec = _load(paths[0], output)
    from airflow_provider_lakecommit.cli.land import land

    with results_only(output):
        return land(spec, output, cycles=options.cycles)


def _spec_files(told: Sequence[str]) -> list[str]:
    """Files as they are, and of a folder all that are YAML, by name."""
    found: list[str] = []
    for path in map(Path, told):
        inside = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
        if not inside:
            raise SpecError(f"there is no spec (*.yaml, *.yml) in folder {path}")
        found += [str(p) for p in inside]
    return found


def _plan(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.plan import plan

    return plan(spec, output, explain=options.explain)


def _status(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.status import status

    return status(spec, output, every=options.every)


def _doctor(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.doctor import doctor

    with results_only(output):
        return doctor(spec, output, every=options.every, spark=options.spark)


def _infer_schema(options: argparse.Namespace, output: Output) -> int:
    from airflow_provider_lakecommit.cli.control_log import source_of
    from airflow_provider_lakecommit.cli.infer_schema import infer_schema

    by_hand = options.bootstrap is not None or options.kafka_config is not None
    spec = None if by_hand else load_spec(options.source)
    kafka, _ = source_of(spec, bootstrap=options.bootstrap, topic=options.source, config_file=options.kafka_config)
    output.keep(kafka)
    landing = spec.landing if spec else None
    topics = landing.topic_names if landing else (options.source,)
    return infer_schema(kafka, topics, landing, output, records=options.records, examples=options.examples)


def _verify(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.verify import verify

    return verify(spec, output, files=options.files)


def _control_log(options: argparse.Namespace, output: Output) -> int:
    from airflow_provider_lakecommit.cli.control_log import control_log, source_of

    spec = load_spec(options.spec) if options.spec else None
    kafka, topic = source_of(spec, bootstrap=options.bootstrap, topic=options.topic, config_file=options.kafka_config)
    output.keep(kafka)
    return control_log(kafka, topic, output, group=options.group)


def _stall(options: argparse.Namespace, output: Output) -> int:
    from airflow_provider_lakecommit.cli.control_log import source_of
    from airflow_provider_lakecommit.cli.stall import StallOptions, stall, with_settings
    from airflow_provider_lakecommit.stall.verdict import StallRules

    told = with_settings({}, options.settings)
    bootstrap = options.bootstrap or told.get("bootstrap.servers")
    kafka, topic = source_of(None, bootstrap=bootstrap, topic=options.control_topic, config_file=options.kafka_config)
    kafka = {**kafka, **told, "bootstrap.servers": kafka["bootstrap.servers"]}
    output.keep(kafka)
    rules = StallRules(
        stalled_cycles=options.stalled_cycles,
        silent_intervals=options.silent_intervals,
        interval=options.interval.total_seconds() if options.interval else None,
        unanswered_cycles=options.unanswered_cycles,
        only_cycles=options.only_cycles,
    )
    request = StallOptions(
        group=options.group,
        rules=rules,
        events_clock=options.clock == "event",
        until=options.until,
        follow=options.follow,
        completion_timeout=options.completion_timeout.total_seconds(),
    )
    return stall(kafka, topic, output, request)


def _rescue(options: argparse.Namespace, output: Output) -> int:
    from airflow_provider_lakecommit.cli.control_log import source_of
    from airflow_provider_lakecommit.cli.rescue import RescueOptions, catalog_of, rescue

    topic = options.control_topic
    kafka, _ = source_of(None, bootstrap=options.bootstrap, topic=topic, config_file=options.kafka_config)
    catalog = catalog_of(options.catalog)
    output.keep(kafka, catalog, {"connect": options.connect})
    request = RescueOptions(
        connector=options.connector,
        control_topic=topic,
        group=options.group,
        tables=options.table,
        branch=options.branch,
        connect=options.connect,
        gone=options.connector_is_gone,
        commit=options.commit,
    )
    return rescue(kafka, catalog, output, request)


def _ledger_show(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.repair import ledger_show

    return ledger_show(spec, output)


def _ledger_init(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.repair import ledger_init

    return ledger_init(spec, output, start=options.start)


def _ledger_attest(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.repair import ledger_attest

    return ledger_attest(
        spec,
        output,
        snapshot=options.snapshot,
        log=options.from_log,
        at=options.at,
        tables=options.table,
        yes=options.yes,
    )


def _unblock(options: argparse.Namespace, output: Output) -> int:
    spec = _spec(options, output)
    from airflow_provider_lakecommit.cli.repair import unblock

    return unblock(spec, output, raise_to=options.raise_to, skip=options.skip, partitions=options.partition)


if __name__ == "__main__":
    sys.exit(main())
