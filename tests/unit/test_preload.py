# SPDX-License-Identifier: Apache-2.0
"""Loading before the fork: what tasks need is there, Airflow and Arrow are not, and no thread is left to be forked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from airflow_provider_lakecommit.preload import MODULES

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "airflow_local_settings.py"
PROGRAM = f"""
import json, runpy, sys, threading
runpy.run_path({str(EXAMPLE)!r})
print(json.dumps([sorted(sys.modules), threading.active_count()]))
"""


def test_what_tasks_need_is_loaded_and_nothing_that_a_fork_could_break() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    modules, threads = json.loads(done.stdout.splitlines()[-1])
    assert set(MODULES) <= set(modules)
    assert not {"airflow", "pyspark", "pyarrow", "pandas"} & set(modules)
    assert threads == 1
