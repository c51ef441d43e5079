# SPDX-License-Identifier: Apache-2.0
"""What knows Airflow's connections: brokers, catalogs and engines by connection id, spark-submit, Kafka Connect."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "connections": "catalog_properties connection kafka_settings master_url registry_connection source_settings",
        "engines": "CONNECT connect_url engine_of",
        "kafka_connect": "KafkaConnectHook rest_settings",
        "run_note": "note_run",
        "secrets": "hide without_secrets",
        "settings": "Settings",
        "spark": "SparkSubmit",
    },
)
