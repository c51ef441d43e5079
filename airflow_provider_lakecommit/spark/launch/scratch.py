# SPDX-License-Identifier: Apache-2.0
"""Private folders of a process: settings, logins and what Spark spills while it runs here.

Contract: a folder is for its owner's eyes only and is named after the process that made it. Who makes the next one on
this machine removes those of processes that were killed before they could do it themselves.

Failure story: a folder is removed only when its process is certainly gone. Of a process in another container that
shares the temporary folder nothing is known, so its folder stays until somebody there makes one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from airflow_provider_lakecommit.spark.launch.process import ProcessName, lives

__all__ = ["scratch_folder"]

_PREFIX = "lakecommit-"


def scratch_folder(root: str | None = None) -> Path:
    """A private folder of this process; those that killed processes left are removed."""
    base, own = Path(root or tempfile.gettempdir()), ProcessName.own()
    ours = f"{_PREFIX}{os.getuid()}-{_machine(own)}-"
    for left in base.glob(f"{ours}*"):
        pid, _, start = left.name.removeprefix(ours).partition("-")
        if pid.isdecimal() and not lives(int(pid), start.rpartition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{ours}{own.pid}-{own.start}-", dir=base))


def _machine(process: ProcessName) -> str:
    """Where process ids mean what they mean here; a reboot changes nothing, since no start time comes twice."""
    return hashlib.sha256(f"{process.host}|{process.namespace}".encode()).hexdigest()[:8]
