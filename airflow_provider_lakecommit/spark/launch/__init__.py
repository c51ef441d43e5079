# SPDX-License-Identifier: Apache-2.0
"""How the Spark jobs of a slice are started: in a process, through Spark Connect, by ``spark-submit``."""
