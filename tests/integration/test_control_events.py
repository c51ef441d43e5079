# SPDX-License-Identifier: Apache-2.0
"""A landing next to older connectors: all that it sends is in the form that they read, and it lands as ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_lakecommit.control.events import decode
from airflow_provider_lakecommit.control.payloads import CommitToTable, DataWritten
from tests.support.declared import changed_landing, landing_of
from tests.support.world import SCHEMA, World, catalog_in, records

pytestmark = pytest.mark.integration


def uuids(world: World) -> set[bool]:
    """Do the events of the control topic name tables with, or without, their uuid?"""
    with world.session() as session:
        payloads = [decode(r.value or b"").payload for r in session.control.read_all()]
    assert {type(p).__name__ for p in payloads} == {
        *("StartCommit", "DataWritten", "DataComplete", "CommitToTable", "CommitComplete")
    }
    return {p.table.table_uuid is not None for p in payloads if isinstance(p, DataWritten | CommitToTable)}


def test_every_event_is_in_the_form_of_the_landing_which_may_change_at_any_time(
    tmp_path: Path,
    bootstrap: str,
    make_topic: Callable[..., str],
    control_topic: str,
    produce: Callable[..., list[tuple[int, int]]],
) -> None:
    topic = make_topic(2)
    landing = landing_of(
        name="rows", table="shop.rows", topics=topic, create=SCHEMA, control_topic=control_topic, control_events="1.10"
    )
    world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))
    produce(topic, records(0, 20))
    world.run()
    assert uuids(world) == {False}
    produce(topic, records(20, 20))
    pending = world.open("half")
    world.write(pending)
    world.landing = changed_landing(landing, control_events="1.12")
    world.close("half", pending)
    world.check(Counter(range(40)))
    assert uuids(world) == {False, True}
