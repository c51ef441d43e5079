# SPDX-License-Identifier: Apache-2.0
"""JSON is measured before it is parsed: what passes is parsed as ever, what does not is named without being built."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.packed_text import bounded_json, check_text
from tests.support.values import STEADY

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{},é', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\[{', max_size=4), inner, max_size=4),
    max_leaves=20,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def parts(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(0, len(inner) - 1) + sum(map(parts, inner))


@STEADY
@given(JSON, st.booleans())
def test_depth_and_parts_are_those_of_the_value_whatever_its_texts_hold(value: Any, plain: bool) -> None:
    text = json.dumps(value, ensure_ascii=plain)
    assert bounded_json(text, depth=depth(value), parts=parts(value)) == value
    if depth(value):
        with pytest.raises(ValueError, match="deep"):
            bounded_json(text, depth=depth(value) - 1)
        with pytest.raises(ValueError, match="parts"):
            bounded_json(text, parts=parts(value) - 1)


def test_the_length_counts_in_bytes() -> None:
    assert bounded_json('"é"', limit=4) == "é"
    with pytest.raises(ValueError, match="4 bytes"):
        bounded_json('"é"', limit=3)


@pytest.mark.parametrize("text", ['"', '"\\', '"\\"', '["' + '\\"' * 1_000_000, '"' * 1_000_001])
def test_texts_that_do_not_close_are_passed_over_once(text: str) -> None:
    check_text(text.encode())
    with pytest.raises(ValueError, match=r"Unterminated|Extra data|Invalid"):
        bounded_json(text)


def test_nan_is_no_json() -> None:
    with pytest.raises(ValueError, match="NaN"):
        bounded_json('{"v": NaN}')
