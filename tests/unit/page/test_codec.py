# SPDX-License-Identifier: Apache-2.0
"""Values go through JSON and back by their types, and nothing else comes out of what somebody wrote."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.page.codec import DAMAGE, decoder, encoder
from airflow_provider_lakecommit.page.cycles import LandingCycles
from airflow_provider_lakecommit.page.memory import TopicMemory
from airflow_provider_lakecommit.stall.verdict import State
from tests.support.story import P0, P1, Story
from tests.unit.page.test_cycles import told

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=30,
)


def cycles() -> LandingCycles:
    story = Story()
    story.opens("a", [[(P0, 0, 10)], [(P1, 0, 5)]], ends={P0: 30, P1: 5})
    story.reports("a", [(P0, 0, 10)])
    story.reports("a", [(P1, 0, 5)], failed="no space")
    story.fails_to_commit("a")
    return told(story.entries)


def test_a_landing_goes_through_json() -> None:
    text = json.dumps(encoder(LandingCycles)(cycles()))
    assert decoder(LandingCycles)(json.loads(text)) == cycles()
    assert decoder(State)(json.loads(json.dumps(encoder(State)(State(landing=True))))) == State(landing=True)


@pytest.mark.parametrize(("hint", "value"), [(int, True), (int, "1"), (str, 1), (bool, 1), (float, "x"), (bytes, 5)])
def test_another_type_than_stated_is_refused(hint: type, value: Any) -> None:
    with pytest.raises(DAMAGE):
        decoder(hint)(value)


@given(VALUES, VALUES, VALUES, VALUES)
def test_whatever_is_in_a_file_only_says_that_it_is_damaged(first: Any, state: Any, cycles: Any, trend: Any) -> None:
    for lines in ([first], [[], first], [[], ["g", state, cycles, trend]], [[], ["g", [state, cycles], first, trend]]):
        with suppress(*DAMAGE):
            TopicMemory.from_json(lines)


@given(st.data())
def test_a_value_that_was_put_in_another_place_is_refused_or_of_the_stated_type(data: st.DataObject) -> None:
    """As one does who changes a file by hand."""
    told = json.loads(json.dumps(encoder(LandingCycles)(cycles())))
    at = told
    while isinstance(at, list) and at and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(at) - 1))
        if not isinstance(at[place], list):
            break
        at = at[place]
    if isinstance(at, list) and at:
        at[data.draw(st.integers(0, len(at) - 1))] = data.draw(VALUES)
    with suppress(*DAMAGE):
        found = decoder(LandingCycles)(told)
        assert all(type(c.began) is float and type(c.commit_id) is str for c in found.cycles)
        # So it can be kept again.
        json.dumps(encoder(LandingCycles)(found))
