# SPDX-License-Identifier: Apache-2.0
"""The page "Lake commits" from its source in `ui/`: `make ui` checks, tests and builds it into the package.

Contract: libraries are those of `ui/package-lock.json`, each with its checksum, fetched once for each version of that
file. The build is for the wheel and not kept in the repository.

Failure story: no Node.js, or libraries that cannot be fetched, are a :class:`PageMissingError`, and exit code 3:
nothing is known of the source then. Whatever the tools find wrong is a :class:`PageError` with their words.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from dev.paths import CHECKOUT

__all__ = ["PageError", "PageMissingError", "build", "check"]

SOURCE = CHECKOUT / "ui"
UNAVAILABLE = 3
SECONDS = 600.0
CHECKS = ("check", "lint", "test")


class PageError(RuntimeError):
    """The page is not right, or cannot be built."""


class PageMissingError(PageError):
    """What builds it is not there."""


def check(source: Path = SOURCE) -> None:
    """Types, rules and tests."""
    _libraries(source)
    for step in CHECKS:
        _npm(source, "run", "--silent", step)


def build(source: Path = SOURCE) -> None:
    """Build it into the package beside the source."""
    _libraries(source)
    _npm(source, "run", "--silent", "build")


def _libraries(source: Path) -> None:
    lock, note = source / "package-lock.json", source / "node_modules" / ".lakecommit-lock"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if note.exists() and note.read_text() == wanted:
        return
    try:
        _npm(source, "ci", "--no-audit", "--no-fund")
    except PageError as e:
        raise PageMissingError(f"the page's libraries cannot be fetched: {e}") from e
    note.write_text(wanted)


def _npm(source: Path, *arguments: str) -> None:
    program = shutil.which("npm")
    if program is None:
        raise PageMissingError("no npm: install Node.js 20 or newer, which brings it")
    command = [program, *arguments]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise PageError(f"npm {' '.join(arguments)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def main() -> int:
    """`python -m dev.page`."""
    try:
        check()
        build()
    except PageError as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE if isinstance(error, PageMissingError) else 1
    print("airflow_provider_lakecommit/page/static/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
