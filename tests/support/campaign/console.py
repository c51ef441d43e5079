# SPDX-License-Identifier: Apache-2.0
"""Commands of the command line, run in this process: the campaign uses the product as its users do.

Contract: :meth:`Console.run` runs one command with its arguments and returns what a shell would see. Only Spark is left
out: tasks run one after the other in this process.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.cli import arguments, everyday, maintain, upkeep
from airflow_provider_lakecommit.cli import main as command_line
from airflow_provider_lakecommit.cli.runs import land, land_set, process, set_landings
from airflow_provider_lakecommit.cycle import RunIdentity
from airflow_provider_lakecommit.landing import yaml_file
from airflow_provider_lakecommit.operations.maintenance import compact
from airflow_provider_lakecommit.operations.maintenance.bins import bins_of
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from tests.support.declared import nested, nested_set
from tests.support.world import Killed

__all__ = ["NOTHING", "Answer", "Console", "console"]

KILLED = 137


class InProcessEngine:
    """Runs the tasks of a job in the caller's thread."""

    ahead = 0

    def __init__(self, *_: object, **__: object) -> None: ...

    def start(self) -> None: ...

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        return [run_task(job, secrets, n) for n in range(len(job.plan.slices))]

    def stop(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command left behind: its exit code, its JSON results and its log."""

    arguments: tuple[str, ...]
    code: int
    results: tuple[Mapping[str, Any], ...]
    log: str

    @property
    def done(self) -> bool:
        return self.code == 0

    @property
    def killed(self) -> bool:
        return self.code == KILLED

    @property
    def error(self) -> str:
        """The message of the error that ended the command."""
        last = self.results[-1] if self.results else {}
        return str(last["error"]["message"]) if "error" in last else ""

    @property
    def landing(self) -> str:
        """The landing of a set that the error is about; empty where it is about the only one."""
        return str(self.results[-1].get("landing") or "") if self.results else ""

    @property
    def unforeseen(self) -> bool:
        """Return True if the command ended in an exception that is none of the package's."""
        return "Traceback (most recent call last)" in self.log


NOTHING = Answer(arguments=(), code=-1, results=(), log="")
"""Of an act that had nothing to do."""


@dataclass(slots=True)
class Console:
    """Runs commands on one landing, whose spec is written anew before each."""

    path: Path
    spec: dict[str, Any]

    def run(self, *words: str) -> Answer:
        """Run a command; ``SPEC`` among its words replaces the landing's file."""
        spec = nested_set(**self.spec) if "defaults" in self.spec else nested(**self.spec)
        self.path.write_text(json.dumps(spec), encoding="utf-8")
        arguments = [str(self.path) if word == "SPEC" else word for word in words]
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = _exit_code([*arguments, "--json"])
        results = tuple(json.loads(line) for line in out.getvalue().splitlines() if line.startswith("{"))
        return Answer(arguments=words, code=code, results=results, log=err.getvalue())


def _exit_code(arguments: list[str]) -> int:
    try:
        return command_line.main(arguments)
    except SystemExit as e:
        # The parser's answer to words that it does not know.
        return int(e.code or 0)
    except Killed:
        return KILLED


@contextmanager
def console(path: Path, spec: dict[str, Any]) -> Iterator[Console]:
    """A command line without Spark, and without the redirections that it makes for child processes."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (land, set_landings):
            patch.setattr(module, "engine_of", InProcessEngine)
        patch.setattr(land_set, "local_session", lambda *_: None)
        patch.setattr(command_line, "start_logging", lambda *_, **__: None)
        for module in (arguments, everyday):
            patch.setattr(module, "results_only", lambda _: nullcontext())
        # A run that was killed in this process is as dead as one whose process is missing.
        runs: list[str] = []

        def identity(unique: object, number: int = 0) -> RunIdentity:
            found = process.identity(unique, number)
            runs[:] = [found.run_id]
            return found

        patch.setattr(land, "identity", identity)
        patch.setattr(land, "is_dead", lambda cycle: [cycle.run] != runs)
        # So that files and snapshots of a moment ago are old, and a follow is over in less than a second.
        patch.setattr(maintain, "least_age", lambda _, age: age)
        # Each compaction rewrites whatever is there.
        patch.setattr(compact, "bins_of", partial(bins_of, least=1))
        for module in (everyday, upkeep):
            patch.setattr(module, "duration", lambda text: timedelta(seconds=float(text.removesuffix("s"))))
        # Both take longer than most commands; JSON is YAML, too.
        patch.setattr(yaml_file, "yaml_values", json.loads)
        parser = command_line._parser()
        patch.setattr(command_line, "_parser", lambda: parser)
        yield Console(path, spec)
