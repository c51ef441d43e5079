# SPDX-License-Identifier: Apache-2.0
"""What knows Airflow's connections: brokers, catalogs and engines by connection id, spark-submit, Kafka Connect."""
