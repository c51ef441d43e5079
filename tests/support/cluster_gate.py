# SPDX-License-Identifier: Apache-2.0
"""A gate in the Python workers of a cluster, whoever sends the job: a test sees which slices are in hand, holds them
there, and counts how often the records of each were handled.

The workers find a `sitecustomize` on their search path that stands before pyarrow's reader of JSON. It also hides this
package where it is installed, as on a cluster that has it only as it was sent.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import until

__all__ = ["ClusterGate", "Note"]

CODE = """
import os, re, sys, time, uuid
from pathlib import Path

sys.meta_path[:] = [f for f in sys.meta_path if "airflow_provider_lakecommit" not in getattr(f, "__module__", "")]
try:
    import pyarrow.json
except ImportError:
    pyarrow = None
folder = Path(__file__).parent


def reading(source, *args, **options):
    first = re.search(rb'"id": ?([0-9]+)', source.read_buffer().to_pybytes())
    source.seek(0)
    if first is not None:
        place = int(first[1])
        import airflow_provider_lakecommit as package
        note = folder / f"begun-{place}-{os.getpid()}-{uuid.uuid4().hex}"
        unfinished = note.with_name(f"new-{note.name}")
        unfinished.write_text(f"{sys.prefix} {package.__file__}")
        unfinished.rename(note)
        while not ((folder / f"pass-{place}").exists() or (folder / "open").exists()):
            time.sleep(0.05)
    return read(source, *args, **options)


if pyarrow is not None:
    read, pyarrow.json.read_json = pyarrow.json.read_json, reading
"""


class Note(NamedTuple):
    """That a worker has a slice in hand, or had."""

    first: int
    pid: int
    prefix: str
    package: str

    @property
    def from_archive(self) -> bool:
        """Is its Python in an archive that Spark unpacked for the application?"""
        parts = Path(self.prefix).parts
        return parts[-1] == "environment" and any(a == "work" and b.startswith("app-") for a, b in pairwise(parts))

    @property
    def lives(self) -> bool:
        """Not so one that has ended and waits for a parent to see it."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False


class ClusterGate:
    """The gate of all workers whose `PYTHONPATH` begins with its folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        (folder / "sitecustomize.py").write_text(CODE)

    def shut(self) -> None:
        """For the next test: nothing was begun, nothing passes."""
        for note in [*self.folder.glob("begun-*"), *self.folder.glob("pass-*"), *self.folder.glob("open")]:
            note.unlink()

    def open(self) -> None:
        (self.folder / "open").touch()

    def let_pass(self, first: int) -> None:
        """The slice whose first id that is."""
        (self.folder / f"pass-{first}").touch()

    @property
    def notes(self) -> list[Note]:
        found = []
        for path in self.folder.glob("begun-*"):
            _, first, pid, _ = path.name.split("-")
            prefix, package = path.read_text().split()
            found.append(Note(int(first), int(pid), prefix, package))
        return found

    @property
    def begun(self) -> Counter[int]:
        """How often each slice was begun, by its first id."""
        return Counter(note.first for note in self.notes)

    @property
    def again(self) -> set[int]:
        """Slices that were begun more than once."""
        return {first for first, count in self.begun.items() if count > 1}

    def hold_after_first(self) -> set[int]:
        """Let the first slice pass and no other one; the two that are in hand then."""
        self.await_begun(2)
        first = min(self.begun)
        self.let_pass(first)
        self.await_begun(3)
        return {note.first for note in self.notes if note.first != first}

    def dead(self, among: set[int]) -> set[int]:
        """Those of some slices whose worker has died, as all of theirs."""
        return among - {note.first for note in self.notes if note.lives}

    def await_begun(self, count: int) -> None:
        """Until so many different slices were begun."""
        until(lambda: len(self.begun) >= count, what=f"{count} slices begun")
