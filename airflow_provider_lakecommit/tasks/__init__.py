# SPDX-License-Identifier: Apache-2.0
"""What the tasks of operators have in common: their arguments, their time, their Spark jobs, the events they send."""
