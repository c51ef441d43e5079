# SPDX-License-Identifier: Apache-2.0
"""The libraries of a window job as an archive that Spark unpacks for its executors (`spark.archives`).

Contract: :func:`pack` writes a virtual environment as `tar.gz`: what this project's tasks import, with all that these
libraries need themselves, in the very versions that are installed here; further distributions where asked for. Airflow,
catalogs' clients and the jars of pyspark are left out: no task needs them. This package is left out too, as every job
brings it. An environment finds itself by where its interpreter lies, so it works wherever it is unpacked. The
interpreter is not in it: `bin/python` is a link to the one of this environment, or to the path that is given, which
must be the same release on each executor. No tool that packs environments is used: they take all or nothing, Airflow
and half a gigabyte of jars with it, and refuse what is installed in place.

Failure story: a distribution that is not installed, or of which nobody knows the files, is a :class:`SpecError` before
anything is written. The archive appears whole or not at all.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from airflow_provider_lakecommit.exceptions import SpecError

__all__ = ["NAME", "Packed", "needed", "pack", "spark_conf"]

PROJECT = "airflow-provider-lakecommit"
NAME = "environment"
"""Folder into which Spark unpacks it, beside each executor."""
EXTRAS = ("s3", "gcs", "adls", "transform")
"""Extras of the project that a task needs, where they are installed."""
LEFT_OUT = {"pyspark": ("jars", "bin", "sbin", "data", "examples", "licenses", "python", "kubernetes")}
"""Folders of a distribution that no Python worker reads."""
COMPRESSION = 4
_EPOCH = 315532800
"""1980: the same files give the same archive, whenever they were installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What is in an archive."""

    file: Path
    size: int
    python: str
    distributions: Mapping[str, str]
    """Names and versions."""


def spark_conf(file: Path) -> dict[str, str]:
    """Settings with which Spark uses the archive."""
    return {"spark.archives": f"{file}#{NAME}", "spark.pyspark.python": f"./{NAME}/bin/python"}


def needed(also: Iterable[str] = ()) -> dict[str, Distribution]:
    """The distributions of a task, by their normalised names.

    :param also: further ones, as one states a requirement
    :raises SpecError: one of them is not installed
    """
    closure = _Closure()
    for requirement in _of_tasks():
        closure.add(requirement, may_lack=not _holds(requirement))
    for text in also:
        try:
            closure.add(Requirement(text), may_lack=False)
        except InvalidRequirement as e:
            raise SpecError(f"{text!r} is not the name of a distribution: {e}") from e
    closure.found.pop(PROJECT, None)
    return closure.found


def pack(file: Path, *, also: Iterable[str] = (), python: str | None = None) -> Packed:
    """Write the archive.

    :param python: of the interpreter on the executors, if it is elsewhere there
    :raises SpecError: something of it is not installed as it must be
    """
    distributions = dict(sorted(needed(also).items()))
    files = {place: path for d in distributions.values() for place, path in _files(d)}
    # Of a virtual environment it is the one that that was made from.
    interpreter = python or str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
    release = f"{sys.version_info.major}.{sys.version_info.minor}"
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=COMPRESSION, format=tarfile.PAX_FORMAT) as archive:
            home = f"home = {PurePosixPath(interpreter).parent}\ninclude-system-site-packages = false\n"
            _add_text(archive, "pyvenv.cfg", home)
            for name in ("python", "python3", f"python{release}"):
                _add_link(archive, f"bin/{name}", interpreter)
            for place, path in sorted(files.items()):
                _add_file(archive, f"lib/python{release}/site-packages/{place}", path)
        unfinished.replace(file)
    except OSError as e:
        raise SpecError(f"{file} cannot be written: {e}") from e
    finally:
        unfinished.unlink(missing_ok=True)
    versions = {name: d.version for name, d in distributions.items()}
    return Packed(file=file, size=file.stat().st_size, python=interpreter, distributions=versions)


# -- which distributions ----------------------------------------------------------------------------------------------


def _of_tasks() -> Iterator[Requirement]:
    """What this project requires, without what only Airflow's side of it does."""
    for text in distribution(PROJECT).requires or ():
        requirement = Requirement(text)
        if _holds(requirement, *EXTRAS) and not canonicalize_name(requirement.name).startswith("apache-airflow"):
            yield requirement


def _holds(requirement: Requirement, *extras: str) -> bool:
    """Is it required here, without any extra or with one of these?"""
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))


class _Closure:
    """Distributions with all that they require here. What an extra asks for may be there or not."""

    def __init__(self) -> None:
        self.found: dict[str, Distribution] = {}
        self._added: set[tuple[str, frozenset[str]]] = set()

    def add(self, requirement: Requirement, *, may_lack: bool) -> None:
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in self._added:
            return
        try:
            one = distribution(name)
        except PackageNotFoundError:
            if may_lack:
                return
            raise SpecError(f"{name} is not installed in {sys.prefix}: install it, then pack again") from None
        self._added.add((name, frozenset(requirement.extras)))
        self.found[name] = one
        for further in map(Requirement, one.requires or ()):
            if _holds(further, *requirement.extras):
                self.add(further, may_lack=may_lack or not _holds(further))


# -- which files ------------------------------------------------------------------------------------------------------


def _files(of: Distribution) -> Iterator[tuple[str, Path]]:
    """Files below `site-packages`, by their place there."""
    name = canonicalize_name(of.metadata["Name"])
    if '"editable": true' in (of.read_text("direct_url.json") or ""):
        raise SpecError(
            f"{name} is installed in place (editable), its files are elsewhere: install it as it is, then pack"
        )
    if of.files is None:
        raise SpecError(f"{name} was installed without a list of its files: install it by pip or uv, then pack again")
    for entry in of.files:
        parts = PurePosixPath(entry).parts
        if ".." in parts or "__pycache__" in parts or PurePosixPath(entry).is_absolute():
            continue
        if len(parts) > 2 and parts[0] == name and parts[1] in LEFT_OUT.get(name, ()):
            continue
        path = Path(str(of.locate_file(entry)))
        if path.is_file():
            yield str(PurePosixPath(entry)), path


def _add_text(archive: tarfile.TarFile, place: str, text: str) -> None:
    content = text.encode()
    info = _entry(place)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def _add_link(archive: tarfile.TarFile, place: str, target: str) -> None:
    info = _entry(place)
    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
    archive.addfile(info)


def _add_file(archive: tarfile.TarFile, place: str, path: Path) -> None:
    info = _entry(place)
    info.size, info.mode = path.stat().st_size, 0o755 if os.access(path, os.X_OK) else 0o644
    with path.open("rb") as content:
        archive.addfile(info, content)


def _entry(place: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(place)
    info.mode, info.mtime = 0o644, _EPOCH
    return info
