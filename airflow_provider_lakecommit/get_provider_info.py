# SPDX-License-Identifier: Apache-2.0
"""The provider info: one literal, which every Airflow process reads, so this module imports nothing.

The options of `[lakecommit]` are defined only here; the configuration page of the docs is generated from this dict.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

_INFO: dict[str, Any] = {
    "package-name": "airflow-provider-lakecommit",
    "name": "Lakecommit",
    "description": (
        "Lands Kafka topics in Iceberg tables in batch windows, exactly once: bounded-offset Spark tasks write the "
        "files, one atomic Iceberg commit publishes them."
    ),
    "versions": ["0.1.0"],
    "integrations": [
        {
            "integration-name": "Lakecommit",
            "external-doc-url": "https://iceberg.apache.org/",
            "tags": ["apache", "kafka", "iceberg", "spark"],
        }
    ],
    "operators": [
        {
            "integration-name": "Lakecommit",
            "python-modules": [
                "airflow_provider_lakecommit.operators.plan",
                "airflow_provider_lakecommit.operators.write",
                "airflow_provider_lakecommit.operators.commit",
                "airflow_provider_lakecommit.operators.outcome",
                "airflow_provider_lakecommit.operators.land",
                "airflow_provider_lakecommit.operators.backfill",
                "airflow_provider_lakecommit.operators.replay",
                "airflow_provider_lakecommit.operators.pause",
                "airflow_provider_lakecommit.operators.landing_operation",
                "airflow_provider_lakecommit.operators.maintenance",
                "airflow_provider_lakecommit.operators.verify",
                "airflow_provider_lakecommit.operators.kafka_connect",
            ],
        }
    ],
    "sensors": [
        {"integration-name": "Lakecommit", "python-modules": ["airflow_provider_lakecommit.sensors.stalled_commits"]}
    ],
    "hooks": [
        {
            "integration-name": "Lakecommit",
            "python-modules": [
                "airflow_provider_lakecommit.hooks.connections",
                "airflow_provider_lakecommit.hooks.kafka_connect",
                "airflow_provider_lakecommit.hooks.spark",
            ],
        }
    ],
    "triggers": [
        {
            "integration-name": "Lakecommit",
            "python-modules": [
                "airflow_provider_lakecommit.triggers.stalled_commits",
                "airflow_provider_lakecommit.triggers.ended_by_worker",
                "airflow_provider_lakecommit.triggers.commit_state",
                "airflow_provider_lakecommit.triggers.backlog",
            ],
        }
    ],
    "extra-links": [
        "airflow_provider_lakecommit.operators.links.TableLink",
        "airflow_provider_lakecommit.operators.links.SnapshotLink",
        "airflow_provider_lakecommit.operators.links.SparkLink",
        "airflow_provider_lakecommit.operators.links.ErrorLink",
    ],
    "notifications": [
        "airflow_provider_lakecommit.notifications.commits.CommitsStalledNotifier",
        "airflow_provider_lakecommit.notifications.commits.CommitsRecoveredNotifier",
    ],
    "config": {
        "lakecommit": {
            "description": "Settings of the landings of this Airflow deployment.",
            "options": {
                "deployment_id": {
                    "description": (
                        "Name of this Airflow deployment. It is part of every commit id, so two deployments that "
                        "run a DAG of the same name need two names. Never change it while a cycle is open."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "production-eu",
                    "default": "airflow",
                },
                "control_topic": {
                    "description": "Control topic of landings that name none.",
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": None,
                    "default": "control-lakecommit",
                },
                "page_topics": {
                    "description": (
                        "Control topics that the page Lake commits reads, as CONNECTION/TOPIC with commas between "
                        "them; a CONNECTION alone means `control_topic` there. By default that of `kafka_default`."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "kafka_default/control-orders, kafka_eu",
                    "default": "",
                },
                "page_actions": {
                    "description": (
                        "Has the page Lake commits offer what can be done about a landing: to pause and unpause its "
                        "DAGs, and to run DAGs that have a VerifyOperator for it, or a LandingOperationOperator that "
                        "publishes now or retries blocked ranges. Airflow's own API does it, with the rights of the "
                        "user, and logs who it was."
                    ),
                    "version_added": "0.1.0",
                    "type": "boolean",
                    "example": None,
                    "default": "False",
                },
                "location_providers": {
                    "description": (
                        "Classes (module.Class, with blanks or commas between them) that tables may name in "
                        "`write.py-location-provider.impl`, for all landings; those of pyiceberg need no word. They "
                        "are imported where files are written, beside all credentials, so that a table may not just "
                        "name any."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "acme.lake.DailyFolders",
                    "default": "",
                },
                "signing_key": {
                    "description": (
                        "Key by which control records are signed, of 32 characters or more; landings then believe no "
                        "record of theirs that is not signed by it. A Kafka connection may hold one of its own as "
                        "`lakecommit.signing.key` in its extra. Also `${NAME}` of the environment or "
                        "`${file:/path}`. Without a key, whoever may write to the control topic can mislead landings."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "sensitive": True,
                    "example": None,
                    "default": "",
                },
                "signing_key_other": {
                    "description": (
                        "A second key that is accepted and signs nothing, while keys are changed "
                        "(`lakecommit.signing.key.other` in a connection)."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "sensitive": True,
                    "example": None,
                    "default": "",
                },
                "unsigned_below": {
                    "description": (
                        "Where control records of the time before the key are believed without a signature: below "
                        "these offsets, as `TOPIC_ID/PARTITION:OFFSET` with commas between them. `lakecommit doctor` "
                        "tells a landing's own; take them out when those records are landed."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "xYk2…/3:1804",
                    "default": "",
                },
                "table_url": {
                    "description": (
                        "Where people look at a table, for the links `Table` and `Snapshot` of a task. `{table}`, "
                        "`{catalog}` (id of its connection), `{landing}` and `{snapshot_id}` (empty for a table) are "
                        "put in. Without it there are no such links."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "https://lake.example/tables/{table}?snapshot={snapshot_id}",
                    "default": "",
                },
                "spark_url": {
                    "description": (
                        "Where people look at Spark, for the link `Spark` of a task. `{connection}` (id), `{landing}`, "
                        "`{table}` and `{catalog}` are put in."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "https://spark.example/{connection}/connect/",
                    "default": "",
                },
                "docs_url": {
                    "description": (
                        "The page of errors of this documentation, for the link `What helps` of a task that failed. "
                        "`{error}` and `{anchor}` (its place on the page) are put in."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "https://docs.example/lakecommit/errors.html#{anchor}",
                    "default": "",
                },
                "api_conn_id": {
                    "description": (
                        "Connection (type `http`) to Airflow's own API server, by which the last task of a landing "
                        "writes one line into the note of its run: what was landed, or why nothing was. Host; login "
                        "and password of a user who may edit DAG runs, or a token as password alone. Without it runs "
                        "have no note: a task itself may not write one."
                    ),
                    "version_added": "0.1.0",
                    "type": "string",
                    "example": "airflow_api",
                    "default": "",
                },
                "preload": {
                    "description": (
                        "Whether a scheduler with a LocalExecutor loads the libraries of landings before it forks "
                        "the processes that run tasks: 75 MB that all of them share, and a run of a landing that "
                        "is shorter by seconds. Read when the scheduler starts."
                    ),
                    "version_added": "0.1.0",
                    "type": "boolean",
                    "example": None,
                    "default": "True",
                },
                "spark_grace_seconds": {
                    "description": (
                        "How long a Spark job may take after a request to stop to report the slices it has finished "
                        "before it is ended by force."
                    ),
                    "version_added": "0.1.0",
                    "type": "integer",
                    "example": None,
                    "default": "20",
                },
            },
        }
    },
}


def get_provider_info() -> dict[str, Any]:
    """Target of the entry point `apache_airflow_provider`."""
    return deepcopy(_INFO)
