# SPDX-License-Identifier: Apache-2.0
"""The command line, the doctor and an Airflow connection, on a real REST catalog server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_lakecommit.hooks.connections import catalog_properties
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, Level
from airflow_provider_lakecommit.status.doctor.lake import tables
from dev.servers.rest_catalog import RestCatalogServer
from tests.fixtures.kafka import unique
from tests.outages.runs import Runs
from tests.rest.gateway import Answer, Forward, Gateway, Request, Rule, Tokens, always
from tests.support.cli import LAND_SECONDS, orders, run, write_spec
from tests.support.world import SCHEMA

pytestmark = pytest.mark.rest

SECRET = "hush-canary"
Produce = Callable[..., object]


def output_of(*arguments: str) -> str:
    """What a command says; it must end well, and say no secret."""
    answer = run(*arguments, timeout=LAND_SECONDS)
    output = answer.out + answer.err
    assert answer.code == 0, output
    assert SECRET not in output
    return answer.out


def guarded(gateway: Gateway, server: RestCatalogServer) -> dict[str, str]:
    """A catalog that takes credentials, from now on."""
    gateway.tokens = Tokens(client="me", secret=SECRET)
    stated = server.properties_at(gateway.port)
    return {**stated, "credential": f"me:{SECRET}", "oauth2-server-uri": f"{stated['uri']}/v1/oauth/tokens"}


def test_the_command_line_lands_through_it_and_the_doctor_tries_it_from_a_spark_task(
    tmp_path: Path,
    gateway: Gateway,
    server: RestCatalogServer,
    bootstrap: str,
    make_topic: Callable[..., str],
    control_topic: str,
    produce: Produce,
) -> None:
    topic, name = make_topic(2), unique("orders").replace("-", "_")
    catalog = guarded(gateway, server)
    spec = str(write_spec(tmp_path, name, topic, control_topic, bootstrap, catalog, dead_letter_table=None))
    produce(topic, orders(30))
    output_of("land", spec)
    levels = {f["check"]: f["level"] for f in json.loads(output_of("doctor", spec, "--json"))["findings"]}
    assert levels[f"commits to shop.{name}"] == levels["executor storage"] == "ok"
    ids = Tables(catalog).load(f"shop.{name}").scan().to_arrow().column("id").to_pylist()
    assert sorted(ids) == list(range(30))


def test_the_command_line_shows_verifies_and_fixes_what_is_in_it(
    tmp_path: Path, runs: Runs, gateway: Gateway, server: RestCatalogServer
) -> None:
    world = runs.world
    world.catalog = guarded(gateway, server)
    runs.loaded()
    own = {"create": SCHEMA, "dead_letter_table": None, "table": world.landing.table}
    topic, control = world.landing.topics, world.landing.connections.control_topic
    brokers = world.kafka["bootstrap.servers"]
    spec = str(write_spec(tmp_path, world.landing.name, topic, control, brokers, world.catalog, **own))
    assert "present" in output_of("history", spec, "--ledger")
    output_of("verify", spec)
    output_of("reset", "assert", spec, "--from-log", "--table", world.landing.table, "--yes")
    output_of("reset", "offsets", spec, "--from", "latest", "--yes")
    runs.loaded()
    runs.check()


def test_a_connection_of_airflow_with_address_login_and_local_warehouse(
    runs: Runs, gateway: Gateway, server: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.prefix, stated = "lake/", guarded(gateway, server)
    fields = {
        "conn_type": "iceberg",
        "host": f"{stated['uri']}/",
        "login": "me",
        "password": SECRET,
        "extra": {name: stated[name] for name in ("oauth2-server-uri", "warehouse")},
    }
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(fields))
    runs.world.catalog = catalog_properties("iceberg_default")
    runs.loaded()
    runs.loaded()
    runs.check()
    assert {request.path.startswith("/v1/lake/") for request in gateway.commits} == {True}


# -- the doctor --------------------------------------------------------------------------------------------------------


def found_by(runs: Runs) -> dict[str, CheckResult]:
    with runs.world.session() as session:
        return {f.check: f for f in tables(session)[0]}


def test_the_doctor_sees_that_requests_which_do_not_fit_are_refused_and_changes_nothing(
    runs: Runs, gateway: Gateway
) -> None:
    runs.loaded()
    with runs.world.session() as session:
        before = session.tables.load(runs.world.landing.table).metadata_location
    sent = len(gateway.commits)
    found = found_by(runs)
    assert {f.level for f in found.values()} == {Level.OK}, found
    assert "is refused" in found[f"commits to {runs.world.landing.table}"].observed
    assert [request.code for request in gateway.commits[sent:]] == [409] * 5
    with runs.world.session() as session:
        assert session.tables.load(runs.world.landing.table).metadata_location == before


def compares_all_but(kind: str, ref: str | None = None) -> Rule:
    """A catalog that does not check that requirement."""

    def rule(request: Request, forward: Forward) -> Answer | None:
        update = json.loads(request.body)
        update["requirements"] = [
            r for r in update["requirements"] if r["type"] != kind or (ref is not None and r["ref"] != ref)
        ]
        request.body = json.dumps(update).encode()
        return forward()

    return always(rule)


@pytest.mark.parametrize(
    ("kind", "ref", "what"),
    [
        ("assert-table-uuid", None, "table"),
        ("assert-ref-snapshot-id", "main", "head"),
        ("assert-ref-snapshot-id", "lakecommit-main", "tag"),
        ("assert-current-schema-id", None, "schema"),
        ("assert-default-spec-id", None, "spec"),
    ],
)
def test_the_doctor_warns_of_a_catalog_that_does_not_compare(
    runs: Runs, gateway: Gateway, kind: str, ref: str | None, what: str
) -> None:
    runs.loaded()
    with gateway.doing(compares_all_but(kind, ref)):
        finding = found_by(runs)[f"commits to {runs.world.landing.table}"]
    assert finding.level is Level.FAIL
    assert f"was made for another {what}" in finding.observed
    assert "do not land through this catalog" in finding.remedy


@pytest.mark.parametrize(
    ("answer", "level", "helps"),
    [
        (Answer.error(403, "ForbiddenException"), Level.FAIL, "the right to commit"),
        (Answer.error(503, "ServiceUnavailableException"), Level.WARN, "try again"),
    ],
)
def test_the_doctor_reports_a_missing_right_to_commit(
    runs: Runs, gateway: Gateway, answer: Answer, level: Level, helps: str
) -> None:
    runs.loaded()
    with gateway.doing(always(lambda *_: answer)):
        finding = found_by(runs)[f"commits to {runs.world.landing.table}"]
    assert finding.level is level
    assert helps in finding.remedy


def test_without_the_right_to_list_namespaces_landing_works_and_the_doctor_reports_it(
    runs: Runs, gateway: Gateway
) -> None:
    def hidden(request: Request, forward: Forward) -> Answer | None:
        lists = request.method == "GET" and request.path.partition("?")[0] == "/v1/namespaces"
        around = request.path == "/v1/namespaces/shop"
        return Answer.error(403, "ForbiddenException") if lists or around else forward()

    with Tables(runs.world.catalog).catalog as catalog:
        namespace = tuple(runs.world.landing.table.split("."))[:-1]
        catalog.create_namespace_if_not_exists(namespace[:1])
        catalog.create_namespace(namespace)
    with gateway.doing(hidden):
        runs.loaded()
        runs.check()
        finding = found_by(runs)["catalog"]
    assert finding.level is Level.OK
    assert "cannot list" in finding.observed
