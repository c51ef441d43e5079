# SPDX-License-Identifier: Apache-2.0
"""Launchers of a slice's Spark jobs: in a process, through Spark Connect, or by ``spark-submit``."""
