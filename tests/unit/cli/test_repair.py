# SPDX-License-Identifier: Apache-2.0
"""How offsets and times are told on the command line."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.cli import main as face
from airflow_provider_lakecommit.cli.repair import parse_offsets
from airflow_provider_lakecommit.exceptions import SpecError


@pytest.mark.parametrize(
    "text",
    [
        "orders:0=15,orders:1=9",
        " orders[0]=15 , orders:1=9",
        '{"orders:0": 15, "orders[1]": 9}',
        '{"orders[0]": "15", "orders[1]": 9}',
    ],
)
def test_offsets_are_a_list_or_a_json_object(text: str) -> None:
    assert parse_offsets(text, "hint") == {("orders", 0): 15, ("orders", 1): 9}


@pytest.mark.parametrize("text", ["", "orders:0", "orders:0=-1", "orders:0=x", '{"orders:0": 1', '{"orders:0": -1}'])
def test_what_is_neither_is_refused_with_the_hint(text: str) -> None:
    with pytest.raises(SpecError, match="the hint"):
        parse_offsets(text, "the hint")


@pytest.mark.parametrize("text", ["orders:0=1,orders:1=2,orders[0]=3", '{"orders:0": 1, "orders[0]": 1}'])
def test_a_partition_that_is_named_twice_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"orders\[0\]: which of its offsets"):
        parse_offsets(text, "the hint")


@pytest.mark.parametrize(
    "arguments",
    [
        ["ledger", "attest", "spec.yaml"],
        ["ledger", "attest", "spec.yaml", "--from-log", "--at", "orders:0=1"],
        ["ledger", "attest", "spec.yaml", "--snapshot", "newest"],
        ["status", "spec.yaml", "--every", "5"],
        ["status", "spec.yaml", "--every", "0m"],
        ["doctor", "spec.yaml", "--every", "5w"],
        ["infer-schema"],
        ["infer-schema", "orders", "--records", "0"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        face.main(arguments)
    assert left.value.code == 2


def test_a_topic_without_brokers_is_a_bad_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert face.main(["infer-schema", "orders"]) == 2
    assert "cannot read spec orders" in capsys.readouterr().err
