# SPDX-License-Identifier: Apache-2.0
"""A sink of Kafka Connect: rescue its files, take its tables over, hand them back."""
