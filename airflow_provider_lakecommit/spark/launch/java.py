# SPDX-License-Identifier: Apache-2.0
"""The Java of this host that a Spark session would use: that of `JAVA_HOME`, else the `java` of the search path."""

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
        done = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False)
    except OSError as e:
        return False, f"{binary} does not run{' (from JAVA_HOME)' if home else ''}: {e.strerror}"
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', done.stderr + done.stdout)
    if version is None:
        return False, f"{binary} ended with {done.returncode} and reported no version"
    return int(version[1]) in JAVA, f"Java {version[1]} in {binary}"
