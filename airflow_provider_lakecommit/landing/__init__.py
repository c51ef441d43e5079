# SPDX-License-Identifier: Apache-2.0
"""What a user declares, as Python or YAML: a landing, a set of landings, and the checks of both.

Pure, and without a heavy library, so that an Airflow process can afford it.
"""

from airflow_provider_lakecommit.core.lazy import lazy_names
from airflow_provider_lakecommit.landing.landing import (
    DEFAULT_CONTROL_TOPIC,
    MARK_COLUMNS,
    METADATA_COLUMNS,
    Landing,
    LandingSpec,
    load_spec,
)
from airflow_provider_lakecommit.landing.landing_set import LandingSet, LandingSetSpec, declares_set, load_set
from airflow_provider_lakecommit.landing.sections import (
    Backpressure,
    Columns,
    Connections,
    DeadLetters,
    Format,
    Maintain,
    Publish,
    Transform,
    Upsert,
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
    "Format",
    "Landing",
    "LandingSet",
    "LandingSetSpec",
    "LandingSpec",
    "Maintain",
    "Publish",
    "Transform",
    "Upsert",
    "Window",
    "declares_set",
    "load_set",
    "load_spec",
]

__getattr__ = lazy_names(
    __name__,
    {
        "checks": "CHECKS ENCODINGS",
        "landing_set": "TOPIC fields_of filled_template",
        "names": "meant mistaken nearest",
        "registry": (
            "LOGIN PREFIX UNKNOWN_WAIT addresses_in registry_settings shown_address unknown_wait "
            "with_login_apart with_numbers with_registry"
        ),
        "row_checks": "RowCheck",
        "options": "merged",
        "connected": "SPARK_KEYS wrong_with_spark",
        "yaml_file": "from_environment yaml_values",
        "table": "RESERVED wrong_with_table",
        "times": "EXAMPLES duration_of seconds_of span_of",
        "type_text": "parse_type sizes_of",
        "transform_checks": "DELETED ENVELOPE_ROOTS IMAGES PAYLOAD columns_of_unwrap",
        "upsert": "HARD IGNORE IS_DELETED SOFT require_appends require_traces wrong_columns",
        "value_sections": "columns_of_key",
    },
)
