# SPDX-License-Identifier: Apache-2.0
"""Two Airflows of one deployment id, as their control records tell."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.log import CycleOpened, Directives
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, Level
from airflow_provider_lakecommit.status.doctor.groups import deployments, lived_on
from tests.fakes.session import P0, P1, FakeLanding
from tests.support.story import P0 as STORY_P0
from tests.support.story import VOID_EPOCH, Story


def check(landing: FakeLanding) -> CheckResult:
    (found,) = deployments(landing.session)
    return found


def test_runs_that_go_on_after_they_were_given_up_are_named(landing: FakeLanding) -> None:
    theirs = landing.open("scheduled of one")
    open_cycle(landing.session, landing.run_identity("scheduled of another"), release=lambda _: True)
    assert check(landing).level is Level.OK
    landing.report(theirs)
    found = check(landing)
    assert found.level is Level.WARN
    assert "1 runs of deployment test continued" in found.observed
    assert "scheduled of one of dag (by scheduled of another)" in found.observed
    assert "deployment_id" in found.remedy


def test_a_run_that_is_dead_is_no_sign(landing: FakeLanding) -> None:
    landing.open("killed")
    landing.source.ends = {P0: 40, P1: 10}
    opened = open_cycle(landing.session, landing.run_identity("next"), release=lambda _: True)
    landing.report(opened)
    landing.close("next", opened)
    assert check(landing).level is Level.OK


@pytest.mark.parametrize("reason", ["other deployment", "own run", "epoch"])
def test_what_is_given_up_for_other_reasons_is_no_sign(reason: str) -> None:
    story = Story()
    story.opens("a", [[(STORY_P0, 0, 10)]])
    story.opens("b", [[(STORY_P0, 10, 20)]], log=Directives(released=(story.id("a"),)), slot=1)
    story.reports("a", [(STORY_P0, 0, 10)])
    first, second, *report = story.entries
    assert isinstance(first, CycleOpened)
    assert isinstance(second, CycleOpened)
    first = replace(first, cycle=replace(first.cycle, deployment="d"))
    second = replace(second, cycle=replace(second.cycle, deployment="d"))
    assert lived_on([first, second, *report]) == {first.cycle: second.cycle}
    if reason == "epoch":
        later = tuple(replace(t, epoch=VOID_EPOCH) for t in second.plan.targets)
        second = replace(second, plan=replace(second.plan, targets=later))
    elif reason == "own run":
        second = replace(second, cycle=replace(second.cycle, run="a"), commit_id=UUID(int=9))
    else:
        second = replace(second, cycle=replace(second.cycle, deployment="e"))
    assert lived_on([first, second, *report]) == {}
