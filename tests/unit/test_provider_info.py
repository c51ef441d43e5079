# SPDX-License-Identifier: Apache-2.0
"""Everything that a DAG author may use is in what Airflow reads about this provider, and there is not more of it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Collection, Iterator

import pytest
from airflow.sdk import BaseHook, BaseNotifier, BaseOperator, BaseOperatorLink, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

import airflow_provider_lakecommit
from airflow_provider_lakecommit.get_provider_info import get_provider_info
from airflow_provider_lakecommit.operators.landing_operation import OPERATIONS
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor

ROOMS = ("operators", "sensors", "hooks", "triggers", "notifications")
MOST_OPERATORS = 15
MOST_ARGUMENTS = 9


def classes(kind: type) -> Iterator[type]:
    """The public classes of a kind in the whole package that can be used as they are."""
    prefix = f"{airflow_provider_lakecommit.__name__}."
    for found in pkgutil.walk_packages(airflow_provider_lakecommit.__path__, prefix):
        if found.name.removeprefix(prefix).partition(".")[0] not in ROOMS or found.ispkg:
            continue
        module = importlib.import_module(found.name)
        for name, each in vars(module).items():
            own = inspect.isclass(each) and each.__module__ == module.__name__ and not name.startswith("_")
            if own and issubclass(each, kind) and not inspect.isabstract(each):
                yield each


def is_base(kind: type) -> bool:
    """Does it do nothing by itself? Only what it is the base of is for DAG authors."""
    return kind.__name__ in ("LandingTask", "SparkTask", "ControlTopicTrigger")


def listed(what: str) -> set[str]:
    return {module for entry in get_provider_info()[what] for module in entry["python-modules"]}


def operators() -> list[type]:
    return [k for k in classes(BaseOperator) if not issubclass(k, BaseSensorOperator) and not is_base(k)]


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("operators", operators()),
        ("sensors", list(classes(BaseSensorOperator))),
        ("hooks", list(classes(BaseHook))),
        ("triggers", [k for k in classes(BaseTrigger) if not is_base(k)]),
    ],
)
def test_every_public_class_is_in_a_listed_module(what: str, found: Collection[type]) -> None:
    assert found
    assert {k.__module__ for k in found} - listed(what) == set()


def test_every_listed_module_has_a_public_name() -> None:
    for what in ("operators", "sensors", "hooks", "triggers"):
        for name in listed(what):
            assert importlib.import_module(name).__all__, name


@pytest.mark.parametrize(("what", "kind"), [("notifications", BaseNotifier), ("extra-links", BaseOperatorLink)])
def test_notifiers_and_links_are_listed_one_by_one(what: str, kind: type) -> None:
    assert {f"{k.__module__}.{k.__name__}" for k in classes(kind)} == set(get_provider_info()[what])


def test_there_are_few_operators() -> None:
    assert len(operators()) <= MOST_OPERATORS
    assert sorted(k.__name__ for k in operators()) == [
        "BackfillOperator",
        "KafkaConnectOperator",
        "KafkaToIcebergOperator",
        "LakeCommitOperator",
        "LandingOperationOperator",
        "MaintainTableOperator",
        "OutcomeOperator",
        "PauseLandingOperator",
        "PlanWindowOperator",
        "ReplayOperator",
        "VerifyOperator",
        "WriteWindowOperator",
    ]


def test_the_sensor_has_few_arguments() -> None:
    own = set(inspect.signature(StalledCommitSensor.__init__).parameters) - {"self", "kwargs"}
    assert len(own) <= MOST_ARGUMENTS


def test_every_operation_is_named_in_the_docs_of_its_operator() -> None:
    from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator

    doc = inspect.getdoc(LandingOperationOperator) or ""
    assert [name for name in OPERATIONS if f"``{name}``" not in doc] == []


def test_an_operation_reports_what_each_of_its_arguments_is() -> None:
    for name, kind in OPERATIONS.items():
        fields = list(inspect.signature(kind).parameters)
        assert [each for each in fields if f":param {each}:" not in (kind.__doc__ or "")] == [], name
