# SPDX-License-Identifier: Apache-2.0
"""Records that cannot be read in a landing's log: the cycle goes on past them, and reports it."""

from __future__ import annotations

from airflow_provider_lakecommit.status.status import read_status, to_dict
from tests.fakes.session import FakeLanding

JUNK = (b"k", b"junk", [("lakecommit", b"{")])


def test_a_plan_and_its_commit_go_on_and_name_the_record(landing: FakeLanding) -> None:
    landing.cycle()
    partition = landing.control.partition_for(landing.session.landing.group_id)
    with landing.control.writer("anybody", partition) as writer:
        (offset,) = writer.send([JUNK])
    position = f"{partition}@{offset}"
    status = read_status(landing.session)
    assert status.quarantined_count == 1
    assert [text.partition(": ")[0] for text in status.quarantined] == [position]
    assert to_dict(status)["quarantined"] == {"count": 1, "newest": list(status.quarantined)}
    landing.lines.clear()
    closed = landing.cycle("later")
    assert not closed.missing
    lines = [line for line in landing.lines if "are skipped" in line]
    assert lines
    assert all(f"newest is {position}: " in line for line in lines)
