# SPDX-License-Identifier: Apache-2.0
"""Private folders of a process: settings, logins and Spark's temporary files.

Contract: only the owner can read a folder, which is named after its process. Creating the next one on this machine
removes those of killed processes.

Failure story: a folder is removed only if its process is certainly dead. Processes of another container with the same
temporary folder are unknown, so their folders stay until one there creates a folder.

Settings that other users of the machine must not read are in such a folder: other users can list processes with their
arguments, and spark-submit takes settings as arguments. So secret settings go to a properties file that only the owner
can read; Spark's own defaults are loaded too (``--load-spark-defaults``). :data:`REDACTION` removes them from Spark's
web UI, event log and messages.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit.spark.launch.process import ProcessName, lives

_PREFIX = "lakecommit-"


def scratch_folder(root: str | None = None) -> Path:
    """Create a private folder of this process, and remove those of killed processes."""
    base, own = Path(root or tempfile.gettempdir()), ProcessName.own()
    ours = f"{_PREFIX}{os.getuid()}-{_machine(own)}-"
    for left in base.glob(f"{ours}*"):
        pid, _, start = left.name.removeprefix(ours).partition("-")
        if pid.isdecimal() and not lives(int(pid), start.rpartition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{ours}{own.pid}-{own.start}-", dir=base))


def _machine(process: ProcessName) -> str:
    """Return a name for the scope of process ids; reboots do not matter, since start times are unique."""
    return hashlib.sha256(f"{process.host}|{process.namespace}".encode()).hexdigest()[:8]


LOAD_DEFAULTS = "--load-spark-defaults"
REDACTION: Mapping[str, str] = {
    "spark.redaction.regex": "(?i)secret|passw(or)?d|passphrase|token|access[.]?key|account[.]key|private[.]?key"
    "|[.]sas[.]|credential|jaas|authorization|api[._-]?key|encryption[.]key"
}
"""Spark's own pattern, extended by Azure's, Google's and Kafka's names of secrets."""
_SUBMIT = "PYSPARK_SUBMIT_ARGS"


def save_properties(path: Path, settings: Mapping[str, Any]) -> None:
    """Write settings as Java properties that only the owner can read."""
    lines = (f"{_escaped(key, of_key=True)}={_escaped(str(value))}\n" for key, value in settings.items())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as f:
        f.writelines(lines)


@contextmanager
def beside_the_arguments(path: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Make the Java process that pyspark starts in this block read settings from a file."""
    if not settings:
        yield
        return
    save_properties(path, settings)
    before = os.environ.get(_SUBMIT)
    os.environ[_SUBMIT] = f"--properties-file {shlex.quote(str(path))} {LOAD_DEFAULTS} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        if before is None:
            del os.environ[_SUBMIT]
        else:
            os.environ[_SUBMIT] = before


def _escaped(text: str, *, of_key: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    text = re.sub(r"([ =:#!])" if of_key else r"(^ | $)", r"\\\1", text)
    utf16 = text.encode("utf-16-be", "surrogatepass")
    units = (int.from_bytes(utf16[n : n + 2], "big") for n in range(0, len(utf16), 2))
    return "".join(chr(unit) if 32 <= unit < 127 else f"\\u{unit:04x}" for unit in units)
