# SPDX-License-Identifier: Apache-2.0
"""A test that leaves something running fails, and names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import logging, subprocess, sys, threading
from confluent_kafka import Producer

kept = []
stop = threading.Event()

def test_leaves():
    kept.append({left})

def teardown_module():
    stop.set()
    kept[0].join() if {left!r}.startswith("start") else kept[0].kill() if {left!r}.startswith("sub") else None

def log_of_a_failure():
    client = Producer({{'bootstrap.servers': '127.0.0.1:1', 'log_level': 0}})
    try:
        raise ValueError(client)
    except ValueError as failure:
        logging.getLogger(__name__).warning("it failed: %s", failure)

def start(thread):
    thread.start()
    return thread
"""


INTERRUPTED = """
import subprocess, sys

kept = []

def test_fails():
    raise AssertionError("said before the interruption")

def test_is_interrupted():
    kept.append(subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE))
    raise KeyboardInterrupt

def teardown_module():
    kept[0].kill()
"""


def pytest_run(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest, with the fixture, that waits for nothing to end."""
    (folder / "test_it.py").write_text(tests)
    (folder / "conftest.py").write_text(
        "from tests.fixtures import leftovers as told\nfrom tests.fixtures.leftovers import leftovers\n"
        "told.ENDING_SECONDS = 0.0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    return subprocess.run(
        [*command, "test_it.py"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.heavy(but=("process", "client"))
@pytest.mark.parametrize(
    ("left", "named"),
    [
        ("start(threading.Thread(target=stop.wait, name='forgotten'))", "thread forgotten"),
        ("Producer({'bootstrap.servers': '127.0.0.1:1', 'log_level': 0})", "librdkafka client"),
        ("subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)", "-c input()"),
        ("log_of_a_failure()", ""),
        ("None", ""),
    ],
    ids=["thread", "client", "process", "log", "nothing"],
)
def test_what_a_test_leaves_running_is_an_error_that_names_it(tmp_path: Path, left: str, named: str) -> None:
    done = pytest_run(tmp_path, HEAD.format(left=left))
    assert done.returncode == (pytest.ExitCode.TESTS_FAILED if named else pytest.ExitCode.OK), done.stdout
    assert not named or ("the test left behind:" in done.stdout and named in done.stdout)


def test_an_interrupted_run_still_reports_what_failed_before(tmp_path: Path) -> None:
    done = pytest_run(tmp_path, INTERRUPTED)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stderr
    assert "said before the interruption" in done.stdout
