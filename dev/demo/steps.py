# SPDX-License-Identifier: Apache-2.0
"""The steps of the demo up to the one that lands nothing; :mod:`.demo_outage` and :mod:`.demo_story` go on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_provider_lakecommit.core.offsets import Coverage
from dev.demo import flights as demo_flights
from dev.demo.context import Demo, DemoError
from dev.demo.evidence import CycleStory
from dev.demo.screen import number
from dev.processes import Process, descendants, kill_all, living
from dev.stack import DAG, DAG_SECONDS, SPARK_MASTER, Stack

SPARK_CLASS = "org.apache.spark.deploy.SparkSubmit"
ENOUGH = 4
"""Slices that must be reported before Spark is killed."""


def bring_up(demo: Demo) -> None:
    """Broker, catalog, Airflow; meanwhile the events are sent."""
    stack, screen = demo.stack, demo.screen
    stack.start_broker(screen.progress)
    with ThreadPoolExecutor(1) as beside:
        airflow = beside.submit(stack.start_airflow, screen.progress)
        demo_flights.make_topic(stack.broker.bootstrap)
        demo.send()
        airflow.result()
    stack.airflow.client.await_dag(DAG, DAG_SECONDS)
    screen.fact("Kafka", stack.broker.bootstrap)
    screen.fact("Iceberg", f"SQL catalog on {stack.database}, files in {stack.directory.name}/warehouse")
    screen.fact("Airflow", f"{stack.airflow.url}, Spark jobs on {SPARK_MASTER}")
    screen.fact("data", f"{number(len(demo.sent[0]))} flights out of New York in 2013, as JSON events")
    screen.fact("topic", f"{demo_flights.TOPIC}, {demo_flights.PARTITIONS} partitions, key: carrier and flight number")


def land(demo: Demo) -> None:
    """The Dag lands everything; the table equals the source."""
    state = demo.run("demo-1")
    if state != "success":
        raise DemoError(f"the first run of {DAG} ended as {state}")
    cycle = demo.cycle("demo-1")
    text = f"{state}; {len(cycle.reported)} of {len(cycle.planned)} slices written"
    demo.screen.check("run 1", text, len(cycle.reported) == len(cycle.planned) > 0)
    rows = demo.check_table()
    source, table = (demo_flights.checksum(frame[demo.flights.columns]) for frame in (demo.flights, rows))
    demo.screen.check("the data set", f"{table}; {source} in its file", table == source)
    demo.check_asset_events(demo.gave_rows("demo-1"))


def kill_and_finish(demo: Demo) -> None:
    """More is produced, Spark is killed in mid-window, the next run finishes."""
    demo.send()
    demo.screen.fact("sent", f"{number(len(demo.sent[-1]))} more events (the same flights once more)")
    killed = _run_and_kill(demo, "demo-2")
    state = demo.await_run("demo-2")
    first = demo.cycle("demo-2")
    text = (
        f"{state}; {killed} processes of Spark killed -9, {len(first.reported)} of {len(first.planned)} slices reported"
    )
    demo.screen.check("run 2", text, state == "failed" and 0 < len(first.reported) < len(first.planned))
    state = demo.run("demo-3")
    second = demo.cycle("demo-3")
    demo.screen.check("run 3", f"{state}; {len(second.reported)} slices written", state == "success")
    _check_slices(demo, first, second)
    demo.check_table()
    demo.check_asset_events(demo.gave_rows("demo-2", "demo-3"))


def land_nothing(demo: Demo) -> None:
    """One more run: no snapshot, no asset event."""
    tables = demo.landing.tables
    before = sum(len(demo.lake.snapshots(table)) for table in tables)
    state = demo.run("demo-4")
    made = sum(len(demo.lake.snapshots(table)) for table in tables) - before
    plan = demo.cycle("demo-4").opened.plan
    demo.screen.check("run 4", f"{state}; {plan.reason}", state == "success" and not plan.slices)
    demo.screen.check("snapshots", f"{made} new", made == 0)
    demo.check_asset_events(0)


def _check_slices(demo: Demo, first: CycleStory, second: CycleStory) -> None:
    """What the killed job had reported is not read again; the rest of its window is, and nothing else."""
    kept = Coverage.of(item for c in first.reported.values() for item in c.items())
    lost = Coverage.of(item for s, c in first.planned.items() if s not in first.reported for item in c.items())
    read = Coverage.of(item for c in second.reported.values() for item in c.items())
    text = f"{len(first.reported)} ({number(len(kept))} events); {number(len(kept & read))} of them read again"
    demo.screen.check("slices kept", text, bool(kept) and not kept & read)
    text = f"{len(first.planned) - len(first.reported)} ({number(len(lost))} events): the rest of run 2's window"
    demo.screen.check("slices read again", text, read == lost)


def _run_and_kill(demo: Demo, run: str) -> int:
    """Trigger a run, and kill its Spark as soon as some slices are reported; how many processes that were."""
    demo.begin(run, lambda cycle: len(cycle.reported) >= ENOUGH)
    victims = _spark_of(demo.stack)
    kill_all(victims)
    return len(victims)


def _spark_of(stack: Stack) -> list[Process]:
    """The Spark job below our scheduler, and everything it started."""
    now = living()
    jobs = [p for p in stack.children.family("scheduler") if SPARK_CLASS in p.command]
    tree = {p.pid: p for job in jobs for p in descendants(job.pid, now)}
    if not tree:
        raise DemoError("no Spark job runs below the scheduler: nothing to kill")
    return list(tree.values())
