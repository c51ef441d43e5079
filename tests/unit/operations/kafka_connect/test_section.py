# SPDX-License-Identifier: Apache-2.0
"""Whose turn holds which offsets: the landing's ledger after a sink's turn, and again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.model import AdoptedSink
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.operations.kafka_connect.sink_offsets import turn_after
from tests.unit.status.test_verify import P0, P1, cover, section

OFFSETS = st.integers(0, 50)


def sink(since: int, *, lands: bool = False, connector: str = "sink") -> AdoptedSink:
    return AdoptedSink(connector=connector, group="connect-sink", since={P0: since}, sequence=1, lands=lands)


def test_a_table_without_a_ledger_begins_where_the_sink_ended() -> None:
    turn = turn_after("sink", None, {P0: 7}, {P0})
    assert (turn.starts, turn.covered, turn.done, turn.refused) == ({P0: 7}, cover((P0, 0, 7)), False, "")


def test_what_begins_there_already_is_done() -> None:
    now = replace(section(cover((P0, 0, 7)), starts={P0: 7}), sink=sink(7))
    assert turn_after("sink", now, {P0: 7}, {P0}).done
    assert not turn_after("sink", now, {P0: 9}, {P0}).done


def test_what_a_landing_has_landed_by_itself_is_no_sinks() -> None:
    now = section(cover((P0, 0, 9)), starts={P0: 0})
    assert "itself" in turn_after("sink", now, {P0: 9}, {P0}).refused
    other = replace(now, sink=sink(0, connector="other"))
    assert "connector other" in turn_after("sink", other, {P0: 9}, {P0}).refused


@given(since=OFFSETS, more=OFFSETS, end=OFFSETS)
def test_turn_and_turn_about(since: int, more: int, end: int) -> None:
    """What the sink gained joins what is landed; what both have is twice; no offset is anything else."""
    reach = since + more + 1
    now = replace(section(cover((P0, since, reach)), starts={P0: since}), sink=sink(since))
    turn = turn_after("sink", now, {P0: end}, {P0})
    assert len(turn.gained) == max(end - reach, 0)
    assert len(turn.twice) == max(min(end, reach) - since, 0)
    assert turn.covered == now.covered | turn.gained
    assert turn.covered[P0].reach(turn.starts[P0]) == max(end, reach)
    back = turn_after("sink", replace(now, sink=sink(since, lands=True)), {P0: end}, {P0})
    assert (len(back.back), len(back.twice)) == (max(reach - end, 0), 0)


def test_a_partition_that_the_sink_never_read_is_nobodys_gain() -> None:
    now = replace(section(cover((P0, 0, 5)), starts={P0: 0}), sink=sink(0, lands=True))
    turn = turn_after("sink", now, {P0: 5, P1: 30}, {P0})
    assert (turn.gained, turn.back, dict(turn.starts)) == (Coverage(), Coverage(), {P0: 0})


def test_another_table_gains_what_the_sink_landed_and_no_more() -> None:
    """A dead-letter table that was rolled back lacks what the landing had before the sink's turn."""
    data = replace(section(cover((P0, 0, 10)), starts={P0: 0}), sink=sink(0, lands=True))
    for rolled_back in (cover((P0, 0, 4)), Coverage()):
        turn = turn_after("sink", section(rolled_back, starts={P0: 0}), {P0: 15}, {P0}, data=data)
        assert (turn.gained, turn.covered) == (cover((P0, 10, 15)), rolled_back | cover((P0, 10, 15)))
