# SPDX-License-Identifier: Apache-2.0
"""Land Kafka topics in Iceberg tables from Airflow: batch windows, one atomic commit, exactly once.

This module imports nothing: Airflow loads it in every process, Spark workers load it for every session.
"""

from __future__ import annotations

__version__ = "0.1.0"
