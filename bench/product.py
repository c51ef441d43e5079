# SPDX-License-Identifier: Apache-2.0
"""The product's side of the comparison: whole commit cycles through a warm Spark session.

Contract: :class:`Product` is a context manager that starts the session; :meth:`Product.run_landing` lands everything
that the topics hold, with plan, control events, guards, accounting and commit, and leaves the session warm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from airflow_provider_lakecommit.cli.runs.process import identity
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.launch.local import LocalSpark, SparkSection

__all__ = ["Product"]

CYCLES = 100
LOCAL: Mapping[str, Any] = {"master": "local[2]"}


class Product:
    """A warm session, and landings through it.

    :param spark: the section of a spec that says where
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        catalog: Mapping[str, str],
        log: Callable[[str], None],
        spark: Mapping[str, Any] = LOCAL,
    ) -> None:
        self._kafka = kafka
        self._catalog = catalog
        self._log = log
        self._spark = LocalSpark(SparkSection(spark), log=log, on_start=lambda: None)

    def __enter__(self) -> Self:
        self._spark.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spark.close()

    def run_landing(self, landing: Landing) -> None:
        """Land until caught up.

        :raises RuntimeError: it is not caught up after some cycles
        """
        run = uuid4()
        with LandingSession.connect(landing, self._kafka, self._catalog, log=self._log) as session:
            runner = LandingRunner(session, self._spark, lambda number: identity(run, number))
            for outcome in runner.cycles(most=CYCLES):
                self._log("; ".join([str(outcome), *outcome.written.trouble]))
                if outcome.caught_up:
                    return
        raise RuntimeError(f"{landing.name} is not caught up after {CYCLES} cycles")
