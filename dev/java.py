# SPDX-License-Identifier: Apache-2.0
"""Which Java the local stack runs on: `JAVA_HOME` if set, else the `java` of the search path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

SUPPORTED = (17, 21)
SHORT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Of a Java that lives for seconds: its second compiler and its parallel collector never pay."""
REMEDY = (
    "install a Java 17 or 21 runtime (Debian or Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) or set JAVA_HOME to one"
)


class JavaMissingError(RuntimeError):
    """No Java runtime was found, or the one that was found does not run."""


def java_binary() -> str:
    """Path of the `java` program; :class:`JavaMissingError` with a remedy when there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        if not candidate.exists():
            raise JavaMissingError(f"JAVA_HOME={home} holds no bin/java: {REMEDY}")
        return str(candidate)
    found = shutil.which("java")
    if found is None:
        raise JavaMissingError(f"no `java` on the search path: {REMEDY}")
    return found


def java_major() -> int:
    """Feature release of that Java (17, 21, …)."""
    binary = java_binary()
    answer = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        raise JavaMissingError(f"`{binary} -version` ended with {answer.returncode}: {REMEDY}")
    return int(match.group(1))
