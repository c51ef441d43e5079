# SPDX-License-Identifier: Apache-2.0
"""The Spark job of a partition group: one Spark task per slice, each reported by its task once finished.

Contract: :class:`WindowJob` holds all that the tasks need except secrets; connection settings are in a file shipped
with the job (:class:`Secrets`), and task results hold no secret. Spark only schedules: a task is a function of the job
and a slice number (:mod:`~airflow_provider_lakecommit.spark.task`). A task's work is in the control topic before the
task ends, so a job that dies loses at most the slices in progress.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.control import plan_from_json, plan_to_json
from airflow_provider_lakecommit.core import Plan, Slice, transactional_id
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.iceberg import TableStorage, clock
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.redaction import redacted

_OF_PLANS = ("target_window", "target_file_size", "group_by", "replicas", "speculation")
"""Options of a landing that no task reads: older packages of executors do not know them."""


DECODED = "LAKECOMMIT_DECODED"
"""Environment variable of tasks on the driver's machine: the folder of a file per slice with its decoded records, for
display. Spark reports nothing of a Python task before its end, and the control topic has no record of parts of slices.
"""
_RUNNING: dict[tuple[UUID, int], int] = {}
"""Tasks that a remote Spark runs at once for a group of a cycle, as it reported last, for display."""
NO_JOB = UUID(int=0)
"""The id of a job that has not begun."""


def note_decoded(work: Slice, records: int) -> None:
    """Note how many records of a slice, or of a part of one, are decoded."""
    if folder := os.environ.get(DECODED):
        with suppress(OSError):
            Path(folder, str(work.slice_id)).write_text(str(records))


def decoded_of(slices: Iterable[Slice]) -> int:
    """Return how many records of these slices are decoded, as far as this machine knows."""
    found = [Path(folder, str(s.slice_id)) for s in slices if (folder := os.environ.get(DECODED))]
    return sum(int(path.read_text() or 0) for path in found if path.exists())


def note_running(share: tuple[UUID, int], tasks: int | None) -> None:
    """Note how many tasks a remote Spark runs for a group of a cycle; ``None`` at the end."""
    if tasks is None:
        _RUNNING.pop(share, None)
    else:
        _RUNNING[share] = tasks


def running_of(jobs: Iterable[WindowJob]) -> int | None:
    """Return how many tasks of these jobs run; ``None`` without a report of a remote Spark."""
    found = [_RUNNING[share] for job in jobs if (share := (job.commit_id, job.group)) in _RUNNING]
    return sum(found) if found else None


class SliceStatus(StrEnum):
    """How a slice ended for its job."""

    DONE = "done"
    BLOCKED = "blocked"
    FAILED = "failed"
    AGAIN = "again"
    SUPERSEDED = "superseded"
    REPORTED = "reported"

    @property
    def is_reported(self) -> bool:
        """Return True if its files are in the control topic, by this attempt or an earlier one of the same cycle."""
        return self in (SliceStatus.DONE, SliceStatus.REPORTED)

    @property
    def is_final(self) -> bool:
        """Return True if a repeated attempt would change nothing."""
        return self is not SliceStatus.AGAIN

    @property
    def is_clean(self) -> bool:
        """Return True if this attempt has nothing left to do for it and nothing needs attention."""
        return self not in (SliceStatus.AGAIN, SliceStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowJob:
    """A group's share of a window. ``plan.slices`` are the slices to do, ``numbers`` their numbers in the group's whole
    share. The control topic holds the cycle from ``read_from`` on, and messages to this job from ``made_at`` on.
    ``deaths`` counts earlier jobs for the same slices whose processes died. This is number ``replica`` of ``replicas``
    of the same slices; number 0 is the original. A ``proof`` only reads its slices again and reports nothing
    (:mod:`~airflow_provider_lakecommit.spark.proof`).
    """

    landing: Landing
    plan: Plan
    group: int
    numbers: tuple[int, ...]
    commit_id: UUID
    slot: int
    catalog: str
    control_topic: str
    control_partition: int
    deployment: str = ""
    read_from: int = 0
    made_at: int = 0
    deaths: int = 0
    job_id: UUID = NO_JOB
    replica: int = 0
    replicas: int = 1
    proof: bool = False

    def begun(self) -> WindowJob:
        """Return the job with a new identity of its own, begun now."""
        return replace(self, job_id=uuid4())

    def to_json(self) -> str:
        copies = {"replica": self.replica, "replicas": self.replicas} if self.replicas > 1 else {}
        return json.dumps(
            {
                **copies,
                **({"proof": True} if self.proof else {}),
                "landing": {k: v for k, v in self.landing.to_flat().items() if k not in _OF_PLANS},
                "plan": plan_to_json(self.plan),
                "group": self.group,
                "places": list(self.numbers),
                "commit_id": str(self.commit_id),
                "slot": self.slot,
                "catalog": self.catalog,
                "control_topic": self.control_topic,
                "control_partition": self.control_partition,
                "deployment": self.deployment,
                "read_from": self.read_from,
                "made_at": self.made_at,
                "deaths": self.deaths,
                "job_id": str(self.job_id),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> WindowJob:
        v = json.loads(text)
        return cls(
            landing=Landing.from_flat(v["landing"]),
            plan=plan_from_json(v["plan"]),
            group=v["group"],
            numbers=tuple(v["places"]),
            commit_id=UUID(v["commit_id"]),
            slot=v["slot"],
            catalog=v["catalog"],
            control_topic=v["control_topic"],
            control_partition=v["control_partition"],
            deployment=v.get("deployment", ""),
            read_from=v.get("read_from", 0),
            made_at=v.get("made_at", 0),
            deaths=v.get("deaths", 0),
            job_id=UUID(v["job_id"]) if "job_id" in v else NO_JOB,
            replica=v.get("replica", 0),
            replicas=v.get("replicas", 1),
            proof=v.get("proof", False),
        )

    def transactional_id(self, index: int) -> str:
        """Return an id of a bounded pool: a new attempt of the same slice by the same replica fences only the old one.
        A speculative copy of a task is such an attempt; another replica is not.
        """
        role = f"w-{self.group}-{self.replica}-{self.numbers[index]}"
        return transactional_id(self.plan.landing, self.plan.lane, self.deployment, self.slot, role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Connection settings of the tasks: librdkafka settings and storage properties. Never printed, never in a plan.

    ``io`` are the connection's storage properties, ``tables`` those of tables with their own from the catalog.
    """

    kafka: Mapping[str, Any]
    io: Mapping[str, str]
    tables: Mapping[str, TableStorage] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Secrets(...)"

    def io_of(self, table: str) -> dict[str, str]:
        """Return storage properties of a table, as :func:`pyiceberg.io.load_file_io` takes them."""
        storage = self.tables.get(table)
        return dict(self.io if storage is None else storage.properties)

    def expired(self, tables: Iterable[str], now: float) -> str:
        """Return a text naming the tables with expired keys; empty if none is known."""
        return " and ".join(
            f"the storage credentials that the catalog handed out for {name} expired at {clock(storage.expires_at)}"
            for name in tables
            if (storage := self.tables.get(name)) is not None
            and storage.expires_at is not None
            and storage.expires_at <= now
        )

    def without(self, text: str) -> str:
        """Return a text with all values of secret-looking settings removed."""
        return redacted(text, self.kafka, self.io, *(storage.properties for storage in self.tables.values()))

    def to_json(self) -> str:
        """Return the settings for a private file or channel.

        :raises SpecError: a setting is a function
        """
        try:
            tables = {name: storage.to_dict() for name, storage in self.tables.items()}
            return json.dumps({"kafka": dict(self.kafka), "io": dict(self.io), "tables": tables})
        except TypeError as e:
            callables = ", ".join(sorted(key for key, value in self.kafka.items() if callable(value)))
            raise SpecError(
                "LC5007",
                f"the Kafka settings {callables} of this landing are functions and cannot be sent to Spark's workers: "
                "use credentials that are settings, or give the workers their own identity",
            ) from e

    @classmethod
    def from_json(cls, text: str) -> Secrets:
        values = json.loads(text)
        tables = {name: TableStorage.from_dict(storage) for name, storage in values["tables"].items()}
        return cls(kafka=values["kafka"], io=values["io"], tables=tables)

    @classmethod
    def save_together(cls, path: Path, several: Sequence[Secrets]) -> None:
        """Write the settings of one or several jobs, readable only by the owner.

        :raises SpecError: a setting is a function
        """
        texts = [each.to_json() for each in several]
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(texts[0] if len(texts) == 1 else json.dumps(texts))

    @classmethod
    def load_together(cls, path: str) -> list[Secrets]:
        """Load the settings of one or several jobs from the given path, or the file of that name that Spark shipped."""
        if not os.path.exists(path):
            from pyspark import SparkFiles

            path = SparkFiles.get(os.path.basename(path))
        text = Path(path).read_text()
        return [cls.from_json(each) for each in (json.loads(text) if text.startswith("[") else [text])]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """A task's report on a slice. ``records`` counts all records done, including rejects; ``rows`` those of the data
    table.
    """

    slice: str
    status: SliceStatus
    detail: str
    records: int = 0
    rows: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> SliceResult:
        """Return the result in a row with the columns of :data:`RESULT`."""
        return cls(**{**row, "status": SliceStatus(row["status"])})

    def __str__(self) -> str:
        return f"slice {self.slice}: {self.status}{f' ({self.detail})' if self.detail else ''}"


RESULT = "slice string, status string, detail string, records long, rows long, seconds double"
"""Columns of a :class:`SliceResult` with Spark's types."""
