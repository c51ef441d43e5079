# SPDX-License-Identifier: Apache-2.0
"""The SHA-256 of every Java archive this project fetches, as listed in `dev/jars.sha256`.

Contract: :func:`problems` names each archive of a folder that is not the listed one, with what to do. Nothing is used
that is not listed. The list has the form of `sha256sum`; a file's name carries its version.

:func:`write` writes it anew, and takes an archive in only if it has the checksum that is published beside the address
it came from (`.sha256`, else `.sha1`).
"""

from __future__ import annotations

import hashlib
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

LIST = Path(__file__).with_name("jars.sha256")
ARCHIVES = (".jar", ".tar.gz")
PUBLISHED = ("sha256", "sha1")
"""Digests that may lie beside an archive, the strongest first."""
ANSWER_SECONDS = 60
REWRITE = "`make jar-checksums`"


class ChecksumError(RuntimeError):
    """An archive is not the one that was published."""


def archives(directory: Path) -> list[Path]:
    """The Java archives of a folder."""
    return sorted(path for path in directory.iterdir() if path.name.endswith(ARCHIVES))


def digest(path: Path, kind: str = "sha256") -> str:
    """A file's digest in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def listed() -> dict[str, str]:
    """SHA-256 by the name of the archive."""
    lines = (line.split() for line in LIST.read_text().splitlines() if not line.startswith("#"))
    return {name: sha256 for sha256, name in lines}


def problems(directory: Path, remedy: str) -> Iterator[str]:
    """What is wrong with the archives of *directory*; *remedy* says how to get another copy."""
    known = listed()
    for path in archives(directory):
        expected = known.get(path.name)
        if expected is None:
            yield f"{path.name} is not in dev/{LIST.name}: after a change of dev/ivy*.xml run {REWRITE}"
        elif (found := digest(path)) != expected:
            yield (
                f"{path.name} is not the file that dev/{LIST.name} lists, it is damaged or was exchanged "
                f"(SHA-256 {found}, listed {expected}): {remedy}"
            )


def write(directories: Iterable[Path], cache: Path) -> int:
    """Write the list for all archives of *directories* that Ivy brought by its *cache*; how many they are."""
    came_from = origins(cache)
    found: dict[str, str] = {}
    for path in (path for directory in directories for path in archives(directory)):
        sha256 = digest(path)
        if found.get(path.name, sha256) != sha256:
            raise ChecksumError(f"two archives are named {path.name}; the list can hold one")
        if path.name not in found:
            _compare(path, came_from)
        found[path.name] = sha256
    head = f"# Written by {REWRITE} for what dev/ivy*.xml ask for; compared with what is published beside each.\n"
    LIST.write_text(head + "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(found.items())))
    return len(found)


def origins(cache: Path) -> dict[str, str]:
    """Address of each archive by its name, from Ivy's notes."""
    places = (
        match[1].replace("\\", "")
        for notes in cache.rglob("ivydata-*.properties")
        for match in re.finditer(r"\.location=(\S+)$", notes.read_text(), re.MULTILINE)
    )
    return {place.rpartition("/")[2]: place for place in places}


def _compare(path: Path, came_from: Mapping[str, str]) -> None:
    address = came_from.get(path.name)
    if address is None:
        raise ChecksumError(f"Ivy has no note of where {path.name} came from: remove the folder of its cache")
    for kind in PUBLISHED:
        published = _answer(f"{address}.{kind}")
        if published is not None:
            if published != digest(path, kind):
                raise ChecksumError(f"{path.name} has another {kind.upper()} than is published for it, {published}")
            return
    raise ChecksumError(f"no checksum is published for {path.name}")


def _answer(address: str) -> str | None:
    """The digest at *address*; None where there is none."""
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as answer:
            words: list[str] = answer.read().decode("ascii", "replace").split()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise ChecksumError(f"{address} could not be asked: {error}") from error
    except OSError as error:
        if isinstance(error.args[0] if error.args else None, FileNotFoundError):
            return None
        raise ChecksumError(f"{address} could not be asked: {error}") from error
    return words[0].lower() if words else None
