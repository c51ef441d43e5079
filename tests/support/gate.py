# SPDX-License-Identifier: Apache-2.0
"""A gate before each slice of a job on a real server: a test sees which slices were begun, and lets them pass.

The tasks are the package's own. Only before each of them the worker notes, in a folder that the test looks into, which
slice it begins, and waits there for a file.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_provider_lakecommit.spark import task
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.launch import connect_task
from tests.support.waiting import until

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of one landing's jobs."""

    base: Path
    landing: str = "rows"

    def put(self, patch: pytest.MonkeyPatch) -> None:
        """Before all slices of the jobs that this process sends, of whatever landing."""
        send = connect_task.command

        def gated(job: WindowJob, secrets: Secrets) -> bytes:
            folder = Gate(self.base, job.plan.landing).folder
            folder.mkdir(exist_ok=True)
            return pickle.dumps(_Gated(folder, send(job, secrets)))

        patch.setattr(connect_task, "command", gated)

    @property
    def folder(self) -> Path:
        """Where workers and test leave each other notes."""
        return self.base / self.landing

    def let_pass(self, place: int | str = "all") -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"pass-{place}").touch()

    @property
    def begun(self) -> Counter[int]:
        """How often each slice of the group was begun."""
        return Counter(int(note.name.split("-")[1]) for note in self.folder.glob("begun-*"))

    @property
    def code(self) -> set[str]:
        """Where the workers have the package from."""
        return {note.read_text() for note in self.folder.glob("begun-*")}

    def await_end(self, place: int) -> None:
        """Wait until no worker lives that has begun a slice: one that was reported to end would pass the gate, too."""
        pids = [note.name.split("-")[2] for note in self.folder.glob(f"begun-{place}-*")]
        until(lambda: not any(Path("/proc", pid).exists() for pid in pids))

    def await_begun(self, *places: int, by: subprocess.Popen[str] | None = None) -> None:
        """Wait until some slices were begun.

        :param by: the process that begins them; one that has ended begins no more
        """

        def begun() -> bool:
            found = set(places) <= set(self.begun)
            assert found or by is None or by.poll() is None, by.communicate()[0] if by is not None else ""
            return found

        until(begun, what=f"slices {places} of {self.landing}")


class _Gated:
    def __init__(self, folder: Path, command: bytes) -> None:
        self._parts = (str(folder), command)

    def __reduce__(self) -> Any:
        return unpack, self._parts


def unpack(folder: str, command: bytes) -> Any:
    """In a Python worker."""
    unpacked, run = pickle.loads(command), task.run_task.__dict__.get("ungated", task.run_task)

    def gated(work: WindowJob, secrets: Secrets, index: int, *, deaths: int = 0) -> SliceResult:
        place = work.numbers[index]
        (Path(folder) / f"begun-{place}-{os.getpid()}-{uuid4().hex}").write_text(str(task.__file__))
        until(lambda: any((Path(folder) / f"pass-{name}").exists() for name in (place, "all")))
        return run(work, secrets, index, deaths=deaths)

    gated.__dict__["ungated"] = run
    task.run_task = gated
    return unpacked
