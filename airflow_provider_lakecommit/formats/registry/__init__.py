# SPDX-License-Identifier: Apache-2.0
"""The schema registry: its client, and the framing of registered records."""
