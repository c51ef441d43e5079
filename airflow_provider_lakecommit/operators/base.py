# SPDX-License-Identifier: Apache-2.0
"""What the tasks of one landing share: its declaration, its connections, the identity of its run.

Contract: constructing a task reads no connection and imports no Kafka, Iceberg or Spark library. All tasks of one run
have the same identity whatever their attempt, so that a retry finds the cycle that it belongs to.

Failure story: an error that trying again cannot mend ends the task without further retries; all others are left to the
DAG author's `retries`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecommit.exceptions import LakecommitError, Terminal
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.settings import Settings

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle.rim import Rim, RunIdentity

__all__ = ["CLOSED", "CYCLE", "EXPLAIN", "FAILURE", "LandingTask", "landing_of", "no_retry_in_vain"]

CYCLE, EXPLAIN, CLOSED = "cycle", "explain", "closed"
"""XCom keys: where the cycle is, why the window ends where it does, how the cycle was closed."""
FAILURE = "failure"
"""In place of all else under :data:`CLOSED`: why the cycle was not closed."""


def landing_of(landing: Landing | str | Path) -> Landing:
    """A landing, or the one that a YAML spec declares; the file is read when the DAG is parsed, as the DAG itself is.

    :raises SpecError: what is wrong with the declaration
    """
    return landing if isinstance(landing, Landing) else Landing.from_yaml(landing)


class LandingTask(BaseOperator):
    """Base of the operators of a landing.

    :param landing: the landing, or the path of its YAML spec (its connections are Airflow's; the sections `kafka`,
        `catalog` and `spark` of the file are not used)
    """

    def __init__(self, *, landing: Landing | str | Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.landing = landing_of(landing)

    @contextmanager
    def rim(self) -> Iterator[Rim]:
        """The landing's connections, open until the end of the block."""
        from airflow_provider_lakecommit.cycle.rim import Rim
        from airflow_provider_lakecommit.hooks.connections import catalog_properties, kafka_settings

        landing = Settings.read().complete(self.landing)
        kafka, catalog = kafka_settings(landing.kafka_config_id), catalog_properties(landing.iceberg_conn_id)
        with Rim.connect(landing, kafka, catalog, say=self.log.info) as rim:
            yield rim

    @staticmethod
    def identity(context: Context) -> RunIdentity:
        """Whose cycle it is."""
        from airflow_provider_lakecommit.cycle.rim import RunIdentity

        ti = context["ti"]
        return RunIdentity(
            deployment=Settings.read().deployment_id, dag=ti.dag_id, run=ti.run_id, attempt=str(ti.try_number)
        )

    @staticmethod
    def is_retry(context: Context) -> bool:
        """Whether an earlier attempt, or the run before it was cleared, may have done this task's work."""
        return bool(context["ti"].try_number > 1)


@contextmanager
def no_retry_in_vain() -> Iterator[None]:
    """An error that needs a change by somebody ends the task for good."""
    try:
        yield
    except LakecommitError as e:
        if isinstance(e, Terminal):
            raise AirflowFailException(f"{type(e).__name__}: {e}") from e
        raise
