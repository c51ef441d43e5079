# SPDX-License-Identifier: Apache-2.0
"""Everything that a landing needs, checked at once before it runs."""
