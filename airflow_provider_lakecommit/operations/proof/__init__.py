# SPDX-License-Identifier: Apache-2.0
"""Proof of a landing's rows against its source: `lakecommit verify --source`."""
