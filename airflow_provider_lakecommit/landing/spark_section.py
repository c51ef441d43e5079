# SPDX-License-Identifier: Apache-2.0
"""Checks of the section `spark` of a spec, before anything is started there.

Contract: pure. All mistakes are reported together. Only the form of a master is checked; Spark decides if it exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.landing.names import meant

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
