# SPDX-License-Identifier: Apache-2.0
"""The Java of this host that a Spark session would use: `JAVA_HOME` if it is set, else the `java` of the search path.

Contract: runs at most `java -version`. Missing or unusable Java is a finding, never an exception.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

JAVA = (17, 21)
JAVA_REMEDY = "install a Java 17 or 21 runtime, or set JAVA_HOME to one"


def java_here(environment: Mapping[str, str] = os.environ) -> tuple[bool, str]:
    """Return True if Spark runs on this host's Java, and what was found."""
    home = environment.get("JAVA_HOME")
    binary = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if binary is None:
        return False, "no java on the search path, and JAVA_HOME is not set"
    try:
        done = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as e:
        why = e.strerror if isinstance(e, OSError) else "no answer in 30 s"
        return False, f"{binary} does not run{' (from JAVA_HOME)' if home else ''}: {why}"
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', done.stderr + done.stdout)
    if version is None:
        return False, f"{binary} ended with {done.returncode} and reported no version"
    return int(version[1]) in JAVA, f"Java {version[1]} in {binary}"
