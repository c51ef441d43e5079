# SPDX-License-Identifier: Apache-2.0
"""Ranges taken out of real tables, and landed anew: exactly the rows of these ranges go, in one snapshot, once."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.replace.replace import replace, replace_preview
from tests.fakes.lake import coverage
from tests.fakes.replaced_lake import RowsLake, lake_at

pytestmark = pytest.mark.integration


@pytest.fixture
def lake(tmp_path: Path) -> RowsLake:
    made = lake_at(tmp_path)
    made.join()
    return made


def test_a_range_is_deleted_in_one_step(lake: RowsLake) -> None:
    lake.land((0, 0, 10), (1, 0, 10))
    lake.land((0, 10, 20))
    lake.land((0, 20, 30))
    session = lake.session()
    (seen,) = replace_preview(session, coverage((0, 5, 30)))
    done = replace(session, coverage((0, 5, 30)), commit_id=uuid4())[lake.name]
    assert done.replaced == seen.replaced
    assert (seen.replaced.rows, seen.replaced.dropped_files, seen.replaced.rewritten_files) == (25, 2, 1)
    assert lake.found() == lake.expected({"first": [(0, 0, 5), (1, 0, 10)]})
    assert lake.state().covered() == coverage((0, 0, 5), (1, 0, 10))
