# SPDX-License-Identifier: Apache-2.0
"""A plan is decided from facts alone: what was observed decides, and nothing is read, logged or written."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.cycle.plan.facts import Facts, decide
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.cycle.plan.read_landing_state import observe
from airflow_provider_lakecommit.cycle.plan.ready_tables import read
from tests.fakes.session import DATA, P0, P1, FakeLanding


def facts_of(landing: FakeLanding) -> Facts:
    landing.session.control.ensure()
    reading = read(landing.session, landing.session.source.watermarks())
    return observe(landing.session, reading, released=())


def test_a_decision_needs_no_connection_and_reports_nothing(landing: FakeLanding) -> None:
    facts = facts_of(landing)
    landing.lines.clear()
    with pytest.MonkeyPatch.context() as patch:
        for port in ("tables", "control", "source", "kafka"):
            patch.delattr(landing.session, port)
        decision = decide(facts)
    assert [str(s) for s in decision.plan.slices] == ["orders[0][0, 10)", "orders[1][0, 10)", "orders[0][10, 20)"]
    assert decide(facts) == decision
    assert landing.lines == []
    assert not landing.kinds()


def test_a_preview_is_what_is_decided_of_the_same_facts(landing: FakeLanding) -> None:
    landing.open()
    landing.source.ends = {P0: 25, P1: 10}
    assert preview(landing.session).plan.slices == decide(facts_of(landing)).plan.slices


def test_other_facts_are_another_decision(landing: FakeLanding) -> None:
    facts, attempt = facts_of(landing), uuid4()
    prepared = facts.reading.prepared
    ledgers = [replace(t.ledger, section=replace(t.ledger.section, suspended="ann: a repair")) for t in prepared.tables]
    tables = tuple(replace(t, ledger=ledger) for t, ledger in zip(prepared.tables, ledgers, strict=True))
    reading = replace(facts.reading, prepared=replace(prepared, tables=tables))
    suspended = observe(landing.session, reading, released=())
    assert (decide(suspended).plan.slices, decide(facts).plan.refused) == ((), None)
    assert "ann" in str(decide(suspended).plan.reason)
    assert any("ann" in line for line in decide(suspended).lines)
    voiding = replace(facts, voided={attempt: "its ranges are read again"})
    assert decide(voiding).directives.voided == (attempt,)
    landing.source.ends = {P0: 0, P1: 0}
    empty = replace(facts_of(landing), of_source=("orders is empty",))
    assert str(decide(empty).plan.reason).endswith("; orders is empty")
    assert DATA in {t.table for t in decide(facts).plan.targets}
