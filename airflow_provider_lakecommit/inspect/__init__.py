# SPDX-License-Identifier: Apache-2.0
"""What a person asks to see: where a landing stands, and whether the history of its tables adds up. Writes nothing."""
