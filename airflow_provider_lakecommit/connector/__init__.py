# SPDX-License-Identifier: Apache-2.0
"""Care for Kafka Connect sinks: their REST face, the files they announced, and what may be committed in their place."""
