# SPDX-License-Identifier: Apache-2.0
"""The Airflow operators of a commit cycle. They read, let :mod:`~airflow_provider_lakecommit.core` decide, and act.

Import them from their modules; this package itself imports nothing, so that parsing a DAG costs only what it uses.
"""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "base": "LandingTask declared_of landing_of no_retry_in_vain task_doc",
        "commit": "LakeCommitOperator",
        "outcome": "OutcomeOperator",
        "plan": "PlanWindowOperator",
        "tasks.arguments": "mapping_of refuse_unknown",
        "write": "MAP_INDEX_TEMPLATE WriteWindowOperator",
    },
)
