# SPDX-License-Identifier: Apache-2.0
"""Which errors a follow waits out, and which end it."""

from __future__ import annotations

import inspect

import pytest

from airflow_provider_lakecommit import exceptions
from airflow_provider_lakecommit.cycle.run.pauses import ERROR_PAUSES, MOST_SPARK, Troubles
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    ClosedError,
    FencedError,
    LakecommitError,
    SparkJobError,
    Terminal,
    Transient,
)

CLASSES = sorted(
    (c for _, c in inspect.getmembers(exceptions, inspect.isclass) if issubclass(c, LakecommitError)),
    key=lambda c: c.__name__,
)


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: c.__name__)
def test_every_error_has_a_row(error: type[LakecommitError]) -> None:
    waits = issubclass(error, Transient) and not issubclass(error, (Terminal, ClosedError))
    assert Troubles(sound=True).pause(error("LC9999", "away"), stopping=False) == (ERROR_PAUSES[0] if waits else None)
    assert Troubles(sound=True).pause(error("LC9999", "away"), stopping=True) is None
    assert Troubles().pause(error("LC9999", "away"), stopping=False) is None


def test_servers_are_waited_for_as_long_as_it_takes_with_pauses_that_grow() -> None:
    troubles = Troubles(sound=True)
    pauses = [troubles.pause(CatalogError("LC9999", "away"), stopping=False) for _ in range(8)]
    assert pauses == [*ERROR_PAUSES, ERROR_PAUSES[-1], ERROR_PAUSES[-1], ERROR_PAUSES[-1]]
    troubles.passed()
    assert troubles.pause(CatalogError("LC9999", "away"), stopping=False) == ERROR_PAUSES[0]


def test_spark_that_fails_again_and_again_ends_it() -> None:
    troubles = Troubles(sound=True)
    for _ in range(MOST_SPARK - 1):
        assert troubles.pause(SparkJobError("LC9999", "died"), stopping=False) is not None
    assert troubles.pause(SparkJobError("LC9999", "died"), stopping=False) is None


def test_who_was_fenced_does_not_fight() -> None:
    assert Troubles(sound=True).pause(FencedError("LC9999", "taken over"), stopping=False) is None
