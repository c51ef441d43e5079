# SPDX-License-Identifier: Apache-2.0
"""Java classes of Spark and of the broker, read and checked once for all the short runs of a checkout.

A Spark or a broker that lives for seconds spends half of its processor time on loading the same classes. Java keeps
them in an archive (class data sharing, JEP 350) that later processes map into memory. `make test` makes one for each,
which takes as long as one start; :func:`options` has Java use it where it is there and plainly start without it where
it is not.

Contract: an archive is named after what it was made of (the version of Java, the jars, their place) and appears by one
rename. Java leaves aside one that does not fit, and says nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from dev.java import SHORT, java_binary
from dev.paths import run_dir

__all__ = ["make", "options"]

Of = Literal["spark", "broker"]

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java says nothing of an archive that was made for other jars."""
MAKE_SECONDS = 600.0
PROGRAM = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.range(10).mapInArrow(lambda batches: batches, "id long").collect()
session.stop()
"""
"""What Spark is asked for when it notes its classes: a job like ours."""


class ArchiveError(RuntimeError):
    """Java made no archive."""


def options(of: Of = "spark") -> tuple[str, ...]:
    """Java options of short runs."""
    archive = _archive(of)
    return (*SHORT, *QUIET, f"-XX:SharedArchiveFile={archive}") if archive.exists() else SHORT


def make(of: Of = "spark") -> Path:
    """The archive, made if it is missing.

    :raises ArchiveError: the program did not run, or Java made none
    """
    archive = _archive(of)
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(f".{os.getpid()}")
    noting = (*SHORT, *QUIET, f"-XX:ArchiveClassesAtExit={partial}")
    said = _run_spark(noting) if of == "spark" else _run_broker(noting)
    if not partial.exists():
        raise ArchiveError(f"the classes of {of} could not be archived:\n{said}")
    partial.replace(archive)
    return archive


def _run_spark(java_options: Sequence[str]) -> str:
    """From its start to its end; what it said."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": " ".join(java_options),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=MAKE_SECONDS,
    )
    if done.returncode != 0:
        raise ArchiveError(f"the classes of spark could not be archived:\n{done.stderr[-3000:]}")
    return done.stderr[-3000:]


def _run_broker(java_options: Sequence[str]) -> str:
    """From its start to its end; what it said."""
    # Imported late: a broker asks here for its options.
    from dev.servers.kafka import Broker

    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(folder, java_options=java_options).start()
        # Java writes its archive when it has been told to end.
        broker.stop(MAKE_SECONDS)
        return broker.log.read_text()[-3000:]


def _archive(of: Of) -> Path:
    jars = _spark_jars() if of == "spark" else run_dir() / "jars" / "broker"
    made_of = [java_binary(), _java_release(), *(f"{jar} {jar.stat().st_size}" for jar in sorted(jars.glob("*.jar")))]
    return run_dir() / "classes" / f"{of}-{hashlib.sha256(chr(10).join(made_of).encode()).hexdigest()[:16]}.jsa"


def _spark_jars() -> Path:
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ArchiveError("pyspark is not installed: make setup")
    return Path(spark.origin).parent / "jars"


def _java_release() -> str:
    """What this Java says of itself; empty where it says nothing, then its place must do."""
    release = Path(java_binary()).resolve().parent.parent / "release"
    return release.read_text(encoding="utf-8") if release.exists() else ""


if __name__ == "__main__":
    make("spark")
    make("broker")
