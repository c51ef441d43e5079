# SPDX-License-Identifier: Apache-2.0
"""A landing goes on in the table of a Kafka Connect sink, from exactly where that has committed, and hands it back."""
