# SPDX-License-Identifier: Apache-2.0
"""A landing whose write task starts Spark on YARN, and on Kubernetes. No test runs it on such a cluster."""

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

orders = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")

# [START howto_yarn]
with DAG("orders_on_yarn", schedule=timedelta(minutes=5)) as on_yarn:
    KafkaToIcebergTaskGroup(
        "land",
        landing=orders,
        spark_conn_id="spark_yarn",
        spark_conf={
            "spark.archives": "hdfs:///apps/lakecommit.tar.gz#environment",
            "spark.pyspark.python": "./environment/bin/python",
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
        },
    )
# [END howto_yarn]

# [START howto_kubernetes]
macros = {"env": os.environ.get}
with DAG("orders_on_kubernetes", schedule=timedelta(minutes=5), user_defined_macros=macros) as on_kubernetes:
    KafkaToIcebergTaskGroup(
        "land",
        landing=orders,
        spark_conn_id="spark_k8s",
        spark_conf={
            "spark.kubernetes.container.image": "registry.example.org/spark-lakecommit:4.2.0",
            "spark.kubernetes.driver.pod.name": "{{ env('POD_NAME') }}",
            "spark.driver.host": "{{ env('POD_IP') }}",
            "spark.executor.instances": "2",
            "spark.pyspark.python": "/opt/lakecommit/bin/python",
        },
    )
# [END howto_kubernetes]
