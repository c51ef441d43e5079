# SPDX-License-Identifier: Apache-2.0
"""What a registry knows of a landing's topics: their subjects, and the columns that these come to."""
