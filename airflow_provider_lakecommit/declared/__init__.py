# SPDX-License-Identifier: Apache-2.0
"""What people write down, read and checked where a DAG is parsed: names, times, types, tables, variables.

Pure, and without a library, so that an Airflow process can afford it.
"""
