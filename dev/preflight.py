# SPDX-License-Identifier: Apache-2.0
"""Everything this machine must have, looked at together: each need that is not met is named with its remedy.

`python -m dev.preflight --before-install` runs on a bare Python, before anything is installed, and looks at the
machine; without the option it looks at the installed environment too. Ends with 1 when anything is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from dev.java import REMEDY, SUPPORTED, JavaMissingError, java_major
from dev.paths import CHECKOUT

PYTHON_FROM, PYTHON_BELOW = (3, 11), (3, 14)
DISK_GB = 5.0
DISK_GB_INSTALLED = 2.0
MEMORY_GB = 3.0
GB = 1024**3

Check = Callable[[], Iterator[str]]


def python_fits() -> Iterator[str]:
    """The Python that runs this."""
    if not PYTHON_FROM <= sys.version_info[:2] < PYTHON_BELOW:
        yield f"Python {sys.version.split()[0]} runs, 3.11 to 3.13 is needed: make PYTHON=/path/to/python3.12 …"
    lacking = [module for module in ("venv", "ensurepip", "sqlite3", "ssl") if find_spec(module) is None]
    if lacking:
        yield (
            f"{sys.executable} lacks the standard modules {', '.join(lacking)}: install the whole of Python "
            "(Debian or Ubuntu: apt-get install python3-venv) or take another by make PYTHON=…"
        )


def java_fits() -> Iterator[str]:
    """Spark and Kafka run on it."""
    try:
        major = java_major()
    except (JavaMissingError, OSError) as error:
        yield str(error)
        return
    if major not in SUPPORTED:
        yield f"Java {major} was found, Spark 4.2 and Kafka 4.3 are tested with 17 and 21: {REMEDY}"


def _floored(gigabytes: float) -> float:
    """To the hundredth: what is too little never reads as enough."""
    return int(gigabytes * 100) / 100


def disk_suffices() -> Iterator[str]:
    """Room for the environment and the jars in the checkout, for tables and logs in the temporary folder."""
    rooms = {Path(tempfile.gettempdir()): DISK_GB_INSTALLED}
    rooms[CHECKOUT] = DISK_GB if find_spec("pyspark") is None else DISK_GB_INSTALLED
    for place, needed in rooms.items():
        free = _floored(shutil.disk_usage(place).free / GB)
        if free < needed:
            yield f"{place} has {free:.2f} GB left, {needed:.0f} GB are needed: make room there"
    if not os.access(CHECKOUT, os.W_OK):
        yield f"{CHECKOUT} cannot be written: run as its owner, or work on a clone of your own"


def memory_suffices() -> Iterator[str]:
    """Broker, Spark and Airflow together; asked only where the system says how much is free (Linux)."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return
    free = _floored(int(found[1]) * 1024 / GB) if found else MEMORY_GB
    if free < MEMORY_GB:
        yield f"{free:.2f} GB of memory are free, {MEMORY_GB:.0f} GB are needed: close what you can spare"


def tools_are_there() -> Iterator[str]:
    """Programs that the local stack calls."""
    if shutil.which("ps") is None:
        yield "no `ps` on the search path: install it (Debian or Ubuntu: apt-get install procps)"


def pyspark_is_whole() -> Iterator[str]:
    """pyspark and pyspark-client write the same folder, so they must be of one version, the one of the jars."""
    remedy = "remove .venv and run `make setup`"
    try:
        python, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError as error:
        yield f"{error.name} is not installed: {remedy}"
        return
    if python != client:
        yield f"pyspark {python} and pyspark-client {client} are mixed in one folder: {remedy}"
    jars = spark_jar_versions()
    if jars != {python}:
        yield f"pyspark {python} holds Spark jars {', '.join(sorted(jars)) or 'none'}: {remedy}"


def spark_jar_versions() -> set[str]:
    """Versions of the spark-core jars beside the installed pyspark; one when all is well."""
    spec = find_spec("pyspark")
    places = (spec.submodule_search_locations or []) if spec else []
    jars = (jar.name for place in places for jar in Path(place).glob("jars/spark-core_*.jar"))
    return {match[1] for match in (re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", name) for name in jars) if match}


MACHINE: tuple[Check, ...] = (python_fits, java_fits, disk_suffices, memory_suffices, tools_are_there)
INSTALLED: tuple[Check, ...] = (pyspark_is_whole,)


def problems(checks: tuple[Check, ...]) -> list[str]:
    """What is not met, all of it."""
    return [problem for check in checks for problem in check()]


def main(arguments: list[str]) -> int:
    """Print what is missing; 0 when nothing is."""
    found = problems(MACHINE if "--before-install" in arguments else MACHINE + INSTALLED)
    for number, problem in enumerate(found, start=1):
        print(f"{number}. {problem}", file=sys.stderr)
    if found:
        print(f"{len(found)} of this project's needs are not met; nothing was started.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
