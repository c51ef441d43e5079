# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land SET.yaml`: all landings of a set in one process.

Contract: the topics are listed, each table gets its landing, and each of these is landed as if it were alone, by the
loop of any landing, on connections that all share (:mod:`~airflow_provider_lakecommit.many`): what is new of a few
hundred topics is a handful of requests, transactions and Spark jobs. Every line says whose it is, and the last one what
became of all.

With ``follow`` that is done round after round, with the topics that there are then: new ones are landed as they come.
Of a landing whose topics got nothing since it was caught up no cycle is opened, but for one every few minutes, which
says up to when its tables are whole.

Failure story: that of :mod:`~airflow_provider_lakecommit.runs.land_many`. Topics without a landing are failures with
their names; so is a landing that cannot make its table. None of them stops another. A topic that went after it was
listed is its landing's trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from uuid import uuid4

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.declared.names import meant
from airflow_provider_lakecommit.engines.process import CLI
from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, SourceError, SpecError, TableError
from airflow_provider_lakecommit.follow.options import FollowOptions
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import Landing, LandingSpec
from airflow_provider_lakecommit.landing_set import LandingSetSpec
from airflow_provider_lakecommit.many.connections import SetConnections, found_landings
from airflow_provider_lakecommit.many.expansion import Expansion
from airflow_provider_lakecommit.many.idle import IDLE
from airflow_provider_lakecommit.many.plans import landing_ready, without_records
from airflow_provider_lakecommit.many.schemas import with_schema
from airflow_provider_lakecommit.many.shared_spark import SharedSpark
from airflow_provider_lakecommit.many.steps import AT_ONCE, CLIENTS, MOST
from airflow_provider_lakecommit.runs.land_many import Landings, local_session, report_ends
from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.terminal.output import Output
from airflow_provider_lakecommit.terminal.stop import Signals, Stopped

__all__ = ["land_set", "landing_of", "spec_of"]

PLACE = "catalog"
Ended = dict[str, int | BaseException]


def spec_of(spec: LandingSetSpec, landing: Landing) -> LandingSpec:
    """One landing of a set, with the set's sections."""
    return LandingSpec(
        landing=landing, kafka=spec.kafka, catalog=spec.catalog, spark=spec.spark, variables=spec.variables
    )


def landing_of(spec: LandingSetSpec, name: str | None) -> LandingSpec:
    """The landing of a set that is named, for what is done with one.

    :raises SpecError: there is none of that name, or none is named
    :raises SourceError: there is no topic for any landing
    """
    found = found_landings(spec.landing_set, spec.kafka)
    names = {each.name: each for each in found.landings}
    if name in names:
        return spec_of(spec, with_stated_schema(spec, names[name]))
    if name is None:
        raise SpecError(
            f"{spec.landing_set.name} is a set of {len(names)} landings, {', '.join([*names][:3])}, …: say which by "
            "--landing NAME"
        )
    raise SpecError(f"set {spec.landing_set.name} has no landing {name!r}{meant(name, names)}")


def with_stated_schema(spec: LandingSetSpec, landing: Landing) -> Landing:
    """Where its table has to be made, the landing knows how."""
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
    local = local_session([spec_of(spec, each) for each in expansion.landings], output, signals, follow)
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
        rounds = _Rounds(spec, landings, signals.check)
        try:
            ended = rounds.land(expansion)
            until = (
                None
                if follow is None or follow.lifetime is None
                else time.monotonic() + follow.lifetime.total_seconds()
            )
            if follow is not None:
                rounds.tell(ended, {})
            while follow is not None and (until is None or time.monotonic() < until):
                time.sleep(follow.window_age.total_seconds())
                ended = rounds.again(ended)
        except Stopped as stop:
            output.log(f"told to stop by {stop}")
            landings.stop()
            return stop.code
        finally:
            rounds.close()
    return report_ends(ended, {}, output)


class _Rounds:
    """The landings of a set, landed again and again.

    :param check: raises where a signal came whose exception was lost
    """

    def __init__(self, spec: LandingSetSpec, landings: Landings, check: Callable[[], None]) -> None:
        self._spec, self._landings, self._check = spec, landings, check
        self._tables = landings.concurrent.tables(PLACE, lambda: Tables(spec.catalog, few=CLIENTS))
        self._connections: SetConnections | None = None
        self._expansion: Expansion | None = None
        self._whole: dict[str, tuple[Mapping[SourcePartition, int], float]] = {}

    def land(self, expansion: Expansion) -> Ended:
        """One round; how each landing of it ended."""
        connections = self._connected(expansion)
        # A round is a run of its own: cycles that an earlier one has closed are not opened again.
        self._landings.unique = uuid4()
        for topic in expansion.ignored:
            self._landings.output.log(f"topic {topic} matches no rule and is ignored, as `unmatched` says")
        works = {each.name: partial(self._one, connections, each) for each in expansion.landings}
        ended: Ended = dict(self._landings.concurrent.run(works))
        self._check()
        # Of a topic that has no landing the name is all there is.
        ended |= {f"topics {', '.join(t.topics)}": SourceError(t.why) for t in expansion.troubles}
        return ended

    def again(self, before: Ended) -> Ended:
        """A round with the topics that there are now; brokers that do not say which keep the round from being done."""
        known = self._expansion
        try:
            ended = self.land(found_landings(self._spec.landing_set, self._spec.kafka))
        except LakecommitError as e:
            self._landings.output.log(f"WARNING: {e}")
            return before
        now = {each.name for each in self._expansion.landings} if self._expansion else set()
        for gone in (each for each in (known.landings if known else ()) if each.name not in now):
            topics = ", ".join(gone.topic_names)
            self._landings.output.log(f"{gone.name}: its topics are gone ({topics}); {gone.table} stays as it is")
        self.tell(ended, before)
        return ended

    def tell(self, ended: Ended, before: Ended) -> None:
        """What failed and did not fail so in the round before; and what does not fail any more."""
        said = {name: str(each) for name, each in before.items() if isinstance(each, BaseException)}
        for name, each in ended.items():
            if isinstance(each, BaseException) and said.get(name) != str(each):
                self._landings.output.error(each, of=name)
            elif not isinstance(each, BaseException) and name in said:
                self._landings.output.log(f"{name}: it does not fail any more")

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()

    def _one(self, connections: SetConnections, landing: Landing) -> int:
        marks = connections.marks(landing)
        whole = self._whole.get(landing.name)
        if marks and whole is not None and whole[0] == marks and time.monotonic() - whole[1] < IDLE.total_seconds():
            return 0
        made = landing_ready(self._spec.landing_set, landing, self._spec.kafka, self._tables, connections)
        if made is None:
            self._landings.output.log(f"{landing.name}: {without_records(landing)}")
            self._whole[landing.name] = marks, time.monotonic()
            return 0
        code = self._landings.land(spec_of(self._spec, made), connections.session)
        if code == 0:
            self._whole[landing.name] = marks, time.monotonic()
        return code

    def _connected(self, expansion: Expansion) -> SetConnections:
        """The connections, made anew where the topics are others."""
        if self._connections is None or self._expansion is None or self._expansion.topics != expansion.topics:
            self.close()
            spec = self._spec
            self._connections = SetConnections(
                spec.landing_set, expansion, spec.kafka, self._tables, deployment=CLI, place=PLACE
            )
        self._expansion = expansion
        return self._connections
