# SPDX-License-Identifier: Apache-2.0
"""Spark's Java classes, read and checked once for all the short runs of a checkout.

A Spark that lives for seconds spends half of its processor time on loading the same classes. Java keeps them in an
archive (class data sharing, JEP 350) that later processes map into memory. `make test` makes it, which takes as long as
one start of Spark; :func:`options` has Java use it where it is there and plainly start without it where it is not.

Contract: an archive is named after what it was made of (the version of Java, Spark's jars, their place) and appears by
one rename. Java leaves aside one that does not fit, and says nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from dev.java import java_binary
from dev.paths import run_dir

__all__ = ["make", "options"]

SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a Java that lives for seconds: its second compiler and its parallel collector never pay."""
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java says nothing of an archive that was made for other jars."""
MAKE_SECONDS = 600
PROGRAM = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.range(10).mapInArrow(lambda batches: batches, "id long").collect()
session.stop()
"""
"""What Spark is asked for when it notes its classes: a job like ours."""


class ArchiveError(RuntimeError):
    """Java made no archive."""


def options() -> str:
    """Java options of Spark's short runs."""
    archive = _archive()
    return f"{SHORT} {QUIET} -XX:SharedArchiveFile={archive}" if archive.exists() else SHORT


def make() -> Path:
    """The archive, made if it is missing.

    :raises ArchiveError: Spark did not run, or Java made none
    """
    archive = _archive()
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"{SHORT} {QUIET} -XX:ArchiveClassesAtExit={partial}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=MAKE_SECONDS,
    )
    if done.returncode != 0 or not partial.exists():
        raise ArchiveError(f"Spark's classes could not be archived:\n{done.stderr[-3000:]}")
    partial.replace(archive)
    return archive


def _archive() -> Path:
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ArchiveError("pyspark is not installed: make setup")
    jars = Path(spark.origin).parent / "jars"
    made_of = [java_binary(), _java_release(), *(f"{jar} {jar.stat().st_size}" for jar in sorted(jars.iterdir()))]
    return run_dir() / "classes" / f"spark-{hashlib.sha256(chr(10).join(made_of).encode()).hexdigest()[:16]}.jsa"


def _java_release() -> str:
    """What this Java says of itself; empty where it says nothing, then its place must do."""
    release = Path(java_binary()).resolve().parent.parent / "release"
    return release.read_text(encoding="utf-8") if release.exists() else ""


if __name__ == "__main__":
    make()
