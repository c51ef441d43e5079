# SPDX-License-Identifier: Apache-2.0
"""Write: run the jobs of a window."""
