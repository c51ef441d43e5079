# SPDX-License-Identifier: Apache-2.0
"""Many landings of one declaration: which there are, and what they share when they work at once."""
