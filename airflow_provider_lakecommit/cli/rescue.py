# SPDX-License-Identifier: Apache-2.0
"""`lakecommit rescue`: what became of the files that a connector announced, and, with `--commit`, their commit.

Contract: without `--commit` nothing is written, and the connector may be running. With it the connector must be stopped
or gone. Needs the brokers, the catalog and the storage; no landing, no Spark.

Ends with 1 if a table refuses, or if files are gone or their table is: somebody has to look at it.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from airflow_provider_lakecommit.connector.judge import Fate
from airflow_provider_lakecommit.connector.rescue import RescueReport
from airflow_provider_lakecommit.connector.rescue import rescue as of_tables
from airflow_provider_lakecommit.connector.rest import ConnectRest
from airflow_provider_lakecommit.connector.stopped import check_stopped
from airflow_provider_lakecommit.declared.spec_file import yaml_values
from airflow_provider_lakecommit.declared.variables import from_environment
from airflow_provider_lakecommit.exceptions import ConnectorError, SpecError
from airflow_provider_lakecommit.iceberg.settings import as_text
from airflow_provider_lakecommit.redaction import yaml_trouble
from airflow_provider_lakecommit.terminal.confirm import decision_of
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["catalog_of", "connect_of", "rescue"]

CONNECT_KEYS = ("url", "login", "password", "headers", "verify")


def catalog_of(path: str | None) -> dict[str, str]:
    """Catalog properties from a YAML file: a mapping of them, or a spec with the section `catalog`.

    :raises SpecError: it is neither, or none is given
    """
    if path is None:
        raise SpecError("give --catalog FILE, or --iceberg-conn-id of an Airflow connection")
    try:
        values = yaml_values(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise SpecError(f"--catalog {path}: cannot be read as YAML: {yaml_trouble(e)}") from None
    found = values.get("catalog", values) if isinstance(values, Mapping) else None
    if not isinstance(found, Mapping) or not found:
        raise SpecError(f"--catalog {path}: a mapping of pyiceberg's catalog properties is needed")
    return as_text({str(key): value for key, value in from_environment(found, f"--catalog {path}").items()})


def connect_of(url: str | None, path: str | None) -> dict[str, Any] | None:
    """How Kafka Connect is reached, as :class:`ConnectRest` takes it: its address, and a login from a YAML file.

    :raises SpecError: the file cannot be read, says something else, or no address is given
    """
    if path is None:
        return None if url is None else {"url": url}
    try:
        values = yaml_values(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise SpecError(f"--connect-config {path}: cannot be read as YAML: {yaml_trouble(e)}") from None
    if not isinstance(values, Mapping) or (wrong := sorted(map(str, set(values) - set(CONNECT_KEYS)))):
        named = f"unknown key {wrong[0]!r}; " if isinstance(values, Mapping) else ""
        raise SpecError(f"--connect-config {path}: {named}a mapping of {', '.join(CONNECT_KEYS)} is needed")
    found = {**from_environment(values, f"--connect-config {path}"), **({} if url is None else {"url": url})}
    if not isinstance(found.get("url"), str):
        raise SpecError(f"--connect-config {path}: give the address of a Kafka Connect worker, here or by --connect")
    headers = found.get("headers", {})
    if not isinstance(headers, Mapping) or not isinstance(found.get("verify", True), bool | str):
        raise SpecError(f"--connect-config {path}: `headers` is a mapping, `verify` true, false or a file")
    texts = {key: str(found[key]) for key in ("url", "login", "password") if found.get(key) is not None}
    return {**texts, "headers": {str(k): str(v) for k, v in headers.items()}, "verify": found.get("verify", True)}


def rescue(
    kafka: Mapping[str, Any],
    catalog: Mapping[str, str],
    output: Output,
    request: Namespace,
    connect: Mapping[str, Any] | None = None,
) -> int:
    """Look, and commit if that is asked for.

    :param request: the arguments of the command
    :param connect: how to ask Kafka Connect, as :func:`connect_of` has it

    :raises ConnectorError: `--commit` while the connector is at work
    :raises LakecommitError: a part that is needed is away, or refuses
    """
    rest = None if connect is None else ConnectRest(**connect)
    at_work = _at_work(kafka, request, rest)
    reports = of_tables(
        kafka,
        catalog,
        control_topic=request.control_topic,
        connector=request.connector,
        group=request.group,
        branch=request.branch,
        names=request.table,
        commit=request.commit,
        by=decision_of("rescue --commit", request.connector, request.reason).by,
    )
    for report in reports:
        if output.as_json:
            output.result({**report.to_dict(), "written": request.commit, "files": list(_files(report))})
        else:
            output.lines(_text(report, written=request.commit))
    if not reports and not output.as_json:
        output.lines([f"{request.control_topic} holds no announced files of {request.connector}"])
    if at_work and not output.as_json:
        output.lines([f"nothing could be committed now: {at_work}"])
    return Exit.REFUSED if any(_needs_a_hand(report) for report in reports) else Exit.DONE


def _at_work(kafka: Mapping[str, Any], request: Namespace, rest: ConnectRest | None) -> str | None:
    """Why nothing may be committed now; for a look that is no hindrance."""
    try:
        gone = request.connector_is_gone or not request.commit
        check_stopped(kafka, request.connector, rest, group=request.group, stated_gone=gone)
    except ConnectorError as e:
        if request.commit:
            raise
        return str(e)
    return None


def _needs_a_hand(report: RescueReport) -> bool:
    return report.missing or report.refusal is not None or bool(report.left_out)


def _files(report: RescueReport) -> Iterable[dict[str, Any]]:
    for j in report.judged:
        yield {
            "path": j.file.path,
            "fate": j.fate.value,
            "reason": j.reason,
            "rows": j.file.rows,
            "bytes": j.file.size,
            "partition": j.announced.place.partition,
            "offset": j.announced.place.offset,
            "connector_would_commit": j.fate is Fate.WAITING and not j.below_floor,
        }


def _text(report: RescueReport, *, written: bool) -> Iterable[str]:
    if report.missing:
        yield f"{report.table}: there is no such table in the catalog; files were announced for it"
        return
    yield f"{report.table}:"
    yield from (f"  WARNING: what this event announced cannot be read: {text}" for text in report.unread)
    for fate, sums in report.to_dict()["fates"].items():
        yield f"  {fate}: {sums['files']} files, {sums['rows']} rows, {sums['bytes']} bytes"
    for j in report.judged:
        if j.fate is not Fate.COMMITTED:
            yield f"    {j.fate.value} {j.file.path} ({j.file.rows} rows): {j.reason}"
    waiting = report.of(Fate.WAITING)
    later = sum(not j.below_floor for j in waiting)
    if later:
        yield f"  {later} of those that wait the connector commits itself when it runs again"
    if report.refusal:
        yield f"  REFUSED: {report.refusal}"
    elif report.snapshot_ids:
        ids = ", ".join(map(str, report.snapshot_ids))
        yield f"  {len(report.committed)} files committed, in snapshot {ids}"
    elif waiting and not written:
        yield "  nothing is written: the same with --commit commits those that wait"
