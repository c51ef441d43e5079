# SPDX-License-Identifier: Apache-2.0
"""Commits to a real REST catalog server: what it is asked, what it checks, and answers that are not the truth."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)

from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import CommitUnknownError
from airflow_provider_lakecommit.iceberg.ledger.ledger import tag_name
from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage
from tests.outages.runs import Runs
from tests.rest.gateway import HTML, Answer, Forward, Gateway, Once, Request, Rule, always
from tests.rest.patience import impatient
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE, until
from tests.support.world import World, race, records

pytestmark = pytest.mark.rest

Produce = Callable[..., object]


def answering(answer: Answer | None, *, done: bool) -> Rule:
    """The request is handed on or not, and the client is reported this whatever the server says."""

    def rule(request: Request, forward: Forward) -> Answer | None:
        if done:
            real = forward()
            assert real is not None
            assert real.code == 200, real.body
        return answer

    return rule


def test_windows_land_in_a_table_of_the_server_and_the_next_run_lands_nothing(
    make_rest_world: Callable[..., World], produce: Produce, gateway: Gateway
) -> None:
    dead = f"shop.dead_{uuid4().hex[:8]}"
    world = make_rest_world(dead_letter_table=dead)
    for first in (0, 100, 200):
        produce(world.landing.topics, [*records(first, 100), (None, "no JSON")])
        assert world.run().rows == 100
    assert world.run().published == ()
    world.check(Counter(range(300)))
    assert len(world.rows(dead)) == 3
    check_verified(world)
    sent = [request for request in gateway.commits if request.code == 200]
    assert len(sent) == len(gateway.commits) >= 8


def test_what_is_requested_is_one_head_one_tag_one_schema_and_one_spec_of_one_table(
    runs: Runs, gateway: Gateway
) -> None:
    runs.loaded()
    before = len(gateway.commits)
    runs.loaded()
    (commit,) = gateway.commits[before:]
    kinds = Counter((r["type"], r.get("ref")) for r in commit.requirements)
    assert kinds == {
        ("assert-table-uuid", None): 1,
        ("assert-ref-snapshot-id", "main"): 1,
        ("assert-ref-snapshot-id", tag_name("main")): 1,
        ("assert-current-schema-id", None): 1,
        ("assert-default-spec-id", None): 1,
    }


def replaced(requirements: tuple[TableRequirement, ...], wrong: TableRequirement) -> tuple[TableRequirement, ...]:
    def key(requirement: TableRequirement) -> tuple[type, Any]:
        return type(requirement), getattr(requirement, "ref", None)

    assert key(wrong) in map(key, requirements)
    return tuple(wrong if key(r) == key(wrong) else r for r in requirements)


WRONG: dict[str, TableRequirement] = {
    "another table": AssertTableUUID(uuid="00000000-0000-0000-0000-000000000001"),
    "another head": AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 1}),
    "no head": AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": None}),
    "another tag": AssertRefSnapshotId.model_validate({"ref": tag_name("main"), "snapshot-id": 1}),
    "no tag": AssertRefSnapshotId.model_validate({"ref": tag_name("main"), "snapshot-id": None}),
    "another schema": AssertCurrentSchemaId.model_validate({"current-schema-id": 99}),
    "another spec": AssertDefaultSpecId.model_validate({"default-spec-id": 99}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_server_refuses_a_request_for_a_table_that_is_not_so(runs: Runs, wrong: str) -> None:
    runs.loaded()
    with runs.world.session() as session:
        now = session.tables.load(runs.world.landing.table)
        attempt = stage(now, "main", Change(summary={}, why=None))
        with pytest.raises(CommitFailedException):
            session.tables.commit(now, replaced(attempt.requirements, WRONG[wrong]), attempt.updates)
        assert session.tables.load(runs.world.landing.table).metadata == now.metadata
        after = session.tables.commit(now, attempt.requirements, attempt.updates)
        assert after.current_snapshot_id == attempt.snapshot.snapshot_id


def test_the_server_refuses_the_commit_of_a_host_whose_clock_is_behind(runs: Runs) -> None:
    runs.loaded()
    with runs.world.session() as session:
        now = session.tables.load(runs.world.landing.table)
        attempt = stage(now, "main", Change(summary={}, why=None))
        added, *others = attempt.updates
        assert isinstance(added, AddSnapshotUpdate)
        behind = added.snapshot.model_copy(update={"timestamp_ms": now.metadata.last_updated_ms - 120_000})
        with pytest.raises(BadRequestError, match="sorted snapshot log entries"):
            session.tables.commit(now, attempt.requirements, (AddSnapshotUpdate(snapshot=behind), *others))
        assert session.tables.load(runs.world.landing.table).metadata == now.metadata


def test_of_two_committers_that_saw_the_same_head_the_server_refuses_the_second(runs: Runs, gateway: Gateway) -> None:
    """The first one's request is on its way until another run has published the same slices."""
    runs.loaded()
    runs.load()
    world = runs.world
    opened = world.open("slow")
    world.write(opened)
    arrived, go_on = threading.Event(), threading.Event()

    def late(_: Request, forward: Forward) -> Answer | None:
        arrived.set()
        assert go_on.wait(PATIENCE)
        return forward()

    slow = threading.Thread(target=world.close, args=("slow", opened))
    with gateway.doing(Once(late)):
        slow.start()
        until(arrived.is_set)
        runs.drained()
        go_on.set()
        slow.join()
    assert [request.code for request in gateway.commits].count(409) == 1
    runs.check()
    published = runs.story().published
    assert len(published) == len(set(published))


def test_runs_that_race_double_nothing(make_rest_world: Callable[..., World], produce: Produce) -> None:
    world = make_rest_world()
    produce(world.landing.topics, records(0, 200))
    race(world)
    world.settle()
    world.check(Counter(range(200)))
    check_verified(world)


NO_ANSWER: dict[str, Answer | None] = {
    "500": Answer.error(500, "CommitStateUnknownException"),
    "502 of a gateway": Answer(502, b"<html>bad gateway</html>", HTML),
    "503": Answer.error(503, "ServiceUnavailableException"),
    "504 without a word": Answer(504),
    "409": Answer.error(409, "CommitFailedException"),
    "429": Answer.error(429, "TooManyRequestsException"),
    "419": Answer.error(419, "AuthenticationTimeoutException"),
    "401": Answer.error(401, "NotAuthorizedException"),
    "403": Answer.error(403, "ForbiddenException"),
    "404": Answer(404, b"<html>no backend</html>", HTML),
    "a login page": Answer(200, b"<html>who are you?</html>", HTML),
    "half an answer": Answer(200, b'{"metadata": {"format-ver'),
    "nothing": None,
}


@pytest.mark.parametrize("done", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("answer", NO_ANSWER)
def test_whatever_the_answer_to_a_commit_reports_the_table_is_checked_and_the_run_goes_on(
    runs: Runs, gateway: Gateway, answer: str, done: bool
) -> None:
    runs.loaded()
    with gateway.doing(Once(answering(NO_ANSWER[answer], done=done))):
        outcome = runs.loaded()
    assert isinstance(outcome, CycleOutcome)
    runs.check()
    story = runs.story()
    assert story.failed == set()
    assert len(story.published) == len(set(story.published)) == 2


@pytest.mark.parametrize("answer", NO_ANSWER)
def test_a_server_that_goes_on_so_ends_the_run_with_what_it_reported_and_the_next_one_commits(
    runs: Runs, gateway: Gateway, answer: str
) -> None:
    runs.loaded()
    with gateway.doing(always(answering(NO_ANSWER[answer], done=False))), impatient():
        error = runs.loaded()
    assert isinstance(error, CommitUnknownError)
    assert f"for {runs.world.landing.table} were sent" in str(error)
    assert "nothing was deleted, and the next attempt checks again" in str(error)
    assert len(runs.story().failed) == 1
    runs.drained()
    runs.check()
