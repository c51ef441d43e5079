# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land SPEC SPEC …`: several landings in one process, side by side.

Contract: each landing is landed as if it were alone, and one that is slow, hangs or fails keeps none from the others
(see :mod:`~airflow_provider_lakecommit.session.concurrent`). They share one local Spark session, and the clients of a
catalog that they name with equal properties. Every line says whose it is, and the last one what became of all.

Failure story: the exit code is that of the worst: 2 where a spec is wrong, else 1 where a landing failed, has a blocked
range or was held without a window, and its error is reported by name. A call that is asked to stop asks every landing
so, also one that has just begun: each says what of it is saved, no further Spark job begins, and the code is the
signal's.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.cycle.loop import LandingRunner
from airflow_provider_lakecommit.engines.base import Engine
from airflow_provider_lakecommit.engines.local import LocalSpark, SparkSection, engine_of
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.follow.interval import WindowLog
from airflow_provider_lakecommit.follow.options import FollowOptions
from airflow_provider_lakecommit.follow.run import Follow, runner_of
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import Landing, LandingSpec
from airflow_provider_lakecommit.many.shared_spark import SharedSpark
from airflow_provider_lakecommit.runs.land import GRACE_SECONDS, land_cycles, spark_section
from airflow_provider_lakecommit.runs.process import identity, is_dead
from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.terminal.output import Exit, Output
from airflow_provider_lakecommit.terminal.stop import Signals, Stopped

__all__ = ["Landings", "land_many", "load_all", "local_session", "report_ends"]

BEGINNING = 4
"""Landings that have just begun; a landing that takes long, as most do in Spark, is not counted."""
MOST = 32
"""Landings at a time."""
Connect = Callable[[Landing, Callable[[str], None]], LandingSession]
"""A landing's session, on connections that it shares with others."""
GOODBYE_SECONDS = GRACE_SECONDS + 10.0
"""For which landings that were asked to stop may publish what is read, and say what is not."""


@dataclass(kw_only=True)
class Landings:
    """What the landings of one call have in common, and those that are under way.

    :param shared: their local Spark session; without one, each has an engine of its own
    """

    concurrent: ConcurrentLandings
    output: Output
    cycles: int | None
    unique: UUID
    shared: SharedSpark | None = None
    follow: FollowOptions | None = None
    catalogs: list[Mapping[str, Any]] = field(default_factory=list)
    under_way: dict[str, LandingRunner | Follow] = field(default_factory=dict)
    stopped: bool = False

    def land(self, spec: LandingSpec, connect: Connect | None = None) -> int:
        """In a thread of this landing.

        :param connect: makes its session, where it has no connections of its own
        """
        name = spec.landing.name

        def say(line: str) -> None:
            self.output.log(f"{name}: {line}")

        log = WindowLog(say)

        def session() -> LandingSession:
            if connect is not None:
                return connect(spec.landing, log)
            place = self._place(spec.catalog)
            tables = self.concurrent.tables(place, lambda: Tables(spec.catalog))
            return LandingSession.connect(spec.landing, spec.kafka, {}, log=log, tables=tables, place=place)

        section = SparkSection(spec.spark)
        engine: Engine = self.shared or engine_of(section, name, log=log, on_start=lambda: None)
        with self.concurrent.session(session) as connected:
            runner = runner_of(
                connected,
                engine,
                partial(identity, self.unique),
                self.follow,
                log,
                release=is_dead,
                executor=self.concurrent.executor,
                early=section.is_warm,
            )
            self.under_way[name] = runner
            if self.stopped:
                runner.stop(grace=GRACE_SECONDS)
            try:
                return land_cycles(runner, spec, self.output, log, self.cycles)
            finally:
                del self.under_way[name]
                engine.close()

    def stop(self) -> None:
        """Tell all that are under way, and let them say what is saved."""
        self.stopped = True
        for runner in list(self.under_way.values()):
            runner.stop(grace=GRACE_SECONDS)
        deadline = time.monotonic() + GOODBYE_SECONDS
        while self.under_way and time.monotonic() < deadline:
            time.sleep(0.05)

    def _place(self, catalog: Mapping[str, Any]) -> str:
        """Equal properties are one catalog; where they differ, turns do not matter."""
        if catalog not in self.catalogs:
            self.catalogs.append(catalog)
        return f"catalog {self.catalogs.index(catalog)}"


def land_many(
    specs: Mapping[str, LandingSpec],
    wrong: Mapping[str, SpecError],
    output: Output,
    *,
    cycles: int | None,
    follow: FollowOptions | None = None,
) -> int:
    """Land all until caught up, for *cycles* cycles each, or as records come.

    :param specs: by the name of their landing
    :param wrong: specs that cannot be used, by their file

    :raises SpecError: the specs do not go together
    """
    if follow is not None and len(specs) > MOST:
        raise SpecError(
            f"{len(specs)} landings are to be followed by one call, which follows {MOST} at most: make more"
        )
    signals = Signals()
    session = local_session(list(specs.values()), output, signals, follow)
    with signals, ConcurrentLandings(threads=BEGINNING, most=MOST) as concurrent:
        landings = Landings(
            concurrent=concurrent,
            output=output,
            cycles=cycles,
            unique=uuid4(),
            shared=None if session is None else SharedSpark(session),
            follow=follow,
        )
        try:
            ended = concurrent.run({name: partial(landings.land, spec) for name, spec in specs.items()})
            signals.check()
        except Stopped as stop:
            output.log(f"told to stop by {stop}")
            landings.stop()
            return stop.code
        finally:
            if session is not None:
                session.close()
    return report_ends(ended, wrong, output)


def local_session(
    specs: Sequence[LandingSpec], output: Output, signals: Signals, follow: FollowOptions | None
) -> LocalSpark | None:
    local = [spec for spec in specs if SparkSection(spec.spark).remote is None]
    if any(spec.spark != local[0].spark for spec in local):
        raise SpecError(
            "the sections 'spark' of these specs differ, and a process has one local Spark session: make them equal, "
            "or land them by one call each"
        )
    if not local:
        return None
    # No handler of signals is taken over: it is not started in the main thread.
    return LocalSpark(spark_section(local[0], follow, output), log=output.log, on_start=signals.check)


def report_ends(ended: Mapping[str, int | BaseException], wrong: Mapping[str, SpecError], output: Output) -> int:
    """Name what failed; the exit code of all."""
    failed = {name: each for name, each in ended.items() if isinstance(each, BaseException)}
    for name, error in {**wrong, **failed}.items():
        if not isinstance(error, LakecommitError):
            output.log("".join(traceback.format_exception(error)))
        output.error(error, of=name)
    refused = [name for name, each in ended.items() if each == Exit.REFUSED]
    parts = [
        f"{len(ended) - len(failed) - len(refused)} of {len(ended) + len(wrong)} landings did what was asked",
        f"failed: {', '.join(failed)}" if failed else "",
        f"with a blocked range, or held without a window: {', '.join(refused)}" if refused else "",
        f"not to be used: {', '.join(wrong)}" if wrong else "",
    ]
    output.log("; ".join(filter(None, parts)))
    others = [e for e in failed.values() if not isinstance(e, Exception)]
    if others:
        raise others[0]
    if wrong or any(isinstance(error, SpecError) for error in failed.values()):
        return Exit.USAGE
    return Exit.REFUSED if failed or refused else Exit.DONE


def load_all(
    paths: Sequence[str], load: Callable[[str], LandingSpec]
) -> tuple[dict[str, LandingSpec], dict[str, SpecError]]:
    """The specs by landing, and those that cannot be used by file.

    :raises SpecError: two of them are of one landing
    """
    specs: dict[str, LandingSpec] = {}
    files: dict[str, str] = {}
    wrong: dict[str, SpecError] = {}
    for path in paths:
        try:
            spec = load(path)
        except SpecError as e:
            wrong[path] = e
            continue
        name = spec.landing.name
        if name in specs:
            raise SpecError(f"specs {files[name]} and {path} are both of landing {name}: give one of them another name")
        specs[name], files[name] = spec, path
    return specs, wrong
