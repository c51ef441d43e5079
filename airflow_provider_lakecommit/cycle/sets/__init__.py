# SPDX-License-Identifier: Apache-2.0
"""Many landings in one run: they share connections, Spark jobs and the tail of the control topic."""
