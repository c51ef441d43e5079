# SPDX-License-Identifier: Apache-2.0
"""A user may write to the control topic and to nothing else: what becomes of the table then.

Whatever is forged, every record is in the table once, no file of anybody else is, and no code of anybody else is
imported. With a signing key the landing does not even lose time by it; a copy of a record that was really signed is no
record. What cannot be distinguished from the truth without a key (a range that is said to be blocked) is named and
waits.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_lakecommit.control.control_log import ControlRecord
from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.records import Outgoing, Sender, read_entries, table_reference
from airflow_provider_lakecommit.core.identity import attempt_id, slice_id
from airflow_provider_lakecommit.core.log import CycleOpened, Directives, SliceReported
from airflow_provider_lakecommit.core.model import (
    Budget,
    Counts,
    Cycle,
    Plan,
    Slice,
    SliceReport,
    SpanReport,
    TableTarget,
)
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import cycle_id_of
from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from airflow_provider_lakecommit.signing import KEY
from airflow_provider_lakecommit.spark.report import report_records
from airflow_provider_lakecommit.status.history import read_history
from tests.fakes.lake import data_file
from tests.support.declared import changed_landing
from tests.support.jobs import slice_job
from tests.support.steps import check_verified
from tests.support.world import World, catalog_in, records

pytestmark = pytest.mark.faults

SECRET = "a-key-of-this-test-and-of-nobody-else"
RECORDS = 120
PROVIDER = "a_module_of_somebody_else"
TABLE = "shop.rows"


@dataclass
class Attacker:
    """May write to the control topic, has no key, and has read everything."""

    world: World
    folder: Path
    opened: Opened | None = None

    @property
    def cycle(self) -> Opened:
        assert self.opened is not None
        return self.opened

    def send(self, rows: Sequence[Outgoing | ControlRecord], partition: int | None = None) -> None:
        name = self.world.landing.control_topic_name
        plain = {"bootstrap.servers": self.world.kafka["bootstrap.servers"]}
        with ControlTopic(name, plain) as control:
            at = control.partition_for(self.world.landing.group_id) if partition is None else partition
            with control.writer(f"anybody-{uuid4()}", at) as writer:
                writer.send([(r.key or b"", r.value or b"", tuple(r.headers)) for r in rows])

    def log(self) -> list[ControlRecord]:
        plain = {"bootstrap.servers": self.world.kafka["bootstrap.servers"]}
        with ControlTopic(self.world.landing.control_topic_name, plain) as control:
            return list(control.read_all())

    def sender(self, role: str, commit_id: UUID | None = None) -> Sender:
        commit = commit_id or self.cycle.ticket.commit_id
        return Sender(landing=self.world.landing.name, lane="live", role=role, commit_id=commit)

    def report(
        self,
        work: Slice,
        plan: Plan,
        *,
        counts: Callable[[int], Counts] = lambda n: Counts(filtered=n),
        files: Sequence[Any] = (),
        attempt: UUID | None = None,
        commit_id: UUID | None = None,
        **changes: Any,
    ) -> list[Outgoing]:
        report = SliceReport(
            slice_id=work.slice_id,
            attempt=attempt or attempt_id(work.slice_id, uuid4()),
            window_id=plan.window_id,
            spec_version=plan.spec_version,
            spans=tuple(SpanReport(span=s, counts=counts(len(s))) for s in work.spans),
            tables=(),
            bytes=1,
        )
        job = slice_job(self.world.landing, plan, commit_id or self.cycle.ticket.commit_id)
        written = {TABLE: files} if files else {}
        return report_records(job, work, replace(report, **changes), written, at=datetime.now(UTC))

    def file(self, path: str, rows: int, **stats: Any) -> Any:
        """As the entry of a manifest; of the partition that a bucket of 2 may have."""
        return data_file(path, rows, partition=[0], **stats)


Forge = Callable[[Attacker], None]


# -- before the run ---------------------------------------------------------------------------------------------------


def a_start_for_the_next_run(attacker: Attacker) -> None:
    """Under the id that the run will have, for a folder and a class of the attacker's own."""
    world = attacker.world
    attacker.send(_start(attacker, cycle_id(world, "next"), "next"))


def starts_for_the_next_run_and_what_follows(attacker: Attacker) -> None:
    world = attacker.world
    for number in range(3):
        attacker.send(_start(attacker, cycle_id(world, "next", number), "next"))


def cycle_id(world: World, run: str, number: int = 0) -> UUID:
    with world.session() as session:
        return cycle_id_of(session, replace(world.run_identity(run), number=number))


def _start(attacker: Attacker, commit_id: UUID, run: str) -> list[Outgoing]:
    old = attacker.cycle.plan

    def turned(t: TableTarget) -> TableTarget:
        properties = {**t.properties, "write.py-location-provider.impl": f"{PROVIDER}.Provider"}
        return replace(t, location=f"file://{attacker.folder}/elsewhere", properties=properties)

    ends = {p: end + RECORDS for p, end in old.ends.items()}
    slices = tuple(
        replace(
            s,
            spans=tuple(
                replace(x, range=type(x.range)(ends[x.partition] - RECORDS, ends[x.partition])) for x in s.spans[:1]
            ),
        )
        for s in old.slices[:1]
    )
    plan = replace(old, targets=tuple(map(turned, old.targets)), slices=slices, window_id=uuid4())
    cycle = Cycle(commit_id=commit_id, dag="test", run=run, number=0, slot=0)
    sender = attacker.sender("plan", commit_id)
    return [sender.opened(uuid4(), datetime.now(UTC), cycle, plan, Directives())]


# -- while the run writes ---------------------------------------------------------------------------------------------


def nothing_but_filtered(attacker: Attacker) -> None:
    for s in attacker.cycle.slices:
        attacker.send(attacker.report(s, attacker.cycle.plan))


def landed_without_files(attacker: Attacker) -> None:
    for s in attacker.cycle.slices:
        attacker.send(attacker.report(s, attacker.cycle.plan, counts=lambda n: Counts(landed=n)))


def counts_that_do_not_add_up(attacker: Attacker) -> None:
    s = attacker.cycle.slices[0]
    attacker.send(attacker.report(s, attacker.cycle.plan, counts=lambda n: Counts(filtered=n - 1)))


def of_no_plan(attacker: Attacker) -> None:
    """A cycle that nobody opened skips what was not planned yet."""
    s = attacker.cycle.slices[0]
    attacker.send(attacker.report(s, attacker.cycle.plan, commit_id=uuid4()))


def of_a_plan_of_the_attackers_own(attacker: Attacker) -> None:
    commit_id, plan = uuid4(), attacker.cycle.plan
    cycle = Cycle(commit_id=commit_id, dag="d", run="r", number=0, slot=5)
    attacker.send([attacker.sender("plan", commit_id).opened(uuid4(), datetime.now(UTC), cycle, plan, Directives())])
    for s in plan.slices:
        attacker.send(attacker.report(s, plan, commit_id=commit_id))


def files_of_another_table(attacker: Attacker) -> None:
    _with_file(attacker, lambda _: f"file://{attacker.folder}/another/data/x-00000.parquet")


def files_on_a_way_out(attacker: Attacker) -> None:
    _with_file(attacker, lambda t: f"{t.location}/../another/data/x-00000.parquet")


def files_of_a_neighbour(attacker: Attacker) -> None:
    _with_file(attacker, lambda t: f"{t.location}2/data/x-00000.parquet")


def files_that_the_table_has(attacker: Attacker) -> None:
    """Rows once more, under other offsets."""
    with attacker.world.session() as session:
        table = session.tables.load(TABLE)
        path = next(iter(table.scan().plan_files())).file.file_path
    _with_file(attacker, lambda _: path)


def delete_files(attacker: Attacker) -> None:
    _with_file(attacker, lambda t: f"{t.location}/data/x-00000.parquet", content=1)


def _with_file(attacker: Attacker, path: Callable[[TableTarget], str], **stats: Any) -> None:
    plan = attacker.cycle.plan
    target = next(t for t in plan.targets if t.table == TABLE)
    for s in attacker.cycle.slices:
        for attempt in (attempt_id(s.slice_id, uuid4()), uuid4()):
            files = [attacker.file(path(target), len(s), **stats)]
            attacker.send(attacker.report(s, plan, counts=lambda n: Counts(landed=n), files=files, attempt=attempt))


def complete(attacker: Attacker) -> None:
    attacker.send([attacker.sender("commit").closed(uuid4(), datetime.now(UTC), datetime.now(UTC), Directives())])


def release(attacker: Attacker) -> None:
    directives = Directives(released=(attacker.cycle.ticket.commit_id,))
    attacker.send([attacker.sender("commit", uuid4()).closed(uuid4(), datetime.now(UTC), None, directives)])


def an_end_of_all_work(attacker: Attacker) -> None:
    """As a user requests it who wants the window published now."""
    attacker.send([attacker.sender("end").end_request(uuid4(), datetime.now(UTC), job=None, reason="for fun")])


def the_beginning_of_slices(attacker: Attacker) -> None:
    """Files that hold more than what they are said to be the beginning of, named by an attempt at the whole."""
    plan = attacker.cycle.plan
    target = next(t for t in plan.targets if t.table == TABLE)
    for s in attacker.cycle.slices:
        attempt = attempt_id(s.slice_id, uuid4())
        path = Path(target.location.removeprefix("file://")) / "data" / f"{attempt}-00000.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": range(len(s))}), path)
        spans = tuple(replace(x, range=type(x.range)(x.range.start, x.range.start + 1)) for x in s.spans)
        part = replace(s, spans=spans, slice_id=slice_id(plan.window_id, spans, s.tables))
        files = [attacker.file(f"file://{path}", len(part))]
        report = attacker.report(
            part, plan, counts=lambda n: Counts(landed=n), files=files, attempt=attempt, planned_slice=s.slice_id
        )
        attacker.send(report)


def published(attacker: Attacker) -> None:
    plan = attacker.cycle.plan
    target = next(t for t in plan.targets if t.table == TABLE)
    raised = (plan.coverage, Budget(max_records=9, max_ratio=1))
    attacker.send(
        [
            attacker.sender("commit").published(
                uuid4(),
                datetime.now(UTC),
                table=table_reference("anybody", TABLE, target.uuid),
                name=TABLE,
                snapshot_id=1,
                token=uuid4(),
                coverage=plan.coverage,
                directives=Directives(raised=(raised,)),
            )
        ]
    )


def failures(attacker: Attacker) -> None:
    for n in range(4):
        failed = attacker.sender("commit").commit_failed(uuid4(), datetime.now(UTC), "no", str(n), Directives())
        attacker.send([failed])


# -- after it has written ---------------------------------------------------------------------------------------------


def void(attacker: Attacker) -> None:
    attempts = tuple(e.report.attempt for e in _entries(attacker) if isinstance(e, SliceReported))
    directives = Directives(voided=attempts)
    attacker.send([attacker.sender("commit", uuid4()).closed(uuid4(), datetime.now(UTC), None, directives)])


def void_and_report_another(attacker: Attacker) -> None:
    """The real files, with other counts, once the true report is void."""
    void(attacker)
    for r in attacker.log():
        if any(b'"report"' in v for k, v in r.headers if k == "lakecommit"):
            attacker.send([r])


def _entries(attacker: Attacker) -> Sequence[Any]:
    return read_entries(attacker.log(), attacker.world.landing.name, "live")


def everything_again(attacker: Attacker) -> None:
    """Move for word, as it was signed."""
    attacker.send(attacker.log())


BEFORE = [a_start_for_the_next_run, starts_for_the_next_run_and_what_follows]
MEANWHILE = [
    nothing_but_filtered,
    landed_without_files,
    counts_that_do_not_add_up,
    of_no_plan,
    of_a_plan_of_the_attackers_own,
    files_of_another_table,
    files_on_a_way_out,
    files_of_a_neighbour,
    files_that_the_table_has,
    delete_files,
    complete,
    an_end_of_all_work,
    the_beginning_of_slices,
    release,
    published,
    failures,
]
AFTER = [void, void_and_report_another, everything_again]
"""Forged before the run plans, between its plan and its writers, or between these and its commit."""


@pytest.fixture
def attacker(make_world: Callable[..., World], tmp_path: Path) -> Attacker:
    """The table has one window; its plan is known to the attacker, who has a module to be imported at hand."""
    world = make_world(dead_letter_table=None)
    code = tmp_path / "code"
    code.mkdir()
    (code / f"{PROVIDER}.py").write_text("raise SystemExit('imported')\n")
    return Attacker(world, tmp_path)


def check_table(attacker: Attacker, count: int) -> None:
    world = attacker.world
    world.check(Counter(range(count)))
    assert PROVIDER not in sys.modules
    assert not (attacker.folder / "elsewhere").exists()
    check_verified(world)
    with world.session() as session:
        history = read_history(session.tables, TABLE, "main", files=True, progress=world.lines.append)
        assert history.problems == ()
        location = session.tables.load(TABLE).location()
    assert all(path.startswith(f"{location}/data/") for path in history.head)


@pytest.mark.heavy(but=("a_start_for_the_next_run-signed", "files_of_a_neighbour-signed", "everything_again-signed"))
@pytest.mark.parametrize("key", [None, SECRET], ids=["without a key", "signed"])
@pytest.mark.parametrize("forge", [*BEFORE, *MEANWHILE, *AFTER], ids=lambda f: f.__name__)
def test_whatever_is_forged_the_table_is_right(
    attacker: Attacker, produce: Callable[..., Any], forge: Forge, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(attacker.folder / "code"))
    world = attacker.world
    if key:
        world.kafka = {**world.kafka, KEY: key}
    topic = world.landing.topic_names[0]
    produce(topic, records(0, RECORDS))
    attacker.opened = world.open("first")
    world.write(attacker.opened)
    world.close("first", attacker.opened)
    if forge in BEFORE:
        forge(attacker)
    produce(topic, records(RECORDS, RECORDS))
    attacker.opened = opened = world.open("next")
    if forge in MEANWHILE:
        forge(attacker)
    done = world.write(opened)
    if forge in AFTER:
        forge(attacker)
    closed = world.close("next", opened)
    if key:
        # As if nobody had said anything.
        assert len(done) == len(opened.slices) > 0
        assert (closed.rows, closed.voided, closed.missing, closed.blocked) == (RECORDS, (), (), ())
    world.settle()
    check_table(attacker, 2 * RECORDS)


@pytest.mark.heavy(but=("blocked-signed",))
@pytest.mark.parametrize("key", [None, SECRET], ids=["without a key", "signed"])
@pytest.mark.parametrize("problem", ["blocked", "failed"])
def test_a_forged_refusal_is_named_and_loses_nothing(
    attacker: Attacker, produce: Callable[..., Any], problem: str, key: str | None
) -> None:
    world = attacker.world
    if key:
        world.kafka = {**world.kafka, KEY: key}
    produce(world.landing.topic_names[0], records(0, RECORDS))
    for _ in range(3):
        attacker.opened = opened = world.open(f"run-{uuid4()}")
        for s in opened.slices:
            attacker.send(attacker.report(s, opened.plan, **{problem: "said so"}))
        world.close(opened.ticket.commit_id.hex, opened)
    closed = world.run("last")
    if key is None:
        assert "said so" in closed.blocked[0]
        with world.session() as session:
            unblock(session, raise_to=Budget(max_records=1, max_ratio=0.1))
    else:
        assert (closed.rows, closed.blocked) == (RECORDS, ())
    world.settle()
    check_table(attacker, RECORDS)


@pytest.mark.heavy
def test_the_plan_of_a_ticket_counts_whatever_else_is_under_its_id(
    attacker: Attacker, produce: Callable[..., Any]
) -> None:
    """Forged after the plan was made, for a reader who begins later in the log."""
    world = attacker.world
    produce(world.landing.topic_names[0], records(0, RECORDS))
    attacker.opened = opened = world.open("next")
    attacker.send(_start(attacker, opened.ticket.commit_id, "next"))
    late = replace(opened, ticket=replace(opened.ticket, read_from=0))
    world.write(late)
    world.close("next", opened)
    world.settle()
    check_table(attacker, RECORDS)


@pytest.mark.heavy
def test_a_landing_that_gets_a_key_reads_again_what_was_not_signed(
    attacker: Attacker, produce: Callable[..., Any]
) -> None:
    """What was pending then is done once more; nothing is lost and nothing doubled."""
    world = attacker.world
    produce(world.landing.topic_names[0], records(0, RECORDS))
    opened = world.open("before")
    world.write(opened)
    world.kafka = {**world.kafka, KEY: SECRET}
    closed = world.close("before", opened)
    assert closed.published == ()
    world.settle()
    check_table(attacker, RECORDS)
    assert any(isinstance(e, CycleOpened) for e in _entries(attacker))


@pytest.mark.heavy
def test_a_key_is_changed_in_the_middle_of_a_run(attacker: Attacker, produce: Callable[..., Any]) -> None:
    world, other = attacker.world, SECRET[::-1]
    plain = dict(world.kafka)
    produce(world.landing.topic_names[0], records(0, RECORDS))
    world.kafka = {**plain, KEY: SECRET, f"{KEY}.other": other}
    opened = world.open("a")
    world.kafka = {**plain, KEY: other, f"{KEY}.other": SECRET}
    world.write(opened)
    assert world.close("a", opened).rows == RECORDS
    world.kafka = {**plain, KEY: other}
    world.settle()
    check_table(attacker, RECORDS)


def test_a_signed_record_of_another_topic_is_not_one_of_this(
    attacker: Attacker, produce: Callable[..., Any], make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The same landing, key and cluster, with another control topic: a copy of its log says nothing here."""
    world = attacker.world
    world.kafka = {**world.kafka, KEY: SECRET}
    produce(world.landing.topic_names[0], records(0, RECORDS))
    elsewhere = replace(
        world,
        landing=changed_landing(world.landing, control_topic=make_topic(6)),
        catalog=catalog_in(tmp_path / "other"),
    )
    elsewhere.run()
    copied = Attacker(elsewhere, tmp_path).log()
    attacker.send(copied)
    assert len(copied) > 3
    assert world.run().rows == RECORDS
    with world.session() as session:
        log = session.control.read(session.control.partition_for(world.landing.group_id))
    assert sum(r.doubt is not None for r in log.records) == len(copied)
    check_table(attacker, RECORDS)
