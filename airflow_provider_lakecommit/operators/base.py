# SPDX-License-Identifier: Apache-2.0
"""Common base of the tasks of a landing or a landing set: declaration, connections, identity of the run.

Contract: constructing a task reads no connection and imports no Kafka, Iceberg or Spark library. All attempts of a
run's tasks have the same identity, so a retry finds its cycle.

Failure story: an error that a retry cannot fix ends the task without further retries; the DAG author's `retries` apply
to all others.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecommit.assets import table_assets_of
from airflow_provider_lakecommit.core import LIVE
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError, Terminal
from airflow_provider_lakecommit.hooks import Settings, hide, without_secrets
from airflow_provider_lakecommit.landing import Landing, LandingSet, declares_set
from airflow_provider_lakecommit.operators.links import ErrorLink
from airflow_provider_lakecommit.operators.tasks.arguments import mapping_of, refuse_unknown
from airflow_provider_lakecommit.operators.tasks.asset_event import event_extra, send_hours, snapshots_in_events
from airflow_provider_lakecommit.telemetry import Commit, catalog_namespace, kafka_namespace, lineage_of

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, AssetAlias, BaseOperatorLink, Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from airflow_provider_lakecommit.cycle import Closed, EarlierCycles, LandingSession, PublishedSnapshot, RunIdentity
    from airflow_provider_lakecommit.spark import Engine

CYCLE, CLOSED = "cycle", "closed"
"""XCom keys: where the cycle is, why the window ends where it does, how the cycle was closed."""
WINDOW, LANDED = "window", "landed"
"""XCom keys for display only: the window, and one line about what was landed."""
EXACT = 2**53
"""Browsers round larger integers, including snapshot ids."""
WARNING = "WARNING: "
"""Prefix of session lines that are logged as warnings."""
FAILURE = "failure"
"""Why a plan or write task failed; if it is the only value under :data:`CLOSED`, why the cycle was not closed."""


def landing_of(landing: Landing | str | Path) -> Landing:
    """Return a landing, or the one that a YAML spec declares; the file is read when the DAG is parsed.

    :raises SpecError: the declaration is invalid
    """
    if isinstance(landing, Landing):
        return landing
    if not isinstance(landing, str | Path):
        raise SpecError(
            "LC8303", f"`landing` must be a Landing or the path of its YAML spec, not a {type(landing).__name__}"
        )
    if not Path(landing).exists():
        raise SpecError(
            "LC8304",
            f"cannot read spec {landing}: no such file in {Path.cwd()}. `landing` must be a Landing or the path of its "
            "YAML spec, preferably absolute; names and templates are not supported",
        )
    return Landing.from_yaml(landing)


def declared_of(landing: Landing | LandingSet | str | Path) -> Landing | LandingSet:
    """Return a landing or a set, or the one that a YAML spec declares; the file is read when the DAG is parsed.

    :raises SpecError: the declaration is invalid
    """
    if isinstance(landing, LandingSet):
        return landing
    if isinstance(landing, str | Path) and Path(landing).exists() and declares_set(landing):
        return LandingSet.from_yaml(landing)
    return landing_of(landing)


def task_doc(kind: type, landing: Landing | LandingSet) -> str:
    """Return what Airflow's page shows of a task: what it does, and for which landing."""
    does = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    if isinstance(landing, LandingSet):
        return f"{does}\n\n**{landing.name}**: a set of landings"
    topics, tables = ", ".join(landing.topic_names), ", ".join(landing.tables)
    return f"{does}\n\n**{landing.name}**: `{topics}` → `{tables}`"


def exact(value: Any) -> Any:
    """Return a JSON value that browsers show exactly: integers that they would round become text."""
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [exact(each) for each in value]
    return str(value) if isinstance(value, int) and abs(value) > EXACT else value


class Declared:
    """A landing as Airflow's page shows it among the rendered fields. It is no text, so nothing in it is a template.
    ``create`` is last, because Airflow truncates long values.
    """

    def __init__(self, landing: Landing | LandingSet) -> None:
        self._landing = landing

    def __str__(self) -> str:
        values = dataclasses.asdict(self._landing) if isinstance(self._landing, LandingSet) else self._landing.to_flat()
        fields = dict(sorted(values.items(), key=lambda field: (field[0] == "create", field[0])))
        return json.dumps(fields, indent=2, default=str)

    __repr__ = __str__


class LandingTask(BaseOperator):
    """Base of the operators of a landing. Operators that accept a set then have ``landing_set`` instead of ``landing``.

    :param landing: the landing or the set, or the path of its YAML spec (the connections are Airflow's; the sections
        `kafka`, `catalog` and `spark` of the file are ignored)
    """

    landing: Landing
    landing_set: LandingSet | None = None
    asset: Asset | AssetAlias
    takes_sets: ClassVar[bool] = False
    """Whether the operator also accepts a landing set."""

    operator_extra_links: Collection[BaseOperatorLink] = (ErrorLink(),)
    hours: Sequence[Asset] = ()
    """The asset whose events have partition keys, if any."""
    opens_cycles: ClassVar[bool] = False
    """Whether it opens commit cycles. Only one task of a DAG may for a landing: a cycle has the identity of its run."""

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Return the partial operator of the base class; errors name the wrong argument.

        :raises SpecError: an argument is unknown, or `landing` is left to ``expand``
        """
        task_id = kwargs.get("task_id", "")
        refuse_unknown(cls, kwargs, task_id)
        if "landing" not in kwargs:
            raise SpecError(
                "LC8305",
                f"{cls.__name__} {task_id!r}: `landing` belongs to partial() and cannot be mapped: its asset and name "
                "are needed when the DAG is parsed. For several landings create a task for each, in a `for` loop",
            )
        return super().partial(**kwargs)

    def __init__(self, *, landing: Landing | LandingSet | str | Path, **kwargs: Any) -> None:
        refuse_unknown(type(self), kwargs, kwargs.get("task_id", ""))
        declared = declared_of(landing)
        if isinstance(declared, LandingSet) and not self.takes_sets:
            raise SpecError(
                "LC8306",
                f"{type(self).__name__} {kwargs.get('task_id', '')!r} takes one landing, but {declared.name!r} is a "
                "set: pass a Landing of that name and table",
            )
        super().__init__(**{"doc_md": task_doc(type(self), declared), **kwargs})
        if isinstance(declared, LandingSet):
            self.landing_set = declared
        else:
            self.landing = declared
        self.landing_name = declared.name
        if self.opens_cycles and (other := _other_of_its_dag(self)) is not None:
            raise SpecError(
                "LC8307",
                f"landing {declared.name!r} is planned twice in DAG {self.dag.dag_id!r}, by {other!r} and "
                f"{self.task_id!r}, and both would use the same commit cycles: rename one of the two landings, "
                "or remove one task",
            )
        self.declared = Declared(declared)
        self.trouble: str | None = None
        self.commits: list[Commit] = []
        self._namespaces = "", ""

    @contextmanager
    def session(self) -> Iterator[LandingSession]:
        """Open the landing's connections until the end of the block."""
        from airflow_provider_lakecommit.cycle import LandingSession
        from airflow_provider_lakecommit.hooks import catalog_properties, source_settings

        landing = Settings.read().complete(self.landing)
        kafka, catalog = source_settings(landing), catalog_properties(landing.connections.iceberg)
        self._namespaces = kafka_namespace(kafka), catalog_namespace(catalog, landing.connections.iceberg)
        with LandingSession.connect(landing, kafka, catalog, log=self.log_line) as session:
            yield session

    def log_line(self, line: str) -> None:
        """Log a line of a session in the task's log, at the level of its prefix."""
        log_session_line(self.log, line)

    def committed(self, closed: Closed) -> None:
        """Keep a cycle that this task closed by its session, for lineage."""
        kafka, catalog = self._namespaces
        self.commits.append(Commit(landing=self.landing, closed=closed, kafka=kafka, catalog=catalog))

    def send_events(self, context: Context, closed: Closed) -> None:
        """Send the event of the landing, one for each of its tables with a new snapshot, if it has several, and the
        complete hours. An asset without news leaves the outlets: Airflow sends an event for each outlet of a task that
        succeeds.
        """
        context["outlet_events"][self.asset].extra = event_extra(self.landing, closed)
        quiet: list[Asset] = []
        published = {p.table for p in closed.published}
        for table, asset in table_assets_of(self.landing).items():
            if table in published:
                context["outlet_events"][asset].extra = event_extra(self.landing, closed, table)
            else:
                quiet.append(asset)
        if self.hours and not send_hours(context, self.landing, closed):
            quiet += self.hours
        self.outlets = [each for each in self.outlets if each not in quiet]

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return the OpenLineage facets of the task."""
        return lineage_of(self.commits)

    @staticmethod
    def identity(context: Context) -> RunIdentity:
        from airflow_provider_lakecommit.cycle import RunIdentity

        ti = context["ti"]
        return RunIdentity(
            deployment=Settings.read().deployment_id, dag_id=ti.dag_id, run_id=ti.run_id, attempt=str(ti.try_number)
        )

    @staticmethod
    def is_retry(context: Context) -> bool:
        """Return True if an earlier attempt, or the run before it was cleared, may have done this task's work."""
        return bool(context["ti"].try_number > 1)

    def in_events(self, context: Context) -> Collection[int] | None:
        """Return the snapshots that Airflow has an event for; ``None`` for the first attempt of a run. An earlier one
        may have published others and died before it sent its event.
        """
        return snapshots_in_events(context, self.asset) if self.is_retry(context) else None


class SparkTask(LandingTask):
    """A task that runs Spark jobs."""

    def __init__(self, *, spark_conn_id: str, spark_conf: Mapping[str, Any] | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        hide({"conf": mapping_of(spark_conf)})
        self._engine: Engine | None = None

    def engine(self, lane: str = LIVE) -> Engine:
        """Return the engine of the task's connection; the caller closes it."""
        from airflow_provider_lakecommit.hooks import engine_of

        settings = Settings.read()
        return engine_of(
            self.spark_conn_id,
            deployment=settings.deployment_id,
            landing=self.landing_name,
            lane=lane,
            conf=self.spark_conf,
            grace=settings.spark_grace,
        )


def _other_of_its_dag(task: LandingTask) -> str | None:
    dag = task.get_dag()
    for other in () if dag is None else dag.tasks:
        twin = isinstance(other, LandingTask) and other.opens_cycles and other.landing_name == task.landing_name
        if twin and other.task_id != task.task_id:
            return str(other.task_id)
    return None


def without_event(
    session: LandingSession, run: RunIdentity, in_events: Collection[int]
) -> tuple[EarlierCycles, tuple[PublishedSnapshot, ...]] | None:
    """Return the cycles of a run and what they published, if Airflow lacks an event of some of it."""
    from airflow_provider_lakecommit.cycle import cycles_of, published_by

    earlier = cycles_of(session, run)
    published = published_by(session, earlier) if earlier else ()
    return None if earlier is None or all(p.snapshot_id in in_events for p in published) else (earlier, published)


def check_planned(planned: str, landing: Landing) -> None:
    """Raise unless the plan of a task belongs to its landing."""
    if planned != landing.name:
        raise SpecError(
            "LC8308",
            f"the plan is of landing {planned!r}, but this task is of landing {landing.name!r}. A renamed landing is a "
            f"new one: restore the name {planned!r} and clear this task; reported slices are kept. Or name the plan "
            "task of this landing (`plan_task_id`)",
        )


def leave_failure(context: Context, error: Exception) -> None:
    """Leave the outcome task why this one failed; errors that fail a task for good are worded already."""
    context["ti"].xcom_push(FAILURE, str(error) if isinstance(error, AirflowFailException) else without_secrets(error))


def log_troubles(log: Any, closed: Closed, prefix: str = "") -> None:
    """Log the parts of a closed cycle that need attention."""
    from airflow_provider_lakecommit.cycle import first_of

    for item in closed.voided:
        log.warning("%svoided: %s", prefix, item)
    for warning in closed.warnings:
        log.warning("%s%s", prefix, warning)
    if closed.blocked and not closed.causes:
        log.warning("%s%s blocked by an earlier run", prefix, first_of(closed.blocked))


def log_session_line(log: Any, line: str, prefix: str = "") -> None:
    """Log a line of a session in a task's log, at the level of its prefix."""
    text = line.removeprefix(WARNING)
    (log.info if text == line else log.warning)("%s%s", prefix, text)


@contextmanager
def no_retry_in_vain(task: LandingTask | None = None) -> Iterator[None]:
    """End the task for good on an error that a retry cannot fix; the task keeps the error's name for a link."""
    try:
        yield
    except LakecommitError as e:
        if task is not None:
            task.trouble = type(e).__name__
        if isinstance(e, Terminal):
            raise AirflowFailException(without_secrets(e)) from e
        raise
