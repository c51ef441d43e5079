# SPDX-License-Identifier: Apache-2.0
"""Do commits come through? Events to state, state to verdict, and what a guard makes of it."""
