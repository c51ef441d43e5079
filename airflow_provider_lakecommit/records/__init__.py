# SPDX-License-Identifier: Apache-2.0
"""What stands between the values of records and the rows of tables, beside the format: which table takes a record."""
