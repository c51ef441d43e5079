# SPDX-License-Identifier: Apache-2.0
"""What landings tell the outside: metrics, lineage, hours of asset events. Nothing here can fail or hold a task."""
