# SPDX-License-Identifier: Apache-2.0
"""Java jars without Maven: the Ivy that pyspark bundles resolves `dev/ivy.xml` and its neighbours.

Contract: :func:`fetch` returns, per configuration, a directory that holds *all* its jars. A directory appears by one
rename after a complete resolution and carries a marker with the digest of its ivy.xml and the size of every jar, so an
interrupted, damaged or outdated fetch is noticed and done again. No directory appears whose jars are not those that
`dev/jars.sha256` lists: an error names the jar. Several processes may ask at once: a file lock makes
one of them fetch and the others wait. Nothing is asked of the network when the marker holds.

Ivy asks Maven Central; `LAKECOMMIT_IVY_SETTINGS` names an Ivy settings file for places that use a mirror.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from dev.jar_checksums import problems
from dev.java import SHORT, JavaMissingError, java_binary
from dev.paths import run_dir

CONFS = ("broker", "connector")
"""What tests and the demo need, in `ivy.xml`."""
PEERS = ("worker", "sink", "engine", "stream")
"""What is compared with, in `ivy-peers.xml`."""
METASTORE = ("metastore",)
"""A Hive Metastore, in `ivy-metastore.xml`; an archive of it lies among its jars."""
REST = ("rest",)
"""An Iceberg REST catalog server, in `ivy-rest.xml`."""
AVRO = ("avro",)
"""Avro for the Spark that is compared with, in `ivy-avro.xml`."""
CONVERTER = ("converter",)
"""Avro for the Kafka Connect worker that is compared with, in `ivy-converter.xml`."""
DEBEZIUM = ("debezium",)
"""Debezium's connector of PostgreSQL for that worker, in `ivy-debezium.xml`."""
FILES = {
    "ivy.xml": CONFS,
    "ivy-peers.xml": PEERS,
    "ivy-metastore.xml": METASTORE,
    "ivy-rest.xml": REST,
    "ivy-avro.xml": AVRO,
    "ivy-converter.xml": CONVERTER,
    "ivy-debezium.xml": DEBEZIUM,
}
MARKER = "complete.json"
ATTEMPTS = 2
RESOLVE_SECONDS = 900


class JarsError(RuntimeError):
    """The jars of a configuration could not be brought here."""


def fetch(*confs: str, check: bool = True) -> dict[str, Path]:
    """Directory of jars for each of *confs* (:data:`CONFS` when none is named), fetched first where missing.

    :param check: whether what is fetched must be what `dev/jars.sha256` lists
    """
    wanted = confs or CONFS
    known = [conf for confs in FILES.values() for conf in confs]
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise JarsError(f"no such jar configuration: {', '.join(unknown)}; there are {', '.join(known)}")
    home = run_dir() / "jars"
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / ".lock"):
        for kind in FILES.values():
            missing = [conf for conf in wanted if conf in kind and not _is_complete(home / conf)]
            if missing:
                _resolve(home, missing, check)
    return {conf: home / conf for conf in wanted}


def classpath(*confs: str) -> str:
    """A Java class path over the jars of *confs*."""
    return os.pathsep.join(f"{directory}/*" for directory in fetch(*confs).values())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _ivy_xml(conf: str) -> Path:
    return Path(__file__).with_name(next(name for name, confs in FILES.items() if conf in confs))


def _digest(conf: str) -> str:
    return hashlib.sha256(_ivy_xml(conf).read_bytes()).hexdigest()


def _sizes(directory: Path) -> dict[str, int]:
    return {jar.name: jar.stat().st_size for jar in sorted(directory.glob("*.jar"))}


def _is_complete(directory: Path) -> bool:
    try:
        marker = json.loads((directory / MARKER).read_text())
    except (OSError, ValueError):
        return False
    return bool(marker == {"ivy": _digest(directory.name), "jars": _sizes(directory)})


def _resolve(home: Path, confs: list[str], check: bool) -> None:
    print(f"fetching jars: {', '.join(confs)} (about a minute when nothing is cached)", file=sys.stderr)
    staging = home / f".staging-{os.getpid()}"
    try:
        for attempt in range(1, ATTEMPTS + 1):
            output = _ivy(staging, confs)
            if output is None:
                break
            if attempt == ATTEMPTS:
                raise JarsError(_refusal(confs, output))
        if check:
            cache = run_dir() / "ivy"
            _hold(staging, confs, f"remove the folder {cache}, from which it was taken, and run `make jars`")
        for conf in confs:
            _publish(staging / conf, home / conf)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _hold(home: Path, confs: Iterable[str], remedy: str) -> None:
    """Refuse folders below *home* with a jar that is not the listed one."""
    found = sorted({problem for conf in confs for problem in problems(home / conf, remedy)})
    if found:
        raise JarsError("\n".join(found))


def _ivy(staging: Path, confs: list[str]) -> str | None:
    """One run of Ivy; None when every jar is in *staging*, else what it printed."""
    command = [
        java_binary(),
        *SHORT,
        "-jar",
        str(_ivy_jar()),
        "-ivy",
        str(_ivy_xml(confs[0])),
        "-cache",
        str(run_dir() / "ivy"),
    ]
    settings = os.environ.get("LAKECOMMIT_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    pattern = f"{staging}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    command += ["-confs", *confs, "-types", "jar", "bundle", "tar.gz", "-warn", "-retrieve", pattern]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {RESOLVE_SECONDS} s"
    if done.returncode == 0 and all(_sizes(staging / conf) for conf in confs):
        return None
    return done.stdout + done.stderr


def _ivy_jar() -> Path:
    """The Ivy that pyspark bundles."""
    spec = find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(place).glob("jars/ivy-*.jar"))
        if found:
            return found[-1]
    raise JarsError("pyspark with its jars is not installed in this Python: run `make setup`")


def _refusal(confs: list[str], output: str) -> str:
    telling = [line.strip() for line in output.splitlines() if re.search(r"[a-z]", line) and "kB)" not in line]
    return (
        f"the jars of {', '.join(confs)} could not be fetched from Maven Central in {ATTEMPTS} attempts. "
        "Check the network, or name an Ivy settings file for your mirror in LAKECOMMIT_IVY_SETTINGS. Ivy said:\n  "
        + "\n  ".join(telling[-20:])
    )


def _publish(staged: Path, target: Path) -> None:
    (staged / MARKER).write_text(json.dumps({"ivy": _digest(target.name), "jars": _sizes(staged)}))
    shutil.rmtree(target, ignore_errors=True)
    staged.rename(target)


def main(arguments: list[str]) -> int:
    """`python -m dev.jars [CONF…]`: fetch, read every jar once more and say where they are."""
    try:
        places = fetch(*arguments)
        for conf, directory in places.items():
            _hold(directory.parent, [conf], f"remove the folder {directory} and run `make jars`")
    except (JarsError, JavaMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    for conf, directory in places.items():
        print(f"{conf}: {len(_sizes(directory))} jars in {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
