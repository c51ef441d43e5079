# SPDX-License-Identifier: Apache-2.0
"""Making the tables of a landing ready: there, readable by this landing, with a ledger whose epoch is current.

Contract: after :func:`prepare` every table of the landing has a ledger section of this lane, and each of these was
dealt with *before* anything else, by one compare-and-swap: a first run (origin), a table that joins later (it starts
where the data table's ledger ends), a topic that was added, a rollback, a spec change that voids, a lost control log
(new epoch). :func:`prepare_for_commit` makes no origin and keeps tables apart: one that fails is named and does not
hold up the others.

Failure story: a ledger that is gone, or a table that was dropped and made anew while the log remembers it, needs a
person and is an error that names the command. What two processes do at once is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState, read_ledger, require_ledger
from airflow_provider_lakecommit.committer.marks import join_table, renew_epochs
from airflow_provider_lakecommit.committer.sections import change_section
from airflow_provider_lakecommit.committer.summary import Kind
from airflow_provider_lakecommit.core.log import SliceReported
from airflow_provider_lakecommit.core.model import ControlPosition, LedgerSection, TableTarget
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.view import TableLedger
from airflow_provider_lakecommit.cycle.rim import BEYOND, Rim
from airflow_provider_lakecommit.cycle.tables import table_of
from airflow_provider_lakecommit.cycle.targets import check_fit, target_of
from airflow_provider_lakecommit.cycle.write import read_entries
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError, SourceError, TableError
from airflow_provider_lakecommit.hooks.control_topic import ControlLog
from airflow_provider_lakecommit.hooks.source_topic import SourceState

__all__ = [
    "Prepared",
    "PreparedTable",
    "SpecWaits",
    "log_lost",
    "new_section",
    "origin_position",
    "prepare",
    "prepare_for_commit",
    "prepare_table",
    "prepared_table",
]


class SpecWaits(Exception):
    """A spec change cannot void yet: ``table`` has not taken what the data table holds ``behind`` it."""

    def __init__(self, table: str, behind: Coverage) -> None:
        super().__init__(f"{table} has not taken {behind} yet, which is landed")
        self.table = table
        self.behind = behind


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """A table with its ledger as last read."""

    name: str
    table: Table
    state: LedgerState
    ledger: TableLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The tables that are ready, and what failed by table."""

    tables: tuple[PreparedTable, ...]
    failures: Mapping[str, Exception] = field(default_factory=dict)

    @property
    def ledgers(self) -> tuple[TableLedger, ...]:
        return tuple(t.ledger for t in self.tables)

    @property
    def epochs(self) -> dict[str, UUID]:
        return {t.name: t.ledger.section.epoch for t in self.tables}

    @property
    def targets(self) -> tuple[TableTarget, ...]:
        return tuple(target_of(t.name, t.table, t.ledger.section.epoch) for t in self.tables)


def prepare(rim: Rim, source: SourceState, *, dry: bool = False) -> Prepared:
    """Everything a plan needs of the tables.

    :param dry: write nothing; what would be made is only thought
    :raises TableError: missing, or not able to take the rows
    :raises LedgerError: needs a person
    :raises SourceError: the source is another cluster
    :raises CatalogError: the catalog is away
    :raises SpecWaits: a spec change has to wait for a commit
    """
    out: list[PreparedTable] = []
    for name in rim.landing.tables:
        table = table_of(rim, name, dry=dry, before_making=partial(_check_first_run, rim))
        state = read_ledger(table.metadata, rim.landing.branch)
        require_ledger(state, name)
        _check_alone(rim, name, state, source)
        if state.section(rim.landing.name, rim.lane) is None:
            _check_first_run(rim, name)
            check_fit(rim.landing, target_of(name, table, rim.new_id()))
            section = _origin(rim, name, table, source, out[0].ledger.section if out else None)
            state = _thought(state, section) if dry else _join(rim, name, table, state, section)
        elif not dry:
            state = _renewed(rim, name, state, source, out[0].ledger.section if out else None)
        out.append(prepared_table(rim, name, table, state))
    _check_cluster(rim, source, out)
    return Prepared(tables=tuple(out))


def prepare_for_commit(rim: Rim) -> Prepared:
    """The tables that have a ledger of this lane, as they are now; each failure is kept apart."""
    out: list[PreparedTable] = []
    failures: dict[str, Exception] = {}
    for name in rim.landing.tables:
        try:
            if (found := prepare_table(rim, name)) is not None:
                out.append(found)
        except LakecommitError as e:
            rim.say(f"{name}: {e}")
            failures[name] = e
    return Prepared(tables=tuple(out), failures=failures)


def prepare_table(rim: Rim, name: str) -> PreparedTable | None:
    """A table as it is now, if it has a ledger of this lane.

    :raises LakecommitError: it cannot be read, or needs a person
    """
    table = rim.tables.load(name)
    state = read_ledger(table.metadata, rim.landing.branch)
    require_ledger(state, name)
    if state.section(rim.landing.name, rim.lane) is None:
        _check_first_run(rim, name)
        return None
    return prepared_table(rim, name, table, _renewed(rim, name, state, None, None))


def log_lost(control: ControlPosition, log: ControlLog) -> str | None:
    """Why the control log is not the one that a ledger relies on, or ``None``."""
    if (control.cluster_id, control.topic_id) != (log.cluster_id, log.topic_id):
        return f"control topic {control.topic} was made anew or is in another cluster"
    if control.read_from > log.end:
        return f"control topic {control.topic} ends at {log.end}, before the position {control.read_from} of the ledger"
    if control.low is not None and log.begin > control.low:
        return f"retention cut control topic {control.topic} at {log.begin}, records from {control.low} on are needed"
    return None


def _origin(rim: Rim, name: str, table: Table, source: SourceState, data: LedgerSection | None) -> LedgerSection:
    """The first section of a lane: at ``start`` for the data table, at the data table's end for one that joins
    later.
    """
    starts = {p: w.start if rim.landing.start == "earliest" else w.stable for p, w in source.partitions.items()}
    if data is None:
        control = origin_position(rim)
    else:
        starts = {p: data.end(p) for p in data.starts.keys() | source.partitions.keys()}
        control = data.control
    return new_section(rim, source, starts, Coverage(), control)


def new_section(
    rim: Rim,
    source: SourceState,
    starts: Mapping[SourcePartition, int],
    covered: Coverage,
    control: ControlPosition,
    *,
    before: LedgerSection | None = None,
) -> LedgerSection:
    """A section of this lane under a new epoch.

    :param before: the section that it stands in for: its estimates are kept
    """
    return LedgerSection(
        landing=rim.landing.name,
        lane=rim.lane,
        cluster_id=source.cluster_id,
        epoch=rim.new_id(),
        spec_version=rim.landing.spec_version,
        starts=dict(starts),
        covered=covered,
        control=control,
        record_bytes=before.record_bytes if before else 0,
    )


def origin_position(rim: Rim) -> ControlPosition:
    """The end of the landing's control partition: what was said before is of no concern to a new ledger."""
    return _position(rim, rim.control.read(rim.control.partition_for(rim.landing.group_id), BEYOND))


def _position(rim: Rim, log: ControlLog) -> ControlPosition:
    return ControlPosition(
        cluster_id=log.cluster_id,
        topic=rim.control.name,
        topic_id=log.topic_id,
        partition=log.partition,
        read_from=log.end,
        low=None,
    )


def _check_first_run(rim: Rim, name: str) -> None:
    """A table that is missing or without a ledger is a first run only if the log does not remember slices for it. All
    partitions are asked: the landing's was another one if partitions were added.
    """
    logs = (rim.control.read(p, None) for p in range(rim.control.describe().partitions))
    entries = (e for log in logs for e in read_entries(log.records, rim.landing.name, rim.lane))
    remembered = {t.uuid for e in entries if isinstance(e, SliceReported) for t in e.report.tables if t.table == name}
    if remembered:
        raise LedgerError(
            f"{name} has no ledger, but the control topic remembers slices of landing {rim.landing.name} for table "
            f"{', '.join(str(u) for u in sorted(remembered, key=str))}: it was dropped, renamed or made anew; bring it "
            f"back, or say that it holds what was landed (`lakecommit ledger attest SPEC --from-log`) or where it goes "
            f"on (`lakecommit ledger init SPEC --from OFFSETS`)"
        )


def _join(rim: Rim, name: str, table: Table, state: LedgerState, section: LedgerSection) -> LedgerState:
    if state.condition is Condition.ROLLED_BACK:
        _renew(rim, name, state)
    rim.say(f"{name}: landing {rim.landing.name} joins at {_starts_text(section.starts)}")
    return join_table(rim.tables, name, section, branch=rim.landing.branch, table_uuid=table.metadata.table_uuid)


def _starts_text(starts: Mapping[SourcePartition, int]) -> str:
    return ", ".join(f"{p}@{o}" for p, o in sorted(starts.items()))


def _thought(state: LedgerState, section: LedgerSection) -> LedgerState:
    return replace(state, sections=(*state.sections, section))


def _renewed(
    rim: Rim, name: str, state: LedgerState, source: SourceState | None, data: LedgerSection | None
) -> LedgerState:
    """Deal with what needs a compare-and-swap before anything else.

    :param source: known while planning
    :param data: the data table's section, while another table is planned for
    """
    if state.condition is Condition.ROLLED_BACK:
        state = _renew(rim, name, state)
    landing, lane = rim.landing, rim.lane
    section = _own(state, rim)
    log = rim.control.read(section.control.partition, BEYOND)
    if why := log_lost(section.control, log):
        rim.say(f"{name}: {why}; what was pending is void and read again (new epoch)")
        old, new = section.control, _position(rim, log)
        state = _change(
            rim,
            name,
            Kind.EPOCH,
            lambda s: replace(s, epoch=rim.new_id(), control=new) if s.control == old else None,
        )
    if source is None:
        return state
    if landing.on_spec_change == "void" and section.spec_version != landing.spec_version:
        rim.say(
            f"{name}: the spec changed from {section.spec_version} to {landing.spec_version}; pending slices are void"
        )
        if data is None:
            for other in landing.tables[1:]:
                _check_level(rim, other, section)
        else:
            _check_level(rim, name, data)
        wanted = landing.spec_version
        state = _change(
            rim,
            name,
            Kind.EPOCH,
            lambda s: replace(s, epoch=rim.new_id(), spec_version=wanted) if s.spec_version != wanted else None,
        )
    known = {p.topic for p in _own(state, rim).starts}
    added = {
        p: w.start if landing.start == "earliest" else w.stable
        for p, w in source.partitions.items()
        if p.topic not in known
    }
    if added:
        rim.say(f"{name}: a topic joins at {_starts_text(added)}")
        state = _change(rim, name, Kind.ORIGIN, lambda s: _with_starts(s, added))
    if state.section(landing.name, lane) is None:
        raise LedgerError(
            f"{name}: the ledger section of landing {landing.name} is gone while it was renewed; plan again"
        )
    return state


def _check_level(rim: Rim, name: str, data: LedgerSection) -> None:
    """A spec change voids nothing of a range that is landed: judged by another spec, a record of it could end in both
    tables, or in none. So a table that lags behind the data table is brought forward first.

    :raises SpecWaits: there are slices for it that the data table holds already
    """
    table = rim.tables.find(name)
    state = read_ledger(table.metadata, rim.landing.branch) if table else None
    section = state.section(rim.landing.name, rim.lane) if state else None
    if state is None or section is None:
        return
    ledger = TableLedger(table=name, uuid=state.table_uuid, section=section, others=Coverage())
    behind = Coverage()
    for accepted in rim.look([ledger]).view.accepted[name]:
        behind |= accepted.coverage & data.covered
    if behind:
        raise SpecWaits(name, behind)


def _with_starts(section: LedgerSection, added: Mapping[SourcePartition, int]) -> LedgerSection | None:
    known = {p.topic for p in section.starts}
    new = {p: o for p, o in added.items() if p.topic not in known}
    return replace(section, starts={**section.starts, **new}) if new else None


def _change(rim: Rim, name: str, kind: Kind, change: Callable[[LedgerSection], LedgerSection | None]) -> LedgerState:
    return change_section(rim.tables, name, rim.landing.name, rim.lane, kind, change, branch=rim.landing.branch)


def _renew(rim: Rim, name: str, state: LedgerState) -> LedgerState:
    rim.say(f"{name}: {state.reason}; what was pending is void and read again (new epoch)")
    return renew_epochs(rim.tables, name, rim.landing.name, rim.lane, branch=rim.landing.branch)


def _own(state: LedgerState, rim: Rim) -> LedgerSection:
    section = state.section(rim.landing.name, rim.lane)
    if section is None:
        raise LedgerError(
            f"the table of landing {rim.landing.name} has no ledger section of lane {rim.lane}: plan first"
        )
    return section


def prepared_table(rim: Rim, name: str, table: Table, state: LedgerState) -> PreparedTable:
    """A table with the ledger that was read from it.

    :raises LedgerError: there is no section of this lane
    """
    ledger = TableLedger(
        table=name,
        uuid=state.table_uuid,
        section=_own(state, rim),
        others=state.covered(exclude=(rim.landing.name, rim.lane)),
    )
    return PreparedTable(name=name, table=table, state=state, ledger=ledger)


def _check_alone(rim: Rim, name: str, state: LedgerState, source: SourceState) -> None:
    """Two landings of one topic into one table would both want every offset of it."""
    for s in state.sections:
        shared = sorted({p.topic for p in s.starts.keys() & source.partitions.keys()})
        if s.landing != rim.landing.name and shared:
            raise TableError(
                f"landing {s.landing} lands {', '.join(shared)} into {name} already, so landing {rim.landing.name} "
                f"cannot: give one of them another table"
            )


def _check_cluster(rim: Rim, source: SourceState, tables: Iterable[PreparedTable]) -> None:
    for t in tables:
        if t.ledger.section.cluster_id != source.cluster_id:
            raise SourceError(
                f"{t.name} holds offsets of Kafka cluster {t.ledger.section.cluster_id}, "
                f"landing {rim.landing.name} now reads cluster {source.cluster_id}: point it back, "
                f"or start over with `lakecommit ledger init --from earliest`"
            )
