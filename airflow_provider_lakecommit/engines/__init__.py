# SPDX-License-Identifier: Apache-2.0
"""How a window's jobs run: a local session, spark-submit's package, a Spark Connect server."""
