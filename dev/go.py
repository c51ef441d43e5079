# SPDX-License-Identifier: Apache-2.0
"""Programs in Go, built from the Go module proxy.

Contract: :func:`built` builds a program once, in a folder of the run directory, and needs no network later. Go's module
cache is in that folder too while it builds, and is removed afterwards.

Failure story: if Go is missing or the build fails, the caller's error has the output of Go.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path

from dev.processes import run_out

BUILD_SECONDS = 1800


def built(home: Path, package: str, version: str, *, name: str, error: type[Exception]) -> Path:
    """Return the program, after building it if it is missing.

    :param home: folder for the program
    :param package: path of the program's package
    :param name: of the program
    :raises Exception: the given kind
    """
    home.mkdir(parents=True, exist_ok=True)
    program = home / f"{name}-{version}"
    with (home / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not program.exists():
            _build(home, program, package, version, error)
    return program


def _build(home: Path, program: Path, package: str, version: str, error: type[Exception]) -> None:
    go = shutil.which("go") or ("/usr/local/go/bin/go" if Path("/usr/local/go/bin/go").exists() else None)
    if go is None:
        raise error("no `go` on the search path: install Go (Debian or Ubuntu: apt-get install golang)")
    print(f"building {program.name} (a few minutes if nothing is cached)", file=sys.stderr)
    own = {"GOBIN": str(home / "bin"), "GOPATH": str(home / "go"), "GOFLAGS": "-modcacherw"}
    run_out(
        [go, "install", f"{package}@{version}"],
        name=f"go install {package}@{version}",
        seconds=BUILD_SECONDS,
        error=error,
        env={**os.environ, **own},
    )
    (home / "bin" / package.rsplit("/", 1)[-1]).rename(program)
    shutil.rmtree(home / "go", ignore_errors=True)
