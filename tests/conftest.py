# SPDX-License-Identifier: Apache-2.0
"""The real parts that tests run on: a Kafka broker, an Iceberg catalog, a Spark session, an Airflow home.

Each is started when the first test requests it, belongs to this pytest process alone, and ends with it. Names of
topics, groups and transactional ids are unique, so that tests need no cleaning up behind them and may run in any order.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from dev import class_archive

# Airflow reads its environment when it is first imported, so this comes before any other import of ours.
CHECKOUT = Path(__file__).resolve().parent.parent
AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="lakecommit-airflow-"))
os.environ.update(
    AIRFLOW_HOME=str(AIRFLOW_HOME),
    AIRFLOW__CORE__UNIT_TEST_MODE="True",
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__DAGS_FOLDER=str(CHECKOUT / "dags"),
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{AIRFLOW_HOME}/airflow.db",
    AIRFLOW__LOGGING__BASE_LOG_FOLDER=str(AIRFLOW_HOME / "logs"),
)
# Of every Spark that a test starts, in its own process or below.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(class_archive.options()))

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.support.effort import PROFILE, examples  # noqa: E402

pytest_plugins = (
    "tests.fixtures.kafka",
    "tests.fixtures.lake",
    "tests.fixtures.connect",
    "tests.fixtures.engine",
    "tests.fixtures.postgres",
    "tests.fixtures.airflow",
    "tests.fixtures.world",
    "tests.fixtures.shop",
    "tests.fixtures.sharing",
    "tests.fixtures.leftovers",
)


# The same examples in every run of a profile. However slow they come is no fault.
for name in ("steady", "thorough"):
    settings.register_profile(
        name, max_examples=examples(100), derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(PROFILE)


def pytest_configure(config: pytest.Config) -> None:
    # A pytest that is reported to end must still stop its broker: SIGTERM alone would skip every fixture's end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Variants that `heavy(but=…)` names, by patterns of their ids, are not heavy. Done before `-m` chooses."""
    for item in items:
        mark, variant = item.get_closest_marker("heavy"), getattr(item, "callspec", None)
        if mark and variant and any(fnmatch(variant.id, pattern) for pattern in mark.kwargs.get("but", ())):
            item.own_markers.remove(mark)


def pytest_collection_finish() -> None:
    """What was imported stays, and need not be looked through each time that garbage is collected."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles that one test leaves open are not abandoned by this process, as far as the next test sees."""
    monkeypatch.setattr("airflow_provider_lakecommit.cycle.jobs.window_writer._abandoned", {})
