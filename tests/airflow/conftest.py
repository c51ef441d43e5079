# SPDX-License-Identifier: Apache-2.0
"""One live Airflow for all tests of this folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.airflow.live import Live, live_airflow


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Airflow's task runner, run in this process, leaves its handler behind."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="package")
def live(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Scheduler, DAG processor and API server; every test has DAGs, topics and tables of its own."""
    with live_airflow(tmp_path_factory.mktemp("live"), bootstrap) as running:
        yield running
