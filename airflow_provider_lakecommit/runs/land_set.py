# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land SET.yaml`: all landings of a set in one process.

Contract: the topics are listed, each table gets its landing, and each of these is landed as if it were alone, by the
loop of any landing, on connections that all share (:mod:`~airflow_provider_lakecommit.many`): what is new of a few
hundred topics is a handful of requests, transactions and Spark jobs. Every line says whose it is, and the last one what
became of all.

With ``follow`` that is done round after round (:mod:`~airflow_provider_lakecommit.runs.set_rounds`), with the topics
that there are then: new ones are landed as they come.

Failure story: that of :mod:`~airflow_provider_lakecommit.runs.land_many`. Topics without a landing are failures with
their names; so is a landing that cannot make its table. None of them stops another. A topic that went after it was
listed is its landing's trouble.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from uuid import uuid4

from airflow_provider_lakecommit.declared.names import meant
from airflow_provider_lakecommit.exceptions import CatalogError, SpecError, TableError
from airflow_provider_lakecommit.follow.options import FollowOptions
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import Landing, LandingSpec
from airflow_provider_lakecommit.landing_set import LandingSetSpec
from airflow_provider_lakecommit.many.connections import found_landings
from airflow_provider_lakecommit.many.expansion import Expansion
from airflow_provider_lakecommit.many.schemas import with_schema
from airflow_provider_lakecommit.many.shared_spark import SharedSpark
from airflow_provider_lakecommit.many.steps import AT_ONCE, MOST
from airflow_provider_lakecommit.runs.land_many import Landings, local_session, report_ends
from airflow_provider_lakecommit.runs.set_rounds import Ended, SetRounds
from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.terminal.output import Output
from airflow_provider_lakecommit.terminal.stop import Signals, Stopped

__all__ = ["land_set", "landing_of"]

ROUND_SECONDS = 5.0
"""For which a round of landings that are followed waits for those that take long."""


def landing_of(spec: LandingSetSpec, name: str | None) -> LandingSpec:
    """The landing of a set that is named, for what is done with one.

    :raises SpecError: there is none of that name, or none is named
    :raises SourceError: there is no topic for any landing
    """
    found = found_landings(spec.landing_set, spec.kafka)
    names = {each.name: each for each in found.landings}
    if name in names:
        return spec.of(with_stated_schema(spec, names[name]))
    if name is None:
        raise SpecError(
            f"{spec.landing_set.name} is a set of {len(names)} landings, {', '.join([*names][:3])}, …: say which by "
            "--landing NAME"
        )
    troubles = {spec.landing_set.landing_name(t.table): t for t in found.troubles if t.table is not None}
    if name in troubles:
        raise SpecError(f"set {spec.landing_set.name} cannot have a landing {name!r}: {troubles[name]}")
    raise SpecError(
        f"set {spec.landing_set.name} has no landing {name!r}{meant(name, names)}: no topic that there is goes to such "
        "a table. Of one whose topics were deleted the table stays as it is"
    )


def with_stated_schema(spec: LandingSetSpec, landing: Landing) -> Landing:
    """Where its table has to be made, the landing knows how; a command that needs no catalog makes none."""
    if not spec.catalog:
        return landing
    tables = Tables(spec.catalog)
    try:
        return with_schema(spec.landing_set, landing, spec.kafka, tables)
    except (TableError, CatalogError):
        # What is done with it says so in its own words.
        return landing
    finally:
        tables.close()


def land_set(spec: LandingSetSpec, output: Output, *, cycles: int | None, follow: FollowOptions | None = None) -> int:
    """Land all that there is, for *cycles* cycles of each landing at most, or round after round.

    :raises SourceError: there is no topic for any landing
    :raises SourceUnavailableError: the brokers do not answer
    """
    signals = Signals()
    expansion = found_landings(spec.landing_set, spec.kafka)
    local = local_session([spec.of(each) for each in expansion.landings], output, signals, follow)
    with signals, ExitStack() as closing, ConcurrentLandings(threads=AT_ONCE, most=MOST) as concurrent:
        if local is not None:
            closing.callback(local.close)
        landings = Landings(
            concurrent=concurrent,
            output=output,
            cycles=cycles,
            unique=uuid4(),
            shared=None if local is None else SharedSpark(local, together=True),
        )
        rounds = SetRounds(spec, landings, signals.check)
        try:
            ended = rounds.land(expansion) if follow is None else _followed(rounds, expansion, follow)
        except Stopped as stop:
            output.log(f"told to stop by {stop}")
            landings.stop()
            return stop.code
        finally:
            rounds.close()
    return report_ends(ended, {}, output)


def _followed(rounds: SetRounds, expansion: Expansion, follow: FollowOptions) -> Ended:
    """Round after round, as long as is said; how each landing ended in the last one of its own."""
    began = time.monotonic()
    ended = rounds.land(expansion, ROUND_SECONDS)
    rounds.tell(ended, {})
    while follow.lifetime is None or time.monotonic() - began < follow.lifetime.total_seconds():
        time.sleep(follow.window_age.total_seconds())
        ended = rounds.again(ended, ROUND_SECONDS)
    return rounds.finish(ended)
