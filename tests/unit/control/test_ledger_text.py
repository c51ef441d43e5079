# SPDX-License-Identifier: Apache-2.0
"""The ledger as text: what a snapshot summary must give back, whatever else lands in the same table."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.ledger_text import decode_ledger, encode_ledger
from airflow_provider_lakecommit.control.packed_text import COMPRESS_ABOVE
from airflow_provider_lakecommit.core.model import AdoptedSink, ControlPosition, LedgerSection, ReadPosition
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.exceptions import WireError
from tests.support.values import FOREIGN, SECTIONS, STEADY, corrupted, value_or_error


def section(partitions: int, holes: int = 0, landing: str = "orders") -> LedgerSection:
    ranges = RangeSet.of((0, 1_000_000_007), *((2_000_000_000 + 7 * k, 2_000_000_003 + 7 * k) for k in range(holes)))
    parts = [SourcePartition("shop.orders.v1", n, "0aBcDeFgHiJkLmNoPqRsTu") for n in range(partitions)]
    return LedgerSection(
        landing=landing,
        lane="live",
        cluster_id="0aBcDeFgHiJkLmNoPqRsTu",
        epoch=UUID(int=7),
        spec_version="0123456789abcdef",
        starts=dict.fromkeys(parts, 0),
        covered=Coverage(dict.fromkeys(parts, ranges)),
        control=ControlPosition(
            cluster_id="c", topic="control-lakecommit", topic_id="t", partition=3, read_from=9, low=None
        ),
        record_bytes=250,
    )


@STEADY
@given(st.lists(SECTIONS, max_size=3, unique_by=lambda s: (s.landing, s.lane)))
def test_sections_survive_in_the_order_of_their_names(sections: list[LedgerSection]) -> None:
    assert decode_ledger(encode_ledger(sections)) == tuple(sorted(sections, key=lambda s: (s.landing, s.lane)))


@pytest.mark.parametrize("lands", [True, False])
def test_the_sink_that_a_table_was_adopted_from_survives(lands: bool) -> None:
    plain = section(2)
    sink = AdoptedSink(connector="s", group="connect-s", since=dict(plain.starts), sequence=7, lands=lands)
    sink = replace(sink, landed=plain.covered)
    assert decode_ledger(encode_ledger([replace(plain, sink=sink)])) == (replace(plain, sink=sink),)


def test_the_text_does_not_depend_on_the_order_of_the_sections() -> None:
    a, b = section(1, landing="a"), section(1, landing="b")
    assert encode_ledger([a, b]) == encode_ledger([b, a])


def test_a_small_ledger_can_be_read_by_users() -> None:
    values = json.loads(encode_ledger([section(8)]))
    (read_section,) = values["sections"]
    assert read_section["landing"] == "orders"
    assert read_section["covered"][0][2]["7"] == [0, 1_000_000_007]
    assert read_section["control"]["topic"] == "control-lakecommit"


def test_a_thousand_partitions_fit_and_are_compressed() -> None:
    text = encode_ledger([section(1000)])
    assert text.startswith("z:")
    assert len(text) < COMPRESS_ABOVE
    assert decode_ledger(text) == (section(1000),)


@pytest.mark.heavy
def test_over_the_limit_names_the_remedy() -> None:
    scattered = [section(40, holes=900 + n, landing=str(n)) for n in range(40)]
    with pytest.raises(WireError, match="LC2341"):
        encode_ledger(scattered)


def full_section(partitions: int) -> LedgerSection:
    """With all that a ledger can do without, and hardly to be compressed."""
    plain, dice = section(partitions), random.Random(1)
    cuts = {p: dice.randrange(10**9) for p in plain.starts}
    evaluated = {
        "old": Coverage({p: RangeSet.of((0, cut)) for p, cut in cuts.items()}),
        "new": Coverage({p: RangeSet.of((cut, 1_000_000_007)) for p, cut in cuts.items()}),
    }
    positions = {p: ReadPosition(offset=cut, leader_epoch=cut % 1000) for p, cut in cuts.items()}
    return replace(plain, evaluated=evaluated, positions=positions)


def test_rules_and_leader_epochs_survive() -> None:
    assert decode_ledger(encode_ledger([full_section(50)])) == (full_section(50),)


def test_a_ledger_without_room_for_rules_and_leader_epochs_goes_without() -> None:
    large = full_section(4000)
    assert decode_ledger(encode_ledger([large])) == (replace(large, evaluated={}, positions={}),)


def test_a_position_beyond_the_end_of_the_section_is_kept_for_another_stream_has_what_was_read() -> None:
    plain = section(2)
    near, far = plain.starts
    at = ReadPosition(offset=plain.end(near), leader_epoch=3)
    beyond = ReadPosition(offset=plain.end(far) + 1, leader_epoch=3)
    positioned = replace(plain, positions={near: at, far: beyond})
    assert decode_ledger(encode_ledger([positioned])) == (positioned,)


def test_ranges_of_no_known_rules_stay_so() -> None:
    some = replace(section(1), evaluated={"new": Coverage.of([(next(iter(section(1).starts)), OffsetRange(5, 9))])})
    assert decode_ledger(encode_ledger([some])) == (some,)


def test_a_key_of_a_later_release_is_passed_over() -> None:
    values = json.loads(encode_ledger([section(1)]))
    values["sections"][0]["later"] = values["later"] = [1]
    assert decode_ledger(json.dumps(values)) == (section(1),)


@pytest.mark.parametrize("low", [None, 0, 5])
def test_no_low_watermark_is_not_the_same_as_0(low: int | None) -> None:
    values = json.loads(encode_ledger([section(1)]))
    values["sections"][0]["control"]["low"] = low
    assert decode_ledger(json.dumps(values))[0].control.low == low


@STEADY
@given(st.data(), SECTIONS)
def test_no_corruption_does_worse_than_a_wire_error(data: st.DataObject, of: LedgerSection) -> None:
    values = data.draw(corrupted(json.loads(encode_ledger([of]))) | FOREIGN)
    assert isinstance(value_or_error(decode_ledger, json.dumps(values)), (tuple, WireError))
