# SPDX-License-Identifier: Apache-2.0
"""How slices end: the texts that cross processes, and what follows from each."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import pytest

from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus

#: text: is reported, is final, is clean
TABLE = {
    "done": (True, True, True),
    "blocked": (False, True, True),
    "failed": (False, True, False),
    "again": (False, False, False),
    "superseded": (False, True, True),
    "reported": (True, True, True),
}


def test_what_follows_from_each_end_of_a_slice() -> None:
    assert {str(s): (s.is_reported, s.is_final, s.is_clean) for s in SliceStatus} == TABLE


def test_a_result_is_read_back_from_a_row_and_is_written_as_text() -> None:
    row = {"slice": "a", "status": "again", "detail": "away", "records": 3, "rows": 2, "seconds": 0.5}
    result = SliceResult.of(row)
    assert result.status is SliceStatus.AGAIN
    assert (asdict(result), str(result)) == (row, "slice a: again (away)")
    assert json.dumps(Counter([result.status, SliceStatus.DONE])) == '{"again": 1, "done": 1}'


def test_an_unknown_status_is_no_result() -> None:
    with pytest.raises(ValueError, match="lost"):
        SliceResult.of({"slice": "a", "status": "lost", "detail": ""})
