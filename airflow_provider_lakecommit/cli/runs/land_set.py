# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land SET.yaml`: all landings of a set in one process, on shared connections.

Each landing is landed as if it were alone (:mod:`~airflow_provider_lakecommit.cycle.sets`). With ``follow`` that is
repeated with the topics of that time (:mod:`~airflow_provider_lakecommit.cli.runs.set_rounds`).

None stops another. The exit code is that of the worst landing: 2 for an invalid spec, otherwise 1 for a landing that
failed, has a blocked range or was stopped without a window, and for topics without a landing.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack

from airflow_provider_lakecommit.cli.runs.land import spark_section
from airflow_provider_lakecommit.cli.runs.plan import opened_set
from airflow_provider_lakecommit.cli.runs.set_landings import Landings, SharedSpark
from airflow_provider_lakecommit.cli.runs.set_rounds import Ended, SetRounds
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cli.terminal.stop import Signals, Stopped
from airflow_provider_lakecommit.cycle import (
    CLIENTS,
    ConcurrentLandings,
    Expansion,
    FollowOptions,
    former_named,
    found_landings,
    with_schema,
)
from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, SpecError, TableError
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import Landing, LandingSetSpec, LandingSpec, meant
from airflow_provider_lakecommit.spark import LocalSpark, SparkSection

ROUND_SECONDS = 5.0
"""How long a round in continuous mode waits for slow landings."""


def landing_of(spec: LandingSetSpec, name: str | None) -> LandingSpec:
    """Return the named landing of a set; also one that the set no longer has."""
    found = found_landings(spec.landing_set, spec.kafka)
    names = {each.name: each for each in found.landings}
    if name in names:
        return spec.of(_with_schema(spec, names[name]))
    if name is None:
        raise SpecError(
            "LC8028",
            f"{spec.landing_set.name} is a set of {len(names)} landings, {', '.join([*names][:3])}, …: choose one by "
            "--landing NAME",
        )
    troubles = {spec.landing_set.landing_name(t.table): t for t in found.troubles if t.table is not None}
    if name in troubles:
        raise SpecError("LC8029", f"set {spec.landing_set.name} cannot have a landing {name!r}: {troubles[name]}")
    # A command without a catalog finds no former landings.
    if spec.catalog:
        with opened_set(spec) as connections:
            former = former_named(spec.landing_set, connections, name)
        if former is not None:
            return spec.of(former)
    raise SpecError(
        "LC8030",
        f"set {spec.landing_set.name} has no landing {name!r}{meant(name, names)}: no existing topic goes to such a "
        "table, and neither the control topic nor the table knows a landing of this name",
    )


def _with_schema(spec: LandingSetSpec, landing: Landing) -> Landing:
    """Return the landing with the schema of a table to create; a command without a catalog creates none."""
    if not spec.catalog:
        return landing
    tables = Tables(spec.catalog)
    try:
        return with_schema(spec.landing_set, landing, spec.kafka, tables)
    except (TableError, CatalogError):
        # The command itself reports the error.
        return landing
    finally:
        tables.close()


def land_set(spec: LandingSetSpec, output: Output, *, cycles: int | None, follow: FollowOptions | None = None) -> int:
    """Land everything, for at most *cycles* cycles of each landing, or round after round."""
    signals = Signals()
    expansion = found_landings(spec.landing_set, spec.kafka)
    local = local_session(spec, output, signals, follow)
    with signals, ExitStack() as closing, ConcurrentLandings() as concurrent:
        if local is not None:
            closing.callback(local.close)
        landings = Landings(
            concurrent=concurrent, output=output, cycles=cycles, shared=None if local is None else SharedSpark(local)
        )
        tables = Tables(spec.catalog, few=CLIENTS)
        closing.callback(tables.close)
        rounds = SetRounds(spec, landings, tables, signals.check)
        try:
            ended = rounds.land(expansion) if follow is None else _followed(rounds, expansion, follow)
        except Stopped as stop:
            output.log(f"stopped by {stop}")
            landings.stop()
            return stop.code
        finally:
            rounds.close()
    return report_ends(ended, output)


def _followed(rounds: SetRounds, expansion: Expansion, follow: FollowOptions) -> Ended:
    """Run round after round until the time is over; return how each landing ended in its last one."""
    began = time.monotonic()
    ended = rounds.land(expansion, ROUND_SECONDS)
    rounds.report(ended, {})
    while follow.lifetime is None or time.monotonic() - began < follow.lifetime.total_seconds():
        time.sleep(follow.window_age.total_seconds())
        ended = rounds.again(ended, ROUND_SECONDS)
    return rounds.finish(ended)


def local_session(
    spec: LandingSetSpec, output: Output, signals: Signals, follow: FollowOptions | None
) -> LocalSpark | None:
    if SparkSection(spec.spark).remote is not None:
        return None
    # Signal handlers stay unchanged: the session does not start in the main thread.
    return LocalSpark(spark_section(spec, follow, output), log=output.log, on_start=signals.check)


def report_ends(ended: Mapping[str, int | BaseException], output: Output) -> int:
    """Log the landings that failed, and return the exit code of the whole call."""
    failed = {name: each for name, each in ended.items() if isinstance(each, BaseException)}
    for name, error in failed.items():
        if not isinstance(error, LakecommitError):
            output.log("".join(traceback.format_exception(error)))
        output.error(error, of=name)
    refused = [name for name, each in ended.items() if each == Exit.REFUSED]
    parts = [
        f"{len(ended) - len(failed) - len(refused)} of {len(ended)} landings succeeded",
        f"failed: {', '.join(failed)}" if failed else "",
        f"with a blocked range, or stopped without a window: {', '.join(refused)}" if refused else "",
    ]
    output.log("; ".join(filter(None, parts)))
    others = [e for e in failed.values() if not isinstance(e, Exception)]
    if others:
        raise others[0]
    if any(isinstance(error, SpecError) for error in failed.values()):
        return Exit.USAGE
    return Exit.REFUSED if failed or refused else Exit.DONE
