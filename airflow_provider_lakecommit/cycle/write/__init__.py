# SPDX-License-Identifier: Apache-2.0
"""Write: the jobs of a window are run."""
