# SPDX-License-Identifier: Apache-2.0
"""The page "Lake commits" of the Airflow UI, and the status API that it is drawn from."""
