# SPDX-License-Identifier: Apache-2.0
"""`make demo`: real flights through a real broker, Spark and Airflow into a real table; Spark is killed on the way.

Contract: ends by itself, with 0 only if every check held, with 1 if one did not or a part failed (then the logs are
kept and named), with 128 + n after signal n. However it ends, nothing that it started runs any more; unless it failed,
its directory is gone too. LAKECOMMIT_DEMO_CATALOG_URI, a SQLAlchemy URI (postgresql+psycopg2://…), puts the catalog
elsewhere than on SQLite; the demo's tables are dropped there at the end.
"""

from __future__ import annotations

import shutil
import sys
import traceback
import uuid
from collections.abc import Iterator

from dev.airflow_stack import task_errors
from dev.demo.screen import Screen
from dev.interruptible import leave, run
from dev.paths import run_dir
from dev.preflight import INSTALLED, MACHINE, problems
from dev.stack import Stack

TITLE = "Flights from a Kafka topic into an Iceberg table, exactly once"
SIGNALLED = 128


def main() -> int:
    """Preflight, the demo, and its end."""
    missing = problems(MACHINE + INSTALLED) or problems((_catalog_answers, _data_is_there))
    for place, text in enumerate(missing, start=1):
        print(f"{place}. {text}", file=sys.stderr)
    if missing:
        return 1
    name = f"demo-{uuid.uuid4().hex[:8]}"
    stack = Stack(run_dir() / name, deployment=name, namespace=name.replace("-", "_"))
    code = run(lambda: _demo(stack), lambda: _end(stack))
    if code >= SIGNALLED:
        print("\ninterrupted: everything is stopped", file=sys.stderr)
    if code != 1:
        shutil.rmtree(stack.directory, ignore_errors=True)
    return code


def _demo(stack: Stack) -> int:
    """All steps; 0 when all checks hold."""
    # Only here: what they import takes a second, and an interrupt before is answered at once.
    from dev.demo.context import Demo
    from dev.demo.outage import stall_and_drain
    from dev.demo.steps import bring_up, kill_and_finish, land, land_nothing
    from dev.demo.story import tell_the_story

    screen = Screen()
    screen.title(TITLE)
    try:
        demo = Demo(stack=stack, screen=screen)
        with screen.step(0, "Broker, catalog and Airflow start; the flights are sent"):
            bring_up(demo)
        with screen.step(1, "The Dag lands them"):
            land(demo)
        with screen.step(2, "More is sent; Spark is killed -9 in mid-window; the next run finishes"):
            kill_and_finish(demo)
        with screen.step(3, "One more run lands nothing and sends no event"):
            land_nothing(demo)
        with screen.step(4, "The catalog is taken away in mid-window, and comes back"):
            stall_and_drain(demo)
        with screen.step(5, "What the table and the control topic say"):
            tell_the_story(demo)
    except Exception as error:
        return _failed(stack, screen, error)
    if screen.verdict():
        return 0
    _show_logs(stack)
    return 1


def _failed(stack: Stack, screen: Screen, error: Exception) -> int:
    if not stack.is_stopping:
        told = error if isinstance(error, RuntimeError) else "".join(traceback.format_exception(error))
        screen.note(f"\nFAILED: {told}")
        _show_logs(stack)
    return 1


def _show_logs(stack: Stack) -> None:
    """What the tasks failed with, and where all logs are."""
    logs = stack.directory / "airflow" / "logs"
    for line in task_errors(logs):
        print(line, file=sys.stderr)
    print(f"\nlogs: {stack.children.logs}\n      {logs}", file=sys.stderr)


def _end(stack: Stack) -> None:
    """Stop everything; in a catalog that outlives us, leave no tables."""
    stack.stop()
    if stack.has_foreign_catalog:
        from dev.demo.evidence import Lake

        Lake(stack.catalog, stack.namespace).drop()


def _data_is_there() -> Iterator[str]:
    from dev.demo.flights import FlightsError, data_file

    try:
        data_file()
    except FlightsError as error:
        yield str(error)


def _catalog_answers() -> Iterator[str]:
    from dev.stack import CATALOG_VARIABLE, foreign_catalog

    uri = foreign_catalog()
    if uri is None:
        return
    from sqlalchemy import create_engine

    try:
        create_engine(uri).connect().close()
    except Exception as error:
        yield f"{CATALOG_VARIABLE}: no connection, {type(error).__name__}: {error}; PostgreSQL needs `.[postgres]`"


if __name__ == "__main__":
    leave(main())
