# SPDX-License-Identifier: Apache-2.0
"""How long a landing waits for a catalog, made shorter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from airflow_provider_lakecommit.iceberg import catalog as table
from airflow_provider_lakecommit.iceberg.ledger import swap
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from tests.support.waiting import PATIENCE


@contextmanager
def impatient(*, answers: float = PATIENCE, seconds: float = 1.0) -> Iterator[None]:
    """Answers are waited for that long, and an unknown outcome is looked for again that long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "ANSWER_SECONDS", answers)
        patch.setattr(swap, "RetryPolicy", partial(RetryPolicy, seconds=seconds))
        yield
