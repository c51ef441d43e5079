# SPDX-License-Identifier: Apache-2.0
"""Slices are reported and safe, then retention removes their range: whatever happens to the table or the landing, their
rows come into the table once, and only what nobody had reported is given up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.exceptions import LakecommitError, SourceError
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from tests.support.declared import changed_landing
from tests.support.messes import CREATE, TABLE, drop_tag, evolve_spec
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


def change_spec(world: World) -> None:
    world.landing = changed_landing(world.landing, unknown_fields="dead_letter", on_spec_change="void")


@pytest.mark.heavy(but=("behind a hole-nothing",))
@pytest.mark.parametrize(
    "happens",
    [lambda _: None, evolve_spec, drop_tag, change_spec],
    ids=["nothing", "a partition field", "the tag is dropped", "a spec change that voids"],
)
@pytest.mark.parametrize("hole", [False, True], ids=["", "behind a hole"])
def test_what_is_reported_and_missing_at_the_source_lands_once(
    make_world: Make, produce: Produce, admin: AdminClient, happens: Callable[[World], None], hole: bool
) -> None:
    world = make_world(partitions=1, create=CREATE, table=TABLE, dead_letter_table=None, slice_records=50)
    topic = world.landing.topics
    produce(topic, records(0, 100))
    world.run()
    produce(topic, records(100, 100))
    world.write(world.open("reported"), only=lambda index: index == 1 or not hole)
    produce(topic, records(200, 100))
    partition = TopicPartition(topic, 0, 250)
    admin.delete_records([partition])[partition].result(PATIENCE)
    happens(world)
    with pytest.raises(SourceError, match=r"reset offsets SPEC --from earliest.*LC1303"):
        world.settle()
    try:
        world.close("drains", None)
    except LakecommitError as e:
        raise AssertionError(f"what is reported cannot be published: {e}") from e
    reported = [] if hole else range(100, 200)
    world.check(Counter([*range(100), *reported]))
    with world.session() as session:
        (previewed,) = init_preview(session, "earliest").tables
        assert str(previewed.given_up).replace(topic, "") == ("[0] [100, 150) [200, 250)" if hole else "[0] [200, 250)")
        ledger_init(session, "earliest")
    world.settle()
    world.check(Counter([*range(100), *range(150 if hole else 100, 200), *range(250, 300)]))
    check_verified(world)
