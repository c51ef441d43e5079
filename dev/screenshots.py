# SPDX-License-Identifier: Apache-2.0
"""The pictures of the documentation, made from a live Airflow: `make screenshots`, which starts the local stack where
it does not run (and stops it then), runs example DAGs and has a headless Chromium look at their pages. Those of the
page "Lake commits" are what its tests see.

Contract: each of :data:`PICTURES`, and of :data:`SEEN_BY_TESTS`, becomes `docs/images/<name>.png`, below
:data:`MOST_BYTES`. A page that does not show what its picture is for is an error, and its picture of before stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.airflow_stack import USER, Airflow
from dev.browser import Browser, BrowserError
from dev.interruptible import leave
from dev.paths import CHECKOUT
from dev.stack import STOP_GRACE, local_stack, up

FOLDER = CHECKOUT / "docs" / "images"
MOST_BYTES = 150_000
RUN_SECONDS = 900.0
PARSE_SECONDS = 120.0
RUN = "monday"
LANDING, APPROVAL = "example_lakecommit_flights", "example_lakecommit_ledger_init"
FIRST_LANDING = "example_lakecommit_basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A page of Airflow, and texts that it shows when it is complete."""

    name: str
    path: str
    shows: tuple[str, ...]


PICTURES = (
    Picture(
        name="run", path=f"/dags/{LANDING}/runs/{RUN}", shows=("land.plan", "land.write", "land.commit", "land.outcome")
    ),
    Picture(
        name="approval",
        path=f"/dags/{APPROVAL}/runs/{RUN}/tasks/approve/required_actions",
        shows=("Approve", "Reject", "would begin at"),
    ),
)


SEEN_BY_TESTS = {"page": "walk-stalled", "page_action": "actions-asked"}
"""By the name of the picture, what tests of :data:`TESTS` call it."""
TESTS = (
    "tests/airflow/test_page_walked.py",
    "tests/airflow/test_page_seen.py::test_what_is_requested_is_requested_back_and_then_done_by_airflow_in_the_users_name",
)
SHOTS = "LAKECOMMIT_SHOTS"


def take_from_tests() -> None:
    """The pictures of the page "Lake commits".

    :raises BrowserError: a test fails
    """
    with tempfile.TemporaryDirectory(prefix="lakecommit-shots-") as folder:
        command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder}/lake", *TESTS]
        done = subprocess.run(
            command, cwd=CHECKOUT, env={**os.environ, SHOTS: folder}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BrowserError(f"tests of the page failed:\n{done.stdout[-3000:]}")
        for name, shot in SEEN_BY_TESTS.items():
            _keep(name, Path(folder, f"{shot}.png").read_bytes())


def take(airflow: Airflow) -> None:
    """All pictures, of what has been run."""
    FOLDER.mkdir(exist_ok=True)
    with Browser(1200, 640) as browser:
        browser.set_cookie(airflow.url, "_token", _token(airflow))
        for each in PICTURES:
            browser.visit(f"{airflow.url}{each.path}")
            _keep(each.name, browser.picture(*each.shows))


def _keep(name: str, content: bytes) -> None:
    if len(content) > MOST_BYTES:
        raise BrowserError(f"{name}: {len(content)} bytes are more than {MOST_BYTES}")
    (FOLDER / f"{name}.png").write_bytes(content)
    print(f"docs/images/{name}.png: {len(content)} bytes", flush=True)


def _token(airflow: Airflow) -> str:
    login = json.dumps({"username": USER, "password": airflow.password}).encode()
    request = urllib.request.Request(f"{airflow.url}/auth/token", login, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=RUN_SECONDS) as answer:
        return str(json.load(answer)["access_token"])


def run_examples(airflow: Airflow) -> None:
    """Have what the pictures show. What has been run before is not run again; the picture shows no other runs.

    :raises BrowserError: a landing did not end in success
    """
    client = airflow.client
    for dag in (LANDING, FIRST_LANDING):
        client.await_dag(dag, PARSE_SECONDS)
        if RUN not in client.runs(dag):
            client.trigger(dag, RUN)
        if (state := client.await_run(dag, RUN, RUN_SECONDS)) != "success":
            raise BrowserError(f"run {RUN} of {dag} ended in {state}: `make down` and once more")
    for other in client.runs(LANDING).keys() - {RUN}:
        client.delete_run(LANDING, other)
    client.await_dag(APPROVAL, PARSE_SECONDS)
    if RUN not in client.runs(APPROVAL):
        client.trigger(APPROVAL, RUN)


@contextmanager
def _running() -> Iterator[Airflow]:
    """The Airflow of the local stack; who finds it running leaves it so."""
    stack = local_stack()
    was_there = bool(stack.running)
    if not was_there and up() != 0:
        raise BrowserError("the local stack did not start")
    try:
        yield local_stack().airflow
    finally:
        if not was_there:
            local_stack().stop(STOP_GRACE)


def main() -> int:
    """`python -m dev.screenshots`."""
    try:
        with _running() as airflow:
            run_examples(airflow)
            take(airflow)
        take_from_tests()
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    leave(main())
