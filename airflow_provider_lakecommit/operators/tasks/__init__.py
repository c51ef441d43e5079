# SPDX-License-Identifier: Apache-2.0
"""What several operators share: arguments, deadlines, asset events, the jobs of a window."""
