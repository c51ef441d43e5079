# SPDX-License-Identifier: Apache-2.0
"""A sink of Kafka Connect: rescue what it has reported, take its topics over, hand them back."""
