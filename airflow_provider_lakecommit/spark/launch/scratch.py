# SPDX-License-Identifier: Apache-2.0
"""Private folders of a process: settings, logins and Spark's temporary files.

Contract: only the owner can read a folder, which is named after its process. Creating the next one on this machine
removes those of killed processes.

Failure story: a folder is removed only if its process is certainly dead. Processes of another container with the same
temporary folder are unknown, so their folders stay until one there creates a folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

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
