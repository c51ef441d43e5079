# SPDX-License-Identifier: Apache-2.0
"""One row of the page: the state of the commits of a landing, or of a connector's group.

A board is sorted worst first (:data:`WORST_FIRST`, then the longest duration). Read lag and commit lag have different
causes: unread records, and read records without a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from airflow_provider_lakecommit.core import group_id
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.page.cycles import LandingCycles
from airflow_provider_lakecommit.page.observed_cycle import CycleOutcome, outcomes
from airflow_provider_lakecommit.page.partitions import PagePartition
from airflow_provider_lakecommit.page.trend import Trend
from airflow_provider_lakecommit.stall import Diagnosis, State, Verdict

WORST_FIRST = (
    Verdict.DEAD,
    Verdict.STALLED,
    Verdict.SPLIT,
    Verdict.LOSING,
    Verdict.BLOCKED,
    Verdict.SLOWING,
    Verdict.UNKNOWN,
    Verdict.HEALTHY,
)
DAY = 86_400.0


@dataclass(frozen=True, slots=True, order=True)
class PageTopic:
    """A control topic, and the Airflow connection by which it is read."""

    connection: str
    topic: str

    def __str__(self) -> str:
        return f"{self.connection}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """The reading state of a control topic: when it was last read to its end, and the error that prevents it."""

    control_topic: PageTopic
    as_of: float | None = None
    trouble: str = ""
    overlooked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingRow:
    """A landing or a connector's group, as of the last read of ``control_topic``.

    ``dags`` are those of this deployment. ``never_ran`` is a declared landing whose DAG has no run. ``read_since`` and
    ``table_since`` are since when records wait to be read and the table lacks some, if known.
    """

    control_topic: PageTopic
    group: str
    state: State
    found: Diagnosis
    cycles: LandingCycles
    dags: tuple[str, ...] = ()
    partitions: tuple[PagePartition, ...] = ()
    never_ran: bool = False
    read_since: float | None = None
    table_since: float | None = None
    trend: Trend | None = field(default=None, compare=False)
    key: str

    @property
    def outcomes(self) -> tuple[CycleOutcome, ...]:
        """Return how each of its cycles ended; computed on demand."""
        return outcomes(self.cycles.cycles)

    @property
    def name(self) -> str:
        return self.group.removeprefix(group_id("")) if self.state.landing else self.group

    @property
    def since(self) -> float | None:
        """Return the start of the current state, if known; healthy since long before its last commit."""
        return None if self.found.verdict is Verdict.HEALTHY else self.found.since

    @property
    def read_lag(self) -> int | None:
        """Return the number of unreported records, by offsets; ``None`` without known partitions."""
        ends = [(p.end, p.reported if p.reported is not None else p.published) for p in self.partitions]
        known = [max(0, end - (upto or 0)) for end, upto in ends if end is not None]
        return sum(known) if known else None

    @property
    def commit_lag(self) -> int | None:
        known = [max(0, p.reported - (p.published or 0)) for p in self.partitions if p.reported is not None]
        return sum(known) if known else None

    @property
    def running(self) -> int:
        return sum(1 for o in self.outcomes if o is CycleOutcome.RUNNING)

    def rejected_since(self, moment: float) -> int:
        return sum(c.dead_letters for c in self.cycles.cycles if c.published and c.published[-1][1] >= moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All rows by key, as the reader threads have them, worst first. Changed rows have a higher ``version``."""

    version: int = 0
    rows: Mapping[str, LandingRow] = field(default_factory=dict)
    topics: tuple[TopicReading, ...] = ()


def ranked(rows: Iterable[LandingRow]) -> dict[str, LandingRow]:
    """Return rows by key, worst first."""

    def rank(row: LandingRow) -> tuple[int, float, str, PageTopic]:
        return (WORST_FIRST.index(row.found.verdict), row.since or 0.0, row.name.casefold(), row.control_topic)

    return {r.key: r for r in sorted(rows, key=rank)}


def key_of(topic: PageTopic, group: str) -> str:
    """Return the id of a row in addresses, for any characters in its group."""
    return sha256("\x1f".join((topic.connection, topic.topic, group)).encode()).hexdigest()[:20]


def search(
    rows: Iterable[LandingRow], *, text: str = "", verdicts: Collection[str] = (), dag: str = ""
) -> tuple[Sequence[LandingRow], Counter[str]]:
    """Return the matching rows in order, and the counts of each verdict, whichever was requested.

    :param text: part of a name, table, topic or DAG, case-insensitive
    :param dag: id of a DAG that runs it
    """
    folded = text.casefold()
    meant = [r for r in rows if (not dag or dag in r.dags) and (not folded or folded in _texts(r))]
    counts = Counter(r.found.verdict.value for r in meant)
    return [r for r in meant if not verdicts or r.found.verdict.value in verdicts], counts


def _texts(row: LandingRow) -> str:
    return "\n".join((row.group, *row.cycles.tables, *row.dags, *{p.topic for p in row.partitions})).casefold()


DEFAULT_CONNECTION = "kafka_default"


def page_topics(stated: str, control_topic: str) -> tuple[PageTopic, ...]:
    """Parse `[lakecommit] page_topics`: `CONNECTION/TOPIC`, or `CONNECTION` for the deployment's control topic, by
    commas.

    Empty means `kafka_default` and that topic.

    :raises SpecError: a connection or a topic has no name
    """
    found: dict[PageTopic, None] = {}
    for each in (part.strip() for part in stated.split(",")):
        connection, slash, topic = each.partition("/")
        if each and not (connection.strip() and (topic.strip() or not slash)):
            raise SpecError(
                "LC8701", f"[lakecommit] page_topics: {each!r} is not CONNECTION/TOPIC, e.g. kafka_default/control"
            )
        if each:
            found[PageTopic(connection.strip(), topic.strip() or control_topic)] = None
    return tuple(found) or (PageTopic(DEFAULT_CONNECTION, control_topic),)
