# SPDX-License-Identifier: Apache-2.0
"""Wheel and source archive for a release, from the last commit and nothing that lies beside it.

Contract: the metadata name the repository that is stated, in place of the reserved host in `setup.cfg`; without one
nothing is built. Archives appear in `dist/` only when all of that held. The same commit gives the same bytes: all times
are that of the commit, or ``SOURCE_DATE_EPOCH``; owners and rights are always the same.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from dev import page
from dev.page import PageError
from dev.paths import CHECKOUT

RESERVED = "https://airflow-provider-lakecommit.example"


class DistError(RuntimeError):
    """The archives cannot be made."""


def checked(repository: str) -> str:
    """The repository's address without a slash at its end."""
    parts = urlsplit(repository)
    if parts.scheme != "https" or not parts.netloc or parts.netloc.endswith(".example"):
        raise DistError(f"{repository or 'nothing'} is no address of a repository: make dist REPOSITORY=https://host/…")
    return repository.rstrip("/")


def build(repository: str, out: Path, make_page: Callable[[Path], None] = page.build) -> list[Path]:
    """Build both archives into *out*, the page with them.

    :raises PageError: the page cannot be built
    """
    address = checked(repository)
    with tempfile.TemporaryDirectory(prefix="lakecommit-dist-") as folder:
        source, fresh = Path(folder, "source"), Path(folder, "dist")
        commit = subprocess.run(["git", "archive", "HEAD"], cwd=CHECKOUT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(commit)) as archive:
            archive.extractall(source, filter="data")
        config = source / "setup.cfg"
        config.write_text(config.read_text().replace(RESERVED, address))
        make_page(source / "ui")
        archives(source, fresh, _epoch())
        with zipfile.ZipFile(next(fresh.glob("*.whl"))) as wheel:
            metadata = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
        if RESERVED in metadata or f"Project-URL: Source, {address}\n" not in metadata:
            raise DistError(
                "the wheel does not name the repository: setup.cfg must state its address as in dev/dist.py"
            )
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(path, out)) for path in sorted(fresh.iterdir())]


def archives(source: Path, out: Path, epoch: int) -> None:
    """Build both archives of a source into an empty folder; the same source and epoch give the same bytes.

    :raises DistError: they cannot be built
    """
    for path in source.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, umask=0o022)
    if done.returncode:
        raise DistError(done.stdout[-3000:] + done.stderr[-3000:])
    _repack(next(out.glob("*.tar.gz")), epoch)


def _epoch() -> int:
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    command = ["git", "log", "-1", "--format=%ct"]
    return int(stated or subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout)


def _repack(path: Path, epoch: int) -> None:
    """Write a source archive again with fixed times and owners: setuptools honours the epoch in wheels only."""
    made = io.BytesIO()
    with (
        tarfile.open(path) as old,
        gzip.GzipFile(filename="", fileobj=made, mode="wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as new,
    ):
        for member in sorted(old, key=lambda m: m.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = epoch, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    path.write_bytes(made.getvalue())


def main(arguments: Sequence[str]) -> int:
    """`python -m dev.dist REPOSITORY`."""
    try:
        for path in build(arguments[0] if arguments else "", CHECKOUT / "dist"):
            print(path.relative_to(CHECKOUT))
    except (DistError, PageError, OSError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
