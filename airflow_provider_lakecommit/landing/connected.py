# SPDX-License-Identifier: Apache-2.0
"""A YAML spec: what it declares, and the sections in place of connections.

Contract: the caller makes the declared object (a landing or a set). This module checks its keys, fills in the variables
of the environment, and reads the needed sections. All mistakes are reported together. A file with a schema is read
once, with its spec, so that a landing holds the schema itself; a changed file gives another spec version. Names of such
files are relative to the spec.

The section `spark` is checked before anything is started there. Only the form of a master is checked; Spark decides if
it exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing.checks import unknown_keys
from airflow_provider_lakecommit.landing.names import meant, mistaken, nearest
from airflow_provider_lakecommit.landing.registry import with_registry
from airflow_provider_lakecommit.landing.yaml_file import Variables, filled_field, read_yaml
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.signing import resolved

SECTIONS = ("kafka", "catalog", "spark")
REGISTRY = "registry"
"""An optional section."""
_ALL = (*SECTIONS, REGISTRY)
_SCHEMA_FILES = (".avsc", ".proto")
T = TypeVar("T")


def read_connected(
    path: str | Path,
    kinds: Mapping[str, str],
    make: Callable[[Mapping[str, Any]], T],
    hint: Callable[[str, Collection[str]], str],
    *,
    connections: bool,
    elsewhere: Collection[str],
) -> tuple[T, dict[str, Any]]:
    """Return what a YAML spec declares, and its sections as connections take them, with the registry's settings among
    the brokers', next to the secret environment ``variables`` that it names.

    :param kinds: the keys that may be declared, and their annotations
    :param make: makes the declared object
    :param hint: returns the end of the message about an unknown key, given the known ones
    :param connections: require the sections that stand in for Airflow connections
    :param elsewhere: sections that the caller has from elsewhere
    :raises SpecError: unreadable file, no mapping, or anything that *make* refuses; all mistakes together
    """
    values = read_yaml(path)
    for key, value in values.items():
        if key not in kinds and isinstance(value, dict) and len(kinds.keys() & value.keys()) > 1:
            moved = f"move the keys below {key!r} to the top of the file, next to kafka, catalog and spark [LC1226]"
            raise mistaken(f"spec {path}", [moved])
    sections = {s: values.pop(s, None) or {} for s in _ALL}
    wrong = [f"section {s!r} must be a mapping [LC1126]" for s, v in sections.items() if not isinstance(v, dict)]
    needed = [s for s in _ALL if connections and s not in elsewhere]
    if "kafka" in needed and isinstance(sections["kafka"], dict) and "bootstrap.servers" not in sections["kafka"]:
        near = nearest("bootstrap.servers", [*map(str, sections["kafka"])], 1, 0.8)
        wrong.append(f"section 'kafka' lacks 'bootstrap.servers'{f', it has {near[0]!r}' if near else ''} [LC1221]")
    wrong += unknown_keys(values, kinds, lambda key: hint(key, (*kinds, *_ALL)))
    variables = Variables(values=os.environ)
    stated = {key: filled_field(variables, key, values[key], kinds[key]) for key in values if key in kinds}
    if isinstance(format_ := stated.get("format"), dict):
        for key in {"schema", "reader_schema"} & format_.keys():
            format_[key], unread = _schema_of_file(f"format.{key}", format_[key], Path(path).parent)
            wrong += unread
    # An unused section may name variables that only another machine has.
    sections |= {s: variables.filled(sections[s], s) for s in needed}
    wrong += variables.wrong
    if "spark" in needed and isinstance(sections["spark"], dict):
        wrong += wrong_with_spark(sections["spark"])
    try:
        declared = make(stated)
    except SpecError as e:
        problems = (redacted(mistake, variables.secret) for mistake in e.mistakes)
        raise mistaken(f"spec {path}", [*wrong, *problems]) from None
    if wrong:
        raise mistaken(f"spec {path}", wrong)
    if "kafka" in needed:
        sections["kafka"] = resolved(sections["kafka"])
    taken = {name: sections[name] for name in SECTIONS}
    taken["kafka"] = with_registry(taken["kafka"], sections[REGISTRY])
    return declared, {**taken, "variables": variables.secret}


def _schema_of_file(key: str, stated: Any, folder: Path) -> tuple[Any, list[str]]:
    """Return the schema under a key, or in the file that it names; and the mistakes in it."""
    if not isinstance(stated, str) or "\n" in stated or not stated.endswith(_SCHEMA_FILES):
        return stated, []
    try:
        return (folder / stated).read_text(encoding="utf-8"), []
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        return "", [f"{key}: {stated!r} cannot be read: {why} [LC1148]"]


SPARK_KEYS = ("master", "conf", "remote")

_MASTER = re.compile(r"local(\[[^\[\]]+\])?|local-cluster\[[^\[\]]+\]|yarn|[a-z][a-z0-9+.-]*://\S+")
_REMOTE = re.compile(r"sc://\S+")


def wrong_with_spark(section: Mapping[str, Any]) -> list[str]:
    """Return the mistakes of a section, one text each."""
    master, conf, remote = (section.get(key) for key in SPARK_KEYS)
    wrong = [
        f"section 'spark': unknown key {key!r}{meant(str(key), SPARK_KEYS)}; allowed are "
        f"{', '.join(SPARK_KEYS)} [LC1151]"
        for key in section
        if key not in SPARK_KEYS
    ]
    if master is not None and not (isinstance(master, str) and _MASTER.fullmatch(master)):
        wrong.append(
            f"section 'spark': `master` {master!r} is not one of local, local[4], local[*], spark://host:7077, yarn, "
            "k8s://https://host:port [LC1152]"
        )
    if remote is not None and not (isinstance(remote, str) and _REMOTE.fullmatch(remote)):
        wrong.append(
            f"section 'spark': `remote` {remote!r} is not the address of a Spark Connect server: "
            "sc://host:15002 [LC1153]"
        )
    if not (conf is None or isinstance(conf, Mapping)):
        wrong.append("section 'spark': `conf` must be a mapping [LC1154]")
    if remote is not None and master is not None:
        wrong.append("section 'spark': give either `master` or `remote` [LC1155]")
    elif remote is not None and conf:
        wrong.append("section 'spark': remove `conf`: the server of `remote` has its own settings [LC1156]")
    return wrong
