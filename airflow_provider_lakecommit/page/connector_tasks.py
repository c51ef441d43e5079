# SPDX-License-Identifier: Apache-2.0
"""The tasks of a Kafka Connect sink that answer its coordinator, by its control topic alone.

A task answers each START_COMMIT with a DATA_COMPLETE under an id that is valid until it ends. Only silence shows an
end: a task is dropped when it missed :data:`GONE_ANSWERS` times as many answers as there are tasks.
"""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_lakecommit.stall import ObservedEvent

MOST_TASKS = 200
MOST_PARTITIONS = 100
GONE_ANSWERS = 10
NAME_LENGTH = 64


class ConnectorTask(NamedTuple):
    """A task: its ``id`` on the topic, since when it answers, its last answer, and the partitions of that answer.
    ``missed`` counts the answers of others since then.
    """

    id: str
    since: float
    at: float
    answers: int = 1
    partitions: tuple[tuple[str, int], ...] = ()
    missed: int = 0


def tasks_after(known: tuple[ConnectorTask, ...], event: ObservedEvent) -> tuple[ConnectorTask, ...]:
    """Return the tasks after one more answer, the one heard last at the end."""
    name = (event.sender or b"").decode("utf-8", "replace")[:NAME_LENGTH]
    partitions = tuple(sorted(event.partitions or ()))[:MOST_PARTITIONS]
    before = next((t for t in known if t.id == name), ConnectorTask(name, event.at, event.at, 0))
    one = before._replace(at=event.at, answers=before.answers + 1, partitions=partitions, missed=0)
    most = GONE_ANSWERS * max(1, len(known))
    others = (t._replace(missed=t.missed + 1) for t in known if t.id != name)
    return (*(t for t in others if t.missed <= most), one)[-MOST_TASKS:]
