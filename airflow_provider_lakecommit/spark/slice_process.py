# SPDX-License-Identifier: Apache-2.0
"""One attempt at a slice in its own process, for slices that killed a process.

Contract: :func:`run_apart` is :func:`~airflow_provider_lakecommit.spark.slices.run_slice` with the same outcome and
errors, plus one: if the process dies (out of memory, a crash in a library), that is a
:class:`~airflow_provider_lakecommit.exceptions.RecordsError` of the range. So the records that kill a process are
isolated like those that raise an exception, and the caller survives. A new Python process takes a second or two, so
only slices that killed a process use it.

The process gets its work and connection settings through a pipe, nothing secret in its arguments or environment. The
system is set to kill it first if memory runs out. It ends when its caller does.

Failure story: a process that does not reach its work proves nothing about the records: that error may pass. The files
of a dead process stay, like those of every killed attempt; no report names them.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_provider_lakecommit.exceptions import LakecommitError, RecordsError, SparkJobError
from airflow_provider_lakecommit.spark.failures import passes
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Slice
    from airflow_provider_lakecommit.spark.slices import SliceOutcome

COMMAND = (sys.executable, "-m", "airflow_provider_lakecommit.spark.slice_process")
READY = b"ready\n"


def run_apart(job: WindowJob, secrets: Secrets, part: Slice, attempt: UUID) -> SliceOutcome:
    """Do a slice of the job, or a part of one.

    :raises RecordsError: the process died of it
    :raises LakecommitError: the attempt's error
    """
    # Spark may have shipped the package to this worker as a file.
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            ready, answer = _talk(process, pickle.dumps((job, secrets, part, attempt)))
            code = process.wait()
        finally:
            process.kill()
    if not ready:
        raise SparkJobError("LC5033", f"slice {part}: its separate process did not start: {_end(code)}")
    if code or not answer:
        raise RecordsError("LC5034", f"{part}: the process that handled its records {_end(code)}")
    outcome: SliceOutcome | LakecommitError = pickle.loads(answer)
    if isinstance(outcome, LakecommitError):
        raise outcome
    return outcome


def _talk(process: subprocess.Popen[bytes], request: bytes) -> tuple[bool, bytes]:
    """Return whether the process reached its work, and its answer. Its input stays open while it may live."""
    if process.stdin is None or process.stdout is None:
        return False, b""
    with suppress(BrokenPipeError):
        process.stdin.write(request)
        process.stdin.flush()
    ready = process.stdout.readline() == READY
    return ready, process.stdout.read()


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    hint = ", probably because the system ran out of memory" if code == -9 else ""
    return f"was killed by signal {-code}{hint}"


def _answer(job: WindowJob, secrets: Secrets, part: Slice, attempt: UUID) -> SliceOutcome | LakecommitError:
    """Return the outcome or the error. Errors of others may not be known to the caller, so only their text is kept."""
    from airflow_provider_lakecommit.spark.slices import run_slice

    try:
        return run_slice(job, secrets, part, attempt, progress=lambda text: print(text, file=sys.stderr, flush=True))
    except LakecommitError as e:
        return e
    except Exception as e:
        text = f"{type(e).__name__}: {e}"
        return SparkJobError("LC5035", text) if passes(e) else RecordsError("LC5036", text)


def main() -> None:
    """Run the process."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    # Keep output of libraries out of the answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    answers.write(READY)
    answers.flush()
    answers.write(pickle.dumps(_answer(*request)))
    answers.flush()
    # The thread that waits for the caller's end would block Python's regular exit.
    os._exit(0)


def _end_with_caller() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
