# SPDX-License-Identifier: Apache-2.0
"""A code means one mistake. What the reference prints of it is in ``docs/_ext/lakecommit_errors.py``."""

from __future__ import annotations

import importlib.util
import pickle
import re
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

from airflow_provider_lakecommit import exceptions
from airflow_provider_lakecommit.exceptions import LakecommitError, SourceError, SparkJobError, SpecError
from airflow_provider_lakecommit.landing.mistakes import mistaken

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lakecommit_errors", ROOT / "docs" / "_ext" / "lakecommit_errors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_code_is_of_one_mistake(reference: ModuleType) -> None:
    """The same sentence may be raised at two places, two sentences never share a code."""
    messages = defaultdict(set)
    for error in reference.coded_errors():
        messages[error.code].add(error.message)
    assert {code: found for code, found in messages.items() if len(found) > 1} == {}


def test_every_code_is_of_an_area_that_the_reference_names(reference: ModuleType) -> None:
    assert {error.code[2:4] for error in reference.coded_errors()} == reference.AREAS.keys()


def test_every_code_has_a_message_and_no_other_place_states_one(reference: ModuleType) -> None:
    found = {error.code for error in reference.coded_errors() if error.message}
    package = ROOT / "airflow_provider_lakecommit"
    text = "".join(path.read_text() for path in package.rglob("*.py"))
    examples = {"LC1042", "LC1117"} - found
    assert set(re.findall(r"LC\d{4}", text)) - examples == found


@pytest.mark.parametrize("name", [n for n in exceptions.__all__ if n not in {"Terminal", "Transient"}])
def test_an_error_says_its_code_behind_its_first_line_and_survives_a_pickle(name: str) -> None:
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
