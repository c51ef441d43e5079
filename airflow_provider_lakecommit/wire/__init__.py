# SPDX-License-Identifier: Apache-2.0
"""Bytes and dicts ↔ values: control events, record headers, plans, the ledger. Standard library and fastavro only."""
