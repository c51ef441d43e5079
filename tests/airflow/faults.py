# SPDX-License-Identifier: Apache-2.0
"""Places at which a task of a live DAG can be held or killed, by files of one folder.

Contract: a file ``<landing>.<place>.hold`` keeps whoever comes there waiting until it is missing, ``….die`` (removed
first) kills it as by ``kill -9``; ``….reached`` tells that a user was there. The places are ``plan``, ``commit`` and
``outcome``, each ``.before`` and ``.after`` (all of its work is done, Airflow does not know it yet), and
``write.<offset>``: before the slice that begins there.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = "LAKECOMMIT_TEST_FAULTS"
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Faults:
    """The places of one landing."""

    folder: Path
    landing: str

    def hold(self, place: str) -> None:
        self._file(place, "hold").touch()

    def let_go(self, place: str) -> None:
        self._file(place, "hold").unlink(missing_ok=True)

    def kill(self, place: str) -> None:
        self._file(place, "die").touch()

    def reached(self, place: str) -> bool:
        return self._file(place, "reached").exists()

    def pass_by(self, place: str) -> None:
        """For whoever comes to a place."""
        self._file(place, "reached").touch()
        while self._file(place, "hold").exists():
            time.sleep(POLL_SECONDS)
        if (fatal := self._file(place, "die")).exists():
            fatal.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def _file(self, place: str, what: str) -> Path:
        return self.folder / f"{self.landing}.{place}.{what}"


def arm(dag: Any, landing: str) -> None:
    """Have the tasks of a landing pass by their places."""
    if FOLDER not in os.environ:
        return
    faults = Faults(Path(os.environ[FOLDER]), landing)
    for name in ("plan", "commit", "outcome"):
        task = dag.get_task(f"land.{name}")
        task._pre_execute_hook = partial(_pass, faults, f"{name}.before")
        task._post_execute_hook = partial(_pass, faults, f"{name}.after")


def _pass(faults: Faults, place: str, *_: Any) -> None:
    faults.pass_by(place)
