# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.session import FakeLanding


@pytest.fixture
def make_landing(tmp_path: Path) -> Iterator[Callable[..., FakeLanding]]:
    """A landing without brokers; fields as :class:`~airflow_provider_lakecommit.landing.Landing` takes them."""
    made: list[FakeLanding] = []

    def make(**fields: Any) -> FakeLanding:
        made.append(FakeLanding(tmp_path, fields))
        return made[-1]

    yield make
    for each in made:
        each.session.close()
        each.catalog.close()


@pytest.fixture
def landing(make_landing: Callable[..., FakeLanding]) -> FakeLanding:
    """Thirty offsets in two partitions, in slices of ten, into one table that is missing yet."""
    return make_landing(slice_records=10)
