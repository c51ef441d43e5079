# SPDX-License-Identifier: Apache-2.0
"""`make demo`: real data, a killed Spark, an outage; a numbered screen of what held."""
