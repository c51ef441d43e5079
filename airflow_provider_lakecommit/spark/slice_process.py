# SPDX-License-Identifier: Apache-2.0
"""One attempt at a slice in a process of its own, for slices that processes died of.

Contract: :func:`run_apart` is :func:`~airflow_provider_lakecommit.spark.slices.run_slice` with the same outcome and the
same errors, but for one: where the process dies (no memory, a crash in a library) that is a
:class:`~airflow_provider_lakecommit.exceptions.RecordsError` of the range. So what kills a process is found and stands
alone like what raises an exception, and whoever calls lives on. A new process of Python costs a second or two, so this
is for slices only of which something has died before.

The process is given its work and the connection settings by a pipe, and nothing secret in its arguments or environment.
The system is asked to take its memory first. It ends when its caller does.

Failure story: one that does not come as far as its work tells nothing of the records: that may pass. The files of one
that died stay where they are, as those of every attempt that was killed; no report names them.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_provider_lakecommit import exceptions
from airflow_provider_lakecommit.exceptions import LakecommitError, RecordsError, SourceError, SparkJobError
from airflow_provider_lakecommit.spark.failures import passes
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark.slices import SliceOutcome, SliceWork

__all__ = ["run_apart"]

COMMAND = (sys.executable, "-m", "airflow_provider_lakecommit.spark.slice_process")
READY = b"ready\n"


def run_apart(job: WindowJob, secrets: Secrets, work: SliceWork) -> SliceOutcome:
    """Do the slice of the work, the only one of the job.

    :raises RecordsError: the process died of it
    :raises LakecommitError: what the attempt raised
    """
    asked = {"job": job.to_json(), "secrets": secrets.to_json(), "attempt": str(work.attempt)}
    # The package may be in a file that Spark shipped to this worker.
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            ready, told = _talk(process, json.dumps(asked).encode() + b"\n")
            code = process.wait()
        finally:
            process.kill()
    if not ready:
        raise SparkJobError(
            "LC5033", f"slice {work.slice}: the process apart that was to do it did not start: {_end(code)}"
        )
    if code or not told:
        raise RecordsError("LC5034", f"{work.slice}: the process that handled its records {_end(code)}")
    answer = pickle.loads(told)
    if isinstance(answer, dict):
        raise _error(answer)
    outcome: SliceOutcome = answer
    return outcome


def _talk(process: subprocess.Popen[bytes], asked: bytes) -> tuple[bool, bytes]:
    """Did it come to its work, and what does it say. Its input stays open as long as it may live."""
    if process.stdin is None or process.stdout is None:
        return False, b""
    with suppress(BrokenPipeError):
        process.stdin.write(asked)
        process.stdin.flush()
    ready = process.stdout.readline() == READY
    return ready, process.stdout.read()


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    hint = ", as a system does that has no memory left" if code == -9 else ""
    return f"was killed by signal {-code}{hint}"


def _error(told: dict[str, Any]) -> Exception:
    kind = getattr(exceptions, told["kind"], None)
    if kind is None:
        return SparkJobError("LC5035", told["text"]) if told["passes"] else RecordsError("LC5036", told["text"])
    spans = (told["spans"],) if issubclass(kind, RecordsError | SourceError) else ()
    error: Exception = kind(told["code"], told["text"], *spans)
    return error


def _told(error: Exception) -> dict[str, Any]:
    ours = error if isinstance(error, LakecommitError) else None
    return {
        "kind": type(error).__name__ if ours else "",
        "code": ours.code if ours else "",
        "text": ours.message if ours else f"{type(error).__name__}: {error}",
        "passes": passes(error),
        "spans": tuple(getattr(error, "spans", ())),
    }


def _do(asked: dict[str, str]) -> SliceOutcome:
    from airflow_provider_lakecommit.spark.slices import SliceWork, run_slice

    job, secrets = WindowJob.from_json(asked["job"]), Secrets.from_json(asked["secrets"])
    work = SliceWork(
        landing=job.landing,
        slice=job.plan.slices[0],
        targets=job.plan.targets,
        attempt=UUID(asked["attempt"]),
        known=job.plan.positions,
        leader_epochs=job.plan.leader_epochs,
        lane=job.plan.lane,
        generation=job.plan.generation,
    )
    return run_slice(work, secrets.kafka, secrets.io_of, progress=lambda text: print(text, file=sys.stderr, flush=True))


def main() -> None:
    """What the process does."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    # What a library prints is not to be taken for the answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_caller, daemon=True).start()
    answers.write(READY)
    answers.flush()
    answer: Any
    try:
        answer = _do(asked)
    except Exception as e:
        answer = _told(e)
    answers.write(pickle.dumps(answer))
    answers.flush()
    # The thread that waits for the caller's end would keep Python from an orderly one.
    os._exit(0)


def _end_with_caller() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
