# SPDX-License-Identifier: Apache-2.0
"""What a user declares, as Python or YAML: a landing, a set of landings, and the checks of both.

Pure, and without a heavy library, so that an Airflow process can afford it.
"""

from airflow_provider_lakecommit.landing.landing import (
    DEFAULT_CONTROL_TOPIC,
    MARK_COLUMNS,
    METADATA_COLUMNS,
    Landing,
    LandingSpec,
    load_spec,
    sections_of,
)
from airflow_provider_lakecommit.landing.landing_set import LandingSet, LandingSetSpec, declares_set, load_set
from airflow_provider_lakecommit.landing.sections import (
    Backpressure,
    Columns,
    Connections,
    DeadLetters,
    Decoding,
    Transform,
    Window,
)

__all__ = [
    "DEFAULT_CONTROL_TOPIC",
    "MARK_COLUMNS",
    "METADATA_COLUMNS",
    "Backpressure",
    "Columns",
    "Connections",
    "DeadLetters",
    "Decoding",
    "Landing",
    "LandingSet",
    "LandingSetSpec",
    "LandingSpec",
    "Transform",
    "Window",
    "declares_set",
    "load_set",
    "load_spec",
    "sections_of",
]
