# SPDX-License-Identifier: Apache-2.0
"""Tests match the codes of our errors, because sentences improve and codes never change their meaning.

A pattern that is a name comes from parameters and is not checked here.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from airflow_provider_lakecommit import exceptions

TESTS = Path(__file__).resolve().parents[1]
OURS = frozenset(exceptions.__all__)
LEFT: dict[str, int] = {
    "faults/test_append_faults.py": 1,
    "faults/test_attest.py": 2,
    "faults/test_crossings.py": 1,
    "faults/test_crowded_ledger.py": 1,
    "faults/test_evolve.py": 1,
    "faults/test_evolve_tables.py": 6,
    "faults/test_handed_back.py": 1,
    "faults/test_lanes.py": 4,
    "faults/test_lanes_closed.py": 3,
    "faults/test_migrate.py": 2,
    "faults/test_one_fate.py": 3,
    "faults/test_outsider.py": 2,
    "faults/test_replay.py": 3,
    "faults/test_routes.py": 5,
    "faults/test_spec_change.py": 1,
    "faults/test_topics.py": 1,
    "faults/test_transforms.py": 1,
    "integration/test_append.py": 2,
    "integration/test_cli_stall.py": 1,
    "integration/test_control_topic.py": 3,
    "integration/test_control_triggers.py": 1,
    "integration/test_doctor.py": 1,
    "integration/test_infer_schema.py": 1,
    "integration/test_kafka_ports.py": 1,
    "integration/test_loop.py": 3,
    "integration/test_replace.py": 3,
    "integration/test_rights.py": 4,
    "integration/test_slice_read.py": 1,
    "integration/test_source_topic.py": 2,
    "integration/test_spark_connect.py": 1,
    "integration/test_type_sources.py": 1,
    "s3/test_s3.py": 1,
    "unit/cli/test_reset.py": 1,
    "unit/cli/test_watch.py": 1,
    "unit/cycle/plan/test_open.py": 1,
    "unit/cycle/test_kept.py": 1,
    "unit/formats/registry/test_client.py": 1,
    "unit/operators/test_decision.py": 1,
    "unit/spark/launch/test_connect.py": 1,
    "unit/spark/test_slice_process.py": 1,
    "unit/spark/test_slice_rows.py": 1,
    "unit/test_redaction.py": 1,
    "worker/test_connector.py": 2,
}
"""Patterns without a code, by file. The numbers only go down."""


def uncoded(source: str) -> list[str]:
    """Return the literal patterns for our errors that have no code."""
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and n.args]
    raises = [n for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr == "raises"]
    ours = [n for n in raises if OURS & {name.id for name in ast.walk(n.args[0]) if isinstance(name, ast.Name)}]
    patterns = [k.value for n in ours for k in n.keywords if k.arg == "match"]
    texts = [ast.unparse(p) for p in patterns if isinstance(p, ast.Constant | ast.JoinedStr)]
    return [text for text in texts if not re.search(r"LC\d{4}", text)]


def test_patterns_for_our_errors_have_codes() -> None:
    paths = [p for p in TESTS.rglob("*.py") if p != Path(__file__).resolve()]
    found = Counter({p.relative_to(TESTS).as_posix(): len(uncoded(p.read_text(encoding="utf-8"))) for p in paths})
    assert dict(+found) == LEFT


def test_a_pattern_without_a_code_is_found() -> None:
    assert uncoded("pytest.raises(SpecError, match='no')\npytest.raises((OSError, TableError), match=f'{x} no')") != []
    assert uncoded("pytest.raises(SpecError, match=r'a.*LC1042')\npytest.raises(OSError, match='no')") == []
    assert uncoded("pytest.raises(SpecError, match=message)\npytest.raises(SpecError)") == []
