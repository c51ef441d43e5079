# SPDX-License-Identifier: Apache-2.0
"""A code means one mistake. What the reference prints of it is in ``docs/_ext/lakecommit_errors.py``."""

from __future__ import annotations

import pickle
import re
from collections import defaultdict

import pytest
from lakecommit_errors import AREAS, Cause, causes, coded_errors

from airflow_provider_lakecommit import exceptions
from airflow_provider_lakecommit.exceptions import LakecommitError, SourceError, SparkJobError, SpecError
from airflow_provider_lakecommit.landing.names import mistaken
from tests.support.sources import sources


def test_a_code_is_of_one_mistake() -> None:
    """The same sentence may be raised at two places, two sentences never share a code."""
    messages = defaultdict(set)
    for error in coded_errors():
        messages[error.code].add(error.message)
    assert {code: found for code, found in messages.items() if len(found) > 1} == {}


def test_every_code_is_of_an_area_that_the_reference_names() -> None:
    assert {error.code[2:4] for error in coded_errors()} == AREAS.keys()


def test_every_code_has_a_message_and_no_other_place_states_one() -> None:
    found = {error.code for error in coded_errors() if error.message}
    text = "".join(path.read_text(encoding="utf-8") for path, _ in sources().values())
    examples = {"LC1042", "LC1117"} - found
    assert set(re.findall(r"LC\d{4}", text)) - examples == found


def test_every_code_has_one_cause_and_remedy() -> None:
    found = {error.code: [c for c in causes() if c.has(error.code)] for error in coded_errors()}
    assert {code: len(lines) for code, lines in found.items() if len(lines) != 1} == {}
    assert [c for c in causes() if not (c.cause and c.example and c.remedy)] == []
    bounds = {code for cause in causes() for part in cause.codes.split() for code in part.split("-")}
    assert sorted(bounds - {error.code.removeprefix("LC") for error in coded_errors()}) == []


@pytest.mark.parametrize("cause", causes(), ids=lambda cause: cause.codes.split()[0])
def test_an_example_is_a_message_of_its_code(cause: Cause) -> None:
    example, code = re.fullmatch(r"(.*) \[(LC\d{4})\]", cause.example).groups()  # type: ignore[union-attr]
    assert cause.has(code)
    message = next(" ".join(error.message.split()) for error in coded_errors() if error.code == code)
    parts = (re.escape(part) for part in re.split(r"\{[^{}]*\}", message))
    assert re.search(f"{'.*'.join(parts)}$", example)


@pytest.mark.parametrize("name", [n for n in exceptions.__all__ if n not in {"Terminal", "Transient"}])
def test_an_error_reports_its_code_behind_its_first_line_and_survives_a_pickle(name: str) -> None:
    error = getattr(exceptions, name)("LC1234", "what happened\n- more")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.message) == (
        "what happened [LC1234]\n- more",
        "LC1234",
        "what happened\n- more",
    )


def test_what_an_error_is_about_is_kept() -> None:
    assert SourceError("LC1234", "gone", ("a span",)).spans == ("a span",)
    assert SparkJobError("LC1234", "ended", workers_died=True).workers_died


def test_one_mistake_gives_the_error_its_code_and_several_have_a_line_each() -> None:
    one = mistaken("landing 'a'", ["branch: '' is not a name [LC1116]"])
    assert (one.code, str(one)) == ("LC1116", "landing 'a': branch: '' is not a name [LC1116]")
    two = mistaken("landing 'a'", ["b: wrong [LC1116]", "c: wrong [LC1117]"])
    assert str(two) == "landing 'a' has 2 mistakes [LC1001]\n- b: wrong [LC1116]\n- c: wrong [LC1117]"
    assert mistaken("x", two.mistakes).mistakes == two.mistakes
    assert SpecError("LC1234", "wrong").mistakes == ("wrong [LC1234]",)
    assert issubclass(SpecError, LakecommitError)
