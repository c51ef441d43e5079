# SPDX-License-Identifier: Apache-2.0
"""Wheel and source archive for a release, from the last commit and nothing that lies beside it.

Contract: the metadata name the repository that is stated, in place of the reserved host in `setup.cfg`; without one
nothing is built. Archives appear in `dist/` only when all of that held.
"""

from __future__ import annotations

import io
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
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(fresh), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DistError(done.stdout[-3000:] + done.stderr[-3000:])
        with zipfile.ZipFile(next(fresh.glob("*.whl"))) as wheel:
            metadata = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
        if RESERVED in metadata or f"Project-URL: Source, {address}\n" not in metadata:
            raise DistError(
                "the wheel does not name the repository: setup.cfg must state its address as in dev/dist.py"
            )
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(path, out)) for path in sorted(fresh.iterdir())]


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
