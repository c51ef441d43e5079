# SPDX-License-Identifier: Apache-2.0
"""`lakecommit history --control-topic`: every record of a control topic, of landings and connectors, decoded in full.

Needs brokers only. Records that are no control event, or have a corrupt header of ours, are shown with their bytes;
records that a landing's readers would ignore are shown with the reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from airflow_provider_lakecommit.cli.terminal.output import Exit, Output, plain
from airflow_provider_lakecommit.control import ControlEventError, ControlRecord, ControlTopic, decode, entry_of, head
from airflow_provider_lakecommit.control import headers as our_headers
from airflow_provider_lakecommit.core import LIVE, SliceReported, Unreadable, group_id, report_problem
from airflow_provider_lakecommit.exceptions import SpecError, WireError
from airflow_provider_lakecommit.landing import DEFAULT_CONTROL_TOPIC, LandingSpec, from_environment, yaml_values
from airflow_provider_lakecommit.redaction import yaml_trouble

_OURS = frozenset({our_headers.HEADER, our_headers.CORRUPT_HEADERS, our_headers.CORRUPT_BATCH})


def source_of(
    spec: LandingSpec | None,
    *,
    bootstrap: str | None,
    topic: str | None,
    config_file: str | None,
    connection: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], str]:
    """Return brokers and topic: from the arguments if they name them, otherwise from the spec.

    :param connection: settings of an Airflow connection, instead of the spec's
    """
    kafka: dict[str, Any] = dict(connection) if connection is not None else dict(spec.kafka) if spec else {}
    if config_file is not None:
        values = yaml_of(config_file, "--kafka-config")
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise SpecError("LC8004", f"--kafka-config {config_file}: use a mapping of librdkafka settings")
        kafka.update(from_environment(values, f"--kafka-config {config_file}"))
    if bootstrap is not None:
        kafka["bootstrap.servers"] = bootstrap
    if not kafka.get("bootstrap.servers"):
        raise SpecError("LC8003", "give a spec, --dag, or --bootstrap (or --kafka-conn-id) and a topic")
    return kafka, topic or (spec.landing.control_topic_name if spec else DEFAULT_CONTROL_TOPIC)


def yaml_of(path: str, option: str) -> Any:
    """Return the content of a file that an option names."""
    try:
        return yaml_values(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise SpecError("LC8005", f"{option} {path}: cannot be parsed as YAML: {yaml_trouble(e)}") from None


def control_log(kafka: Mapping[str, Any], topic: str, output: Output, *, group: str | None) -> int:
    with ControlTopic(topic, kafka) as control:
        for record in control.read_all():
            shown = to_dict(record)
            if group is not None and shown.get("event", {}).get("group_id") != group:
                continue
            output.answer(shown, _text(shown))
    return Exit.DONE


def to_dict(record: ControlRecord) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp.isoformat(),
        "key": None if record.key is None else _readable(record.key),
        "headers": [{"name": name, "value": _header(name, value)} for name, value in record.headers],
        **_value(record.value),
        **_passed_over(record),
    }


def _passed_over(record: ControlRecord) -> dict[str, str]:
    """Return why the readers of a landing ignore a record of it."""
    if not any(name in _OURS for name, _ in record.headers):
        return {}
    landing, lane = "", LIVE
    with suppress(WireError):
        landing = head(record.value or b"").group_id.removeprefix(group_id(""))
        lane = str((our_headers.find(record.headers) or {}).get("lane"))
    entry = entry_of(record, landing, lane)
    found = entry.reason if isinstance(entry, Unreadable) else None
    if isinstance(entry, SliceReported):
        found = report_problem(entry.report, ())
    return {} if found is None else {"quarantined": found}


def _value(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"foreign": "a tombstone: a record without a value"}
    try:
        event = decode(value)
    except ControlEventError as e:
        return {"foreign": str(e), "size": len(value), "value": _readable(value)}
    payload = _jsonable(event.payload)
    head = {"id": str(event.id), "type": event.type.name, "timestamp": event.timestamp.isoformat()}
    return {"event": {**head, "group_id": event.group_id, **payload}}


def _header(name: str, value: bytes) -> Any:
    if name != our_headers.HEADER:
        return _readable(value)
    try:
        return our_headers.find([(name, value)])
    except WireError as e:
        return {"damaged": str(e), "value": _readable(value)}


def _readable(value: bytes) -> str:
    """Return text as text, anything else as hex that does not look like text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"


def _jsonable(value: Any) -> Any:
    match value:
        case float() if not isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): _jsonable(each) for key, each in value.items()}
        case tuple() | list():
            return [_jsonable(each) for each in value]
        case _ if dataclasses.is_dataclass(value):
            return {f.name: _jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _:
            return plain(value)


def _text(shown: Mapping[str, Any]) -> Iterator[str]:
    event = dict(shown.get("event", {}))
    aside = {"QUARANTINED": shown.get("quarantined")}
    what = f"{event.pop('type')} {event.pop('group_id')}" if event else f"NOT A CONTROL EVENT: {shown['foreign']}"
    yield f"{shown['partition']}@{shown['offset']} {shown['timestamp']} {what}"
    yield from _fields({**aside, "key": shown["key"], **{f"header {h['name']}": h["value"] for h in shown["headers"]}})
    yield from _fields(event or {"value": shown.get("value")})


def _fields(values: Mapping[str, Any]) -> Iterable[str]:
    for name, value in values.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"    {name}: {len(value)}"
            yield from (f"      {json.dumps(each, ensure_ascii=False)}" for each in value)
        elif value is not None:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"    {name}: {shown}"
