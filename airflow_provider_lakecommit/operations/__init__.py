# SPDX-License-Identifier: Apache-2.0
"""What a person starts beside the cycles: each operation shows what it would do, and does it as one commit or cycle."""
