# SPDX-License-Identifier: Apache-2.0
"""A real REST catalog server that is killed, stands still or is slow, and what gateways before one do."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError, SpecError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage_untagged
from airflow_provider_lakecommit.iceberg.ledger.swap import compare_and_swap
from dev.servers.rest_catalog import RestCatalogServer
from tests.outages.runs import Runs
from tests.rest.gateway import HTML, Answer, Forward, Gateway, Once, Request, Rule, Tokens
from tests.rest.patience import impatient
from tests.support.waiting import until

pytestmark = pytest.mark.rest

SECRET = "hush-canary"


def killing(server: RestCatalogServer, *, done: bool, comes_back: bool) -> Rule:
    """The server dies with the request in its hand, before or after it did it."""

    def rule(_: Request, forward: Forward) -> Answer | None:
        if done:
            answer = forward()
            assert answer is not None
            assert answer.code == 200
        server.kill()
        if comes_back:
            threading.Thread(target=server.start).start()
        return None

    return rule


@pytest.mark.parametrize("done", [True, False], ids=["committed", "not committed"])
def test_a_server_that_dies_at_a_commit_and_comes_back_is_waited_for_by_the_same_run(
    runs: Runs, gateway: Gateway, server: RestCatalogServer, done: bool
) -> None:
    runs.loaded()
    with gateway.doing(Once(killing(server, done=done, comes_back=True))):
        assert isinstance(runs.loaded(), CycleOutcome)
    runs.check()
    published = runs.story().published
    assert len(published) == len(set(published)) == 2


@pytest.mark.parametrize("done", [True, False], ids=["committed", "not committed"])
def test_one_that_stays_away_leaves_an_unknown_outcome_that_a_later_run_finds_out(
    runs: Runs, gateway: Gateway, server: RestCatalogServer, done: bool
) -> None:
    runs.loaded()
    with gateway.doing(Once(killing(server, done=done, comes_back=False))), impatient():
        error = runs.loaded()
        assert isinstance(error, CommitUnknownError)
        assert "LC3019" in str(error)
    away = runs.loaded()
    assert isinstance(away, CatalogError)
    assert "LC3361" in str(away)
    server.start()
    runs.drained()
    runs.check()
    published = runs.story().published
    assert len(published) == len(set(published))


def test_a_server_that_is_killed_between_commits_costs_the_runs_meanwhile(
    runs: Runs, server: RestCatalogServer
) -> None:
    runs.loaded()
    # While a window is being written: what is written is kept.
    assert isinstance(runs.loaded(meanwhile=server.kill), CatalogError)
    assert isinstance(runs.loaded(), CatalogError)
    server.start()
    runs.drained()
    runs.check()
    assert len(runs.story().failed) == 2


def still(held: ExitStack, server: RestCatalogServer) -> Rule:
    """The server stands still from this request on, for as long as it is held."""

    def rule(_: Request, forward: Forward) -> Answer | None:
        held.enter_context(server.frozen())
        return forward()

    return rule


def test_a_server_that_stalls_with_a_request_in_hand_does_it_late_and_once(
    runs: Runs, gateway: Gateway, server: RestCatalogServer
) -> None:
    runs.loaded()
    # All that comes before the request must be answered in this time, on a busy machine too.
    with ExitStack() as held, gateway.doing(Once(still(held, server))), impatient(answers=10.0):
        error = runs.loaded()
        assert isinstance(error, CommitUnknownError)
        assert "no answer within 10 s" in str(error)
    late = gateway.commits[-1]
    until(lambda: late.code == 200, what="the server does what it was asked for")
    runs.drained()
    runs.check()
    published = runs.story().published
    assert len(published) == len(set(published))


def test_a_server_that_is_only_slow_is_no_failure(runs: Runs, gateway: Gateway) -> None:
    def slow(_: Request, forward: Forward) -> Answer | None:
        time.sleep(0.3)
        return forward()

    runs.loaded()
    with gateway.doing(slow):
        assert isinstance(runs.loaded(), CycleOutcome)
    runs.check()
    assert runs.story().failed == set()


INSTEAD = {
    "503": Answer.error(503, "ServiceUnavailableException"),
    "429": Answer.error(429, "TooManyRequestsException"),
    "a gateway without a backend": Answer(404, b"<html>404 page not found</html>", HTML),
    "a gateway without a word": Answer(404),
    "a login page": Answer(200, b"<html>who are you?</html>", HTML),
    "another service": Answer(200, b'{"hello": "world"}'),
}


@pytest.mark.parametrize("place", INSTEAD)
def test_what_a_gateway_answers_instead_of_the_catalog_is_an_outage_and_nothing_is_recreated(
    runs: Runs, gateway: Gateway, place: str
) -> None:
    runs.loaded()
    before = len(gateway.requests)
    with gateway.doing(lambda *_: INSTEAD[place]):
        for error in (runs.loaded(), runs.loaded()):
            assert isinstance(error, CatalogError)
            assert f"reading table {runs.world.landing.table}" in str(error)
            assert "LC3361" in str(error)
    assert {request.method for request in gateway.requests[before:]} == {"GET"}
    runs.drained()
    runs.check()


def test_a_table_that_is_really_not_there_is_made(runs: Runs, gateway: Gateway) -> None:
    runs.loaded()
    assert 404 in {request.code for request in gateway.requests if request.is_load}
    runs.check()


@pytest.mark.parametrize("answer", [Answer(200, b"<html>who are you?</html>", HTML), Answer(502)])
def test_a_gateway_that_answers_to_a_connection_is_an_outage(runs: Runs, gateway: Gateway, answer: Answer) -> None:
    gateway.settings_rule = lambda *_: answer
    error = runs.loaded()
    assert isinstance(error, CatalogError)
    assert "failed while connecting" in str(error)


@pytest.mark.parametrize("by", ["client", "server"])
def test_all_snapshots_are_observed_whatever_the_loading_mode_reports(runs: Runs, gateway: Gateway, by: str) -> None:
    """With `refs` snapshots between ledger and head would be missing, and one that was appended before the head."""
    if by == "client":
        runs.world.catalog = {**runs.world.catalog, "snapshot-loading-mode": "refs"}
    else:
        gateway.overrides["snapshot-loading-mode"] = "refs"
    runs.loaded()
    with Tables(runs.world.catalog).catalog.load_table(runs.world.landing.table).transaction() as theirs:
        for _ in range(2):
            theirs.update_snapshot().fast_append().commit()
    assert isinstance(runs.loaded(), CycleOutcome)
    runs.check()
    assert not any("snapshots=refs" in request.path for request in gateway.requests)


def test_a_prefix_and_a_catalog_that_takes_credentials(runs: Runs, gateway: Gateway) -> None:
    gateway.prefix = "lake/one/"
    gateway.tokens = Tokens(client="me", secret=SECRET)
    token_uri = f"http://127.0.0.1:{gateway.port}/v1/oauth/tokens"
    runs.world.catalog = {**runs.world.catalog, "credential": f"me:{SECRET}", "oauth2-server-uri": token_uri}
    runs.loaded()
    runs.loaded()
    runs.check()
    assert {request.path for request in gateway.commits if "/v1/lake/one/namespaces/" not in request.path} == set()
    runs.world.catalog = {**runs.world.catalog, "credential": "me:wrong"}
    error = runs.loaded()
    assert isinstance(error, CatalogError)
    assert "refused the credentials" in str(error)
    assert "wrong" not in str(error)


@pytest.mark.parametrize("refused", [401, 419])
def test_a_token_that_expires_right_before_a_commit_is_renewed(runs: Runs, gateway: Gateway, refused: int) -> None:
    gateway.tokens = tokens = Tokens(client="me", secret=SECRET, refused=refused)
    token_uri = f"http://127.0.0.1:{gateway.port}/v1/oauth/tokens"
    runs.world.catalog = {**runs.world.catalog, "credential": f"me:{SECRET}", "oauth2-server-uri": token_uri}
    runs.loaded()
    sent = len(gateway.commits)

    def expired(*_: object) -> Answer:
        tokens.expire()
        return Answer.error(refused, "NotAuthorizedException", "the token has expired")

    with gateway.doing(Once(expired)):
        assert isinstance(runs.loaded(), CycleOutcome)
    first, second = gateway.commits[sent:]
    assert first.body == second.body
    assert (first.code, second.code) == (refused, 200)
    runs.check()
    assert runs.story().failed == set()


@pytest.mark.parametrize("as_json", [True, False], ids=["text", "mapping"])
def test_logins_that_pyiceberg_takes_as_a_mapping(runs: Runs, gateway: Gateway, as_json: bool) -> None:
    auth = {"type": "basic", "basic": {"username": "me", "password": SECRET}}
    stated: Any = json.dumps(auth) if as_json else auth
    runs.world = replace(runs.world, catalog={**runs.world.catalog, "auth": stated})
    runs.loaded()
    runs.check()
    assert all(request.headers["Authorization"].startswith("Basic ") for request in gateway.requests)
    runs.world = replace(runs.world, catalog={**runs.world.catalog, "auth": "basic"})
    error = runs.run()
    assert isinstance(error, SpecError)
    assert "`auth` must be a mapping" in str(error)


def test_files_that_another_writer_announced_are_appended_once_whatever_the_answer_was(
    runs: Runs, gateway: Gateway
) -> None:
    """As a rescue does it: the answer is lost, and another snapshot is the head when it is looked for."""
    runs.loaded()
    runs.world.catalog = {**runs.world.catalog, "snapshot-loading-mode": "refs"}
    name = runs.world.landing.table

    def overtaken(_: Request, forward: Forward) -> Answer | None:
        forward()
        with Tables(runs.world.catalog).catalog.load_table(name).transaction() as theirs:
            theirs.update_snapshot().fast_append().commit()
        return None

    with gateway.doing(Once(overtaken)):
        tables = Tables(runs.world.catalog)
        mine: Change[None] = Change(summary={"mine": "1"}, why=None)
        done = compare_and_swap(tables, name, "main", lambda _: mine, staging=stage_untagged)
        tables.close()
    assert done.requests == 1
    snapshots = Tables(runs.world.catalog).load(name).metadata.snapshots
    assert [s.snapshot_id for s in snapshots if s.summary and s.summary.get("mine")] == [done.snapshot_id]
