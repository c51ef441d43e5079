# SPDX-License-Identifier: Apache-2.0
"""Input and output: source topics, the control topic, tables, Spark; and the conversion of their libraries' values."""
