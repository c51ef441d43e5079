# SPDX-License-Identifier: Apache-2.0
"""Asks tables by a process of its own, so that who asks loads neither pyiceberg nor Arrow, and nothing that a table
holds, or a catalog does, can hurt him.

Contract: :func:`ask` gives an answer for each question within :data:`MOST_SECONDS`. Properties of catalogs go by the
process's input: they are on no command line, in no environment and in no file.

Failure story: a process that dies, or has not come to an end in time, has answered what it has; the rest is answered
with that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from airflow_provider_lakecommit.table_looks.question import TableAnswer, TableQuestion

__all__ = ["MOST_SECONDS", "ask"]

MOST_SECONDS = 60.0
MODULE = __name__.rpartition(".")[0]
_DAMAGE = (KeyError, TypeError, ValueError, IndexError)


def ask(
    questions: Sequence[TableQuestion],
    catalogs: Mapping[str, Mapping[str, str]],
    seconds: float = MOST_SECONDS,
) -> list[TableAnswer]:
    """Answers, in the order of the questions.

    :param catalogs: properties of each catalog, by the connection that questions name
    :param seconds: after which what was not answered is left
    """
    told = json.dumps({"catalogs": catalogs, "questions": [asdict(q) for q in questions]})
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        said, _ = process.communicate(told, seconds)
        trouble = f"the process that looks at tables ended with code {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        trouble = f"not looked at within {seconds:.0f} s"
    found = dict(answer for line in said.splitlines() if (answer := _answer(line)) is not None)
    return [found.get(n) or TableAnswer(trouble=trouble) for n in range(len(questions))]


def _answer(line: str) -> tuple[int, TableAnswer] | None:
    """``None`` for what is none: a library's word, or a line that was cut off."""
    try:
        number, answer = json.loads(line)
        return int(number), TableAnswer.from_json(answer)
    except _DAMAGE:
        return None
