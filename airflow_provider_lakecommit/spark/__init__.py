# SPDX-License-Identifier: Apache-2.0
"""The window job: read, decode, write and report slices. It imports nothing of Airflow."""
