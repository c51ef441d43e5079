# SPDX-License-Identifier: Apache-2.0
"""`lakecommit connect adopt`: take over the table of a Kafka Connect sink, or hand it back with `--back`.

Nothing is stopped or written before `--yes`. Ends with 1 if there are objections, or if `verify` finds problems
afterwards.

`lakecommit connect rescue`: commit the files that a connector announced and never committed.

The connector must be stopped or deleted, except for `--dry-run`. Needs the brokers, the catalog and the storage; no
landing, no Spark. Ends with 1 if a table refuses, or if files or their table are missing.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.cli.arguments import source
from airflow_provider_lakecommit.cli.control_log import yaml_of
from airflow_provider_lakecommit.cli.from_airflow import connect_connection, load, section_connection
from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, ends_with_preview
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import CONNECT_ADOPT, CONNECT_RESCUE, spoken
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import ConnectorError, SpecError
from airflow_provider_lakecommit.iceberg import as_text
from airflow_provider_lakecommit.landing import from_environment
from airflow_provider_lakecommit.operations import (
    CONTROL_TOPIC,
    By,
    ConnectRest,
    Disposition,
    RescueReport,
    adoption_preview,
    check_stopped,
    hand_back,
    hand_back_preview,
    known_connector,
)
from airflow_provider_lakecommit.operations import adopt as take_over
from airflow_provider_lakecommit.operations import rescue as of_tables


def adopt(options: Namespace, output: Output) -> int:
    spec = load(options, output)
    rest = _rest(options, output)
    if rest is None and not options.connector_is_gone:
        raise SpecError(
            "LC8001", "name its Kafka Connect (--connect URL), or state that it does not exist (--connector-is-gone)"
        )
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        connector = known_connector(
            spec.kafka,
            options.connector,
            rest,
            control_topic=options.control_topic,
            group=options.group,
            by=By(options.by or "both"),
            wait=float(options.wait),
        )
        if options.back:
            code = ends_with_preview(options, output, *hand_back_preview(session, connector))
        else:
            code = _preview(session, connector, options, output)
        if code is not None:
            return code
        act, back = (hand_back, " --back") if options.back else (take_over, "")
        command = f"{spoken(CONNECT_ADOPT)} --connector {connector.name}{back}"
        decision = decision_of(command, session.landing.name, options.reason)
        done = act(session, connector, decision=decision, doubled_stay=options.doubled_stay)
        output.answer({"written": True, **done})
        for text in done["wrong"]:
            output.log(text)
        output.log(f"verify: found {len(done['wrong'])} problems" if done["wrong"] else "verify: found no problem")
        return Exit.REFUSED if done["wrong"] else Exit.DONE


def _preview(session: LandingSession, connector: Any, options: Namespace, output: Output) -> int | None:
    preview = adoption_preview(session, connector, doubled_stay=options.doubled_stay)
    if preview.against:
        for line in preview.lines():
            output.log(line)
        output.answer({"written": False, **preview.to_dict()})
        return Exit.REFUSED
    # An adoption in progress was approved already.
    lines = () if preview.done else preview.lines()
    return ends_with_preview(options, output, preview.to_dict(), lines, gives_up=not preview.done)


def _rest(options: Namespace, output: Output) -> ConnectRest | None:
    """Return the Kafka Connect that the options name, if any."""
    connect = connect_connection(options, output) or connect_of(options.connect)
    output.keep({"connect": connect or {}})
    return None if connect is None else ConnectRest(**connect)


CONNECT_KEYS = ("url", "login", "password", "headers", "verify")


def catalog_of(path: str | None) -> dict[str, str]:
    """Read catalog properties from a YAML file: a mapping of them, or a spec with the section `catalog`."""
    if path is None:
        raise SpecError("LC8020", "give --catalog FILE, or --iceberg-conn-id of an Airflow connection")
    values = yaml_of(path, "--catalog")
    found = values.get("catalog", values) if isinstance(values, Mapping) else None
    if not isinstance(found, Mapping) or not found:
        raise SpecError("LC8021", f"--catalog {path}: use a mapping of pyiceberg's catalog properties")
    return as_text({str(key): value for key, value in from_environment(found, f"--catalog {path}").items()})


def connect_of(where: str | None) -> dict[str, Any] | None:
    """Return the settings of :class:`ConnectRest` from a URL, or from a YAML file that has a login."""
    if where is None or "://" in where:
        return None if where is None else {"url": where}
    values = yaml_of(where, "--connect")
    if not isinstance(values, Mapping) or (wrong := sorted(map(str, set(values) - set(CONNECT_KEYS)))):
        named = f"unknown key {wrong[0]!r}; " if isinstance(values, Mapping) else ""
        raise SpecError("LC8022", f"--connect {where}: {named}use a mapping of {', '.join(CONNECT_KEYS)}")
    found = from_environment(values, f"--connect {where}")
    if not isinstance(found.get("url"), str):
        raise SpecError("LC8023", f"--connect {where}: `url` of a Kafka Connect worker is missing")
    headers = found.get("headers", {})
    if not isinstance(headers, Mapping) or not isinstance(found.get("verify", True), bool | str):
        raise SpecError("LC8024", f"--connect {where}: `headers` is a mapping, `verify` true, false or a file")
    texts = {key: str(found[key]) for key in ("url", "login", "password") if found.get(key) is not None}
    return {**texts, "headers": {str(k): str(v) for k, v in headers.items()}, "verify": found.get("verify", True)}


def rescue(options: Namespace, output: Output) -> int:
    topic, commits = options.control_topic or CONTROL_TOPIC, not options.dry_run
    kafka, _ = source(options, output, topic)
    catalog = section_connection("catalog", options, output) or catalog_of(options.catalog)
    output.keep(catalog)
    at_work = _at_work(kafka, options, _rest(options, output))
    reports = of_tables(
        kafka,
        catalog,
        control_topic=topic,
        connector=options.connector,
        group=options.group,
        branch=options.branch,
        names=options.table,
        commit=commits,
        by=decision_of(spoken(CONNECT_RESCUE), options.connector, options.reason).by,
    )
    for report in reports:
        values = {**report.to_dict(), "written": commits, "files": list(_files(report))}
        output.answer(values, _text(report, written=commits))
    if not output.as_json:
        none = f"{topic} has no announced files of {options.connector}"
        silent = sorted(set(options.table or ()) - {r.table for r in reports})
        output.lines([f"{none} for {name}" for name in silent] if silent or reports else [none])
        output.lines([f"nothing can be committed now: {at_work}"] if at_work else [])
    refused = any(r.missing or r.refusal is not None or r.left_out or r.unread for r in reports)
    return Exit.REFUSED if refused else Exit.DONE


def _at_work(kafka: Mapping[str, Any], request: Namespace, rest: ConnectRest | None) -> str | None:
    """Return why nothing may be committed now; a dry run is still allowed."""
    try:
        removed = request.connector_is_gone or request.dry_run
        check_stopped(kafka, request.connector, rest, group=request.group, stated_gone=removed)
    except ConnectorError as e:
        if not request.dry_run:
            raise
        return str(e)
    return None


def _files(report: RescueReport) -> Iterable[dict[str, Any]]:
    for j in report.files:
        yield {
            "path": j.file.path,
            "fate": j.disposition.value,
            "reason": j.reason,
            "rows": j.file.rows,
            "bytes": j.file.size,
            "partition": j.announced.position.partition,
            "offset": j.announced.position.offset,
            "connector_would_commit": j.disposition is Disposition.WAITING and not j.below_floor,
        }


def _text(report: RescueReport, *, written: bool) -> Iterable[str]:
    if report.missing:
        yield f"{report.table}: the table is not in the catalog; files were announced for it"
        return
    yield f"{report.table}:"
    yield from (f"  WARNING: the announcement of this event cannot be read: {text}" for text in report.unread)
    for disposition, sums in report.to_dict()["fates"].items():
        yield f"  {disposition}: {sums['files']} files, {sums['rows']} rows, {sums['bytes']} bytes"
    for j in report.files:
        if j.disposition is not Disposition.COMMITTED:
            yield f"    {j.disposition.value} {j.file.path} ({j.file.rows} rows): {j.reason}"
    waiting = report.of(Disposition.WAITING)
    later = sum(not j.below_floor for j in waiting)
    if later:
        yield f"  the connector commits {later} of the waiting files itself when it runs again"
    if report.refusal:
        yield f"  REFUSED: {report.refusal}"
    elif report.snapshot_ids:
        ids = ", ".join(map(str, report.snapshot_ids))
        yield f"  {len(report.committed)} files committed, in snapshot {ids}"
    elif waiting and not written:
        yield "  nothing is written: run it without --dry-run to commit the waiting files"
